from pathlib import Path

import pytest

from vestige.data.loaders.utterances import read_utterances
from vestige.data.utterances import Utterance
from vestige.errors import DataError

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
def test_a_fault_names_file_and_row(annotation: str, says: str, tmp_path: Path) -> None:
    path = table(tmp_path, "1;a;b;fine;x", f"2;a;b;{annotation};x")
    with pytest.raises(DataError) as caught:
        read_utterances(path)
    assert f"{path}, row 2 below the header" in str(caught.value)
    assert says in str(caught.value)


def test_a_missing_scenario_or_column_is_named(tmp_path: Path) -> None:
    with pytest.raises(DataError, match='row 1 below the header has no text in the column "scena'):
        read_utterances(table(tmp_path, "1; ;b;fine;x"))
    path = table(tmp_path, "1;fine", header="answerid;answer_annotation\n")
    with pytest.raises(DataError, match='has no column "scenario"'):
        read_utterances(path, format="nlu-evaluation")
    with pytest.raises(DataError, match="has no utterances"):
        read_utterances(table(tmp_path))
