"""What an extraction says of its trials: ranks by naive definitions, guesses, and the summary."""

import itertools
import json
import math

import numpy as np
import pytest
from scipy import stats

from tests.audits.extraction import white_boxes as boxes
from vestige.audits.extraction.objective import objective_of
from vestige.audits.extraction.ranks import Truths, counted_rank, estimated_rank
from vestige.audits.extraction.searches import coordinate_descent, gathered
from vestige.audits.extraction.unknown_words import (
    extract_secrets,
    hamming_by_chance,
    hamming_per_token,
)


def test_the_baseline_is_what_all_guesses_reach_on_average():
    sizes = (2, 3, 4)
    truth = ("0", "1", "2")
    guesses = list(itertools.product(*(map(str, range(size)) for size in sizes)))
    wrong = np.mean([hamming_per_token(guess, truth) for guess in guesses])
    assert hamming_by_chance(sizes) == pytest.approx(wrong)


def test_exposure_is_bits_of_the_space_less_bits_of_the_rank_and_ties_stand_last():
    found = counted_rank(below=0, tied=99, space=100)
    assert found["rank"] == found["rank_low"] == found["rank_high"] == 100
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
def test_the_interval_of_an_estimated_rank_covers_the_counted_one(below):
    space, covered = 10_000, 0.0
    for drawn in range(501):
        found = estimated_rank(below=drawn, tied=0, others=500, space=space)
        assert found["rank_low"] <= found["rank"] <= found["rank_high"]
        chance = stats.binom.pmf(drawn, 500, below / (space - 1))
        covered += chance * (found["rank_low"] <= 1 + below <= found["rank_high"])
    assert covered >= 0.95


def test_what_no_secret_of_a_sample_beats_is_bounded_and_not_estimated():
    found = estimated_rank(below=0, tied=0, others=10_000, space=12**10)
    assert found["rank_known"] == "bounded"
    share = 1 - 0.025 ** (1 / 10_000)  # of Clopper and Pearson's upper end, naively
    assert found["rank"] == found["rank_high"] == pytest.approx(1 + share * (12**10 - 1))
    assert found["rank"] > 3.6 * 12**10 / 10_001  # which is what was printed as a measurement
    assert found["exposure"] == found["exposure_low"] < math.log2(10_001) < found["exposure_high"]
    assert found["rank_low"] == 1
    assert estimated_rank(below=1, tied=0, others=10_000, space=12**10)["rank_known"] == "sampled"
    assert counted_rank(below=0, tied=0, space=12)["rank_known"] == "exact"


def test_secrets_known_to_be_better_bound_a_rank_from_below():
    found = estimated_rank(below=0, tied=0, others=10**6, space=10**6, better=9)
    assert found["rank"] == found["rank_low"] == 10
    assert estimated_rank(below=0, tied=0, others=100, space=10**6, better=9)["rank_low"] == 10


PIN = "my pin is {digit:3}"


def at_random(objective, generator, progress=None):
    """One guess, whatever the model makes of it: the floor of all searches."""
    guesses = objective.random(1, generator)
    return gathered(objective, guesses, objective.losses(guesses))


def test_a_planted_secret_is_read_back():
    found = extract_secrets(
        objective_of(boxes.Planted("314"), boxes.pattern(PIN)), truths=["314"], seed=0
    )
    (one,) = found.rows()
    assert one["guess"] == one["guesses"][0] == one["truth"] == "3 1 4"
    assert one["losses"] == sorted(one["losses"])
    assert one["intent"] == "Pin"
    assert one["right"] is True
    assert one["hamming"] == 0
    assert one["rank"] == 1
    assert one["exposure"] == pytest.approx(math.log2(1000))
    assert one["pattern"] == "my pin is _ _ _"
    assert found.summary()["accuracy"] == 1
    assert found.whole


def test_truths_change_no_guess():
    objective = objective_of(boxes.Bilinear(), boxes.pattern(PIN))
    for search in (None, coordinate_descent):
        with_truth = extract_secrets(objective, search=search, truths=["123"], seed=4)
        without = extract_secrets(objective, search=search, seed=4)
        assert with_truth.secrets[0]["guesses"] == without.secrets[0]["guesses"]
        assert with_truth.secrets[0]["certainty"] == without.secrets[0]["certainty"]


@pytest.mark.slow
def test_the_rank_is_the_same_whichever_attack_was_taken():
    model, asked = boxes.Bilinear(), boxes.pattern(PIN)
    objective = objective_of(model, asked)
    losses = {
        secret: boxes.naive_loss(model, asked, secret).joint.item()
        for secret in itertools.product(*asked.candidates)
    }
    own = losses.pop(tuple("271"))
    expected = 1 + sum(loss <= own for loss in losses.values())
    for search in (None, coordinate_descent, at_random):
        found = extract_secrets(objective, search=search, truths=["271"], seed=0)
        assert found.secrets[0]["rank"] == expected
        assert found.secrets[0]["rank_known"] == "exact"
        assert found.secrets[0]["truth_loss"] == pytest.approx(own)


@pytest.mark.slow
@pytest.mark.parametrize("truth", ["271", "000"])
def test_the_interval_of_an_estimated_rank_covers_the_exact_one(truth):
    objective = objective_of(boxes.Bilinear(), boxes.pattern(PIN))
    exact = extract_secrets(objective, truths=[truth], seed=0).secrets[0]["rank"]
    covered = 0
    for seed in range(40):
        (found,) = extract_secrets(
            objective, search=at_random, truths=[truth], budget=999, sample=500, seed=seed
        ).secrets
        assert found["rank_known"] != "exact"
        covered += found["rank_low"] <= exact <= found["rank_high"]
    assert covered >= 36


