"""Running text: plain lines, WikiText, the Penn Treebank, newsgroup messages."""

import gzip
import os

import pytest

from vestige.data.formats.text import (
    own_words,
    read_newsgroups,
    read_penn_treebank,
    read_plain_text,
    read_wikitext,
)
from vestige.data.vocabulary import WordVocabulary
from vestige.errors import DataError


def test_every_line_is_a_document_and_blank_lines_are_none(tmp_path):
    path = tmp_path / "a.txt"
    path.write_bytes("\ufeff one two \r\n\n  \nthrée".encode())
    assert list(read_plain_text(path)) == ["one two", "thrée"]


def test_gzip_reads_alike(tmp_path):
    path = tmp_path / "a.txt.gz"
    path.write_bytes(gzip.compress(b"one\ntwo\n", mtime=0))
    assert list(read_plain_text(path)) == ["one", "two"]


LINES = gzip.compress(b"one\ntwo\n" * 100, mtime=0)


@pytest.mark.parametrize(
    ("name", "content", "says"),
    [
        ("a.txt", b"fine\nna\xefve\n", "a.txt, line 2, byte 3 (0xef)"),
        ("a.txt", b"", "a.txt has no text"),
        ("a.txt", b"\n \n\t\n", "a.txt has no text"),
        ("a.txt.gz", LINES[:-9], "a.txt.gz is incomplete"),
        ("a.txt.gz", LINES[:-3], "a.txt.gz is incomplete"),
        ("a.txt.gz", b"plain", "not a gzip file"),
        ("none.txt", None, "does not exist"),
        (".", None, "is a folder"),
    ],
)
def test_a_faulty_file_of_lines_is_named(name, content, says, tmp_path):
    if content is not None:
        (tmp_path / name).write_bytes(content)
    with pytest.raises(DataError) as caught:
        read_plain_text(tmp_path / name)
    assert says in str(caught.value)
    assert "UTF-8" not in str(caught.value) or "iconv" in caught.value.remedy


# WikiText.

TEXT = """ \n = First thing = \n \n It is . \n \n = = Part = = \n \n More .
 Key \n = Played , W = \n Won \n \n = Second = \n \n Last . \n"""


def test_paragraphs_carry_their_articles_title(tmp_path):
    (tmp_path / "wiki.train.tokens").write_text(TEXT)
    corpus = read_wikitext(tmp_path)
    first = ["= First thing =", "It is .", "= = Part = =", "More .", "Key", "= Played , W =", "Won"]
    assert list(corpus) == [*first, "= Second =", "Last ."]
    assert corpus.labels == ["First thing"] * 7 + ["Second"] * 2


def test_text_before_the_first_title_has_no_title(tmp_path):
    (tmp_path / "w.tokens").write_text(" Alone . \n still . \n")
    corpus = read_wikitext(tmp_path / "w.tokens")
    assert (list(corpus), corpus.labels) == (["Alone .", "still ."], ["", ""])


def test_a_folder_without_the_wanted_part_is_named(tmp_path):
    with pytest.raises(DataError, match=r"has no wiki\.valid\.tokens"):
        read_wikitext(tmp_path, split="valid")
    with pytest.raises(DataError, match=r"has no ptb\.train\.txt"):
        read_penn_treebank(tmp_path)
    for read in (read_wikitext, read_penn_treebank):
        with pytest.raises(ValueError, match="split must be one of"):
            read(tmp_path, split="dev")
    (tmp_path / "wiki.valid.tokens").write_text(" \n")
    with pytest.raises(DataError, match="has no text"):
        read_wikitext(tmp_path, split="valid")


@pytest.mark.data
def test_the_real_wikitext_has_two_million_words(real):
    corpus = read_wikitext(real / "wikitext2")
    assert sum(len(text.split()) for text in corpus) == 2_051_910
    assert 580 <= len(set(corpus.labels or [])) <= 620


# The Penn Treebank.


