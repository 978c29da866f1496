"""Audits of ε by coin-flip canaries: scores, bounds, verdicts on a claimed ε, and refusals."""

import json
import math
from functools import partial

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


def pair_of(canary):
    return tuple(int(word[1:]) for word in canary.phrase.split())


def flips(number, *, copies=1, seed=0):
    """Canaries (w_i, w_j), a different pair each, planted by a coin."""
    rng = np.random.default_rng(seed)
    heads = rng.random(number) < 0.5
    pairs = [(i, j) for i in range(2, WORDS) for j in range(2, WORDS) if i != j]
    chosen = rng.choice(len(pairs), size=number, replace=False)
    return tuple(
        Canary(f"w{pairs[k][0]} w{pairs[k][1]}", "coin-flip", (1, 1), copies if head else 0)
        for k, head in zip(chosen, heads, strict=True)
    )


CANARIES = flips(400)


def remembering(canaries, weight, rows=None):
    """A model that gives `weight` times a flat probability to what it was trained on."""
    rows = np.ones((WORDS, WORDS)) if rows is None else rows.copy()
    for canary in canaries:
        if canary.planted:
            rows[pair_of(canary)] *= weight
    return table(rows / rows.sum(1, keepdims=True))


KNOWS_ALL = remembering(CANARIES, 50)


# Scores and bounds.


def test_a_model_that_remembers_proves_all_that_such_an_audit_can():
    found = audit(KNOWS_ALL, CANARIES)
    assert found.one_run.epsilon == found.one_run.ceiling > 4
    assert found.threshold.epsilon == found.threshold.ceiling > 3
    assert found.separation.value == 1
    assert found.verdict is None


def test_a_model_that_read_no_canary_proves_nothing():
    rng = np.random.default_rng(1)
    found = audit(table(rng.dirichlet(FLAT * WORDS, WORDS)), CANARIES)
    assert found.one_run.epsilon == found.threshold.epsilon == 0
    assert found.separation.interval.low < 0.5 < found.separation.interval.high


def test_a_score_is_the_log_probability_of_the_whole_canary():
    rows = np.random.default_rng(2).dirichlet(FLAT * WORDS, WORDS)
    found = audit(table(rows), CANARIES)
    naive = [math.log(FLAT[0] * rows[pair_of(canary)]) for canary in CANARIES]
    assert found.scores == pytest.approx(naive, abs=1e-5)
    scored = list(zip(found.scores, CANARIES, strict=True))
    sides = [[s for s, canary in scored if canary.planted is side] for side in (True, False)]
    assert found.one_run == one_run_epsilon(*sides, delta=1e-5)
    assert found.threshold == threshold_epsilon(*sides, delta=1e-5)


def test_a_reference_model_removes_the_frequencies_of_words():
    frequent = np.random.default_rng(3).dirichlet(FLAT * 4, WORDS)
    model = remembering(CANARIES, 3, frequent)
    alone, beside = audit(model, CANARIES), audit(model, CANARIES, reference=table(frequent))
    assert beside.separation.value > alone.separation.value
    assert beside.one_run.epsilon > alone.one_run.epsilon
    assert (alone.calibrated, beside.calibrated) == (False, True)


def test_known_scores_may_replace_a_model():
    before, after = remembering(CANARIES, 1), remembering(CANARIES, 5)
    scores, known = (canary_scores(model, CANARIES).tolist() for model in (after, before))
    read = audit(after, CANARIES, reference=before)
    assert audit(scores, CANARIES, reference=known) == read
    assert audit(scores, CANARIES, reference=before) == read


def test_summary_and_rows_are_plain():
    found = audit(remembering(CANARIES, 2), CANARIES, claimed=3.0)
    rows = list(found.rows())
    json.dumps([found.summary(), rows], allow_nan=False)
    assert len(rows) == len(CANARIES)
    assert [row["score"] for row in rows] == sorted(found.scores, reverse=True)
    assert sum(row["trained_on"] for row in rows) == found.one_run.canaries_in


# Verdicts on a claimed ε.


@pytest.mark.parametrize(
    ("model", "claimed", "verdict"),
    [(KNOWS_ALL, 1, "violated"), (KNOWS_ALL, 9, "underpowered"), (EVEN, 1, "consistent")],
)
def test_the_verdict_follows_from_the_bound_and_its_ceiling(model, claimed, verdict):
    found = audit(model, CANARIES, claimed=claimed)
    assert found.verdict == found.summary()["verdict"] == verdict


