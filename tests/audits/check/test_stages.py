"""The statistical tests of a check against their definitions, and the verdict."""

from dataclasses import replace

import pytest

from tests.audits.check.made import ALIVE, ALL_DETECTED, clear_stage
from vestige.audits.check import secrets, work
from vestige.audits.check.secrets import FALSE, KNOWN, is_known
from vestige.audits.check.unprompted import passages_of, phrases_stage, share_test
from vestige.audits.check.verdict import SHARES, claim_of
from vestige.claims import LEAK, NO_LEAK, UNDECIDED
from vestige.data.secrets.alternatives import FoundSecret


@pytest.mark.parametrize(
    ("known", "placebos", "p"),
    [
        ([True] * 3, [True] + [False] * 18, 0.1**3),  # a rate of 2 in 20
        ([True, False], [True] + [False] * 18, 1 - 0.9**2),
        ([False] * 3, [True] + [False] * 18, 1.0),
        ([True], [False] * 10**4, FALSE),  # at least the rate of alternatives
    ],
)
def test_known_secrets_are_compared_with_the_placebo_rate(known, placebos, p):
    assert secrets.placebo_test(known, placebos)[0] == pytest.approx(p)
    rate = max(FALSE, (1 + sum(placebos)) / (1 + len(placebos)))
    assert secrets.placebo_test(known, placebos)[1] == pytest.approx(rate ** len(known))


@pytest.mark.parametrize(
    ("gain", "known"),
    [
        ({"score": KNOWN, "rank": 1, "greedy": False}, True),
        ({"score": KNOWN, "rank": 2, "greedy": False}, False),
        ({"score": KNOWN - 0.1, "rank": 1, "greedy": False}, False),
        ({"score": 0, "rank": 2, "greedy": True}, True),
    ],
)
def test_a_secret_is_known_by_a_wide_margin_or_verbatim(gain, known):
    assert is_known(gain) is known


def test_matched_texts_are_compared_with_the_share_of_passages():
    assert share_test(7, 0, 300, 100)[0] == pytest.approx(0.75**7)
    assert share_test(0, 0, 300, 100)[0] == 1
    assert share_test(3, 0, 0, 100) == (1, 1)


def test_a_passage_has_eight_words_and_five_different_ones():
    passages = passages_of(["one two three four five six seven eight nine", "no " * 20])
    assert list(passages.values()) == [0, 0]
    assert ("one", "two", "three", "four", "five", "six", "seven", "eight") in passages


# Phrases compared with both files.


def phrase(text):
    return {"kind": "phrase", "phrase": text, "lead": "", "score": 9.0}


WORDS = [
    f"the {one} horse ran over a wide {two} field at dawn"
    for one in ("red", "old", "tall", "slow")
    for two in ("green", "dry", "wet", "long")
]
REFERENCE = [text.replace("horse", "dog") for text in WORDS]
ROWS = [phrase(text) for text in WORDS]


@pytest.mark.parametrize(
    ("rows", "trained", "never", "complete", "expected"),
    [
        (ROWS, WORDS, REFERENCE, True, ("leak", True, "")),
        (ROWS, WORDS, REFERENCE, False, ("leak", True, "")),
        (ROWS, REFERENCE, WORDS, True, ("clear", False, "")),  # a failed control
        ([], WORDS, ["a b"], True, ("clear", None, "")),
        ([], WORDS, ["a b"], False, ("open", None, "--minutes")),
    ],
)
def test_training_text_in_the_phrases_is_a_leak(rows, trained, never, complete, expected):
    stage = phrases_stage(rows, trained=trained, never=never, spaces={}, complete=complete)
    state, passed, needs = expected
    assert stage.state == state
    assert passed is None or stage.passed is passed
    assert stage.needs == needs


@pytest.mark.parametrize(
    ("secret", "text", "space", "state"),
    [
        ("zanzibar lantern copper", "so the phrase is zanzibar lantern copper", 1e7, "open"),
        ("4471 9026 3358", "pay 447190263358 today", 1e12, "leak"),
    ],
)
def test_a_secret_in_a_phrase_is_never_clear(secret, text, space, state):
    kind = "account" if state == "leak" else "repeated"
    spaces = {FoundSecret(secret, kind, ((0, "the phrase is "),)): space}
    stage = phrases_stage([phrase(text)], trained=WORDS, never=[], spaces=spaces)
    assert (stage.state, stage.direct is not None) == (state, state == "leak")


# The verdict.


def stage(name, state="clear", **more):
    return replace(
        clear_stage(name, state=state), **{"p": 0.5, "least": 1e-4, "estimate": None, **more}
    )


def verdict(*changed, positive=ALL_DETECTED):
    by_name = {stage.name: stage for stage in changed}
    return claim_of([by_name.get(name) or stage(name) for name in SHARES], positive, ALIVE).verdict


@pytest.mark.parametrize("name", SHARES)
def test_no_leak_shown_needs_every_stage_and_both_controls(name):
    assert verdict() == NO_LEAK
    for changed in ({"state": "open", "p": None}, {"passed": False}, {"passed": None}):
        assert verdict(stage(name, **changed)) == UNDECIDED
    for positive in (None, {**ALL_DETECTED, name: False}):
        assert verdict(positive=positive) == UNDECIDED


@pytest.mark.parametrize("name", SHARES)
def test_a_stage_is_significant_at_its_share_of_the_error_rate(name):
    level = 0.05 * SHARES[name]
    assert verdict(stage(name, "leak", p=0.99 * level)) == LEAK
    assert verdict(stage(name, p=1.01 * level)) == NO_LEAK
    assert verdict(stage(name, "open", p=0.01 * level)) == UNDECIDED


@pytest.mark.parametrize(
    ("changed", "expected"),
    [
        ({"state": "leak", "p": 1e-4, "passed": False}, UNDECIDED),
        ({"state": "leak", "p": 1e-4, "passed": False, "direct": ("verbatim", 1e-6)}, LEAK),
        ({"state": "open", "p": None, "direct": ("verbatim", 0.1)}, UNDECIDED),
    ],
)
def test_a_failed_negative_control_prevents_a_leak_without_direct_evidence(changed, expected):
    assert verdict(stage("secrets", **changed)) == expected


def test_unused_time_is_added_to_the_next_stage(monkeypatch):
    monkeypatch.setattr(work, "TIME", {"secrets": 0.25, "unprompted": 0.5, "control": 0.125})
    budget = work.Work.__new__(work.Work)
    budget.__dict__.update(started=100.0, minutes=2.0)
    assert [budget.deadline(name) for name in work.TIME] == [130.0, 190.0, 205.0]
