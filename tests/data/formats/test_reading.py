"""`read_corpus`: which format a source has, and sources that would fill memory or never end."""

import gzip
import json
import os
import socket
import subprocess
import sys

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from datasets import Dataset

from vestige.data import files
from vestige.data.formats import tables
from vestige.data.formats.reading import CORPUS_FORMATS, read_corpus
from vestige.errors import DataError

COMMENT = json.dumps({"author": "ann", "subreddit": "s", "body": "hi"}) + "\n"
ROW = json.dumps({"text": "hi", "who": "ann"}) + "\n"
MESSAGE = "From: ann\n\nhi\n"


@pytest.mark.parametrize(
    ("name", "content", "columns"),
    [
        ("a.txt", b"hi\n", ["text"]),
        ("a", b"hi\n", ["text"]),
        ("a.txt.gz", gzip.compress(b"hi\n", mtime=0), ["text"]),
        ("a.jsonl", ROW.encode(), ["text"]),
        ("a.jsonl.gz", gzip.compress(ROW.encode(), mtime=0), ["text"]),
        ("a.csv", b"text\nhi\n", ["text"]),
        ("wiki.train.tokens", b" hi \n", ["text", "label"]),
        ("a.jsonl", COMMENT.encode(), ["text", "user", "label"]),
        ("x/ptb.train.txt", b"hi\n", ["text"]),
        ("x/wiki.train.tokens", b" hi \n", ["text", "label"]),
        ("x/a.txt", b"hi\n", ["text"]),
        ("x/a.jsonl", ROW.encode(), ["text"]),
        ("x/a.jsonl.gz", gzip.compress(COMMENT.encode(), mtime=0), ["text", "user", "label"]),
        ("x/rec.test/1", MESSAGE.encode(), ["text", "user", "label"]),
        ("x/1", MESSAGE.encode(), ["text", "user", "label"]),
    ],
)
def test_the_format_is_recognised(name, content, columns, tmp_path):
    path = tmp_path / name
    path.parent.mkdir(exist_ok=True, parents=True)
    path.write_bytes(content)
    corpus = read_corpus(tmp_path / name.split("/")[0])
    assert list(corpus) == ["hi"]
    assert corpus.table.column_names == columns


def test_a_saved_data_set_is_recognised(tmp_path):
    Dataset.from_dict({"text": ["hi", "you"]}).save_to_disk(tmp_path / "set")
    assert list(read_corpus(tmp_path / "set", limit=1)) == ["hi"]


def test_the_federalist_is_there_by_name():
    try:
        jay = read_corpus("federalist:Jay")
    except DataError as error:
        pytest.skip(str(error))
    assert set(jay.users or []) == {"Jay"}
    assert len(read_corpus("federalist: Jay, Madison")) > len(jay)


def test_several_files_of_a_folder_are_one_corpus(tmp_path):
    for name in ("2", "1"):
        (tmp_path / f"{name}.txt").write_text(f"{name}\n")
    (tmp_path / ".hidden.txt").write_text("no\n")
    assert list(read_corpus(tmp_path)) == ["1", "2"]


def test_columns_go_to_tables(tmp_path):
    (tmp_path / "a.jsonl").write_text(ROW)
    corpus = read_corpus(tmp_path / "a.jsonl", text_column="who", user_column="text")
    assert (list(corpus), corpus.users) == (["ann"], ["hi"])


def test_a_named_column_wins_over_reddit(tmp_path):
    (tmp_path / "a.jsonl").write_text(COMMENT)
    assert list(read_corpus(tmp_path / "a.jsonl", text_column="author")) == ["ann"]


def test_a_named_format_wins_over_the_ending(tmp_path):
    (tmp_path / "a.log").write_text("hi\n")
    assert list(read_corpus(tmp_path / "a.log", format="text")) == ["hi"]


@pytest.mark.parametrize(("limit", "count"), [(1, 1), (3, 3), (99, 3), (None, 3)])
def test_a_limit_keeps_the_first(limit, count, tmp_path):
    (tmp_path / "a.txt").write_text("1\n2\n3\n")
    assert list(read_corpus(tmp_path / "a.txt", limit=limit)) == ["1", "2", "3"][:count]


