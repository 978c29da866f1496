"""The utterance whose unknown words are extracted, as options give it."""

import pytest

from vestige.audits.extraction.utterances import pattern_of, words_of


def parsed(text, intent=None, candidates=(), intents=()):
    return pattern_of(text, intent, None, candidates, intents=intents)


def test_a_shorthand_is_the_papers_text_with_its_intent():
    pattern = parsed("pin:4", intents=["Play"])
    whole = parsed("my pin code is {digit:4}", "PinIntent")
    assert (pattern.intent, pattern.text) == (whole.intent, whole.text)
    assert pattern.candidates == whole.candidates


def test_sets_of_candidates_are_read_and_an_unused_one_is_refused():
    sets = ["name=ann,bob"]
    assert parsed("{name}", "Call", sets).candidates == (("ann", "bob"),)
    with pytest.raises(ValueError, match="named by the unknown words, got 'name'"):
        parsed("{digit}", "Call", sets)


def test_forty_intents_are_named_where_none_was_given():
    names = [f"I{number}" for number in range(50)]
    with pytest.raises(ValueError, match="`intent` must be given") as caught:
        parsed("{digit}", intents=names)
    assert str(caught.value).endswith("I38, I39, …")


def test_a_truth_that_does_not_fit_is_refused_without_its_words():
    pattern = parsed("{digit:2}", "Pin")
    with pytest.raises(ValueError, match="`truth` does not fit the pattern") as caught:
        words_of("seven 4", pattern)
    assert "seven" not in str(caught.value)
    assert words_of("4 7", pattern) == ["4", "7"]
