"""Labelled utterances from files and folders, in their parts.

Formats: tables, parallel files, NLU-Evaluation-Data, and the original Snips files. Another package
adds formats through the entry-point group `vestige.utterance_formats`.
"""

import json
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from vestige import _validate
from vestige.data.files import Fault
from vestige.data.formats.parallel import parallel_lines
from vestige.data.formats.reading import (
    AUTO,
    NAMES,
    ROWS,
    TABLE,
    TABLES,
    TEXT,
    Format,
    ReadOptions,
    detect_format,
    ending,
    files_ending_in,
    first_line,
    raw_lines,
)
from vestige.data.formats.tables import located_rows
from vestige.data.utterances import OUTSIDE, Utterance, Utterances, UtteranceSplits, fault
from vestige.errors import DataError, reason
from vestige.registry import Registry

UtteranceFormat = Format[UtteranceSplits]
UTTERANCE_FORMATS: Registry[UtteranceFormat] = Registry("format", group="vestige.utterance_formats")

_PARTS = {"train": ("train",), "validation": ("validation", "valid", "dev"), "test": ("test",)}
_PARALLEL = ("seq.in", "seq.out", "label")
_ANNOTATED = ("scenario", "intent", "answer_annotation")
_SLOT = re.compile(r"\[([^\[\]:]*):([^\[\]]*)\]")
_REMEDY = (
    "Write words, an intent, and a tag for every word: O, B-name, or I-name after B-name or I-name."
)
_BRACKETS = "Write every slot as [name : words]; use no other brackets, and leave nothing empty."
_SHAPE = 'The file must be {"Intent": [{"data": [{"text": "...", "entity": "a slot"}, ...]}, ...]}.'


def read_utterances(
    source: str | Path,
    *,
    format: str = AUTO,
    tokens_column: str = "tokens",
    tags_column: str = "tags",
    intent_column: str = "intent",
    limit: int | None = None,
) -> UtteranceSplits:
    """Labelled utterances in their parts.

    Args:
        source: a table; a folder of train, validation (also valid or dev) and test, each a
            table or a folder of parallel files; a folder of parallel files or with one table;
            the original Snips folder; the NLU-Evaluation-Data table.
        format: the name of a registered format; "auto" looks at names and at header lines.
        tokens_column, tags_column, intent_column: of words, BIO tags and intents, in tables.
        limit: keep only the first utterances of each part.

    Raises:
        ValueError: the format is unknown, or the limit is not positive.
        DataError: naming the file, the line and the remedy.
    """
    _validate.one_of((AUTO, *UTTERANCE_FORMATS.names()), format=format)
    _validate.positive(limit=1 if limit is None else limit)
    path = Path(source)
    if not path.exists():
        raise DataError(f"{path} does not exist", remedy="Check the path.")
    options = ReadOptions(
        tokens_column=tokens_column, tags_column=tags_column, intent_column=intent_column
    )
    if format != AUTO:
        splits = UTTERANCE_FORMATS[format].read(str(path), options)
    elif detected := detect_format(UTTERANCE_FORMATS, str(path), options):
        splits = detected.read(str(path), options)
    else:
        raise _unknown_format(path)
    if limit is None:
        return splits
    parts = splits.parts().items()
    return replace(
        splits, **{name: part.take(np.arange(min(limit, len(part)))) for name, part in parts}
    )


def _unknown_format(path: Path) -> DataError:
    if path.is_dir():
        return DataError(
            f"{path} has no utterances in a known format",
            remedy="Pass a folder of train.jsonl, validation.jsonl and test.jsonl (or CSV or "
            "Parquet), or of train/, valid/ and test/ with seq.in, seq.out and label in each.",
        )
    return DataError(
        f"the name of {path} ends in no known format",
        remedy=f"Use one of {', '.join(TABLES)}, pass the folder of parallel files, or pass "
        f"--format: {', '.join(UTTERANCE_FORMATS.names())}.",
    )


LocatedRows = Iterable[tuple[str, Any]]
"""Rows, each with its location for messages."""


def _read_splits(
    path: Path,
    parts: Mapping[str, Path],
    read_rows: Callable[[Path], LocatedRows],
    make: Callable[[Any], Utterance],
    remedy: str,
) -> UtteranceSplits:
    """The parts of a source; `make` turns a row into an utterance."""
    if "train" not in parts:
        raise DataError(
            f"{path} has no part named train",
            remedy="Name the parts train, validation (or valid or dev) and test, or pass a file.",
        )
    utterances = {
        name: _make_utterances(read_rows(source), make, source, remedy)
        for name, source in parts.items()
    }
    return UtteranceSplits(**utterances)


def _make_utterances(
    rows: LocatedRows, make: Callable[[Any], Utterance], source: Path, remedy: str
) -> Utterances:
    utterances = []
    for where, row in rows:
        try:
            utterance = make(row)
        except Fault as error:
            raise error.at(where, remedy) from None
        if problem := fault(utterance):
            raise Fault(problem).at(where, remedy)
        utterances.append(utterance)
    if not utterances:
        raise DataError(f"{source} has no utterances", remedy="Pass labelled utterances.")
    return Utterances.of(utterances)