def test_a_sample_never_compares_a_truth_with_itself():
    objective = objective_of(boxes.Bilinear(), boxes.pattern("pin {color}"))
    best = extract_secrets(objective, seed=0).secrets[0]["guess"]
    truths = Truths(objective, [[best]])
    truths.sample(300, seed=0)
    found = truths.rank(0, better=0)
    assert 150 < found["compared_with"] < 250
    assert found["rank_known"] == "bounded"  # a tie with itself would be an estimate


def test_guesses_known_to_be_better_bound_an_estimated_rank():
    objective = objective_of(boxes.Bilinear(), boxes.pattern(PIN))
    order = extract_secrets(objective, seed=0).secrets[0]["guesses"]
    truths, fewest = [order[3].split()], {"budget": 1, "sample": 1}
    found = extract_secrets(objective, search=coordinate_descent, truths=truths, **fewest, seed=0)
    assert found.secrets[0]["rank_low"] == 4


def test_a_space_of_any_size_is_searched_and_ranked():
    objective = objective_of(boxes.Planted("3" * 30), boxes.pattern("pin {digit:30}"))
    (found,) = extract_secrets(objective, truths=["3" * 30], sample=50, seed=0).secrets
    assert found["right"]
    assert found["rank_known"] == "bounded"
    assert found["exposure"] > 3


def test_a_model_that_knows_nothing_or_is_its_own_reference_puts_the_truth_last():
    found = extract_secrets(objective_of(boxes.Flat(), boxes.pattern(PIN)), truths=["314"], seed=0)
    assert found.secrets[0]["rank"] == 1000
    assert found.secrets[0]["certainty"] == pytest.approx(1 / 1000)


def test_the_summary_tells_rates_and_their_chance():
    objective = objective_of(boxes.Planted("314"), [boxes.pattern(PIN)] * 4)
    found = extract_secrets(objective, truths=["314", "315", "300", "314"], seed=0)
    summary = found.summary()
    assert summary["right"] == 2
    assert summary["accuracy"] == 0.5
    assert summary["accuracy_low"] < 0.5 < summary["accuracy_high"]
    assert summary["accuracy_by_chance"] == pytest.approx(1e-3)
    assert summary["hamming"] == pytest.approx((0 + 1 / 3 + 2 / 3 + 0) / 4)
    assert summary["hamming_low"] == 0
    assert summary["hamming_by_chance"] == pytest.approx(0.9)
    assert summary["ranked"] == 4
    assert summary["ranks_exact"]
    assert summary["search"] == "exact"
    assert summary["certainty_among"] == "all"
    assert summary["losses_per_trial"] == 1000
    assert summary["space_bits"] == pytest.approx(math.log2(1000))
    assert summary["exposure_low"] < summary["exposure"] < summary["exposure_high"]
    assert summary["chance_probability"] < 0.01
    json.dumps(summary, allow_nan=False)


def test_without_truths_nothing_is_claimed_of_them():
    found = extract_secrets(
        objective_of(boxes.Bilinear(), boxes.pattern(PIN)), search=coordinate_descent, seed=0
    )
    summary = found.summary()
    for name in ("right", "accuracy", "hamming", "median_rank", "exposure", "chance_probability"):
        assert summary[name] is None
    assert summary["certainty_among"] == "tried"
    (row,) = found.rows()
    assert row["right"] is row["truth"] is row["rank"] is None
    assert row["trial"] == 1
    json.dumps([summary, row], allow_nan=False)


def test_one_trial_has_the_interval_of_its_own_rank():
    found = extract_secrets(
        objective_of(boxes.Bilinear(), boxes.pattern(PIN)),
        truths=["314"],
        search=coordinate_descent,
        budget=1,
        sample=100,
        seed=0,
    )
    (row,) = found.secrets
    assert found.summary()["exposure_low"] == row["exposure_low"] < row["exposure"]
    assert found.summary()["ranks_exact"] is False


def test_ranks_can_be_left_out():
    objective, none = objective_of(boxes.Bilinear(), boxes.pattern(PIN)), {"budget": 0, "sample": 0}
    found = extract_secrets(objective, search=coordinate_descent, truths=["314"], **none, seed=0)
    assert found.secrets[0]["rank"] is None
    assert found.summary()["hamming"] is not None
    assert found.summary()["exposure"] is None


def test_progress_is_of_the_search_and_then_of_the_ranking():
    steps = []
    extract_secrets(
        objective_of(boxes.Planted("314"), boxes.pattern(PIN)),
        search=coordinate_descent,
        truths=["314"],
        seed=0,
        progress=lambda done, of: steps.append((done, of)),
    )
    assert steps[:2] == [(1, 20), (2, 20)]
    assert steps[-1] == (1000, 1000)


def test_inputs_that_cannot_be_are_refused():
    objective = objective_of(boxes.Bilinear(), boxes.pattern("pin {digit:9}"))
    with pytest.raises(ValueError, match="truths must be 1"):
        extract_secrets(objective, truths=[], seed=0)
    with pytest.raises(ValueError, match="must have 9 words"):
        extract_secrets(objective, truths=["123"], seed=0)
