from pathlib import Path

import pytest

from vestige.data.loaders.parallel_tags import read_parallel_tags
from vestige.data.loaders.utterances import read_utterances
from vestige.data.utterances import Utterance
from vestige.errors import DataError

WORDS = "play  jazz \nrain in york\n"
TAGS = "O B-genre \nO O B-city\n"
LABELS = "Play\nWeather \n"


def folder(tmp_path: Path, words: str = WORDS, tags: str = TAGS, labels: str = LABELS) -> Path:
    for name, content in (("seq.in", words), ("seq.out", tags), ("label", labels)):
        (tmp_path / name).write_text(content, encoding="utf-8", newline="")
    return tmp_path


def test_lines_of_three_files_make_an_utterance(tmp_path: Path) -> None:
    assert list(read_parallel_tags(folder(tmp_path))) == [
        Utterance(("play", "jazz"), ("O", "B-genre"), "Play"),
        Utterance(("rain", "in", "york"), ("O", "O", "B-city"), "Weather"),
    ]


def test_line_ends_and_blank_lines_at_the_end_are_of_no_account(tmp_path: Path) -> None:
    plain = read_parallel_tags(folder(tmp_path)).fingerprint()
    for words in (WORDS.replace("\n", "\r\n"), WORDS + "\n\n", WORDS.rstrip("\n")):
        assert read_parallel_tags(folder(tmp_path, words)).fingerprint() == plain


@pytest.mark.parametrize(
    ("changed", "says"),
    [
        ({"words": "play some jazz\nrain in york\n"}, "line 1 of seq.in, seq.out and label"),
        ({"tags": "O B-genre\nO O I-city\n"}, "line 2 of seq.in, seq.out and label: tag 3"),
        ({"tags": "O genre\nO O B-city\n"}, "tag 2 is not O"),
        ({"labels": "\nWeather\n"}, "line 1 of seq.in, seq.out and label: it has no intent"),
        ({"words": "\nrain in york\n", "tags": "\nO O B-city\n"}, "no words"),
        ({"labels": "Play\n"}, "(seq.in 2, seq.out 2, label 1)"),
        ({"labels": "Play\n"}, "line 2 is missing"),
        ({"words": "", "tags": "", "labels": ""}, "has no utterances"),
    ],
)
def test_a_fault_names_folder_and_line(changed: dict[str, str], says: str, tmp_path: Path) -> None:
    with pytest.raises(DataError) as caught:
        read_parallel_tags(folder(tmp_path, **changed))
    assert str(tmp_path) in str(caught.value)
    assert says in str(caught.value)


@pytest.mark.parametrize("name", ["seq.in", "seq.out", "label"])
def test_a_missing_file_is_named_through_the_door_too(name: str, tmp_path: Path) -> None:
    part = tmp_path / "train"
    part.mkdir()
    (folder(part) / name).unlink()
    with pytest.raises(DataError, match=f"train has no {name}"):
        read_utterances(tmp_path)


def test_bytes_that_are_not_utf8_are_placed(tmp_path: Path) -> None:
    (folder(tmp_path) / "seq.in").write_bytes(b"play jazz\nrain in y\xf6rk\n")
    with pytest.raises(DataError, match=r"seq\.in, line 2, byte 10 \(0xf6\)"):
        read_parallel_tags(tmp_path)
