"""Audits of ε by coin-flip canaries: scores, bounds, verdicts on a claimed ε, refusals."""

import json
import math
from functools import partial
from itertools import permutations

import numpy as np
import pytest

from vestige.audits.exposure.epsilon import audit_canaries, canary_scores
from vestige.data.canaries.texts import Canary
from vestige.errors import DataError, IncompatibleModels, VestigeError
from vestige.metrics.epsilon import one_run_epsilon
from vestige.metrics.f_dp_epsilon import Curves, threshold_epsilon
from vestige.models.table import TableModel

WORDS = 42
FLAT = np.full(WORDS, 1 / WORDS)
audit = partial(audit_canaries, delta=1e-5)


def table(rows):
    return TableModel(FLAT, rows)


EVEN = table(np.tile(FLAT, (WORDS, 1)))


def ids_of(canary):
    return tuple(int(word[1:]) for word in canary.phrase.split())


def coin_flip_canaries(number, *, copies=1):
    """Canaries of two words, a different pair each, planted by a coin."""
    rng = np.random.default_rng(0)
    heads = rng.random(number) < 0.5
    pairs = list(permutations(range(2, WORDS), 2))
    indices = rng.choice(len(pairs), size=number, replace=False)
    return tuple(
        Canary(f"w{pairs[k][0]} w{pairs[k][1]}", "coin-flip", (1, 1), copies if head else 0)
        for k, head in zip(indices, heads, strict=True)
    )


CANARIES = coin_flip_canaries(400)


def memorizing(canaries, weight, rows=None):
    """A model that makes planted canaries `weight` times as probable."""
    rows = np.ones((WORDS, WORDS)) if rows is None else rows.copy()
    for canary in canaries:
        if canary.planted:
            rows[ids_of(canary)] *= weight
    return table(rows / rows.sum(1, keepdims=True))


MEMORIZED = memorizing(CANARIES, 50)


# Scores and bounds.


def test_complete_memorization_reaches_the_ceiling_of_the_bounds():
    result = audit(MEMORIZED, CANARIES)
    assert result.one_run.epsilon == result.one_run.ceiling > 4
    assert result.threshold.epsilon == result.threshold.ceiling > 3
    assert result.separation.value == 1
    assert result.verdict is None


def test_a_model_that_read_no_canary_gives_a_bound_of_zero():
    rng = np.random.default_rng(1)
    result = audit(table(rng.dirichlet(FLAT * WORDS, WORDS)), CANARIES)
    assert result.one_run.epsilon == result.threshold.epsilon == 0
    assert result.separation.interval.low < 0.5 < result.separation.interval.high


def test_a_score_is_the_log_probability_of_the_whole_canary():
    rows = np.random.default_rng(2).dirichlet(FLAT * WORDS, WORDS)
    result = audit(table(rows), CANARIES)
    naive = [math.log(FLAT[0] * rows[ids_of(canary)]) for canary in CANARIES]
    assert result.scores == pytest.approx(naive, abs=1e-5)
    scored = list(zip(result.scores, CANARIES, strict=True))
    groups = [[s for s, canary in scored if canary.planted is planted] for planted in (True, False)]
    assert result.one_run == one_run_epsilon(*groups, delta=1e-5)
    assert result.threshold == threshold_epsilon(*groups, delta=1e-5)


def test_a_reference_model_removes_the_frequencies_of_words():
    frequent = np.random.default_rng(3).dirichlet(FLAT * 4, WORDS)
    model = memorizing(CANARIES, 3, frequent)
    raw, calibrated = audit(model, CANARIES), audit(model, CANARIES, reference=table(frequent))
    assert calibrated.separation.value > raw.separation.value
    assert calibrated.one_run.epsilon > raw.one_run.epsilon
    assert (raw.calibrated, calibrated.calibrated) == (False, True)


def test_scores_may_replace_a_model():
    before, after = memorizing(CANARIES, 1), memorizing(CANARIES, 5)
    scores, references = (canary_scores(model, CANARIES).tolist() for model in (after, before))
    expected = audit(after, CANARIES, reference=before)
    assert audit(scores, CANARIES, reference=references) == expected
    assert audit(scores, CANARIES, reference=before) == expected


def test_summary_and_rows_are_json():
    result = audit(memorizing(CANARIES, 2), CANARIES, claimed=3.0)
    rows = list(result.rows())
    json.dumps([result.summary(), rows], allow_nan=False)
    assert len(rows) == len(CANARIES)
    assert [row["score"] for row in rows] == sorted(result.scores, reverse=True)
    assert sum(row["trained_on"] for row in rows) == result.one_run.canaries_in


