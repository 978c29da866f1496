"""The tests of a check against their definitions."""

from dataclasses import replace

import pytest

from vestige.audits.check.secrets import FALSE, KNOWN, is_known
from vestige.audits.check.secrets import compared as compared_known
from vestige.audits.check.unprompted import compared, passages_of, phrases_stage
from vestige.audits.check.verdict import SHARES, Stage, claim_of
from vestige.claims import LEAK, NO_LEAK, UNDECIDED, Check
from vestige.data.secrets.alternatives import FoundSecret


def test_known_secrets_are_compared_with_the_rate_of_placebos():
    placebos = [True] + [False] * 18  # a rate of 2 in 20
    assert compared_known([True] * 3, placebos)[0] == pytest.approx(0.1**3)
    assert compared_known([True, False], placebos)[0] == pytest.approx(1 - 0.9**2)
    assert compared_known([False] * 3, placebos)[0] == 1


def test_the_rate_is_never_below_that_of_alternatives():
    assert compared_known([True], [False] * 10**4) == pytest.approx((FALSE, FALSE))


def test_a_secret_is_known_by_a_wide_margin_or_verbatim():
    gain = {"score": KNOWN, "rank": 1, "greedy": False}
    assert is_known(gain)
    assert not is_known({**gain, "rank": 2})
    assert not is_known({**gain, "score": KNOWN - 0.1})
    assert is_known({"rank": 2, "score": 0, "greedy": True})


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
    assert phrases_stage(rows, trained=WORDS, never=never, spaces={}).state == "leak"
    found = phrases_stage(rows, trained=never, never=WORDS, spaces={})
    assert (found.state, found.passed) == ("clear", False)


def test_a_search_that_was_stopped_is_not_clear_but_what_it_found_counts():
    rows = [phrase(text) for text in WORDS]
    known = {"trained": WORDS, "never": ("a b",), "spaces": {}}
    stopped = phrases_stage(rows[:0], **known, complete=False)
    assert (stopped.state, stopped.needs) == ("open", "--minutes")
    assert phrases_stage(rows[:0], **known).state == "clear"
    never = [text.replace("horse", "dog") for text in WORDS]
    leaky = {"trained": WORDS, "never": never, "spaces": {}}
    assert phrases_stage(rows, **leaky, complete=False).state == "leak"


def test_a_secret_in_a_phrase_that_is_no_proof_is_never_clear():
    secret = FoundSecret("zanzibar lantern copper", "repeated", ((0, "the phrase is "),))
    found = phrases_stage(
        [phrase("so the phrase is zanzibar lantern copper")],
        trained=WORDS,
        never=[],
        spaces={secret: 1e7},
    )
    assert (found.state, found.direct) == ("open", None)
    random = replace(secret, value="4471 9026 3358", kind="account")
    found = phrases_stage(
        [phrase("pay 447190263358 today")], trained=WORDS, never=[], spaces={random: 1e12}
    )
    assert found.state == "leak"


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
