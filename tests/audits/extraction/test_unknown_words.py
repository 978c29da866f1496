"""Guesses and ranks of an extraction, by naive definitions, and its summary."""

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
    """The extraction of a pattern; `truths` of its trials."""
    asked = [boxes.pattern(pattern)] * trials
    return extract_secrets(objective_of(model, asked), truths=truths or None, seed=seed, **options)


def row_of(*given, **options):
    """The only secret of an extraction."""
    (row,) = extracted(*given, **options).secrets
    return row


# Ranks.


def test_exposure_is_the_bits_of_the_space_less_those_of_the_rank_and_ties_count_against_it():
    result = counted_rank(below=0, tied=99, space=100)
    assert result["rank"] == result["rank_low"] == result["rank_high"] == 100
    assert counted_rank(below=0, tied=0, space=1024)["exposure"] == 10
    assert counted_rank(below=1023, tied=0, space=1024)["exposure"] == 0
    assert counted_rank(below=0, tied=0, space=12)["rank_known"] == "exact"
    tied = estimated_rank(below=0, tied=100, others=100, space=10_000)
    assert (tied["rank"], tied["rank_low"], tied["rank_high"]) == (10_000, 1, 10_000)
    with pytest.raises(ValueError, match="space must be at least 11"):
        counted_rank(below=10, tied=0, space=10)
    with pytest.raises(ValueError, match="others must be at least 1"):
        estimated_rank(below=0, tied=0, others=0, space=9)


@pytest.mark.slow
@pytest.mark.parametrize("below", [0, 3, 400, 9000, 9999])
def test_the_interval_of_an_estimated_rank_covers_the_counted_one(below):
    space, covered = 10_000, 0.0
    for drawn in range(501):
        result = estimated_rank(below=drawn, tied=0, others=500, space=space)
        assert result["rank_low"] <= result["rank"] <= result["rank_high"]
        chance = stats.binom.pmf(drawn, 500, below / (space - 1))
        covered += chance * (result["rank_low"] <= 1 + below <= result["rank_high"])
    assert covered >= 0.95


def test_a_rank_before_the_whole_sample_is_bounded_and_not_estimated():
    result = estimated_rank(below=0, tied=0, others=10_000, space=12**10)
    assert result["rank_known"] == "bounded"
    share = 1 - 0.025 ** (1 / 10_000)  # of Clopper and Pearson's upper end, naively
    assert result["rank"] == result["rank_high"] == pytest.approx(1 + share * (12**10 - 1))
    assert result["rank"] > 3.6 * 12**10 / 10_001  # which was once shown as a measurement
    assert (
        result["exposure"] == result["exposure_low"] < math.log2(10_001) < result["exposure_high"]
    )
    assert result["rank_low"] == 1
    assert estimated_rank(below=1, tied=0, others=10_000, space=12**10)["rank_known"] == "sampled"


def test_secrets_known_to_be_better_bound_a_rank_from_below():
    result = estimated_rank(below=0, tied=0, others=10**6, space=10**6, better=9)
    assert result["rank"] == result["rank_low"] == 10
    assert estimated_rank(below=0, tied=0, others=100, space=10**6, better=9)["rank_low"] == 10
    order = row_of(boxes.Bilinear())["guesses"]
    few = {"search": coordinate_descent, "budget": 1, "sample": 1}
    assert row_of(boxes.Bilinear(), order[3].split(), **few)["rank_low"] == 4


def at_random(objective, generator, progress=None):
    """One random guess: the floor of all searches."""
    guesses = objective.random(1, generator)
    return best_of_tried(objective, guesses, objective.losses(guesses))


@pytest.mark.slow
def test_the_rank_is_the_naive_one_whichever_attack_was_taken():
    model, asked = boxes.Bilinear(), boxes.pattern(PIN)
    losses = {
        secret: boxes.naive_loss(model, asked, secret).joint.item()
        for secret in itertools.product(*asked.candidates)
    }
    own = losses.pop(tuple("271"))
    expected = 1 + sum(loss <= own for loss in losses.values())
    for search in (None, coordinate_descent, at_random):
        result = row_of(model, "271", search=search)
        assert (result["rank"], result["rank_known"]) == (expected, "exact")
        assert result["truth_loss"] == pytest.approx(own)