@pytest.mark.parametrize("limit", [0, -1])
def test_a_limit_below_one_is_refused(limit, tmp_path):
    with pytest.raises(ValueError, match="limit must be positive"):
        read_corpus(tmp_path, limit=limit)


def test_an_unknown_format_is_refused(tmp_path):
    with pytest.raises(ValueError, match="format must be one of"):
        read_corpus(tmp_path, format="docx")


@pytest.mark.parametrize("name", ["none.txt", "none", "deep/down/none.txt", "x/none.jsonl"])
def test_what_does_not_exist_is_named(name, tmp_path):
    with pytest.raises(DataError, match="does not exist") as caught:
        read_corpus(tmp_path / name)
    assert name in str(caught.value)
    with pytest.raises(DataError, match=name):
        read_corpus(name)


def test_an_unknown_ending_is_named(tmp_path):
    (tmp_path / "a.docx").write_bytes(b"PK")
    with pytest.raises(DataError, match="ends in no known format") as caught:
        read_corpus(tmp_path / "a.docx")
    assert all(name in caught.value.remedy for name in CORPUS_FORMATS.names())


@pytest.mark.parametrize("names", [[], ["a.docx"], [".hidden.txt"]])
def test_a_folder_without_fitting_files_is_named(names, tmp_path):
    for name in names:
        (tmp_path / name).write_text("x")
    with pytest.raises(DataError, match="has no file of a known format"):
        read_corpus(tmp_path)
    with pytest.raises(DataError, match=r"has no file ending in \.txt"):
        read_corpus(tmp_path, format="text")


def test_a_format_of_another_package_is_found(tmp_path):
    """It registers through its entry point, is recognised and can be named."""
    about = tmp_path / "guest-1.0.dist-info"
    about.mkdir()
    (about / "METADATA").write_text("Name: guest\nVersion: 1.0\n")
    (about / "entry_points.txt").write_text("[vestige.formats]\nletters = guest_letters\n")
    (tmp_path / "guest_letters.py").write_text(
        "from vestige.data.corpus import Corpus\n"
        "from vestige.data.formats.reading import CORPUS_FORMATS, CorpusFormat\n"
        "def read(source, options):\n"
        "    return Corpus.from_texts(open(source).read().split('--'))\n"
        "CORPUS_FORMATS.add('letters', CorpusFormat(\n"
        "    read=read, detect=lambda source, _: source.endswith('.letters')))\n"
    )
    (tmp_path / "a.letters").write_text("one--two")
    code = (
        "from vestige.data.formats.reading import read_corpus\n"
        "for format in ('auto', 'letters'):\n"
        "    assert list(read_corpus('a.letters', format=format)) == ['one', 'two']\n"
    )
    path = os.pathsep.join([str(tmp_path), os.environ.get("PYTHONPATH", "")])
    subprocess.run(
        [sys.executable, "-c", code],
        check=True,
        cwd=tmp_path,
        env=os.environ | {"PYTHONPATH": path},
    )


# Hostile sources: refused by file and line.

ENDINGS = (".txt", ".jsonl", ".csv", ".parquet")


@pytest.mark.parametrize("ending", ENDINGS)
def test_what_is_no_file_is_never_opened(ending, tmp_path):
    os.mkfifo(tmp_path / f"pipe{ending}")
    (tmp_path / f"device{ending}").symlink_to("/dev/zero")
    with socket.socket(socket.AF_UNIX) as listening:
        listening.bind(str(tmp_path / f"socket{ending}"))
        for name, kind in (("pipe", "a named pipe"), ("device", "a device"), ("socket", "socket")):
            for format in ("auto", "text" if ending == ".txt" else "table"):
                with pytest.raises(DataError, match=kind):
                    read_corpus(tmp_path / f"{name}{ending}", format=format)