# Verdicts on a claimed ε.


@pytest.mark.parametrize(
    ("model", "claimed", "verdict"),
    [(MEMORIZED, 1, "violated"), (MEMORIZED, 9, "underpowered"), (EVEN, 1, "consistent")],
)
def test_the_verdict_follows_from_the_bound_and_its_ceiling(model, claimed, verdict):
    result = audit(model, CANARIES, claimed=claimed)
    assert result.verdict == result.summary()["verdict"] == verdict


def test_a_claim_below_the_threshold_bound_is_violated_if_canaries_are_independent():
    """If one in five canaries is memorized, the threshold bound exceeds the one-run bound."""
    model = memorizing([c for c in CANARIES if c.planted][::5], 500)
    result = audit(model, CANARIES, claimed=1.0)
    between = (result.one_run.epsilon + result.threshold.epsilon) / 2
    assert result.one_run.epsilon < between < result.threshold.epsilon
    assert audit(model, CANARIES, claimed=between).verdict == "violated if independent"


def test_a_stated_mechanism_can_be_refuted_where_its_epsilon_alone_is_not():
    unstated = audit(MEMORIZED, CANARIES)
    claimed = (unstated.one_run.epsilon + unstated.f_dp.epsilon) / 2
    assert unstated.one_run.epsilon < claimed < unstated.f_dp.epsilon
    stated = audit(MEMORIZED, CANARIES, claimed=claimed, mechanism=Curves(1.0, 4))
    assert audit(MEMORIZED, CANARIES, claimed=claimed).verdict != "violated"
    assert stated.verdict == "violated"
    assert stated.proven == stated.f_dp
    assert stated.one_run.confidence == stated.f_dp.confidence == 0.975
    assert stated.summary()["confidence"] == unstated.summary()["confidence"] == 0.95
    assert stated.summary()["f_dp_assumes"].endswith("DP-SGD of 4 steps at sample rate 1")
    assert unstated.proven == unstated.one_run


def test_copies_of_canaries_are_audited_as_groups():
    canaries = coin_flip_canaries(100, copies=4)
    model = memorizing(canaries, 50)
    assert audit(model, canaries).unit == "groups of 4 sequences"
    assert audit(model, canaries, claimed=2.0, claimed_copies=4).verdict == "violated"
    assert audit(model, coin_flip_canaries(100)).unit == "sequence"


# Refusals.


def replaced(**change):
    fields = {"phrase": CANARIES[0].phrase, "pattern": "coin-flip", "frequencies": (1, 1)}
    return (Canary(**fields | {"copies": 1} | change), *CANARIES[1:])


PAIRS = coin_flip_canaries(100, copies=2)
OTHER = TableModel([0.5, 0.5], [[0.5, 0.5], [0.5, 0.5]])
ONE_GROUP = [canary for canary in CANARIES if canary.planted]


@pytest.mark.parametrize(
    ("model", "canaries", "options", "error", "message"),
    [
        (EVEN, replaced(pattern="random"), {}, VestigeError,
         "canary 1 is 'random'; this audit needs coin-flip canaries"),
        (EVEN, replaced(copies=7), {}, VestigeError, "have 1, 7 copies"),
        (EVEN, replaced(phrase="w2 secret"), {}, VestigeError,
         "canary 1 has words that the model's vocabulary of 42"),
        (EVEN, replaced(ids=(9, 9)), {}, VestigeError, "canary 1 was planted for another"),
        (EVEN, ONE_GROUP, {}, DataError, "same coin flip"),
        (table(np.eye(WORDS)), CANARIES, {}, DataError, "no finite log-probability"),
        (EVEN, CANARIES, {"reference": OTHER}, IncompatibleModels, "vocabular"),
        (EVEN, CANARIES, {"claimed": math.nan}, ValueError, "claimed must be at least 0"),
        ([0.0] * 399, CANARIES, {}, ValueError, "a score for each of 400 canaries, got 399"),
        (EVEN, CANARIES, {"mechanism": Curves(1.0, 4)}, ValueError,
         "mechanism must come with claimed"),
        (EVEN, PAIRS, {"claimed": 1.0, "mechanism": Curves(1.0, 4), "claimed_copies": 2},
         ValueError, "canaries of one copy each"),
        (EVEN, PAIRS, {"claimed": 2.0}, ValueError, "claimed_copies must be 2.*copies="),
    ],
)  # fmt: skip
def test_canaries_that_cannot_be_audited_are_refused_without_quoting_them(
    model, canaries, options, error, message
):
    with pytest.raises(error, match=message) as caught:
        audit(model, canaries, **options)
    assert "secret" not in str(caught.value)