def _named_parts(entries: Iterable[Path]) -> dict[str, Path]:
    """The file or folder of each part, by its name."""
    parts: dict[str, Path] = {}
    for entry in sorted(entries):
        stem = entry.name.removesuffix(".gz").removesuffix(ending(entry))
        for part in (part for part, names in _PARTS.items() if stem in names):
            if part in parts:
                raise DataError(
                    f"{entry.parent} has both {parts[part].name} and {entry.name} for the part "
                    f"{part}",
                    remedy="Keep one of them, or pass a file.",
                )
            parts[part] = entry
    return parts


# Tables: a column of words, one of tags, one of intents.


def _tables(path: Path) -> dict[str, Path]:
    """The tables of the parts; the only table of a folder is for training."""
    if not path.is_dir():
        return {"train": path}
    files = files_ending_in(path, TABLES)
    return _named_parts(files) or ({"train": files[0]} if len(files) == 1 else {})


def _is_table(path: Path) -> bool:
    return bool(_tables(path)) if path.is_dir() else ending(path) in TABLES


def _read_tables(path: Path, options: ReadOptions) -> UtteranceSplits:
    columns = (options.tokens_column, options.tags_column, options.intent_column)

    def make(row: Mapping[str, Any]) -> Utterance:
        intent = row[columns[2]]
        if not isinstance(intent, str):
            raise Fault(f'"{columns[2]}" is {type(intent).__name__}, not text')
        words, tags = (_words(row[column], column) for column in columns[:2])
        return Utterance(tuple(words), tuple(tags), intent.strip())

    read_rows = partial(located_rows, columns=columns)
    return _read_splits(path, _tables(path), read_rows, make, _REMEDY)


def _words(value: object, column: str) -> list[str]:
    if isinstance(value, str):
        return value.split()
    if not isinstance(value, list):
        raise Fault(f'"{column}" is {type(value).__name__}, neither text nor a list')
    for word in value:
        if not isinstance(word, str):
            raise Fault(f'"{column}" has {type(word).__name__}, not only text')
    return value


# Parallel files: a line of `seq.in` (words), `seq.out` (BIO tags) and `label` (intent) each.
# Goo et al. (2018), "Slot-Gated Modeling for Joint Slot Filling and Intent Prediction", released
# ATIS and Snips in this form.


def _folders(path: Path) -> list[Path]:
    """The folders in a folder."""
    if not path.is_dir():
        raise DataError(f"{path} is a file, not a folder", remedy="Pass its folder.")
    return [entry for entry in sorted(path.iterdir()) if entry.is_dir()]


def _has_parallel(folder: Path) -> bool:
    return any((folder / name).is_file() for name in _PARALLEL)


def _parallel_folders(path: Path) -> dict[str, Path]:
    return {"train": path} if _has_parallel(path) else _named_parts(_folders(path))


def _is_parallel(path: Path) -> bool:
    return path.is_dir() and any(map(_has_parallel, _parallel_folders(path).values()))


def _read_parallel(path: Path, _: ReadOptions) -> UtteranceSplits:
    def make(row: tuple[str, ...]) -> Utterance:
        tokens, tags, intent = row
        return Utterance(tuple(tokens.split()), tuple(tags.split()), intent)

    return _read_splits(path, _parallel_folders(path), _parallel_rows, make, _REMEDY)


def _parallel_rows(folder: Path) -> LocatedRows:
    rows = parallel_lines([folder / name for name in _PARALLEL])
    files = f"{', '.join(_PARALLEL[:2])} and {_PARALLEL[2]}"
    return ((f"{folder}, line {n} of {files}", row) for n, row in enumerate(rows, start=1))


# NLU-Evaluation-Data. Liu et al. (2019), "Benchmarking Natural Language Understanding Services for
# building Conversational Agents". A text reads "wake me at [time : nine am]"; the paper's 64
# intents are the pairs of scenario and intent. The corpus has no split of its own.


def _is_nlu_evaluation(path: Path) -> bool:
    files = list(_tables(path).values())
    if len(files) != 1 or ending(files[0]) not in (".csv", ".tsv"):
        return False
    header = first_line(files[0])
    return all(column in header for column in _ANNOTATED)


def _read_nlu_evaluation(path: Path, _: ReadOptions) -> UtteranceSplits:
    read_rows = partial(located_rows, columns=_ANNOTATED)
    return _read_splits(path, _tables(path), read_rows, _from_brackets, _BRACKETS)


def _from_brackets(row: Mapping[str, Any]) -> Utterance:
    for column in _ANNOTATED:
        if not isinstance(row[column], str) or not row[column].strip():
            raise Fault(f'no text in the column "{column}"')
    scenario, intent, text = (row[column].strip() for column in _ANNOTATED)
    # Text outside of slots alternates with name and content of a slot.
    first, *rest = _SLOT.split(text)
    pieces: list[tuple[str, str | None]] = [(first, None)]
    for slot, content, outside in zip(rest[::3], rest[1::3], rest[2::3], strict=True):
        pieces += [(content, slot.strip()), (outside, None)]
    if any("[" in piece or "]" in piece for piece, slot in pieces if slot is None):
        raise Fault("a bracket is not closed, not opened or has no colon")
    return _from_pieces(pieces, f"{scenario}_{intent}")


