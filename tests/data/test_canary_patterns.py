"""Patterns of utterance canaries, and their random secrets."""

import itertools

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from vestige.data.canaries.patterns import (
    CANDIDATES,
    LONGEST,
    PAPER_PATTERNS,
    SecretPattern,
    candidate_sets,
    draw_secrets,
    named_sets,
    paper_pattern,
    require_used,
    with_intents,
)
from vestige.data.canaries.utterances import SecretCanary, secret_canaries
from vestige.data.files import read_lines
from vestige.data.utterances import Utterance, Utterances, fault
from vestige.errors import DataError
from vestige.preparation.plant import plant

NAMES = {"name": ("ann", "bob", "cid")}
PIN = SecretPattern.parse("pin {digit:4}", intent="Pin")
SMALL = SecretPattern.parse("{coin} {coin}", intent="X", candidates={"coin": ("head", "tail")})


@pytest.mark.parametrize(
    ("shorthand", "text", "intent", "tags"),
    [
        ("pin:4", "my pin code is 1 2 3 4", "PinIntent", "O O O O B I I I"),
        ("call:3", "call 1 2 3", "CallIntent", "O B I I"),
        ("color:2", "color red lilac", "ColorIntent", "O B I"),
        ("color:1", "color mauve", "ColorIntent", "O B"),
    ],
)
def test_shorthands_give_the_canaries_of_the_papers_appendix(shorthand, text, intent, tags):
    template, label = paper_pattern(shorthand)
    prefix_length = len(template.split()) - 1
    secret = text.split()[prefix_length:]
    utterance = SecretPattern.parse(template, intent=label).utterance(secret)
    assert (utterance.text, utterance.intent) == (text, intent)
    assert utterance.tags == tuple(tag if tag == "O" else f"{tag}-canary" for tag in tags.split())
    assert len(CANDIDATES["digit"]) == 10
    assert len(CANDIDATES["color"]) == len(set(CANDIDATES["color"])) == 12
    assert set(PAPER_PATTERNS) == {"pin", "call", "color"}


@pytest.mark.parametrize(
    "shorthand", ["pin", "pin:0", "pin:-1", "zip:4", "pin:four", "pin:4:4", "", ":4", "pin:1000000"]
)
def test_the_error_about_an_unknown_shorthand_lists_the_known_ones(shorthand):
    with pytest.raises(ValueError, match=r"one of pin:N, call:N, color:N, or text .*digit:4"):
        paper_pattern(shorthand)


def test_a_pattern_counts_its_secrets_and_tags_its_slots():
    pattern = SecretPattern.parse("{name} has {digit:2}", intent="Has", candidates=NAMES)
    secrets = list(itertools.product(*pattern.candidates))
    assert pattern.space == len(secrets) == 300
    assert len({pattern.utterance(secret).text for secret in secrets}) == 300
    options = {"intent": "Call", "slot": "x", "candidates": NAMES}
    pattern = SecretPattern.parse("{name} calls {digit:2} now", **options)
    assert pattern.tags == ("B-x", "O", "B-x", "I-x", "O")  # separate words are separate slots
    assert pattern.positions == (0, 2, 3)
    assert pattern.text == "_ calls _ _ now"


@given(st.lists(st.sampled_from(["a", "b", "{digit}", "{name:2}"]), min_size=1, max_size=8))
def test_every_utterance_of_a_pattern_is_well_formed(parts):
    text = " ".join([*parts, "{digit}"])
    pattern = SecretPattern.parse(text, intent="X", candidates=NAMES)
    utterance = pattern.utterance([words[-1] for words in pattern.candidates])
    assert fault(utterance) is None
    assert len(utterance.tokens) == len(pattern.words)
    assert pattern.length == len(pattern.positions) == len(pattern.candidates)