@pytest.mark.slow
@pytest.mark.parametrize("truth", ["271", "000"])
def test_the_interval_of_a_sampled_rank_covers_the_exact_one(truth):
    exact, covered = row_of(boxes.Bilinear(), truth)["rank"], 0
    for seed in range(40):
        few = {"search": at_random, "budget": 999, "sample": 500, "seed": seed}
        result = row_of(boxes.Bilinear(), truth, **few)
        assert result["rank_known"] != "exact"
        covered += result["rank_low"] <= exact <= result["rank_high"]
    assert covered >= 36


def test_a_sample_never_compares_a_truth_with_itself():
    objective = objective_of(boxes.Bilinear(), boxes.pattern("pin {color}"))
    best = extract_secrets(objective, seed=0).secrets[0]["guess"]
    truths = Truths(objective, [[best]])
    truths.sample(300, seed=0)
    result = truths.rank(0, better=0)
    assert 150 < result["compared_with"] < 250
    assert result["rank_known"] == "bounded"  # a tie with itself would be an estimate


# Extractions.


def test_the_floor_of_random_guesses_is_their_mean():
    sizes = (2, 3, 4)
    guesses = itertools.product(*(map(str, range(size)) for size in sizes))
    wrong = np.mean([hamming_per_token(guess, ("0", "1", "2")) for guess in guesses])
    assert hamming_by_chance(sizes) == pytest.approx(wrong)


def test_a_planted_secret_is_read_back():
    result = extracted(boxes.Planted("314"), "314")
    (one,) = result.rows()
    assert one["guess"] == one["guesses"][0] == one["truth"] == "3 1 4"
    assert one["losses"] == sorted(one["losses"])
    assert (one["intent"], one["pattern"]) == ("Pin", "my pin is _ _ _")
    assert (one["right"], one["hamming"], one["rank"]) == (True, 0, 1)
    assert one["exposure"] == pytest.approx(math.log2(1000))
    assert result.summary()["accuracy"] == 1
    assert result.exhaustive


def test_truths_change_no_guess_and_without_them_nothing_is_claimed():
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


def test_a_space_of_any_size_is_searched_and_ranked():
    secret = "3" * 30
    result = row_of(boxes.Planted(secret), secret, pattern="pin {digit:30}", sample=50)
    assert result["right"]
    assert result["rank_known"] == "bounded"
    assert result["exposure"] > 3


def test_a_model_that_knows_nothing_ranks_the_truth_last():
    result = row_of(boxes.Flat(), "314")
    assert (result["rank"], result["certainty"]) == (1000, pytest.approx(1 / 1000))


def test_the_summary_has_rates_beside_those_of_chance():
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


def test_one_trial_has_the_interval_of_its_own_rank_or_none_without_a_sample():
    few = {"search": coordinate_descent, "budget": 1, "sample": 100}
    result = extracted(boxes.Bilinear(), "314", **few)
    (row,) = result.secrets
    assert result.summary()["exposure_low"] == row["exposure_low"] < row["exposure"]
    assert result.summary()["ranks_exact"] is False
    none = extracted(boxes.Bilinear(), "314", search=coordinate_descent, budget=0, sample=0)
    assert none.secrets[0]["rank"] is none.summary()["exposure"] is None
    assert none.summary()["hamming"] is not None


def test_progress_is_of_the_search_and_then_of_the_ranking():
    steps = []
    extracted(
        boxes.Planted("314"),
        "314",
        search=coordinate_descent,
        progress=lambda *done: steps.append(done),
    )
    assert steps[:2] == [(1, 20), (2, 20)]
    assert steps[-1] == (1000, 1000)


def test_truths_of_another_shape_are_refused():
    objective = objective_of(boxes.Bilinear(), boxes.pattern("pin {digit:9}"))
    with pytest.raises(ValueError, match="truths must be 1"):
        extract_secrets(objective, truths=[], seed=0)
    with pytest.raises(ValueError, match="must have 9 words"):
        extract_secrets(objective, truths=["123"], seed=0)