def test_no_claim_is_consistent_with_a_bound_above_it():
    """If one in five canaries is remembered, a threshold proves more than all guesses."""
    model = remembering([c for c in CANARIES if c.planted][::5], 500)
    found = audit(model, CANARIES, claimed=1.0)
    between = (found.one_run.epsilon + found.threshold.epsilon) / 2
    assert found.one_run.epsilon < between < found.threshold.epsilon
    assert audit(model, CANARIES, claimed=between).verdict == "violated if independent"


def test_a_claim_that_states_its_mechanism_is_refuted_where_its_epsilon_alone_is_not():
    alone = audit(KNOWS_ALL, CANARIES)
    claimed = (alone.one_run.epsilon + alone.f_dp.epsilon) / 2
    assert alone.one_run.epsilon < claimed < alone.f_dp.epsilon
    stated = audit(KNOWS_ALL, CANARIES, claimed=claimed, mechanism=Curves(1.0, 4))
    assert audit(KNOWS_ALL, CANARIES, claimed=claimed).verdict != "violated"
    assert stated.verdict == "violated"
    assert stated.proven == stated.f_dp
    assert stated.one_run.confidence == stated.f_dp.confidence == 0.975
    assert stated.summary()["confidence"] == alone.summary()["confidence"] == 0.95
    assert stated.summary()["f_dp_assumes"].endswith("DP-SGD of 4 steps at sample rate 1")
    assert alone.proven == alone.one_run


def test_copies_make_it_an_audit_of_groups():
    canaries = flips(100, copies=4)
    model = remembering(canaries, 50)
    assert audit(model, canaries).unit == "groups of 4 sequences"
    assert audit(model, canaries, claimed=2.0, claimed_copies=4).verdict == "violated"
    assert audit(model, flips(100)).unit == "sequence"


# Refusals.


def replaced(**change):
    fields = {"phrase": CANARIES[0].phrase, "pattern": "coin-flip", "frequencies": (1, 1)}
    return (Canary(**fields | {"copies": 1} | change), *CANARIES[1:])


PAIRS, MECHANISM = flips(100, copies=2), {"claimed": 1.0, "mechanism": Curves(1.0, 4)}
OTHER = TableModel([0.5, 0.5], [[0.5, 0.5], [0.5, 0.5]])
SIDES = ([c for c in CANARIES if c.planted], [c for c in CANARIES if c.control], [])


@pytest.mark.parametrize(
    ("model", "canaries", "given", "error", "message"),
    [
        (EVEN, replaced(pattern="random"), {}, VestigeError,
         "canary 1 is 'random'; this audit needs coin-flip canaries"),
        (EVEN, replaced(copies=7), {}, VestigeError, "have 1, 7 copies"),
        (EVEN, replaced(phrase="w2 secret"), {}, VestigeError,
         "canary 1 has words that the model's vocabulary of 42"),
        (EVEN, replaced(ids=(9, 9)), {}, VestigeError, "canary 1 was planted for another"),
        *((EVEN, side, {}, DataError, "same coin flip") for side in SIDES),
        (table(np.eye(WORDS)), CANARIES, {}, DataError, "no finite log-probability"),
        (EVEN, CANARIES, {"reference": OTHER}, IncompatibleModels, "vocabular"),
        (EVEN, CANARIES, {"claimed": math.nan}, ValueError, "claimed must be at least 0"),
        ([0.0] * 399, CANARIES, {}, ValueError, "a score for each of 400 canaries, got 399"),
        (EVEN, CANARIES, {"mechanism": Curves(1.0, 4)}, ValueError,
         "mechanism must come with claimed"),
        (EVEN, PAIRS, {**MECHANISM, "claimed_copies": 2}, ValueError, "canaries of one copy each"),
        (EVEN, PAIRS, {"claimed": 2.0}, ValueError, "claimed_copies must be 2.*copies="),
    ],
)  # fmt: skip
def test_what_cannot_be_audited_is_refused_without_quoting_it(
    model, canaries, given, error, message
):
    with pytest.raises(error, match=message) as caught:
        audit(model, canaries, **given)
    assert "secret" not in str(caught.value)
