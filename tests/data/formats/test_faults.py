"""Errors about broken text files give file, location and fault."""

import json

import pytest

from tests.data.files import packed, write_all
from vestige.data.formats.dialogue import read_cornell, read_reddit, read_ubuntu_irc
from vestige.data.formats.parallel import read_sated
from vestige.data.formats.tables import read_table
from vestige.data.formats.text import (
    read_newsgroups,
    read_penn_treebank,
    read_plain_text,
    read_wikitext,
)
from vestige.data.word_vectors import read_word_vectors
from vestige.errors import DataError


def rows(*lines):
    """A file of JSON lines."""
    return {"t.jsonl": "".join(f"{line}\n" for line in lines)}


JSONL = '{"text": "one, two"}\n' * 99
CSV = "id,text\n" + "1,a\n" * 999
A = '{"text": "a"}'
TABLES = [
    (rows(A, '{"text": "b"'), "line 2: invalid JSON"),
    (rows(A, "[1]"), "line 2: list instead of a JSON object"),
    (rows(A, '{"text": 3}'), 'line 2: "text" is int, not text'),
    (rows(A, '{"text": {"b": 1}}'), 'line 2: "text" is dict, not text'),
    (rows('{"text": "\\ud800"}'), "line 1: invalid JSON"),
    (rows(A, "[" * 100_000), "line 2: invalid JSON"),
    (rows('{"body": "a", "id": 1}'), 'no column "text". Pass one of … body, id'),
    (rows(A, '{"id": 1}'), '1 rows have no "text"; the first is row 2'),
    (rows('{"text": null}'), '1 rows have no "text"; the first is row 1'),
    (rows(), "has no text"),
    (rows('{"text": ""}', '{"text": " \\t"}'), "has no text"),
    (rows(A, "null"), "line 2: NoneType instead of a JSON object"),
    # Arrow ends the whole process where a block begins with one.
    (rows("null", A), "line 1: NoneType instead of a JSON object"),
    (rows("", " ", "null"), "line 3: NoneType instead of a JSON object"),
    ({"t.jsonl": b'{"text": "a"}\n{"text": "\xe9"}\n'}, "line 2, byte 11 (0xe9): not UTF-8"),
    ({"t.jsonl": b'{"text": 1' + b"0" * 5000 + b"}"}, "line 1"),
    ({"t.jsonl.gz": packed(JSONL)[:-20]}, "t.jsonl.gz is incomplete"),
    ({"t.jsonl.gz": "text"}, "t.jsonl.gz"),
    ({"t.csv": b"\0\0\0\0"}, "t.csv"),
    ({"t.csv": ""}, "no header line"),
    ({"t.csv": "id,body\n1,a\n"}, 'no column "text". Pass one of … id, body'),
    ({"t.csv": "id,text\n"}, "has no text"),
    ({"t.csv": "id,text\n1,a\n2\n"}, "invalid CSV: row 3 has 1 fields; line 1 has 2"),
    ({"t.csv": b"id,text\n1,a\n2,\xff\n"}, "line 3, byte 3 (0xff): not UTF-8"),
    ({"t.csv.gz": packed(CSV)[:-20]}, "t.csv.gz is incomplete"),
    ({"t.xyz": "a"}, "ends in no known table format"),
    ({"t.parquet": ""}, "invalid Parquet"),
    ({"t.parquet": b"PAR1" + b"\xff" * 40 + b"PAR1"}, "invalid Parquet"),
]
LINES = packed("one\ntwo\n" * 100)
TEXT = [
    ({"a.txt": b"fine\nna\xefve\n"}, "a.txt, line 2, byte 3 (0xef)"),
    ({"a.txt": ""}, "a.txt has no text"),
    ({"a.txt": "\n \n\t\n"}, "a.txt has no text"),
    ({"a.txt.gz": LINES[:-9]}, "a.txt.gz is incomplete"),
    ({"a.txt.gz": "plain"}, "not a gzip file"),
    ({"none.txt": None}, "does not exist"),
    ({".": None}, "is a folder"),
]


def talks(**changed):
    files = {"en": "here\nthanks\nwell\n", "fr": "ici\nmerci\nbien\n", "usr": "ann\nann\nbob\n"}
    files |= changed
    return {f"dev.{ending}": text for ending, text in files.items() if text is not None}


TALKS = [
    (talks(fr="ici\nmerci\n"), "(dev.usr 3, dev.en 3, dev.fr 2) … line 3 is missing"),
    (talks(fr=b"ici\nd\xe9j\xe0\nbien\n"), "dev.fr, line 2, byte 2"),
    (talks(usr="ann\n\nbob\n"), "dev.usr, line 2: the talk has no name"),
    (talks(en="", fr="", usr=""), "has no text"),
    (talks(en=None), "dev.en does not exist"),
    ({}, "has no file of talks"),
]
FILMS = {
    "movie_lines.txt": [("L1", "u0", "m0", "A", "Hi."), ("L2", "u1", "m0", "B", "You.")],
    "movie_characters_metadata.txt": [("u0", "A", "m0", "film", "f", "1")] * 2,
    "movie_conversations.txt": [("u0", "u1", "m0", "['L1', 'L2']")] * 2,
}


def films(name, *row):
    """Three valid files; one of them has a third line."""
    added = {**FILMS, name: [*FILMS[name], row]}
    return {
        file: "".join(" +++$+++ ".join(fields) + "\r\n" for fields in rows)
        for file, rows in added.items()
    }


