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


@given(st.text(st.characters(exclude_categories=[])))
def test_printable_text_holds_no_control_or_format_character(text):
    assert all(unicodedata.category(character)[0] != "C" for character in printable(text))


@pytest.mark.parametrize("text", ["plain words", "naïve café", "東京", "50 % [bold]", "{{ x }}"])
def test_text_without_invisible_characters_stays(text):
    assert printable(text) == text


@given(st.text(min_size=1).filter(lambda text: text.strip()))
def test_what_is_left_of_a_text_is_the_number_of_its_words(text):
    words = len(text.split())
    assert redact(text).split() == [BLOCK] * words
    assert redact(text) == redact("".join("x" if not c.isspace() else c for c in text))


@pytest.mark.parametrize("pair", [("Ann", "Bartholomew"), ("Ann Lee", "bob"), ("7", "49172")])
def test_two_names_look_the_same(pair):
    one, other = disclose_names(pair, show_secrets=False)
    assert one == other == BLOCK
    assert disclose_names(pair, show_secrets=True) == list(pair)


def test_how_a_word_is_split_into_subwords_does_not_show_in_running_text():
    pieces = [" per", "iw", "inkle", " snail"]
    assert running_text(pieces, " periwinkle snail", show_secrets=False) == f"{BLOCK} {BLOCK}"


def test_secrets_are_shown_when_they_are_wanted_and_controls_even_then_are_not():
    assert disclose(["a\x1b[0m", " code"], show_secrets=True) == ["a\\x1b[0m", " code"]
    assert disclose(["a\x1b[0m", " code"], show_secrets=False) == [BLOCK, f" {BLOCK}"]


def test_a_summary_for_programs_holds_no_secret_unless_it_is_wanted():
    facts = {"phrase": "the code", "runs": {"text": ["a b", 3]}, "tokens": (7, 2), "rank": 1}
    closed = {"phrase": f"{BLOCK} {BLOCK}", "runs": {"text": [f"{BLOCK} {BLOCK}", 3]}, "rank": 1}
    assert disclose_facts(facts, show_secrets=False) == {**closed, "tokens": None}
    assert disclose_facts(facts, show_secrets=True) == facts


def test_words_are_joined_with_spaces_and_subwords_with_their_own():
    def shown(pieces, phrase):
        return running_text(pieces, phrase, show_secrets=True)

    assert shown(["the", "code"], "the code") == "the code"
    assert shown([" per", "iw", "inkle", " snail"], " periwinkle snail") == "periwinkle snail"
    assert shown(["bu", "ff", "alo"], "buffalo") == "buffalo"  # no piece begins a word
    assert shown([], "") == ""
