"""`read_corpus` recognises formats and refuses sources that are too large or never end."""

import gzip
import json
import os
import socket
import subprocess
import sys

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tests.data.files import packed, write
from vestige.data import files
from vestige.data.formats import reading, tables
from vestige.data.formats.reading import CORPUS_FORMATS, read_corpus
from vestige.errors import DataError

COMMENT = json.dumps({"author": "ann", "subreddit": "s", "body": "hi"}) + "\n"
ROW = json.dumps({"text": "hi", "who": "ann"}) + "\n"
MESSAGE = "From: ann\n\nhi\n"
LABELLED = ["text", "user", "label"]


@pytest.mark.parametrize(
    ("name", "content", "columns"),
    [
        ("a.txt", "hi\n", ["text"]),
        ("a", "hi\n", ["text"]),
        ("a.txt.gz", packed("hi\n"), ["text"]),
        ("a.jsonl", ROW, ["text"]),
        ("a.jsonl.gz", packed(ROW), ["text"]),
        ("a.csv", "text\nhi\n", ["text"]),
        ("wiki.train.tokens", " hi \n", ["text", "label"]),
        ("a.jsonl", COMMENT, LABELLED),
        ("x/ptb.train.txt", "hi\n", ["text"]),
        ("x/wiki.train.tokens", " hi \n", ["text", "label"]),
        ("x/a.txt", "hi\n", ["text"]),
        ("x/a.jsonl", ROW, ["text"]),
        ("x/a.jsonl.gz", packed(COMMENT), LABELLED),
        ("x/rec.test/1", MESSAGE, LABELLED),
        ("x/1", MESSAGE, LABELLED),
    ],
)
def test_the_format_is_recognised(name, content, columns, tmp_path):
    write(tmp_path / name, content)
    corpus = read_corpus(tmp_path / name.split("/")[0])
    assert list(corpus) == ["hi"]
    assert corpus.table.column_names == columns


def test_named_columns_and_formats_override_detection(tmp_path):
    (tmp_path / "a.jsonl").write_text(ROW)
    corpus = read_corpus(tmp_path / "a.jsonl", text_column="who", user_column="text")
    assert (list(corpus), corpus.users) == (["ann"], ["hi"])
    (tmp_path / "a.jsonl").write_text(COMMENT)
    assert list(read_corpus(tmp_path / "a.jsonl", text_column="author")) == ["ann"]
    (tmp_path / "a.log").write_text("hi\n")
    assert list(read_corpus(tmp_path / "a.log", format="text")) == ["hi"]


def test_a_folder_is_one_corpus_and_a_limit_keeps_the_first_documents(tmp_path):
    for name in ("2", "1", ".hidden"):
        (tmp_path / f"{name}.txt").write_text(f"{name}\n3\n")
    assert list(read_corpus(tmp_path)) == ["1", "3", "2", "3"]
    for limit in (1, 3, 99):
        assert list(read_corpus(tmp_path, limit=limit)) == ["1", "3", "2", "3"][:limit]


def test_invalid_arguments_and_sources_are_refused(tmp_path):
    for limit in (0, -1):
        with pytest.raises(ValueError, match="limit must be positive"):
            read_corpus(tmp_path, limit=limit)
    with pytest.raises(ValueError, match="format must be one of"):
        read_corpus(tmp_path, format="docx")
    for name in ("none.txt", "none", "deep/down/none.txt", "x/none.jsonl"):
        with pytest.raises(DataError, match="does not exist") as caught:
            read_corpus(tmp_path / name)
        assert name in str(caught.value)
        with pytest.raises(DataError, match=name):
            read_corpus(name)
    for name in ("", "a.docx", ".hidden.txt"):  # a folder without a readable file
        if name:
            write(tmp_path / name, "x")
        with pytest.raises(DataError, match="has no file of a known format"):
            read_corpus(tmp_path)
        with pytest.raises(DataError, match=r"has no file ending in \.txt"):
            read_corpus(tmp_path, format="text")
    with pytest.raises(DataError, match="ends in no known format") as caught:
        read_corpus(tmp_path / "a.docx")
    assert all(name in caught.value.remedy for name in CORPUS_FORMATS.names())


PLUGIN = """
from vestige.data.corpus import Corpus
from vestige.data.formats.reading import CORPUS_FORMATS, CorpusFormat
def read(source, options):
    return Corpus.from_texts(open(source).read().split('--'))
CORPUS_FORMATS.add('letters', CorpusFormat(
    read=read, detect=lambda source, _: source.endswith('.letters')))
"""
READ_BY_PLUGIN = """
from vestige.data.formats.reading import read_corpus
for format in ('auto', 'letters'):
    assert list(read_corpus('a.letters', format=format)) == ['one', 'two']
"""


