import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from vestige.data.canaries.patterns import (
    CANDIDATES,
    LONGEST,
    PAPER_PATTERNS,
    SecretPattern,
    named_sets,
    paper_pattern,
)
from vestige.data.utterances import fault

NAMES = {"name": ("ann", "bob", "cid")}


@pytest.mark.parametrize(
    ("shorthand", "text", "intent", "tags"),
    [
        (
            "pin:4",
            "my pin code is 1 2 3 4",
            "PinIntent",
            "O O O O B-canary I-canary I-canary I-canary",
        ),
        ("call:3", "call 1 2 3", "CallIntent", "O B-canary I-canary I-canary"),
        ("color:2", "color red lilac", "ColorIntent", "O B-canary I-canary"),
        ("color:1", "color mauve", "ColorIntent", "O B-canary"),
    ],
)
def test_the_papers_canaries_read_as_in_its_appendix(shorthand, text, intent, tags):
    template, labelled = paper_pattern(shorthand)
    known = len(template.split()) - 1
    said = SecretPattern.parse(template, intent=labelled).utterance(text.split()[known:])
    assert said.text == text
    assert said.intent == intent
    assert said.tags == tuple(tags.split())


def test_the_sets_have_the_papers_sizes():
    assert len(CANDIDATES["digit"]) == 10
    assert len(CANDIDATES["color"]) == len(set(CANDIDATES["color"])) == 12
    assert set(PAPER_PATTERNS) == {"pin", "call", "color"}


@pytest.mark.parametrize(
    "shorthand", ["pin", "pin:0", "pin:-1", "zip:4", "pin:four", "pin:4:4", "", ":4", "pin:1000000"]
)
def test_an_unknown_shorthand_is_refused_with_those_there_are(shorthand):
    with pytest.raises(ValueError, match=r"one of pin:N, call:N, color:N, or text .*digit:4"):
        paper_pattern(shorthand)


def test_a_shorthand_longer_than_any_utterance_is_refused_when_it_is_read():
    with pytest.raises(ValueError, match="1 to 100 words"):
        SecretPattern.parse(paper_pattern(f"pin:{LONGEST + 1}")[0], intent="Pin")


def test_the_space_is_the_number_of_secrets_one_by_one():
    pattern = SecretPattern.parse("{name} has {digit:2}", intent="Has", candidates=NAMES)
    secrets = list(itertools.product(*pattern.candidates))
    assert pattern.space == len(secrets) == 300
    assert len({pattern.utterance(secret).text for secret in secrets}) == 300


def test_unknown_words_apart_are_slots_apart():
    pattern = SecretPattern.parse(
        "{name} calls {digit:2} now", intent="Call", slot="x", candidates=NAMES
    )
    assert pattern.tags == ("B-x", "O", "B-x", "I-x", "O")
    assert pattern.places == (0, 2, 3)
    assert pattern.text == "_ calls _ _ now"


@given(st.lists(st.sampled_from(["a", "b", "{digit}", "{name:2}"]), min_size=1, max_size=8))
def test_every_utterance_of_a_pattern_is_well_formed(parts):
    text = " ".join([*parts, "{digit}"])
    pattern = SecretPattern.parse(text, intent="X", candidates=NAMES)
    said = pattern.utterance([place[-1] for place in pattern.candidates])
    assert fault(said) is None
    assert len(said.tokens) == len(pattern.words)
    assert pattern.length == len(pattern.places) == len(pattern.candidates)


def test_the_sets_that_a_text_names_come_once_and_in_order():
    assert named_sets("a {name:2} {digit} {name} b") == ("name", "digit")
    assert named_sets("no place here") == ()


@pytest.mark.parametrize(
    ("text", "options", "message"),
    [
        ("hello there", {}, "must have unknown words"),
        ("pin {digit:0}", {}, "must ask for 1 to 100 words"),
        ("pin {digit:101}", {}, "must ask for 1 to 100 words"),
        ("pin {word:2}", {}, "must name one of color, digit"),
        ("pin x{digit:2}", {}, "with blanks around them"),
        ("pin {digit:2", {}, "with blanks around them"),
        ("pin {digit:}", {}, "with blanks around them"),
        ("pin {digit}", {"intent": ""}, "intent and slot must be names"),
        ("pin {digit}", {"slot": "a b"}, "intent and slot must be names"),
        ("pin {digit}", {"slot": ""}, "intent and slot must be names"),
        ("pin {one}", {"candidates": {"one": ["a"]}}, "at least two words"),
        ("pin {two}", {"candidates": {"two": ["a", "a"]}}, "all different"),
        ("pin {two}", {"candidates": {"two": ["a", "b c"]}}, "single words; number 2 is not"),
        ("pin {two}", {"candidates": {"two": ["a", ""]}}, "single words; number 2 is not"),
    ],
)
def test_a_malformed_pattern_is_refused(text, options, message):
    with pytest.raises(ValueError, match=message):
        SecretPattern.parse(text, **{"intent": "Pin", **options})


def test_a_secret_that_cannot_be_is_refused_without_being_named():
    pattern = SecretPattern.parse("pin {digit:2}", intent="Pin")
    with pytest.raises(ValueError, match="must have 2 words, got 3"):
        pattern.utterance("123")
    with pytest.raises(ValueError, match="word 2 of the secret must be one of") as caught:
        pattern.utterance(["1", "hunter"])
    assert "hunter" not in str(caught.value)


def test_more_secrets_than_a_rank_can_count_are_refused():
    names = [f"name{number}" for number in range(1100)]
    with pytest.raises(ValueError, match=r"at most 2\^1000 secrets, got 100 unknown words"):
        SecretPattern.parse("{name:100}", intent="Call", candidates={"name": names})
