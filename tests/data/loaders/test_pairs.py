from pathlib import Path

import pytest

from vestige.data.loaders import read_corpus
from vestige.data.loaders.pairs import read_pairs
from vestige.errors import DataError


def files(
    tmp_path: Path, asked: str = "Hi.\nWho?\n\n", answers: str = "Hello.\r\nMe.\r\nYes.\r\n"
) -> Path:
    (tmp_path / "chat.test.enc").write_text(asked, newline="")
    (tmp_path / "chat.test.dec").write_text(answers, newline="")
    return tmp_path


@pytest.mark.parametrize("name", ["", "chat.test.enc", "chat.test.dec"])
def test_line_n_answers_line_n_and_half_pairs_are_left_out(name: str, tmp_path: Path) -> None:
    files(tmp_path, asked="Hi.\nWho?\n \nEnd?\n", answers="Hello.\r\nMe.\r\nYes.\r\nEnd.\r\n")
    for corpus in (read_pairs(tmp_path / name), read_corpus(tmp_path / name)):
        assert list(corpus) == ["Hello.", "Me.", "End."]
        assert corpus.sources == ["Hi.", "Who?", "End?"]
        assert corpus.users is None


def test_several_pairs_of_files_are_one_corpus(tmp_path: Path) -> None:
    for name in ("b", "a"):
        (tmp_path / f"{name}.enc").write_text(f"ask {name}\n")
        (tmp_path / f"{name}.dec").write_text(f"say {name}\n")
    assert list(read_pairs(tmp_path)) == ["say a", "say b"]


@pytest.mark.parametrize(
    ("missing", "answers", "says"),
    [
        ("chat.test.enc", "a\nb\n", "chat.test.enc does not exist"),
        ("chat.test.dec", "a\nb\n", "chat.test.dec does not exist"),
        ("", "a\n", "(chat.test.enc 2, chat.test.dec 1)"),
        ("", "a\n", "line 2 is missing"),
        ("", "\n\n", "has no text"),
    ],
)
def test_halves_that_do_not_fit_are_named(
    missing: str, answers: str, says: str, tmp_path: Path
) -> None:
    files(tmp_path, asked="Hi.\nWho?\n", answers=answers)
    if missing:
        (tmp_path / missing).unlink()
    with pytest.raises(DataError) as caught:
        read_pairs(tmp_path)
    assert says in str(caught.value)


@pytest.mark.parametrize("name", ["", "a.txt"])
def test_what_holds_no_pairs_is_named(name: str, tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("a\n")
    with pytest.raises(DataError, match="has no pairs"):
        read_corpus(tmp_path / name, format="pairs")


@pytest.mark.data
def test_the_real_pairs_are_thirty_thousand_less_the_blank_ones(real: Path) -> None:
    corpus = read_corpus(real / "cornell_movie" / "tf_chatbot.test.enc")
    assert len(corpus) == 29_941