@pytest.mark.slow
def test_the_entry_point_of_another_package_adds_a_format(tmp_path):
    about = tmp_path / "plugin-1.0.dist-info"
    write(about / "METADATA", "Name: plugin\nVersion: 1.0\n")
    write(about / "entry_points.txt", "[vestige.formats]\nletters = plugin_letters\n")
    write(tmp_path / "plugin_letters.py", PLUGIN)
    write(tmp_path / "a.letters", "one--two")
    path = {"PYTHONPATH": os.pathsep.join([str(tmp_path), os.environ.get("PYTHONPATH", "")])}
    command = [sys.executable, "-c", READ_BY_PLUGIN]
    subprocess.run(command, check=True, cwd=tmp_path, env=os.environ | path)


@pytest.mark.parametrize("ending", [".txt", ".jsonl", ".csv", ".parquet"])
def test_pipes_devices_and_sockets_are_never_opened(ending, tmp_path):
    os.mkfifo(tmp_path / f"pipe{ending}")
    (tmp_path / f"device{ending}").symlink_to("/dev/zero")
    with socket.socket(socket.AF_UNIX) as listening:
        listening.bind(str(tmp_path / f"socket{ending}"))
        for name, kind in (("pipe", "a named pipe"), ("device", "a device"), ("socket", "socket")):
            for format in ("auto", "text" if ending == ".txt" else "table"):
                with pytest.raises(DataError, match=kind):
                    read_corpus(tmp_path / f"{name}{ending}", format=format)


@pytest.mark.parametrize("ending", [".txt", ".jsonl", ".csv", ".txt.gz", ".jsonl.gz"])
def test_the_error_about_a_line_that_is_too_long_gives_its_number(ending, tmp_path, monkeypatch):
    monkeypatch.setattr(reading, "LONGEST_LINE", 1000)
    monkeypatch.setattr(tables, "BLOCK", 500)
    first = {".jso": b'{"text": "a"}\n', ".csv": b"text\n"}.get(ending[:4], b"a\n")
    start = b'{"text": "' if ".json" in ending else b'"' if ".csv" in ending else b""
    path, content = tmp_path / f"corpus{ending}", first + start + b"x" * 5000
    path.write_bytes(gzip.compress(content) if ending.endswith(".gz") else content)
    with pytest.raises(DataError, match="line 2: more than 1,000 bytes"):
        read_corpus(path)


def test_a_small_file_that_decompresses_to_more_than_memory_is_refused(tmp_path, monkeypatch):
    monkeypatch.setattr(files, "free_memory", lambda: 10**6)
    (tmp_path / "bomb.txt.gz").write_bytes(packed("hot tea\n" * 10**6))
    text = pa.DictionaryArray.from_arrays(pa.array([0] * 10**4, pa.int32()), ["x" * 10**4])
    pq.write_table(pa.table({"text": text}), tmp_path / "bomb.parquet")
    assert (tmp_path / "bomb.parquet").stat().st_size < 10**5
    for name in ("bomb.txt.gz", "bomb.parquet"):
        with pytest.raises(DataError, match="more than 1,000,000 bytes of text"):
            read_corpus(tmp_path / name)


COLUMNS = {
    "lists": pa.array([[["a"]]], pa.list_(pa.list_(pa.string()))),
    "objects": pa.array([{"a": 1}]),
    "maps": pa.array([[("a", 1)]], pa.map_(pa.string(), pa.int64())),
    "numbers": pa.array([1]),
    "nothing": pa.nulls(1),
    "bytes": pa.array([b"\xff\xfe"]),
    "times": pa.array([10**9], pa.timestamp("s")),
}


@pytest.mark.parametrize("column", COLUMNS.values(), ids=COLUMNS)
def test_the_error_about_a_column_without_text_names_file_and_column(column, tmp_path):
    pq.write_table(pa.table({"text": column}), tmp_path / "rows.parquet")
    with pytest.raises(DataError, match=r"rows\.parquet.*text"):
        read_corpus(tmp_path / "rows.parquet")


def test_unusual_characters_and_many_columns_are_read(tmp_path):
    (tmp_path / "rows.jsonl").write_text("\ufeff" + json.dumps({"text": "a\0b \u202e"}) + "\n")
    assert list(read_corpus(tmp_path / "rows.jsonl")) == ["a\0b \u202e"]
    names = ",".join(["text", *(f"c{n}" for n in range(20_000))])
    (tmp_path / "rows.csv").write_text(f"{names}\na{',' * 20_000}\n")
    assert list(read_corpus(tmp_path / "rows.csv")) == ["a"]
