"""The original Snips files and NLU-Evaluation-Data."""

import json
from pathlib import Path
from typing import Any

import pytest

from vestige.data.formats.utterances import read_utterances
from vestige.data.utterances import Utterance
from vestige.errors import DataError

PIECES = [
    {"text": "Add "},
    {"text": "Live at Leeds", "entity": "album"},
    {"text": "'s songs to "},
    {"text": "my", "entity": "owner"},
    {"text": " list."},
]
ADDED = Utterance(
    ("Add", "Live", "at", "Leeds", "'s", "songs", "to", "my", "list."),
    ("O", "B-album", "I-album", "I-album", "O", "O", "O", "B-owner", "O"),
    "Add",
)


def put(tmp_path: Path, intent: str, file: str, content: Any) -> Path:
    folder = tmp_path / intent
    folder.mkdir(exist_ok=True)
    text = content if isinstance(content, bytes) else json.dumps(content).encode()
    (folder / f"{file}.json").write_bytes(text)
    return tmp_path


def intents(intent: str, *utterances: list[dict[str, str]]) -> dict[str, Any]:
    return {intent: [{"data": pieces} for pieces in utterances]}


def test_words_end_where_a_slot_ends(tmp_path: Path) -> None:
    put(tmp_path, "Add", "train_Add_full", intents("Add", PIECES))
    splits = read_utterances(tmp_path)
    assert list(splits.train) == [ADDED]
    assert splits.validation is splits.test is None


def test_neighbouring_slots_of_one_name_stay_two(tmp_path: Path) -> None:
    pieces = [{"text": "one two", "entity": "n"}, {"text": "three", "entity": "n"}]
    put(tmp_path, "Add", "train_Add_full", intents("Add", pieces))
    assert next(iter(read_utterances(tmp_path).train)).tags == ("B-n", "I-n", "B-n")


def test_the_full_file_is_preferred_and_intents_follow_by_name(tmp_path: Path) -> None:
    put(tmp_path, "Rate", "train_Rate", intents("Rate", [{"text": "rate"}]))
    put(tmp_path, "Add", "train_Add", intents("Add", [{"text": "short"}]))
    put(tmp_path, "Add", "train_Add_full", intents("Add", [{"text": "full"}], PIECES))
    put(tmp_path, "Rate", "validate_Rate", intents("Rate", [{"text": "held"}]))
    put(tmp_path, "Add", "validate_Add", intents("Add", [{"text": "held"}]))
    splits = read_utterances(tmp_path)
    assert [said.tokens[0] for said in splits.train] == ["full", "Add", "rate"]
    assert splits.validation is not None
    assert splits.validation.intents == ["Add", "Rate"]


def test_halves_of_a_character_are_joined(tmp_path: Path) -> None:
    halves = b'{"Add": [{"data": [{"text": "pop \xed\xa0\xbc\xed\xbd\x95"}]}]}'
    put(tmp_path, "Add", "train_Add_full", halves)
    assert next(iter(read_utterances(tmp_path).train)).tokens == ("pop", "🍕")


@pytest.mark.parametrize(
    ("content", "says"),
    [
        (b'{"Add": [', "invalid JSON"),
        (b"", "invalid JSON"),
        (b"[]", "it should be an object"),
        (b"{}", "has no utterances"),
        (b'{"Add": 3}', '"Add": it should be a list'),
        (b'{"Add": [\n{"data": [{"text": "\xe9"}]}]}', "line 2: not UTF-8"),
        (b'{"Add": [{"data": [{"text": "\xed\xa0\xbc"}]}]}', "line 1: not UTF-8"),
        (b'{"Add": [{"text": "a"}]}', '"Add[0].data": it is missing'),
        (b'{"Add": [{"data": [{"text": 3}]}]}', '"Add[0].data[0].text"'),
        (b'{"Add": [{"data": ["a"]}]}', '"Add[0].data[0]": it should be an object'),
        (b'{"Add": [{"data": [{"text": "a", "entity": 3}]}]}', '"Add[0].data[0].entity"'),
        (b'{"Add": [{"data": [{"text": " ", "entity": "x"}]}]}', "a slot has no words"),
        (b'{"Add": [{"data": [{"text": "a", "entity": ""}]}]}', "a slot has no name"),
        (b'{"Add": [{"data": [{"text": "a"}]}, {"data": []}]}', "utterance 2: it has no words"),
        (b'{"": [{"data": [{"text": "a"}]}]}', "utterance 1: it has no intent"),
    ],
)
def test_a_fault_names_the_file_and_the_utterance(
    content: bytes, says: str, tmp_path: Path
) -> None:
    put(tmp_path, "Add", "train_Add_full", content)
    with pytest.raises(DataError) as caught:
        read_utterances(tmp_path)
    assert says in str(caught.value)
    assert str(tmp_path) in str(caught.value)


