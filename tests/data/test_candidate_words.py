"""Patterns, intents and candidate words as options give them."""

import pytest

from vestige.data.canaries.patterns import candidate_sets, require_used, with_intents
from vestige.data.files import read_lines
from vestige.data.utterances import Utterance, Utterances
from vestige.errors import DataError
from vestige.preparation.plant import plant

SONGS = Utterances.of([Utterance(("play", "it"), ("O", "B-song"), "Play")] * 20)


def test_every_pattern_has_its_canaries_and_controls():
    names = {"name": ("ann", "bob", "cid", "dan")}
    found = plant(
        SONGS, task="nlu", pattern=["pin:2", "i am {name}"], intent="Introduce", candidates=names,
        copies=4, number=2, controls=1,
    )  # fmt: skip
    canaries = found.manifest.canaries
    assert [(c.intent, c.copies) for c in canaries] == [
        ("PinIntent", 4), ("PinIntent", 4), ("PinIntent", 0),
        ("Introduce", 4), ("Introduce", 4), ("Introduce", 0),
    ]  # fmt: skip
    assert len({canary.utterance.text for canary in canaries}) == len(canaries)


def test_what_is_left_out_has_the_defaults():
    planted, control = plant(SONGS, task="nlu", pattern="pin:4", seed=3).manifest.canaries
    assert (planted.copies, control.copies, planted.slot) == (10, 0, "canary")


def test_a_mapping_and_its_entries_are_the_same_sets(tmp_path):
    (tmp_path / "towns.txt").write_text("york leeds\nbath\n")
    entries = ["name=ann,bob", f"town=@{tmp_path / 'towns.txt'}"]
    mapping = {"name": ["ann", "bob"], "town": ("york", "leeds", "bath")}
    assert candidate_sets(entries) == candidate_sets(mapping)


@pytest.mark.parametrize("entry", ["name", "=a,b", "name="])
def test_an_entry_without_name_or_words_is_told_by_its_number(entry):
    with pytest.raises(ValueError, match="number 2 is not") as error:
        candidate_sets(["town=york,bath", entry])
    assert "york" not in str(error.value)


def test_a_name_twice_is_refused():
    with pytest.raises(ValueError, match="got 'name' twice"):
        candidate_sets(["name=a,b", "name=c,d"])


def test_a_set_that_no_pattern_names_is_refused():
    require_used({"name": ()}, ["call {name:2}"], by="a `pattern`")
    with pytest.raises(ValueError, match="named by a `pattern`, got 'town', which none names"):
        require_used({"name": (), "town": ()}, ["call {name:2}"], by="a `pattern`")


@pytest.mark.parametrize("intents", [[], ["A", "B"]])
def test_own_patterns_need_as_many_intents(intents):
    with pytest.raises(ValueError, match=rf"\(1\), got {len(intents)}"):
        with_intents(["my pin is {digit}"], intents)


def test_a_file_that_is_no_text_is_named(tmp_path):
    (tmp_path / "words.txt").write_bytes(b"caf\xe9\n")
    with pytest.raises(DataError, match=r"words\.txt: not UTF-8 at byte 3"):
        read_lines(tmp_path / "words.txt", one="word")
    with pytest.raises(DataError, match="none is missing"):
        read_lines(tmp_path / "none", one="phrase")
