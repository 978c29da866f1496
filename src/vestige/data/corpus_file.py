"""How does a corpus go back to disk, so that `read_corpus` finds the same documents?"""

import gzip
import io
import json
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO, cast

import pyarrow.parquet

from vestige.data.corpus import Corpus
from vestige.data.whole_file import replacing
from vestige.errors import DataError

_REMEDY = "Name the file .parquet or .jsonl (or .jsonl.gz), which hold any document."


def write_corpus(corpus: Corpus, path: Path) -> None:
    """Write a corpus in the format that the file's name says, whole or not at all.

    Args:
        corpus: its columns are called `text`, `user` and `label` in the file.
        path: `.parquet`, `.jsonl`, `.jsonl.gz`, or `.txt` for a document a line, which keeps
            the texts only.

    Raises:
        DataError: the name says no format, or a document does not fit on a line of a `.txt`.
    """
    path = Path(path)
    if not path.name.endswith((".parquet", ".jsonl", ".jsonl.gz", ".txt")):
        raise DataError(f"{path} has a name that says no format to write", remedy=_REMEDY)
    with replacing(path) as file:
        if path.suffix == ".parquet":
            pyarrow.parquet.write_table(corpus.table, file)
        elif path.suffix == ".gz":
            # A fixed time makes equal corpora equal files.
            with gzip.GzipFile(fileobj=file, mode="wb", mtime=0) as packed:
                _write_lines(cast(BinaryIO, packed), _rows(corpus))
        else:
            _write_lines(file, _rows(corpus) if path.suffix == ".jsonl" else _texts(corpus, path))


def _write_lines(file: BinaryIO, lines: Iterator[str]) -> None:
    buffered = io.BufferedWriter(cast(io.RawIOBase, file), 1 << 20)
    for line in lines:
        buffered.write(line.encode() + b"\n")
    buffered.flush()
    buffered.detach()


def _rows(corpus: Corpus) -> Iterator[str]:
    for batch in corpus.table.to_batches(max_chunksize=1000):
        for row in batch.to_pylist():
            yield json.dumps(row, ensure_ascii=False)


def _texts(corpus: Corpus, path: Path) -> Iterator[str]:
    for number, text in enumerate(corpus, start=1):
        if text != text.strip() or not text or "\n" in text:
            raise DataError(
                f"document {number} does not fit on a line of {path}: it is blank, has blanks "
                "at an end or a line break inside",
                remedy=_REMEDY,
            )
        yield text
