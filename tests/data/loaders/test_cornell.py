from pathlib import Path

import pytest

from vestige.data.loaders import read_corpus
from vestige.data.loaders.cornell import read_cornell
from vestige.errors import DataError

SEP = " +++$+++ "
# As in the release: the last line of a conversation comes first.
SPOKEN = [
    ("L12", "u0", "m0", "ANN", "Fine."),
    ("L11", "u1", "m0", "BOB", "How are <u>you</u>?"),
    ("L10", "u0", "m0", "ANN", "Hello."),
    ("L5", "u0", "m0", "ANN", "And then?"),
    ("L4", "u0", "m0", "ANN", "Once more."),
    ("L3", "u1", "m0", "BOB", "Never."),
    ("L13", "u2", "m1", "ANN", "Another film."),
]
CHARACTERS = [("u0", "ANN", "m0", "first film", "f", "1"), ("u2", "ANN", "m1", "second", "?", "?")]


def file(path: Path, rows: list[tuple[str, ...]], tail: bytes = b"") -> Path:
    path.parent.mkdir(exist_ok=True, parents=True)
    path.write_bytes("".join(SEP.join(row) + "\r\n" for row in rows).encode("cp1252") + tail)
    return path


def folder(tmp_path: Path) -> Path:
    file(tmp_path / "movie_lines.txt", SPOKEN)
    file(tmp_path / "movie_characters_metadata.txt", CHARACTERS)
    return tmp_path


def test_a_reply_answers_the_line_before_it_by_another_character(tmp_path: Path) -> None:
    corpus = read_cornell(folder(tmp_path))
    assert list(corpus) == ["Once more.", "How are you?", "Fine."]
    assert corpus.sources == ["Never.", "Hello.", "How are you?"]
    assert corpus.users == ["u0", "u1", "u0"]
    assert corpus.labels == ["first film"] * 3


def test_a_file_of_conversations_decides_where_there_is_one(tmp_path: Path) -> None:
    folder(tmp_path)
    listed = [("u0", "u1", "m0", "['L10', 'L11']"), ("u0", "u1", "m0", "['L3', 'L12', 'L99']")]
    file(tmp_path / "movie_conversations.txt", listed)
    corpus = read_cornell(tmp_path)
    assert corpus.sources == ["Hello.", "Never."]
    assert list(corpus) == ["How are you?", "Fine."]


def test_without_the_characters_a_film_is_its_id(tmp_path: Path) -> None:
    corpus = read_cornell(file(tmp_path / "movie_lines.part.txt", SPOKEN))
    assert set(corpus.labels or []) == {"m0"}


@pytest.mark.parametrize(
    "cut", ["L9 +++$+++ u1 +++$+++ m0 +++$+++ BOB +++$+++ I was rea", "L9 +++$+++ u1 +++$"]
)
def test_a_last_line_that_is_cut_takes_no_part(cut: str, tmp_path: Path) -> None:
    whole = read_cornell(file(tmp_path / "movie_lines.txt", SPOKEN)).fingerprint()
    assert read_cornell(file(tmp_path / "movie_lines.txt", SPOKEN, cut.encode())).fingerprint() == (
        whole
    )


def test_windows_text_utf8_and_odd_bytes_are_all_read(tmp_path: Path) -> None:
    lines = [
        b"L1 +++$+++ u0 +++$+++ m0 +++$+++ A +++$+++ I\x92m \xe9\n",
        "L2 +++$+++ u1 +++$+++ m0 +++$+++ B +++$+++ déjà\n".encode(),
        b"L3 +++$+++ u0 +++$+++ m0 +++$+++ A +++$+++ so\x81\n",
    ]
    path = tmp_path / "movie_lines.txt"
    path.write_bytes(b"".join(lines))
    corpus = read_cornell(path)
    assert (corpus.sources, list(corpus)) == (["I’m é", "déjà"], ["déjà", "so\x81"])


def test_a_line_without_words_breaks_the_conversation(tmp_path: Path) -> None:
    rows = [("L1", "u0", "m0", "A", "Hm."), ("L2", "u1", "m0", "B", ""), *SPOKEN]
    assert "Hm." not in (read_cornell(file(tmp_path / "movie_lines.txt", rows)).sources or [])


def test_the_folder_and_the_file_are_recognised(tmp_path: Path) -> None:
    for name in ("", "movie_lines.txt"):
        assert len(read_corpus(folder(tmp_path) / name)) == 3


@pytest.mark.parametrize(
    ("name", "row", "says"),
    [
        ("movie_lines.txt", ("L1", "u0", "m0", "ANN"), "line 8: 4 fields; 5"),
        (
            "movie_lines.txt",
            ("1045", "u0", "m0", "ANN", "Hi."),
            "expected a line number such",
        ),
        ("movie_lines.txt", ("L10", "u0", "m0", "ANN", "Hi."), "L10 occurs twice"),
        ("movie_characters_metadata.txt", ("u0", "ANN"), "line 8: 2 fields; 6"),
        (
            "movie_conversations.txt",
            ("u0", "u1", "m0", "[L1, L2]"),
            "line 8: its last field is not a list",
        ),
        ("movie_conversations.txt", ("u0", "u1", "m0", "['L1', "), "is not a list of lines"),
    ],
)
def test_a_fault_names_file_and_line(
    name: str, row: tuple[str, ...], says: str, tmp_path: Path
) -> None:
    good = {
        "movie_lines.txt": SPOKEN,
        "movie_characters_metadata.txt": CHARACTERS[:1] * 7,
        "movie_conversations.txt": [("u0", "u1", "m0", "['L10', 'L11']")] * 7,
    }
    for other, rows in good.items():
        file(tmp_path / other, [*rows, row] if other == name else rows)
    with pytest.raises(DataError) as caught:
        read_cornell(tmp_path)
    assert says in str(caught.value)
    assert f"{name}, line 8" in str(caught.value)


def test_a_folder_without_lines_and_lines_without_replies_are_named(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"0 files movie_lines\*\.txt; one is needed"):
        read_cornell(tmp_path)
    with pytest.raises(DataError, match="has no text"):
        read_cornell(file(tmp_path / "movie_lines.txt", SPOKEN[3:5]))


@pytest.mark.data
def test_the_real_excerpt_has_the_replies_of_its_films(real: Path) -> None:
    corpus = read_corpus(real / "cornell_movie")
    assert len(corpus) == 23_519
    assert len(set(corpus.users or [])) == 899
    assert len(set(corpus.labels or [])) == 59
    assert "I was ready for the next step" not in " ".join(corpus)
