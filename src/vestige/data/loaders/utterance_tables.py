"""Utterances in JSON lines, CSV and Parquet: a column of words, one of tags, one of intents."""

from collections.abc import Iterator
from pathlib import Path

from vestige.data.loaders.registry import TEXT, UTTERANCE_FORMATS, UtteranceColumns, UtteranceFormat
from vestige.data.loaders.tables import SUFFIXES, rows
from vestige.data.loaders.utterance_parts import named_parts, only_table, read_parts
from vestige.data.loaders.utterance_rows import checked, gathered
from vestige.data.text_file import ending, fitting
from vestige.data.utterances import Utterance, Utterances, UtteranceSplits
from vestige.errors import DataError


def read_utterance_table(
    path: str | Path,
    *,
    tokens_column: str = "tokens",
    tags_column: str = "tags",
    intent_column: str = "intent",
) -> Utterances:
    """The rows of a file whose name says its format, gzip too.

    Args:
        path: a `.jsonl`, `.json` (an object a line), `.csv`, `.tsv` or `.parquet` file.
        tokens_column: holds the words, as a list or as text with blanks between them.
        tags_column: holds a BIO tag for each word, as a list or as text.
        intent_column: holds the intent.

    Raises:
        DataError: naming file and line or row, and what is wrong there.
    """
    path = Path(path)
    return gathered(_read(path, (tokens_column, tags_column, intent_column)), path)


def _read(path: Path, columns: tuple[str, str, str]) -> Iterator[Utterance]:
    tokens, tags, intent = columns
    for where, row in rows(path, columns):
        named = row[intent]
        if not isinstance(named, str):
            raise DataError(
                f'{where}: "{intent}" is {type(named).__name__}, not text',
                remedy="Choose another column for the intent, or write its name as text.",
            )
        words = _words(row[tokens], tokens, where)
        yield checked(words, _words(row[tags], tags, where), named.strip(), where)


def _words(value: object, column: str, where: str) -> list[str]:
    if isinstance(value, str):
        return value.split()
    if isinstance(value, list):
        strange = [word for word in value if not isinstance(word, str)]
        if not strange:
            return value
        problem = f"has {type(strange[0]).__name__}, not only text"
    else:
        problem = f"is {type(value).__name__}, neither text nor a list"
    raise DataError(
        f'{where}: "{column}" {problem}',
        remedy="Write a list of words, or text with blanks between the words.",
    )


def _splits(path: Path, columns: UtteranceColumns) -> UtteranceSplits:
    def read(file: Path) -> Utterances:
        return read_utterance_table(
            file,
            tokens_column=columns.tokens,
            tags_column=columns.tags,
            intent_column=columns.intent,
        )

    found = fitting(path, SUFFIXES) if path.is_dir() else []
    if path.is_dir() and (named_parts(found) or len(found) != 1):
        return read_parts(path, found, read)
    return UtteranceSplits(train=read(only_table(path)))


def _recognised(path: Path) -> bool:
    if path.is_dir():
        found = fitting(path, SUFFIXES)
        return len(found) == 1 or bool(named_parts(found))
    return ending(path) in SUFFIXES


UTTERANCE_FORMATS.add("table", UtteranceFormat(read=_splits, recognised=_recognised, stage=TEXT))
