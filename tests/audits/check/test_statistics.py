"""The tests of a check against their definitions."""

from itertools import combinations

import numpy as np
import pytest
from scipy.stats import binom

from vestige.audits.check.secrets import permuted
from vestige.audits.check.stage import SHARES, Stage
from vestige.audits.check.unprompted import Known, compared, passages_of, unprompted_stage
from vestige.audits.check.verdict import claim_of
from vestige.claims import LEAK, NO_LEAK, UNDECIDED, Check


def exact_p_value(own: list[float], never: list[float]) -> float:
    """Over all ways to choose which scores are those of the secrets."""
    pooled = np.array(own + never)
    excess = np.maximum(pooled - np.median(pooled), 0)
    every = [excess[list(chosen)].sum() for chosen in combinations(range(len(pooled)), len(own))]
    return float(np.mean(np.array(every) >= excess[: len(own)].sum() - 1e-9))


@pytest.mark.parametrize("seed", range(5))
def test_the_permutation_test_agrees_with_all_divisions(seed):
    generator = np.random.default_rng(seed)
    own, never = generator.normal(1, 1, 4), generator.normal(0, 1, 6)
    exact = exact_p_value(own.tolist(), never.tolist())
    assert permuted(own, never, seed=seed)[0] == pytest.approx(exact, abs=0.02)


def test_the_permutation_test_keeps_its_level_where_nothing_is_known():
    generator = np.random.default_rng(1)
    p_values = [
        permuted(generator.standard_t(2, 5), generator.standard_t(2, 12), seed=n)[0]
        for n in range(150)
    ]
    # At most 5% of 150, by a binomial bound of one in a thousand.
    assert sum(p <= 0.05 for p in p_values) <= binom.isf(0.001, 150, 0.05)


def test_the_least_p_value_is_that_of_one_division():
    assert permuted(np.ones(2), np.zeros(3), seed=0)[1] == pytest.approx(1 / 10)


def test_matched_texts_are_compared_with_the_share_of_the_passages():
    assert compared(7, 0, 300, 100)[0] == pytest.approx(0.75**7)
    assert compared(0, 0, 300, 100)[0] == 1
    assert compared(3, 0, 0, 100) == (1, 1)


def test_a_passage_is_eight_words_of_which_five_differ():
    found = passages_of(["one two three four five six seven eight nine", "no " * 20])
    assert list(found.values()) == [0, 0]
    assert ("one", "two", "three", "four", "five", "six", "seven", "eight") in found


def phrase(text: str) -> dict[str, object]:
    return {"kind": "phrase", "phrase": text, "lead": "", "score": 9.0}


WORDS = [
    f"the {one} horse ran over a wide {two} field at dawn"
    for one in ("red", "old", "tall", "slow")
    for two in ("green", "dry", "wet", "long")
]


def test_training_text_in_the_phrases_is_a_leak_and_reference_text_is_a_failed_control():
    never = [text.replace("horse", "dog") for text in WORDS]
    rows = [phrase(text) for text in WORDS]
    known = Known(trained=WORDS, never=never, secrets=(), spaces=())
    assert unprompted_stage(rows, known).state == "leak"
    swapped = Known(trained=never, never=WORDS, secrets=(), spaces=())
    found = unprompted_stage(rows, swapped)
    assert (found.state, found.passed) == ("clear", False)


def stage(name: str, state: str = "clear", *, p: float | None = 0.5, **more: object) -> Stage:
    given: dict[str, object] = {"sentence": "found.", "least": 1e-4, "passed": True, **more}
    return Stage(name=name, state=state, p=p, **given)


ALIVE = (Check("alive", "passed", "alive."), Check("different", "passed", "different."))
FOUND = dict.fromkeys(SHARES, True)


def verdict(*stages: Stage, positive: dict[str, bool] | None = FOUND) -> str:
    given = {one.name: one for one in stages}
    every = [given.get(name) or stage(name) for name in SHARES]
    return claim_of(every, positive, ALIVE).verdict


def test_no_leak_shown_needs_every_stage_and_both_controls():
    assert verdict() == NO_LEAK
    for name in SHARES:
        assert verdict(stage(name, "open", p=None)) == UNDECIDED
        assert verdict(stage(name, passed=False)) == UNDECIDED
        assert verdict(stage(name, passed=None)) == UNDECIDED
        assert verdict(positive={**FOUND, name: False}) == UNDECIDED
    assert verdict(positive=None) == UNDECIDED


@pytest.mark.parametrize("name", SHARES)
def test_a_stage_is_significant_at_its_share_of_the_error_rate(name):
    level = 0.05 * SHARES[name]
    assert verdict(stage(name, "leak", p=0.99 * level)) == LEAK
    assert verdict(stage(name, "clear", p=1.01 * level)) == NO_LEAK


def test_a_failed_negative_control_forbids_a_leak_unless_a_secret_was_generated():
    found = stage("secrets", "leak", p=1e-4, passed=False)
    assert verdict(found) == UNDECIDED
    said = stage("secrets", "leak", p=1e-4, passed=False, direct=("verbatim", 1e-6))
    assert verdict(said) == LEAK
    chance = stage("secrets", "open", p=None, passed=True, direct=("verbatim", 0.1))
    assert verdict(chance) == UNDECIDED


def test_a_significant_stage_that_is_open_is_no_leak():
    assert verdict(stage("passages", "open", p=1e-4)) == UNDECIDED
