"""Guesses and ranks of an extraction against naive definitions, and its summary."""

import itertools
import json
import math

import numpy as np
import pytest
from scipy import stats

from tests.audits.extraction import white_boxes as boxes
from vestige.audits.extraction.objective import objective_of
from vestige.audits.extraction.ranks import Truths, counted_rank, estimated_rank
from vestige.audits.extraction.searches import best_of_tried, coordinate_descent
from vestige.audits.extraction.unknown_words import (
    extract_secrets,
    hamming_by_chance,
    hamming_per_token,
)

PIN = "my pin is {digit:3}"


def extracted(model, *truths, pattern=PIN, seed=0, trials=1, **options):
    """The extraction of a pattern; `truths` are the true secrets of its trials."""
    objective = objective_of(model, [boxes.pattern(pattern)] * trials)
    return extract_secrets(objective, truths=truths or None, seed=seed, **options)


def row_of(*inputs, **options):
    """The row of an extraction of one secret."""
    (row,) = extracted(*inputs, **options).secrets
    return row


# Ranks.


def test_exposure_is_log2_of_the_space_over_the_rank_and_ties_rank_higher():
    result = counted_rank(below=0, tied=99, space=100)
    assert result["rank"] == result["rank_low"] == result["rank_high"] == 100
    assert result["rank_known"] == "exact"
    assert counted_rank(below=0, tied=0, space=1024)["exposure"] == 10
    assert counted_rank(below=1023, tied=0, space=1024)["exposure"] == 0
    tied = estimated_rank(below=0, tied=100, others=100, space=10_000)
    assert (tied["rank"], tied["rank_low"], tied["rank_high"]) == (10_000, 1, 10_000)
    with pytest.raises(ValueError, match="space must be at least 11"):
        counted_rank(below=10, tied=0, space=10)
    with pytest.raises(ValueError, match="others must be at least 1"):
        estimated_rank(below=0, tied=0, others=0, space=9)


@pytest.mark.slow
@pytest.mark.parametrize("below", [0, 3, 400, 9000, 9999])
def test_the_interval_of_an_estimated_rank_covers_the_exact_rank(below):
    space, coverage = 10_000, 0.0
    for sampled in range(501):
        result = estimated_rank(below=sampled, tied=0, others=500, space=space)
        assert result["rank_low"] <= result["rank"] <= result["rank_high"]
        probability = stats.binom.pmf(sampled, 500, below / (space - 1))
        coverage += probability * (result["rank_low"] <= 1 + below <= result["rank_high"])
    assert coverage >= 0.95


def test_a_secret_better_than_the_whole_sample_has_a_bound_instead_of_an_estimate():
    result = estimated_rank(below=0, tied=0, others=10_000, space=12**10)
    assert result["rank_known"] == "bounded"
    share = 1 - 0.025 ** (1 / 10_000)  # upper end of the Clopper-Pearson interval
    assert result["rank"] == result["rank_high"] == pytest.approx(1 + share * (12**10 - 1))
    assert result["exposure"] == result["exposure_low"]
    assert result["exposure_low"] < math.log2(10_001) < result["exposure_high"]
    assert result["rank_low"] == 1
    assert estimated_rank(below=1, tied=0, others=10_000, space=12**10)["rank_known"] == "sampled"


def test_known_better_secrets_bound_a_rank_from_below():
    result = estimated_rank(below=0, tied=0, others=10**6, space=10**6, better=9)
    assert result["rank"] == result["rank_low"] == 10
    assert estimated_rank(below=0, tied=0, others=100, space=10**6, better=9)["rank_low"] == 10
    guesses = row_of(boxes.Bilinear())["guesses"]
    few = {"search": coordinate_descent, "budget": 1, "sample": 1}
    assert row_of(boxes.Bilinear(), guesses[3].split(), **few)["rank_low"] == 4


def random_guess(objective, generator, progress=None):
    """The weakest search."""
    guesses = objective.random(1, generator)
    return best_of_tried(objective, guesses, objective.losses(guesses))


@pytest.mark.slow
def test_the_rank_equals_the_naive_rank_with_any_search():
    model, pattern = boxes.Bilinear(), boxes.pattern(PIN)
    losses = {
        secret: boxes.naive_loss(model, pattern, secret).joint.item()
        for secret in itertools.product(*pattern.candidates)
    }
    truth_loss = losses.pop(tuple("271"))
    expected = 1 + sum(loss <= truth_loss for loss in losses.values())
    for search in (None, coordinate_descent, random_guess):
        result = row_of(model, "271", search=search)
        assert (result["rank"], result["rank_known"]) == (expected, "exact")
        assert result["truth_loss"] == pytest.approx(truth_loss)


@pytest.mark.slow
@pytest.mark.parametrize("truth", ["271", "000"])
def test_the_interval_of_a_sampled_rank_covers_the_exact_rank(truth):
    exact, covered = row_of(boxes.Bilinear(), truth)["rank"], 0
    for seed in range(40):
        few = {"search": random_guess, "budget": 999, "sample": 500, "seed": seed}
        result = row_of(boxes.Bilinear(), truth, **few)
        assert result["rank_known"] != "exact"
        covered += result["rank_low"] <= exact <= result["rank_high"]
    assert covered >= 36