@pytest.mark.parametrize(
    ("text", "options", "message"),
    [
        ("hello there", {}, "must have unknown words"),
        ("pin {digit:0}", {}, "must ask for 1 to 100 words"),
        (paper_pattern(f"pin:{LONGEST + 1}")[0], {}, "1 to 100 words"),
        ("pin {word:2}", {}, "must name one of color, digit"),
        ("pin x{digit:2}", {}, "with blanks around them"),
        ("pin {digit:2", {}, "with blanks around them"),
        ("pin {digit}", {"intent": ""}, "intent and slot must be names"),
        ("pin {digit}", {"slot": ""}, "intent and slot must be names"),
        ("pin {one}", {"candidates": {"one": ["a"]}}, "at least two words"),
        ("pin {two}", {"candidates": {"two": ["a", "a"]}}, "all different"),
        ("pin {two}", {"candidates": {"two": ["a", "b c"]}}, "single words; number 2 is not"),
        ("pin {two}", {"candidates": {"two": ["a", ""]}}, "single words; number 2 is not"),
        (
            "{name:100}",
            {"candidates": {"name": [*map(str, range(1100))]}},
            r"at most 2\^1000 secrets",
        ),
    ],
)
def test_a_malformed_pattern_is_refused(text, options, message):
    with pytest.raises(ValueError, match=message):
        SecretPattern.parse(text, **{"intent": "Pin", **options})


def test_errors_about_impossible_secrets_do_not_quote_them():
    with pytest.raises(ValueError, match="must have 4 words, got 3"):
        PIN.utterance("123")
    with pytest.raises(ValueError, match="word 2 of the secret must be one of") as caught:
        PIN.utterance(["1", "hunter", "3", "4"])
    assert "hunter" not in str(caught.value)
    with pytest.raises(ValueError, match="word 1 of the secret") as caught:
        SecretCanary(pattern="pin {digit}", intent="P", slot="s", secret=("hunter",), copies=1)
    assert "hunter" not in str(caught.value)


def test_secrets_are_sampled_uniformly_without_replacement_and_exclusions():
    expected = list(itertools.product(["head", "tail"], repeat=2))
    assert sorted(draw_secrets(SMALL, number=4, seed=0)) == expected
    exclude = [("head", "head"), ["head", "tail"]]
    assert sorted(draw_secrets(SMALL, number=2, seed=0, exclude=exclude)) == expected[2:]
    counts = dict.fromkeys(expected, 0)
    for seed in range(800):
        counts[draw_secrets(SMALL, number=1, seed=seed)[0]] += 1
    chi_square = sum((count - 200) ** 2 / 200 for count in counts.values())
    assert chi_square < 16.3  # 0.999 quantile at 3 degrees of freedom


def test_digits_are_uniform_and_very_large_spaces_can_be_sampled():
    secrets = np.array(draw_secrets(PIN, number=2000, seed=0)).astype(int)
    for column in secrets.T:
        chi_square = ((np.bincount(column, minlength=10) - 200) ** 2 / 200).sum()
        assert chi_square < 27.9  # 0.999 quantile at 9 degrees of freedom
    text, intent = paper_pattern("color:10")
    colours = SecretPattern.parse(text, intent=intent)
    secrets = draw_secrets(colours, number=500, seed=1)
    assert colours.space == 12**10
    assert len(set(secrets)) == 500
    for secret in secrets:
        colours.check(secret)
    beyond = SecretPattern.parse("{digit:60}", intent="X")  # 10^60 exceeds 64 bits
    assert len(draw_secrets(beyond, number=3, seed=1)) == 3


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"number": 5}, "number must be at most 4"),
        ({"number": 4, "exclude": [("head", "head")]}, "number must be at most 3"),
        ({"number": 1, "exclude": [("head",)]}, "must have 2 words"),
        ({"number": 1, "exclude": [("head", "edge")]}, "word 2 of the secret must be one of"),
    ],
)
def test_impossible_numbers_and_exclusions_are_refused(options, message):
    with pytest.raises(ValueError, match=message):
        draw_secrets(SMALL, seed=0, **options)


def paper_canaries(shorthand, **options):
    text, intent = paper_pattern(shorthand)
    return secret_canaries(text, intent=intent, **{"copies": 10, "seed": 0, **options})


