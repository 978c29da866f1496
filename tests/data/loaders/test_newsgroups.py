from pathlib import Path

import pytest

from vestige.data.loaders.newsgroups import own_words, read_newsgroups
from vestige.errors import DataError

MESSAGE = """Path: a!b
From: Bea@Example.org (Bea B.)
Subject: caf\xe9

In article <1@x> al@y.org (Al) writes:
>> older
> newer

My own.
--
Bea
"""


def group(tmp_path: Path, **messages: str) -> Path:
    folder = tmp_path / "rec.test"
    folder.mkdir()
    for name, message in messages.items():
        (folder / name).write_bytes(message.encode("latin-1"))
    return folder


def test_only_the_writers_own_words_remain(tmp_path: Path) -> None:
    corpus = read_newsgroups(group(tmp_path, m1=MESSAGE))
    assert list(corpus) == ["My own."]
    assert corpus.users == ["bea@example.org"]
    assert corpus.labels == ["rec.test"]


def test_a_folder_of_groups_is_read_in_order_of_names(tmp_path: Path) -> None:
    group(tmp_path, m2=MESSAGE.replace("My own.", "Second na\xefve."), m1=MESSAGE)
    assert list(read_newsgroups(tmp_path)) == ["My own.", "Second naïve."]


def test_a_message_of_quotes_alone_is_skipped(tmp_path: Path) -> None:
    only_quotes = "From: a@b\n\n> quoted\n"
    assert len(read_newsgroups(group(tmp_path, m1=only_quotes, m2=MESSAGE))) == 1


@pytest.mark.parametrize(
    "quoted",
    [
        "> x",
        ">x",
        "  >> x",
        "|> x",
        "| x",
        "ED> x",
        ": x",
        ":",
        ":> x",
        "# |> x",
        "al@y.org (Al) writes:",
        "[I wrote:]",
        "@> x",
        "From article <1@x>, by al@y.org (Al):",
        "Al wrote:",
        "In <1@x> al@y.org writes:",
        "In article <1@x>, al@y.org (Al) says:",
        "In article <1@x> al@y.org (Al\nBee) writes:",
        "In a previous article, al@y.org (Al) says:",
    ],
)
def test_a_quote_goes(quoted: str) -> None:
    assert own_words(f"{quoted}\nmine\n") == "mine"


@pytest.mark.parametrize(
    "kept",
    [
        "the spokesman said.",
        "In article 5 the treaty says otherwise",
        "#5 NEIL WILKINSON",
        ":-) nice",
        "a > b",
        "He writes: nothing of it",
        "1993 -- the year",
        "In short, it is so",
    ],
)
def test_what_is_no_quote_stays(kept: str) -> None:
    assert own_words(kept) == kept


def test_dashes_far_above_the_end_are_no_signature() -> None:
    body = "part one\n---\n" + "\n".join(f"line {i}" for i in range(20))
    assert own_words(f"{body}\n-- \nBea") == body


def test_blank_lines_left_by_quotes_are_closed_up() -> None:
    assert own_words("a\n\n> q\n\n\n> q\n\nb") == "a\n\nb"


@pytest.mark.parametrize("content", ["", "no header here", "Subject: x\n\nbody", "\n\nFrom: a@b"])
def test_a_file_that_is_no_message_is_named(content: str, tmp_path: Path) -> None:
    folder = group(tmp_path, m1=MESSAGE, stray=content)
    with pytest.raises(DataError, match="stray is not a newsgroup message"):
        read_newsgroups(folder)


def test_a_missing_or_empty_folder_is_named(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="is not a folder"):
        read_newsgroups(tmp_path / "none")
    with pytest.raises(DataError, match="has no text"):
        read_newsgroups(tmp_path)


@pytest.mark.data
def test_the_real_groups_lose_headers_quotes_and_little_else(real: Path) -> None:
    corpus = read_newsgroups(real / "newsgroups" / "rec.sport.hockey")
    assert 990 <= len(corpus) <= 1000
    assert 150_000 < sum(len(text.split()) for text in corpus) < 250_000
    lines = [line for text in corpus for line in text.splitlines()]
    assert not any(line.startswith((">", "|>")) for line in lines)
