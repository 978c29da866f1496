import unicodedata

import pytest
from hypothesis import given
from hypothesis import strategies as st

from vestige.reports.disclosure import BLOCK, disclose, printable, redact, running_text


@given(st.text(st.characters(exclude_categories=[])))
def test_printable_text_holds_no_control_or_format_character(text):
    assert all(unicodedata.category(character)[0] != "C" for character in printable(text))


@pytest.mark.parametrize("text", ["plain words", "naïve café", "東京", "50 % [bold]", "{{ x }}"])
def test_text_without_invisible_characters_stays(text):
    assert printable(text) == text


@given(st.text())
def test_redaction_keeps_length_and_spaces(text):
    hidden = redact(text)
    assert len(hidden) == len(text)
    assert [c.isspace() for c in hidden] == [c.isspace() for c in text]


@given(st.text())
def test_redaction_leaves_only_blocks_spaces_and_latin_initials(text):
    left = {c for c in redact(text) if c != BLOCK and not c.isspace()}
    assert all(c.isascii() and c.isalpha() for c in left)


def test_digits_are_never_shown():
    assert redact("PIN 4917-22") == f"{BLOCK * 3} {BLOCK * 7}"


def test_secrets_are_shown_when_they_are_wanted_and_controls_even_then_are_not():
    assert disclose(["a\x1b[0m", " code"], show_secrets=True) == ["a\\x1b[0m", " code"]
    assert disclose(["a\x1b[0m", " code"], show_secrets=False) == [BLOCK * 8, f" c{BLOCK * 3}"]


def test_words_are_joined_with_spaces_and_subwords_with_their_own():
    def shown(pieces, phrase):
        return running_text(pieces, phrase, show_secrets=True)

    assert shown(["the", "code"], "the code") == "the code"
    assert shown([" per", "iw", "inkle", " snail"], " periwinkle snail") == "periwinkle snail"
    assert shown(["bu", "ff", "alo"], "buffalo") == "buffalo"  # no piece begins a word
    assert shown([], "") == ""