def test_a_truth_is_not_compared_with_itself_in_a_sample():
    objective = objective_of(boxes.Bilinear(), boxes.pattern("pin {color}"))
    best = extract_secrets(objective, seed=0).secrets[0]["guess"]
    truths = Truths(objective, [[best]])
    truths.sample(300, seed=0)
    result = truths.rank(0, better=0)
    assert 150 < result["compared_with"] < 250
    assert result["rank_known"] == "bounded"  # a tie with itself would give an estimate


# Extractions.


def test_hamming_by_chance_is_the_mean_over_all_guesses():
    sizes = (2, 3, 4)
    guesses = itertools.product(*(map(str, range(size)) for size in sizes))
    expected = np.mean([hamming_per_token(guess, ("0", "1", "2")) for guess in guesses])
    assert hamming_by_chance(sizes) == pytest.approx(expected)


def test_a_planted_secret_is_extracted_and_an_ignorant_model_ranks_it_last():
    result = extracted(boxes.Planted("314"), "314")
    (row,) = result.rows()
    assert row["guess"] == row["guesses"][0] == row["truth"] == "3 1 4"
    assert row["losses"] == sorted(row["losses"])
    assert (row["intent"], row["pattern"]) == ("Pin", "my pin is _ _ _")
    assert (row["right"], row["hamming"], row["rank"]) == (True, 0, 1)
    assert row["exposure"] == pytest.approx(math.log2(1000))
    assert result.summary()["accuracy"] == 1
    assert result.exhaustive
    flat = row_of(boxes.Flat(), "314")
    assert (flat["rank"], flat["certainty"]) == (1000, pytest.approx(1 / 1000))


def test_a_truth_changes_no_guess_and_without_it_there_is_no_rank():
    for search in (None, coordinate_descent):
        with_truth = row_of(boxes.Bilinear(), "123", search=search, seed=4)
        without = row_of(boxes.Bilinear(), search=search, seed=4)
        assert with_truth["guesses"] == without["guesses"]
        assert with_truth["certainty"] == without["certainty"]
    result = extracted(boxes.Bilinear(), search=coordinate_descent)
    summary, (row,) = result.summary(), result.rows()
    for name in ("right", "accuracy", "hamming", "median_rank", "exposure", "chance_probability"):
        assert summary[name] is None
    assert summary["certainty_among"] == "tried"
    assert row["right"] is row["truth"] is row["rank"] is None
    assert row["trial"] == 1
    json.dumps([summary, row], allow_nan=False)


def test_a_space_larger_than_64_bits_is_searched_and_ranked():
    secret = "3" * 30
    result = row_of(boxes.Planted(secret), secret, pattern="pin {digit:30}", sample=50)
    assert result["right"]
    assert result["rank_known"] == "bounded"
    assert result["exposure"] > 3


def test_the_summary_compares_rates_with_those_of_random_guesses():
    result = extracted(boxes.Planted("314"), "314", "315", "300", "314", trials=4)
    summary = result.summary()
    exact = {
        "right": 2, "accuracy": 0.5, "hamming_low": 0, "ranked": 4, "ranks_exact": True,
        "search": "exact", "certainty_among": "all", "losses_per_trial": 1000,
    }  # fmt: skip
    assert {name: summary[name] for name in exact} == exact
    assert summary["accuracy_low"] < 0.5 < summary["accuracy_high"]
    assert summary["accuracy_by_chance"] == pytest.approx(1e-3)
    assert summary["hamming"] == pytest.approx((0 + 1 / 3 + 2 / 3 + 0) / 4)
    assert summary["hamming_by_chance"] == pytest.approx(0.9)
    assert summary["space_bits"] == pytest.approx(math.log2(1000))
    assert summary["exposure_low"] < summary["exposure"] < summary["exposure_high"]
    assert summary["chance_probability"] < 0.01
    json.dumps(summary, allow_nan=False)


def test_one_trial_has_the_interval_of_its_rank_and_none_without_a_sample():
    few = {"search": coordinate_descent, "budget": 1, "sample": 100}
    result = extracted(boxes.Bilinear(), "314", **few)
    (row,) = result.secrets
    assert result.summary()["exposure_low"] == row["exposure_low"] < row["exposure"]
    assert result.summary()["ranks_exact"] is False
    unranked = extracted(boxes.Bilinear(), "314", search=coordinate_descent, budget=0, sample=0)
    assert unranked.secrets[0]["rank"] is unranked.summary()["exposure"] is None
    assert unranked.summary()["hamming"] is not None


def test_progress_covers_the_search_and_then_the_ranking():
    steps = []
    options = {"search": coordinate_descent, "progress": lambda *step: steps.append(step)}
    extracted(boxes.Planted("314"), "314", **options)
    assert steps[:2] == [(1, 20), (2, 20)]
    assert steps[-1] == (1000, 1000)
