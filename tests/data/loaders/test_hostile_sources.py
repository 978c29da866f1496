"""Text that would fill the memory or never end: refused by file and line, before it does."""

import gzip
import json
import os
import socket
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from vestige.data import text_file
from vestige.data.loaders import delimited, read_corpus, tables
from vestige.errors import DataError

ENDINGS = (".txt", ".jsonl", ".csv", ".parquet")


@pytest.mark.parametrize("ending", ENDINGS)
def test_what_is_no_file_is_never_opened(ending: str, tmp_path: Path) -> None:
    os.mkfifo(tmp_path / f"pipe{ending}")
    (tmp_path / f"device{ending}").symlink_to("/dev/zero")
    with socket.socket(socket.AF_UNIX) as listening:
        listening.bind(str(tmp_path / f"socket{ending}"))
        for name, kind in (("pipe", "a named pipe"), ("device", "a device"), ("socket", "socket")):
            for format in ("auto", "text" if ending == ".txt" else "table"):
                with pytest.raises(DataError, match=kind):
                    read_corpus(tmp_path / f"{name}{ending}", format=format)


@pytest.mark.parametrize("ending", [".txt", ".jsonl", ".csv", ".txt.gz", ".jsonl.gz"])
def test_a_line_without_an_end_is_named(
    ending: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(text_file, "LONGEST_LINE", 1000)
    monkeypatch.setattr(tables, "_BLOCK", 500)
    monkeypatch.setattr(delimited, "BLOCK", 500)
    first = {".jso": b'{"text": "a"}\n', ".csv": b"text\n"}.get(ending[:4], b"a\n")
    start = b'{"text": "' if ".json" in ending else b'"' if ".csv" in ending else b""
    path = tmp_path / f"corpus{ending}"
    content = first + start + b"x" * 5000
    path.write_bytes(gzip.compress(content) if ending.endswith(".gz") else content)
    with pytest.raises(DataError, match="line 2: more than 1,000 bytes"):
        read_corpus(path)


def test_a_small_file_that_holds_more_than_memory_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for module in (text_file, tables):
        monkeypatch.setattr(module, "free_memory", lambda: 10**6)
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
def test_a_column_of_another_type_is_refused(name: str, tmp_path: Path) -> None:
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
def test_hostile_rows_are_refused_by_name(name: str, tmp_path: Path) -> None:
    file, content = HOSTILE[name]
    (tmp_path / file).write_bytes(content)
    with pytest.raises(DataError, match=file.replace(".", r"\.")):
        read_corpus(tmp_path / file)


def test_odd_letters_that_are_text_are_read(tmp_path: Path) -> None:
    (tmp_path / "rows.jsonl").write_text("\ufeff" + json.dumps({"text": "a\0b \u202e"}) + "\n")
    assert list(read_corpus(tmp_path / "rows.jsonl")) == ["a\0b \u202e"]


def test_a_table_of_very_many_columns_is_read(tmp_path: Path) -> None:
    names = ",".join(["text", *(f"c{n}" for n in range(20_000))])
    (tmp_path / "rows.csv").write_text(f"{names}\na{',' * 20_000}\n")
    assert list(read_corpus(tmp_path / "rows.csv")) == ["a"]