CORNELL = [
    (films("movie_lines.txt", "L3", "u0", "m0", "A"), "lines.txt, line 3: 4 fields; 5"),
    (films("movie_lines.txt", "1045", "u0", "m0", "A", "Hi."), "line 3: expected a line number"),
    (films("movie_lines.txt", "L1", "u0", "m0", "A", "Hi."), "line 3: … L1 occurs twice"),
    (films("movie_characters_metadata.txt", "u0", "A"), "metadata.txt, line 3: 2 fields; 6"),
    (films("movie_conversations.txt", "u0", "u1", "m0", "[L1]"), "line 3: its last field is not a"),
    (films("movie_conversations.txt", "u0", "u1", "m0", "['L1', "), "is not a list of lines"),
    ({}, "has no movie_lines*.txt"),
    ({"movie_lines.txt": films("movie_lines.txt")["movie_lines.txt"][:30]}, "has no text"),
]
MESSAGE = json.dumps({"log": "a", "user": "ann", "text": "hi"}) + "\n"


def chat(line):
    return {"m.jsonl.gz": packed(f"{MESSAGE}{line}\n")}


CHAT = [
    (chat('{"log": "a", "user": "ann"'), "line 2: invalid JSON"),
    (chat('{"log": "a", "user": "ann", "text": 7}'), 'line 2: "text" is int, not text'),
    (chat('{"log": "a", "user": ["ann"], "text": "hi"}'), '"user" is list, not text'),
    (chat('"hi"'), "line 2: str instead of a JSON object"),
    (chat('{"log": "a", "user": "ann"}'), 'have no "text"; the first is row 2'),
    (chat(""), "has no text"),
    ({"m.jsonl.gz": packed(MESSAGE)[:-12]}, "is incomplete"),
    ({}, "has no file ending in"),
]
GROUP = "From: bea@example.org\n\nMy own.\n"
NEWS = [
    *(
        ({"m1": GROUP, "stray": content}, "stray is not a newsgroup message")
        for content in ("", "no header here", "Subject: x\n\nbody", "\n\nFrom: a@b")
    ),
    ({}, "has no text"),
    ({"none": None}, "is not a folder"),
]
WIKI = [({}, "has no wiki.train.tokens"), ({"wiki.train.tokens": " \n"}, "has no text")]
VECTORS = [
    ({"g.txt": ""}, "is empty"),
    ({"g.txt": "a 1 2\nb 3\n"}, "line 2: 1 numbers after its word, not 2"),
    ({"g.txt": "a 1 2\nb 3 4 5\n"}, "line 2: more than 2 numbers"),
    ({"g.txt": "a 1 2\nb 3 x4\n"}, "line 2: field 3 is not a number"),
    ({"g.txt": "a 1 2\nb nan 3\n"}, "line 2: number 1 is nan, not finite"),
    ({"g.txt": "a 1 2\nb 3 inf\n"}, "line 2: number 2 is inf, not finite"),
    ({"g.txt": "a 1 2\nb 3 1e39\n"}, "line 2: number 2 is 1e+39, not finite in 32 bits"),
    ({"g.txt": "word\n"}, "line 1: a word without numbers"),
    ({"g.vec": "3 2\na 1 2\nb 3 4\n"}, "has 2 words; line 1 states 3"),
    ({"g.vec": "1 3\na 1 2\n"}, "line 2: 2 numbers after its word, not 3"),
    ({"g.vec": "1 1\na 1 2\n"}, "line 2: more than 1 numbers"),
    ({"g.vec": "1 0\na\n"}, "line 1: a word without numbers"),
    ({"g.txt.gz": packed("the 1 2 3\n" * 9)[:-9]}, "g.txt.gz is incomplete"),
    ({"g.npy": "x"}, "no known format of word vectors"),
    ({"g.bin": "x"}, "of a fastText model, its .vec"),
    ({"g.txt": b"a 1 2\n\xff\xfe 3 4\n"}, "line 2: the word"),
    ({"g.txt": None}, "does not exist"),
    ({".": None}, "is a folder"),
]
READERS = {  # reader, whether it reads a file or a folder, (files, message)
    "tables": (read_table, True, TABLES),
    "text": (read_plain_text, True, TEXT),
    "talks": (read_sated, False, TALKS),
    "films": (read_cornell, False, CORNELL),
    "chat": (read_ubuntu_irc, False, CHAT),
    "comments": (read_reddit, False, [({}, "has no *.jsonl")]),
    "newsgroups": (read_newsgroups, False, NEWS),
    "WikiText": (read_wikitext, False, WIKI),
    "Penn Treebank": (read_penn_treebank, False, [({}, "has no ptb.train.txt")]),
    "word vectors": (read_word_vectors, True, VECTORS),
}


CASES = [
    pytest.param(read, of_file, files, message, id=f"{name}: {message}")
    for name, (read, of_file, table) in READERS.items()
    for files, message in table
]


@pytest.mark.parametrize(("read", "of_file", "files", "message"), CASES)
def test_errors_about_broken_files_give_location_and_remedy(
    read, of_file, files, message, tmp_path
):
    folder = write_all(tmp_path / "folder", files)
    name = next(iter(files), "")
    path = folder / name if of_file or None in files.values() else folder
    with pytest.raises(DataError) as caught:
        read(path)
    assert all(part in str(caught.value) for part in message.split(" … "))
    assert str(path) in str(caught.value)
    assert caught.value.remedy.endswith(".")
    if "byte" in message:
        assert "iconv" in caught.value.remedy


def test_equal_languages_and_unknown_splits_are_refused(tmp_path):
    with pytest.raises(ValueError, match="must be two languages, got 'en' for both"):
        read_sated(tmp_path, target="en")
    for read in (read_wikitext, read_penn_treebank):
        with pytest.raises(ValueError, match="split must be one of"):
            read(tmp_path, split="dev")
