"""Keys become words, values get units, and secrets are redacted at all depths."""

import unicodedata

import pytest
from hypothesis import given
from hypothesis import strategies as st

from vestige.reports.disclosure import (
    BLOCK,
    disclose,
    disclose_facts,
    disclose_names,
    printable,
    redact,
    running_text,
)
from vestige.reports.words import label_of, pairs, value_text

# Words


def pairs_of(facts, **options):
    return dict(pairs(facts, show_secrets=False, **options))


@pytest.mark.parametrize(
    ("facts", "lines"),
    [
        ({"peak_memory_mib": 142.277}, {"peak memory": "142.3 MiB"}),
        ({"seconds": 214.07}, {"time": "214.1 s"}),
        ({"confidence": 0.95}, {"confidence": "95%"}),
        ({"learning_rate": 0.001}, {"learning rate": "0.001"}),
        ({"seed": 123456}, {"seed": "123456"}),
        ({"tokens_read": 123456}, {"tokens read": "123,456"}),
        ({"least_p_value": 0.29}, {"smallest p-value": "0.29"}),
        ({"validation_bleu": 31.5}, {"validation BLEU": "31.5"}),
        ({"stopped": False}, {"stopped": "no"}),
        ({"created": "2026-11-22T14:21:10+00:00"}, {"made on": "2026-11-22, 14:21 UTC"}),
        ({"sha256": "ab" * 32}, {"SHA-256": "abababababababab…"}),
        ({"below_0.01": 0.5}, {"below 0.01": "0.5"}),
        ({"sizes": [3, 4]}, {"sizes": "3, 4"}),
        # an interval is shown with its value, unless an end is unknown
        (
            {"exposure": 2.0, "exposure_low": 1.0, "exposure_high": 3.5, "gap_low": 1},
            {"exposure": "2 (1 to 3.5) bits", "gap low": "1"},
        ),
        ({"gap": 2, "gap_low": None, "gap_high": None}, {"gap": "2"}),
        # numbers beyond a float are shown by their logarithm
        ({"rank_upper": 40, "log10_rank_upper": 1.6}, {"rank, at most": "40"}),
        ({"rank_upper": None, "log10_rank_upper": 330.0}, {"log10 rank upper": "330"}),
        # unset values are left out
        ({"a": None, "b": "", "c": [], "d": {}, "e": 0}, {"e": "0"}),
        # settings are shown as words
        (
            {"noise": [{"scale": 0.1, "when": {"epoch": 2}}, {"name": "late", "scale": 3}]},
            {"noise": "scale 0.1, when epoch 2; late"},
        ),
    ],
)
def test_keys_become_words_and_values_have_units(facts, lines):
    assert pairs_of(facts) == lines


def test_long_lists_are_shortened_and_keys_can_be_left_out():
    assert pairs_of({"tags": list(range(15))})["tags"].endswith("11 and 3 more")
    result = pairs_of({"planted_rank": 1, "level": 2}, left_out="planted_.*")
    assert result == {"significance level": "2"}


@pytest.mark.parametrize("value", ["Rosalind", ["Rosalind", "b"], [["Rosalind"]]])
def test_secrets_are_redacted_at_all_depths(value):
    assert "Rosalind" not in value_text("phrase", value, show_secrets=False)
    assert "Rosalind" not in value_text("settings", [{"phrase": value}], show_secrets=False)
    assert "Rosalind" not in value_text("settings", {"name": {"phrase": value}}, show_secrets=False)
    assert "Rosalind" in value_text("phrase", value, show_secrets=True)


def test_token_ids_are_hidden_and_counts_are_shown():
    assert value_text("tokens", [4, 2], show_secrets=False) == "hidden"
    assert value_text("tokens", 5000, show_secrets=False) == "5,000"
    assert label_of("a\x1b[31m_b") == r"a\x1b[31m b"
    assert value_text("path", "\u202eabc", show_secrets=True) == r"\u202eabc"


# Texts of models and users


@pytest.mark.slow
@given(st.text(st.characters(exclude_categories=[])))
def test_printable_text_has_no_control_or_format_characters(text):
    assert all(unicodedata.category(character)[0] != "C" for character in printable(text))


@pytest.mark.parametrize("text", ["plain words", "naïve café", "東京", "50 % [bold]", "{{ x }}"])
def test_text_without_invisible_characters_is_unchanged(text):
    assert printable(text) == text


@pytest.mark.slow
@given(st.text(min_size=1).filter(lambda text: text.strip()))
def test_a_redacted_text_shows_only_its_number_of_words(text):
    assert redact(text).split() == [BLOCK] * len(text.split())
    assert redact(text) == redact("".join("x" if not c.isspace() else c for c in text))


@pytest.mark.parametrize("pair", [("Ann", "Bartholomew"), ("Ann Lee", "bob"), ("7", "49172")])
def test_redacted_names_look_the_same(pair):
    first, second = disclose_names(pair, show_secrets=False)
    assert first == second == BLOCK
    assert disclose_names(pair, show_secrets=True) == list(pair)


def test_secrets_can_be_shown_with_escaped_control_characters():
    assert disclose(["a\x1b[0m", " code"], show_secrets=True) == ["a\\x1b[0m", " code"]
    assert disclose(["a\x1b[0m", " code"], show_secrets=False) == [BLOCK, f" {BLOCK}"]


def test_a_json_summary_is_redacted_by_default():
    facts = {"phrase": "the code", "runs": {"text": ["a b", 3]}, "tokens": (7, 2), "rank": 1}
    redacted = {"phrase": f"{BLOCK} {BLOCK}", "runs": {"text": [f"{BLOCK} {BLOCK}", 3]}, "rank": 1}
    assert disclose_facts(facts, show_secrets=False) == {**redacted, "tokens": None}
    assert disclose_facts(facts, show_secrets=True) == facts


@pytest.mark.parametrize(
    ("pieces", "phrase", "text"),
    [
        (["the", "code"], "the code", "the code"),
        ([" per", "iw", "inkle", " snail"], " periwinkle snail", "periwinkle snail"),
        (["bu", "ff", "alo"], "buffalo", "buffalo"),  # no piece begins a word
        ([], "", ""),
    ],
)
def test_words_are_joined_with_spaces_and_subwords_without(pieces, phrase, text):
    assert running_text(pieces, phrase, show_secrets=True) == text
    # the redacted text does not show subwords
    hidden = running_text(pieces, phrase, show_secrets=False)
    assert hidden.split() == [BLOCK] * len(text.split())