def test_a_missing_file_or_folder_is_named(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"has no folder X with train_X_full\.json"):
        read_utterances(tmp_path, format="snips-json")
    put(tmp_path, "Add", "train_Add_full", intents("Add", PIECES))
    put(tmp_path, "Rate", "train_Rate_full", intents("Rate", PIECES))
    put(tmp_path, "Add", "validate_Add", intents("Add", PIECES))
    with pytest.raises(DataError, match=r"validate_Rate\.json does not exist"):
        read_utterances(tmp_path)


# NLU-Evaluation-Data.

HEADER = "answerid;scenario;intent;answer_annotation;answer_from_user\n"


def table(tmp_path: Path, *rows: str, header: str = HEADER) -> Path:
    path = tmp_path / "utterances.csv"
    path.write_text(header + "".join(f"{row}\n" for row in rows), encoding="utf-8")
    return path


def test_slots_inside_the_text_become_tags(tmp_path: Path) -> None:
    path = table(
        tmp_path,
        '1;email;send;"mail [person : ann lee], is [time:nine am] ok?";Mail!',
        "2;audio;volume_up;[device : radio] [device : tv];x",
    )
    expected = [
        Utterance(
            ("mail", "ann", "lee", ",", "is", "nine", "am", "ok?"),
            ("O", "B-person", "I-person", "O", "O", "B-time", "I-time", "O"),
            "email_send",
        ),
        Utterance(("radio", "tv"), ("B-device", "B-device"), "audio_volume_up"),
    ]
    for source in (path, tmp_path):
        splits = read_utterances(source)
        assert list(splits.train) == expected
        assert splits.validation is splits.test is None


@pytest.mark.parametrize(
    ("annotation", "says"),
    [
        ("wake me at [time : nine", "a bracket is not closed"),
        ("wake me at time : nine]", "not opened"),
        ("wake me at [nine]", "has no colon"),
        ("wake [time : at [hour : nine]]", "a bracket"),
        ("wake me at [time : ]", "a slot has no words"),
        ("wake me at [ : nine]", "a slot has no name"),
        ("", 'no text in the column "answer_annotation"'),
    ],
)
def test_a_faulty_row_is_named(annotation: str, says: str, tmp_path: Path) -> None:
    path = table(tmp_path, "1;a;b;fine;x", f"2;a;b;{annotation};x")
    with pytest.raises(DataError) as caught:
        read_utterances(path)
    assert f"{path}, row 2 below the header" in str(caught.value)
    assert says in str(caught.value)


def test_a_missing_scenario_or_column_is_named(tmp_path: Path) -> None:
    with pytest.raises(DataError, match='row 1 below the header: no text in the column "scena'):
        read_utterances(table(tmp_path, "1; ;b;fine;x"))
    path = table(tmp_path, "1;fine", header="answerid;answer_annotation\n")
    with pytest.raises(DataError, match='has no column "scenario"'):
        read_utterances(path, format="nlu-evaluation")
    with pytest.raises(DataError, match="has no utterances"):
        read_utterances(table(tmp_path))