def _from_pieces(pieces: Iterable[tuple[str, str | None]], intent: str) -> Utterance:
    """An utterance from pieces of its text, each with its slot or None.

    Words end at blanks and where a piece ends: "Prince" and "'s songs" are three words.
    """
    tokens: list[str] = []
    tags: list[str] = []
    for text, slot in pieces:
        words = text.split()
        tokens += words
        if slot is None:
            tags += [OUTSIDE] * len(words)
        elif words and slot:
            tags += [f"B-{slot}"] + [f"I-{slot}"] * (len(words) - 1)
        else:
            raise Fault(f"a slot has no {'words' if slot else 'name'}")
    return Utterance(tuple(tokens), tuple(tags), intent)


# The original Snips files: 2017-06-custom-intent-engines of snips/nlu-benchmark. Coucke et al.
# (2018), "Snips Voice Platform: an embedded Spoken Language Understanding system for
# private-by-design voice interfaces". Case and punctuation stay. A folder X for each intent X has
# train_X_full.json (or train_X.json) and, where there is a validation part, validate_X.json.


def _snips_intents(path: Path) -> list[str]:
    names = [folder.name for folder in _folders(path)]
    return [name for name in names if any((path / name).glob(f"train_{name}*.json"))]


def _read_snips(path: Path, _: ReadOptions) -> UtteranceSplits:
    names = _snips_intents(path)
    if not names:
        raise DataError(
            f"{path} has no folder X with train_X_full.json",
            remedy="Pass the folder 2017-06-custom-intent-engines of snips/nlu-benchmark.",
        )

    def read(files: list[Path]) -> Utterances:
        rows = (row for file in files for row in _snips_rows(file))
        return _make_utterances(rows, _from_snips, path, _SHAPE)

    full = [path / name / f"train_{name}_full.json" for name in names]
    train = read([f if f.exists() else f.with_stem(f.stem.removesuffix("_full")) for f in full])
    validation = [path / name / f"validate_{name}.json" for name in names]
    has_validation = any(file.exists() for file in validation)
    return UtteranceSplits(train=train, validation=read(validation) if has_validation else None)


def _snips_rows(path: Path) -> LocatedRows:
    try:
        content = json.loads(_joined_halves(path))
    except (ValueError, RecursionError) as error:
        raise DataError(f"{path}: invalid JSON: {reason(error)}", remedy="Fetch it.") from error
    if not isinstance(content, dict):
        raise DataError(f"{path} is not a JSON object", remedy=_SHAPE)
    for intent, utterances in content.items():
        if not isinstance(utterances, list):
            raise DataError(f"{path}: an intent has no list of utterances", remedy=_SHAPE)
        for number, utterance in enumerate(utterances, start=1):
            yield f"{path}, utterance {number}", (utterance, intent.strip())


def _from_snips(row: tuple[Any, str]) -> Utterance:
    utterance, intent = row
    data = utterance.get("data") if isinstance(utterance, dict) else None
    if not isinstance(data, list):
        raise Fault('it has no list "data"')
    pieces = []
    for number, piece in enumerate(data, start=1):
        text, slot = (piece.get("text"), piece.get("entity")) if isinstance(piece, dict) else (0, 0)
        if not isinstance(text, str) or not isinstance(slot, str | None):
            raise Fault(f'piece {number} has no "text", or a value is not text')
        pieces.append((text, slot))
    return _from_pieces(pieces, intent)


def _joined_halves(path: Path) -> str:
    """UTF-8 text with surrogate pairs (CESU-8) joined: a published file has one."""
    text = []
    for number, line in enumerate(raw_lines(path), start=1):
        try:
            halves = line.decode("utf-8", "surrogatepass")
            text.append(halves.encode("utf-16-le", "surrogatepass").decode("utf-16-le"))
        except UnicodeDecodeError as error:
            raise DataError(
                f"{path}, line {number}: not UTF-8",
                remedy="Download it again, or convert it with `iconv -f latin1 -t utf-8`.",
            ) from error
    return "".join(text).removeprefix("\ufeff")


def _add(
    name: str,
    read: Callable[[Path, ReadOptions], UtteranceSplits],
    detect: Callable[[Path], bool],
    stage: int,
) -> None:
    UTTERANCE_FORMATS.add(
        name,
        UtteranceFormat(
            read=lambda source, options: read(Path(source), options),
            detect=lambda source, _: detect(Path(source)),
            stage=stage,
        ),
    )


_add("parallel", _read_parallel, _is_parallel, NAMES)
_add("nlu-evaluation", _read_nlu_evaluation, _is_nlu_evaluation, ROWS)
_add("snips-json", _read_snips, lambda path: path.is_dir() and any(_snips_intents(path)), TABLE)
_add("table", _read_tables, _is_table, TEXT)
