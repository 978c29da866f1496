"""The utterance whose unknown words are extracted, as options give it."""

import pytest

from vestige.workflows.extract_nlu import ExtractionTarget


def test_prefix_slots_and_suffix_are_joined_with_blanks():
    target = ExtractionTarget(prefix="my pin is", slots="{digit:2}", suffix="please")
    assert target.text == "my pin is {digit:2} please"
    assert ExtractionTarget(slots="{digit}").text == "{digit}"


def test_a_shorthand_is_the_papers_text_with_its_intent():
    pattern = ExtractionTarget(pattern="pin:4").parsed(["Play"])
    whole = ExtractionTarget(pattern="my pin code is {digit:4}", intent="PinIntent").parsed([])
    assert (pattern.intent, pattern.text) == (whole.intent, whole.text)
    assert pattern.candidates == whole.candidates


def test_sets_of_candidates_are_read_and_an_unused_one_is_refused():
    target = ExtractionTarget(slots="{name}", intent="Call", candidates=["name=ann,bob"])
    assert target.parsed([]).candidates == (("ann", "bob"),)
    unused = ExtractionTarget(slots="{digit}", intent="Call", candidates=["name=ann,bob"])
    with pytest.raises(ValueError, match="named by the unknown words, got 'name'"):
        unused.parsed([])


def test_forty_intents_are_named_where_none_was_given():
    names = [f"I{number}" for number in range(50)]
    with pytest.raises(ValueError, match="`intent` must be given") as caught:
        ExtractionTarget(slots="{digit}").parsed(names)
    assert str(caught.value).endswith("I38, I39, …")


def test_a_truth_that_does_not_fit_is_refused_without_its_words():
    target = ExtractionTarget(slots="{digit:2}", intent="Pin", truth="seven 4")
    with pytest.raises(ValueError, match="`truth` does not fit the pattern") as caught:
        target.truths(target.parsed([]))
    assert "seven" not in str(caught.value)
    assert ExtractionTarget(truth="4 7").truths(target.parsed([])) == [["4", "7"]]
    assert ExtractionTarget().truths(target.parsed([])) is None


def test_the_truth_is_not_among_the_settings_that_a_run_records():
    target = ExtractionTarget(slots="{digit:2}", intent="Pin", truth="4 7")
    assert target.configuration == {
        "pattern": "{digit:2}",
        "intent": "Pin",
        "slot": None,
        "candidates": [],
    }
