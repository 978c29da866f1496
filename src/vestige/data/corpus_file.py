"""Corpus files, written so that `read_corpus` gives the same documents."""

import gzip
import json
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet

from vestige.data.atomic_write import replacing
from vestige.data.corpus import Corpus
from vestige.errors import DataError

_BATCH = 1000
_REMEDY = "End the name in .parquet, .jsonl or .jsonl.gz."


def write_corpus(
    corpus: Corpus, path: Path, *, progress: Callable[[int], None] | None = None
) -> None:
    """Write a corpus in the format of the file's ending, atomically.

    Args:
        corpus: its columns are called `text`, `user`, `label` and `source` in the file.
            Documents that are blank are written, and left out by those who read tables.
        path: `.parquet`, `.jsonl`, `.jsonl.gz`, or `.txt` for a document a line, which keeps
            the texts only.
        progress: called with the number of documents written so far.

    Raises:
        DataError: the name says no format, or a document does not fit on a line of a `.txt`.
    """
    path = Path(path)
    if not path.name.endswith((".parquet", ".jsonl", ".jsonl.gz", ".txt")):
        raise DataError(f"the name of {path} ends in no known format", remedy=_REMEDY)
    with replacing(path) as file:
        if path.suffix == ".parquet":
            pyarrow.parquet.write_table(corpus.table, file)
        elif path.suffix == ".gz":
            # Without name and time in its header, equal corpora make equal files.
            with gzip.GzipFile("", "wb", compresslevel=6, fileobj=file, mtime=0) as packed:
                _write_lines(corpus, packed.write, _json_lines, progress)
        else:
            _write_lines(
                corpus, file.write, _json_lines if path.suffix == ".jsonl" else _texts, progress
            )


def _write_lines(
    corpus: Corpus,
    write: Callable[[bytes], object],
    lines: Callable[[pa.RecordBatch, int], list[str]],
    progress: Callable[[int], None] | None,
) -> None:
    done = 0
    for batch in corpus.table.to_batches(max_chunksize=_BATCH):
        write("".join(f"{line}\n" for line in lines(batch, done)).encode())
        done += len(batch)
        if progress is not None:
            progress(done)


def _json_lines(batch: pa.RecordBatch, _: int) -> list[str]:
    names = batch.schema.names
    rows = zip(*(column.to_pylist() for column in batch.columns), strict=True)
    return [json.dumps(dict(zip(names, row, strict=True)), ensure_ascii=False) for row in rows]


def _texts(batch: pa.RecordBatch, before: int) -> list[str]:
    texts: list[str] = batch["text"].to_pylist()
    for number, text in enumerate(texts, before + 1):
        if not text or text != text.strip() or "\n" in text:
            raise DataError(
                f"document {number} does not fit on one line: it is blank, begins or ends with a "
                "blank, or has a line break",
                remedy=_REMEDY,
            )
    return texts
