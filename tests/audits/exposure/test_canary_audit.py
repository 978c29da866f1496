"""Audits of ε by coin-flip canaries: scores, bounds, verdicts on a claimed ε, refusals."""

import json
import math

import numpy as np
import pytest

from vestige.audits.exposure.epsilon import audit_canaries
from vestige.data.canaries.texts import Canary
from vestige.errors import DataError, IncompatibleModels, VestigeError
from vestige.metrics.epsilon import one_run_epsilon
from vestige.metrics.f_dp_epsilon import Curves, threshold_epsilon
from vestige.models.behind import canary_scores
from vestige.models.table import TableModel

WORDS = 42
FLAT = np.full(WORDS, 1 / WORDS)


def table(rows):
    return TableModel(FLAT, rows)


def flips(number, *, copies=1, seed=0):
    """Canaries (w_i, w_j), a different pair each, put in by a coin."""
    rng = np.random.default_rng(seed)
    heads = rng.random(number) < 0.5
    pairs = [(i, j) for i in range(2, WORDS) for j in range(2, WORDS) if i != j]
    chosen = rng.choice(len(pairs), size=number, replace=False)
    return tuple(
        Canary(f"w{pairs[k][0]} w{pairs[k][1]}", "coin-flip", (1, 1), copies if head else 0)
        for k, head in zip(chosen, heads, strict=True)
    )


def remembering(canaries, weight, rows=None):
    """A model that gives `weight` times a flat probability to what it was trained on."""
    rows = np.ones((WORDS, WORDS)) if rows is None else rows.copy()
    for canary in canaries:
        if canary.planted:
            first, second = (int(word[1:]) for word in canary.phrase.split())
            rows[first, second] *= weight
    return table(rows / rows.sum(1, keepdims=True))


@pytest.fixture
def canaries():
    return flips(400)


def test_a_model_that_remembers_proves_all_that_such_an_audit_can(canaries):
    audit = audit_canaries(remembering(canaries, 50), canaries, delta=1e-5)
    assert audit.one_run.epsilon == audit.one_run.ceiling > 4
    assert audit.threshold.epsilon == audit.threshold.ceiling > 3
    assert audit.separation.value == 1
    assert audit.verdict is None


def test_a_model_that_saw_no_canary_proves_nothing(canaries):
    rng = np.random.default_rng(1)
    audit = audit_canaries(table(rng.dirichlet(FLAT * WORDS, WORDS)), canaries, delta=1e-5)
    assert audit.one_run.epsilon == audit.threshold.epsilon == 0
    assert audit.separation.interval.low < 0.5 < audit.separation.interval.high


def test_a_score_is_the_log_probability_of_the_whole_canary(canaries):
    rows = np.random.default_rng(2).dirichlet(FLAT * WORDS, WORDS)
    audit = audit_canaries(table(rows), canaries, delta=1e-5)
    naive = [
        math.log(FLAT[i] * rows[i, j])
        for i, j in ((int(w[1:]) for w in canary.phrase.split()) for canary in canaries)
    ]
    assert audit.scores == pytest.approx(naive, abs=1e-5)
    inside = [score for score, canary in zip(audit.scores, canaries, strict=True) if canary.planted]
    outside = [s for s, canary in zip(audit.scores, canaries, strict=True) if canary.control]
    assert audit.one_run == one_run_epsilon(inside, outside, delta=1e-5)
    assert audit.threshold == threshold_epsilon(inside, outside, delta=1e-5)


def test_a_reference_model_takes_the_words_own_frequencies_away(canaries):
    frequent = np.random.default_rng(3).dirichlet(FLAT * 4, WORDS)
    model = remembering(canaries, 3, frequent)
    alone = audit_canaries(model, canaries, delta=1e-5)
    beside = audit_canaries(model, canaries, delta=1e-5, reference=table(frequent))
    assert beside.separation.value > alone.separation.value
    assert beside.one_run.epsilon > alone.one_run.epsilon
    assert (alone.calibrated, beside.calibrated) == (False, True)


def test_the_verdict_follows_the_bound_and_its_ceiling(canaries):
    model = remembering(canaries, 50)
    claims = {claim: audit_canaries(model, canaries, delta=1e-5, claimed=claim) for claim in (1, 9)}
    assert claims[1].verdict == "violated"
    assert claims[9].verdict == "underpowered"
    quiet = audit_canaries(table(np.tile(FLAT, (WORDS, 1))), canaries, delta=1e-5, claimed=1)
    assert quiet.verdict == "consistent"
    assert quiet.summary()["verdict"] == "consistent"


def test_no_claim_is_consistent_with_a_bound_above_it(canaries):
    """Where one in five canaries is remembered, a threshold proves more than all guesses."""
    few = [c for c in canaries if c.planted][::5]
    audit = audit_canaries(remembering(few, 500), canaries, delta=1e-5, claimed=1.0)
    between = (audit.one_run.epsilon + audit.threshold.epsilon) / 2
    assert audit.one_run.epsilon < between < audit.threshold.epsilon
    asked = audit_canaries(remembering(few, 500), canaries, delta=1e-5, claimed=between)
    assert asked.verdict == "violated if independent"