@pytest.mark.parametrize("ending", [".txt", ".jsonl", ".csv", ".txt.gz", ".jsonl.gz"])
def test_a_line_without_an_end_is_named(ending, tmp_path, monkeypatch):
    monkeypatch.setattr(files, "LONGEST_LINE", 1000)
    monkeypatch.setattr(tables, "BLOCK", 500)
    first = {".jso": b'{"text": "a"}\n', ".csv": b"text\n"}.get(ending[:4], b"a\n")
    start = b'{"text": "' if ".json" in ending else b'"' if ".csv" in ending else b""
    path = tmp_path / f"corpus{ending}"
    content = first + start + b"x" * 5000
    path.write_bytes(gzip.compress(content) if ending.endswith(".gz") else content)
    with pytest.raises(DataError, match="line 2: more than 1,000 bytes"):
        read_corpus(path)


def test_a_small_file_that_holds_more_than_memory_is_refused(tmp_path, monkeypatch):
    monkeypatch.setattr(files, "free_memory", lambda: 10**6)
    (tmp_path / "bomb.txt.gz").write_bytes(gzip.compress(b"hot tea\n" * 10**6))
    text = pa.DictionaryArray.from_arrays(pa.array([0] * 10**4, pa.int32()), ["x" * 10**4])
    pq.write_table(pa.table({"text": text}), tmp_path / "bomb.parquet")
    assert (tmp_path / "bomb.parquet").stat().st_size < 10**5
    for name in ("bomb.txt.gz", "bomb.parquet"):
        with pytest.raises(DataError, match="more than 1,000,000 bytes of text"):
            read_corpus(tmp_path / name)


NESTED = pa.list_(pa.list_(pa.string()))
COLUMNS = {
    "lists": pa.array([[["a"]]], NESTED),
    "objects": pa.array([{"a": 1}]),
    "maps": pa.array([[("a", 1)]], pa.map_(pa.string(), pa.int64())),
    "numbers": pa.array([1]),
    "nothing": pa.nulls(1),
    "bytes": pa.array([b"\xff\xfe"]),
    "times": pa.array([10**9], pa.timestamp("s")),
}


@pytest.mark.parametrize("name", COLUMNS)
def test_a_column_of_another_type_is_refused(name, tmp_path):
    pq.write_table(pa.table({"text": COLUMNS[name]}), tmp_path / "rows.parquet")
    with pytest.raises(DataError, match="text"):
        read_corpus(tmp_path / "rows.parquet")


HOSTILE = {
    "UTF-16": ("rows.jsonl", '{"text": "a"}'.encode("utf-16")),
    "mixed encodings": ("rows.jsonl", b'{"text": "a"}\n{"text": "caf\xe9"}\n'),
    "half a surrogate pair": ("rows.jsonl", b'{"text": "\\ud800"}\n'),
    "deep": ("rows.jsonl", b'{"text": ' + b"[" * 10**5),
    "a number of many digits": ("rows.jsonl", b'{"text": 1' + b"0" * 5000 + b"}"),
    "a list": ("rows.jsonl", b'["a"]'),
    "only nulls": ("rows.csv", b"\0\0\0\0"),
    "rows of other lengths": ("rows.csv", b"text,x\na,b\nc\n"),
    "not gzip": ("rows.jsonl.gz", b"text"),
    "not Parquet": ("rows.parquet", b"PAR1" + b"\xff" * 40 + b"PAR1"),
    "an empty file": ("rows.parquet", b""),
}


@pytest.mark.parametrize("name", HOSTILE)
def test_hostile_rows_are_refused_by_name(name, tmp_path):
    file, content = HOSTILE[name]
    (tmp_path / file).write_bytes(content)
    with pytest.raises(DataError, match=file.replace(".", r"\.")):
        read_corpus(tmp_path / file)


def test_odd_letters_that_are_text_are_read(tmp_path):
    (tmp_path / "rows.jsonl").write_text("\ufeff" + json.dumps({"text": "a\0b \u202e"}) + "\n")
    assert list(read_corpus(tmp_path / "rows.jsonl")) == ["a\0b \u202e"]


def test_a_table_of_very_many_columns_is_read(tmp_path):
    names = ",".join(["text", *(f"c{n}" for n in range(20_000))])
    (tmp_path / "rows.csv").write_text(f"{names}\na{',' * 20_000}\n")
    assert list(read_corpus(tmp_path / "rows.csv")) == ["a"]