def test_each_split_has_its_file(tmp_path):
    for split in ("train", "valid", "test"):
        (tmp_path / f"ptb.{split}.txt").write_text(f" {split} <unk> N \n a b \n")
    assert list(read_penn_treebank(tmp_path)) == ["train <unk> N", "a b"]
    assert list(read_penn_treebank(tmp_path, split="test")) == ["test <unk> N", "a b"]
    assert list(read_penn_treebank(tmp_path / "ptb.valid.txt")) == ["valid <unk> N", "a b"]


@pytest.mark.data
def test_the_real_treebank_has_ten_thousand_types_and_929_589_tokens(real):
    corpus = read_penn_treebank(real / "ptb")
    assert len(corpus) == 42_068
    assert sum(len(text.split()) for text in corpus) == 887_521
    assert len(WordVocabulary.build(corpus)) == 10_000


# Newsgroups.

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


def group(tmp_path, **messages):
    folder = tmp_path / "rec.test"
    folder.mkdir()
    for name, message in messages.items():
        (folder / name).write_bytes(message.encode("latin-1"))
    return folder


def test_only_the_writers_own_words_remain(tmp_path):
    corpus = read_newsgroups(group(tmp_path, m1=MESSAGE))
    assert list(corpus) == ["My own."]
    assert corpus.users == ["bea@example.org"]
    assert corpus.labels == ["rec.test"]


def test_a_folder_of_groups_is_read_in_order_of_names(tmp_path):
    group(tmp_path, m2=MESSAGE.replace("My own.", "Second na\xefve."), m1=MESSAGE)
    assert list(read_newsgroups(tmp_path)) == ["My own.", "Second naïve."]


def test_a_message_of_quotes_alone_is_skipped(tmp_path):
    only_quotes = "From: a@b\n\n> quoted\n"
    assert len(read_newsgroups(group(tmp_path, m1=only_quotes, m2=MESSAGE))) == 1


@pytest.mark.parametrize(
    "quoted",
    [
        *("> x", ">x", "  >> x", "|> x", "| x", "ED> x", ": x", ":", ":> x", "# |> x", "@> x"),
        "al@y.org (Al) writes:",
        "[I wrote:]",
        "From article <1@x>, by al@y.org (Al):",
        "Al wrote:",
        "In <1@x> al@y.org writes:",
        "In article <1@x>, al@y.org (Al) says:",
        "In article <1@x> al@y.org (Al\nBee) writes:",
        "In a previous article, al@y.org (Al) says:",
    ],
)
def test_a_quote_goes(quoted):
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
def test_what_is_no_quote_stays(kept):
    assert own_words(kept) == kept


def test_dashes_far_above_the_end_are_no_signature():
    body = "part one\n---\n" + "\n".join(f"line {i}" for i in range(20))
    assert own_words(f"{body}\n-- \nBea") == body


def test_blank_lines_left_by_quotes_are_closed_up():
    assert own_words("a\n\n> q\n\n\n> q\n\nb") == "a\n\nb"


@pytest.mark.parametrize("content", ["", "no header here", "Subject: x\n\nbody", "\n\nFrom: a@b"])
def test_a_file_that_is_no_message_is_named(content, tmp_path):
    folder = group(tmp_path, m1=MESSAGE, stray=content)
    with pytest.raises(DataError, match="stray is not a newsgroup message"):
        read_newsgroups(folder)


def test_a_pipe_among_the_messages_is_never_opened(tmp_path):
    os.mkfifo(group(tmp_path, m1=MESSAGE) / "m2")
    with pytest.raises(DataError, match="m2 is a named pipe"):
        read_newsgroups(tmp_path)


def test_a_missing_or_empty_folder_is_named(tmp_path):
    with pytest.raises(DataError, match="is not a folder"):
        read_newsgroups(tmp_path / "none")
    with pytest.raises(DataError, match="has no text"):
        read_newsgroups(tmp_path)


@pytest.mark.data
def test_the_real_groups_lose_headers_quotes_and_little_else(real):
    corpus = read_newsgroups(real / "newsgroups" / "rec.sport.hockey")
    assert 990 <= len(corpus) <= 1000
    assert 150_000 < sum(len(text.split()) for text in corpus) < 250_000
    lines = [line for text in corpus for line in text.splitlines()]
    assert not any(line.startswith((">", "|>")) for line in lines)