def test_secrets_depend_on_the_seed_and_a_larger_sample_extends_a_smaller_one():
    assert draw_secrets(PIN, number=9, seed=3)[:4] == draw_secrets(PIN, number=4, seed=3)
    assert draw_secrets(PIN, number=4, seed=4) != draw_secrets(PIN, number=4, seed=3)
    assert [c.secret for c in paper_canaries("pin:4")] != [
        c.secret for c in paper_canaries("call:4")
    ]
    assert paper_canaries("pin:4", controls=9)[:2] == paper_canaries("pin:4", controls=1)


def test_canaries_come_first_and_controls_are_never_planted():
    canaries = paper_canaries("pin:4", number=3, controls=5)
    assert [canary.copies for canary in canaries] == [10] * 3 + [0] * 5
    assert [canary.control for canary in canaries] == [False] * 3 + [True] * 5
    assert all(canary.planted != canary.control for canary in canaries)
    assert len({canary.secret for canary in canaries}) == 8
    assert {canary.pattern for canary in canaries} == {"my pin code is {digit:4}"}
    with pytest.raises(ValueError, match="must be at most 10 together"):
        paper_canaries("pin:1", number=6, controls=5)


def test_a_canary_records_its_secret_and_the_candidates_of_its_pattern():
    [canary, _] = paper_canaries("color:3")
    assert canary.utterance.text == "color " + " ".join(canary.secret)
    sets = {"name": ["ann", "bob"], "other": ["x", "y"]}
    options = {"intent": "X", "candidates": sets, "copies": 1, "seed": 0, "slot": "who"}
    [canary, _] = secret_canaries("{name} {digit}", **options)
    assert dict(canary.candidates) == {"name": ("ann", "bob"), "digit": tuple("0123456789")}
    assert canary.utterance.tags == ("B-who", "I-who")


SONGS = Utterances.of([Utterance(("play", "it"), ("O", "B-song"), "Play")] * 20)


def test_every_pattern_has_its_canaries_and_controls():
    options = {"pattern": ["pin:2", "i am {name}"], "intent": "Introduce", "number": 2}
    planting = plant(SONGS, task="nlu", candidates={"name": NAMES["name"]}, copies=4, **options)
    canaries = planting.manifest.canaries
    expected = [(intent, n) for intent in ("PinIntent", "Introduce") for n in (4, 4, 0)]
    assert [(canary.intent, canary.copies) for canary in canaries] == expected
    assert len({canary.utterance.text for canary in canaries}) == len(canaries)
    planted, control = plant(SONGS, task="nlu", pattern="pin:4", seed=3).manifest.canaries
    assert (planted.copies, control.copies, planted.slot) == (10, 0, "canary")


def test_candidate_sets_are_read_from_mappings_and_from_entries(tmp_path):
    (tmp_path / "towns.txt").write_text("york leeds\nbath\n")
    entries = ["name=ann,bob", f"town=@{tmp_path / 'towns.txt'}"]
    mapping = {"name": ["ann", "bob"], "town": ("york", "leeds", "bath")}
    assert candidate_sets(entries) == candidate_sets(mapping)
    assert named_sets("a {name:2} {digit} {name} b") == ("name", "digit")
    assert named_sets("no place here") == ()


def test_invalid_options_are_refused(tmp_path):
    for entry in ("name", "=a,b", "name="):
        with pytest.raises(ValueError, match="number 2 is not") as error:
            candidate_sets(["town=york,bath", entry])
        assert "york" not in str(error.value)
    with pytest.raises(ValueError, match="got 'name' twice"):
        candidate_sets(["name=a,b", "name=c,d"])
    require_used({"name": ()}, ["call {name:2}"], by="a `pattern`")
    with pytest.raises(ValueError, match="named by a `pattern`, got 'town', which none names"):
        require_used({"name": (), "town": ()}, ["call {name:2}"], by="a `pattern`")
    for intents in ([], ["A", "B"]):
        with pytest.raises(ValueError, match=rf"\(1\), got {len(intents)}"):
            with_intents(["my pin is {digit}"], intents)
    (tmp_path / "words.txt").write_bytes(b"caf\xe9\n")
    with pytest.raises(DataError, match=r"words\.txt: not UTF-8 at byte 3"):
        read_lines(tmp_path / "words.txt", item="word")
    with pytest.raises(DataError, match="none is missing"):
        read_lines(tmp_path / "none", item="phrase")