def test_a_claim_that_states_its_mechanism_is_refuted_where_its_epsilon_alone_is_not(canaries):
    model, mechanism = remembering(canaries, 50), Curves(1.0, 4)
    alone = audit_canaries(model, canaries, delta=1e-5)
    claimed = (alone.one_run.epsilon + alone.f_dp.epsilon) / 2
    assert alone.one_run.epsilon < claimed < alone.f_dp.epsilon
    settings = {"delta": 1e-5, "claimed": claimed}
    stated = audit_canaries(model, canaries, **settings, mechanism=mechanism)
    assert audit_canaries(model, canaries, **settings).verdict != "violated"
    assert stated.verdict == "violated"
    assert stated.proven == stated.f_dp
    assert stated.one_run.confidence == stated.f_dp.confidence == 0.975
    assert stated.summary()["confidence"] == alone.summary()["confidence"] == 0.95
    assert stated.summary()["f_dp_assumes"].endswith("DP-SGD of 4 steps at sample rate 1")
    assert alone.proven == alone.one_run


def test_a_mechanism_speaks_of_claims_for_single_sequences_only(canaries):
    model, mechanism = remembering(canaries, 5), Curves(1.0, 4)
    with pytest.raises(ValueError, match="mechanism must come with claimed"):
        audit_canaries(model, canaries, delta=1e-5, mechanism=mechanism)
    pairs = flips(100, copies=2)
    with pytest.raises(ValueError, match="canaries of one copy each"):
        audit_canaries(
            remembering(pairs, 5),
            pairs,
            delta=1e-5,
            claimed=1.0,
            claimed_copies=2,
            mechanism=mechanism,
        )


def test_copies_make_it_an_audit_of_groups_that_a_claim_for_one_does_not_speak_of():
    canaries = flips(100, copies=4)
    model = remembering(canaries, 50)
    audit = audit_canaries(model, canaries, delta=1e-5)
    assert audit.unit == "groups of 4 sequences"
    with pytest.raises(ValueError, match=r"claimed_copies must be 4.*copies="):
        audit_canaries(model, canaries, delta=1e-5, claimed=2.0)
    claimed = audit_canaries(model, canaries, delta=1e-5, claimed=2.0, claimed_copies=4)
    assert claimed.verdict == "violated"
    assert audit_canaries(model, flips(100), delta=1e-5).unit == "sequence"


def test_summary_and_rows_are_plain(canaries):
    audit = audit_canaries(remembering(canaries, 2), canaries, delta=1e-5, claimed=3.0)
    json.dumps(audit.summary(), allow_nan=False)
    rows = list(audit.rows())
    json.dumps(rows, allow_nan=False)
    assert len(rows) == len(canaries)
    assert [row["score"] for row in rows] == sorted(audit.scores, reverse=True)
    assert sum(row["trained_on"] for row in rows) == audit.one_run.canaries_in


def replaced(canaries, **change):
    first = canaries[0]
    fields = {"phrase": first.phrase, "pattern": "coin-flip", "frequencies": (1, 1), "copies": 1}
    return (Canary(**fields | change), *canaries[1:])


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"pattern": "random"}, "canary 1 is 'random'; this audit needs coin-flip canaries"),
        ({"copies": 7}, "have 1, 7 copies"),
        ({"phrase": "w2 secret"}, "canary 1 has words that the model's vocabulary of 42"),
        ({"ids": (9, 9)}, "canary 1 was planted for another vocabulary"),
    ],
)
def test_canaries_of_another_kind_are_refused_without_telling_them(canaries, change, message):
    with pytest.raises(VestigeError, match=message) as caught:
        audit_canaries(table(np.tile(FLAT, (WORDS, 1))), replaced(canaries, **change), delta=0.0)
    assert "secret" not in str(caught.value)


def test_an_audit_needs_both_sides_of_the_coin(canaries):
    model = table(np.tile(FLAT, (WORDS, 1)))
    for side in ([c for c in canaries if c.planted], [c for c in canaries if c.control], []):
        with pytest.raises(DataError, match="same coin flip"):
            audit_canaries(model, side, delta=0.0)


def test_models_that_cannot_be_audited_are_refused(canaries):
    with pytest.raises(DataError, match="no finite log-probability"):
        audit_canaries(table(np.eye(WORDS)), canaries, delta=0.0)
    other = TableModel([0.5, 0.5], [[0.5, 0.5], [0.5, 0.5]])
    with pytest.raises(IncompatibleModels):
        audit_canaries(table(np.tile(FLAT, (WORDS, 1))), canaries, delta=0.0, reference=other)
    with pytest.raises(ValueError, match="claimed must be at least 0"):
        audit_canaries(table(np.tile(FLAT, (WORDS, 1))), canaries, delta=0.0, claimed=math.nan)


def test_scores_that_are_known_take_the_place_of_a_model(canaries):
    before, after = remembering(canaries, 1), remembering(canaries, 5)
    scores, known = (canary_scores(model, canaries).tolist() for model in (after, before))
    asked = audit_canaries(after, canaries, delta=1e-5, reference=before)
    assert audit_canaries(scores, canaries, delta=1e-5, reference=known) == asked
    assert audit_canaries(scores, canaries, delta=1e-5, reference=before) == asked
    with pytest.raises(ValueError, match="a score for each of 400 canaries, got 399"):
        audit_canaries(scores[1:], canaries, delta=1e-5)
