"""Labelled utterances from files and folders, in their parts: tables and parallel files.

Another package adds formats through the entry-point group `vestige.utterance_formats`.
"""

import json
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from importlib import import_module
from pathlib import Path

import numpy as np

from vestige import _validate
from vestige.data.atomic_write import write_text
from vestige.data.formats.parallel import parallel_lines
from vestige.data.formats.reading import AUTO, NAMES, ROWS, TABLE, TABLES, TEXT, ending, fitting
from vestige.data.formats.reading import lines as lines_of
from vestige.data.formats.tables import rows
from vestige.data.utterances import Utterance, Utterances, UtteranceSplits, fault
from vestige.errors import DataError
from vestige.registry import Registry

PARALLEL = ("seq.in", "seq.out", "label")
_PARTS = {"train": ("train",), "validation": ("validation", "valid", "dev"), "test": ("test",)}


@dataclass(frozen=True, kw_only=True)
class UtteranceColumns:
    """Columns of labelled utterances in tables: words, BIO tags, intents."""

    tokens: str = "tokens"
    tags: str = "tags"
    intent: str = "intent"


@dataclass(frozen=True, kw_only=True)
class UtteranceFormat:
    """A format of labelled utterances.

    Attributes:
        read: (path, columns) -> the parts.
        detect: whether a path has this format.
        stage: when `detect` is called; see `CorpusFormat`.
    """

    read: Callable[[Path, UtteranceColumns], UtteranceSplits]
    detect: Callable[[Path], bool]
    stage: int = NAMES


UTTERANCE_FORMATS: Registry[UtteranceFormat] = Registry("format", group="vestige.utterance_formats")


def read_utterances(
    source: str | Path,
    *,
    format: str = AUTO,
    tokens_column: str = "tokens",
    tags_column: str = "tags",
    intent_column: str = "intent",
    limit: int | None = None,
) -> UtteranceSplits:
    """Labelled utterances with whatever parts they come in.

    Args:
        source: a table; a folder of train, validation (also valid or dev) and test, each a
            table or a folder of parallel files; a folder of parallel files or with one table;
            the original Snips folder; the NLU-Evaluation-Data table.
        format: the name of a registered format; "auto" looks at names and at header lines.
        tokens_column: the column of the words, in tables.
        tags_column: the column of the BIO tags, in tables.
        intent_column: the column of the intents, in tables.
        limit: keep only the first so many utterances of each part.

    Raises:
        ValueError: the format is unknown, or the limit is not positive.
        DataError: naming the file, the line where there is one, and the remedy.
    """
    _validate.one_of((AUTO, *UTTERANCE_FORMATS.names()), format=format)
    _validate.positive(limit=1 if limit is None else limit)
    path = Path(source)
    if not path.exists():
        raise DataError(f"{path} does not exist", remedy="Check the path.")
    columns = UtteranceColumns(tokens=tokens_column, tags=tags_column, intent=intent_column)
    chosen = _detected(path) if format == AUTO else UTTERANCE_FORMATS[format]
    splits = chosen.read(path, columns)
    if limit is None:
        return splits
    kept = {
        name: part.take(np.arange(min(limit, len(part)))) for name, part in splits.parts().items()
    }
    return replace(splits, **kept)


def write_utterances(utterances: Utterances, path: str | Path) -> None:
    """Write utterances as JSON lines, whole or not at all.

    `read_utterances` reads them back with the same fingerprint.

    Args:
        utterances: at least one.
        path: a name that ends in `.jsonl`; the file is replaced where there is one.

    Raises:
        ValueError: there are no utterances, or the name ends otherwise.
    """
    path = Path(path)
    _validate.positive(utterances=len(utterances))
    if path.suffix != ".jsonl":
        raise ValueError(f"path must end in .jsonl, got {path.name!r}")
    written = (json.dumps(one._asdict(), ensure_ascii=False) for one in utterances)
    write_text(path, "".join(f"{row}\n" for row in written))


def _detected(path: Path) -> UtteranceFormat:
    for found in sorted(UTTERANCE_FORMATS.values(), key=lambda one: one.stage):
        if found.detect(path):
            return found
    if path.is_dir():
        raise DataError(
            f"{path} has no utterances in a known format",
            remedy="Pass a folder of train.jsonl, validation.jsonl and test.jsonl (or CSV or "
            "Parquet), or of train/, valid/ and test/ with seq.in, seq.out and label in each.",
        )
    raise DataError(
        f"the name of {path} ends in no known format",
        remedy=f"Use one of {', '.join(TABLES)}, pass the folder of parallel files, or pass "
        f"--format: {', '.join(UTTERANCE_FORMATS.names())}.",
    )


# Checks that all formats share.


def checked(tokens: Sequence[str], tags: Sequence[str], intent: str, where: str) -> Utterance:
    """An utterance of a row; DataError that names the row and its fault."""
    found = Utterance(tuple(tokens), tuple(tags), intent)
    problem = fault(found)
    if problem is not None:
        raise DataError(
            f"{where}: {problem}",
            remedy="Write words, an intent, and a tag for every word: O, B-name, or I-name after "
            "B-name or I-name.",
        )
    return found


def gathered(found: Iterable[Utterance], source: object) -> Utterances:
    """All utterances of one source; DataError if there are none."""
    utterances = Utterances.of(found)
    if not len(utterances):
        raise DataError(
            f"{source} has no utterances",
            remedy="Pass a file or folder with labelled utterances.",
        )
    return utterances


def require_folder(path: Path) -> Path:
    """The path itself, if it is a folder."""
    if not path.is_dir():
        raise DataError(f"{path} is a file, not a folder", remedy="Pass its folder.")
    return path


def only_table(path: Path) -> Path:
    """The path of a table, or the one table in a folder."""
    found = fitting(path, TABLES) if path.is_dir() else [path]
    if len(found) != 1:
        raise DataError(
            f"{path} has {len(found)} tables; one is needed", remedy="Pass the file itself."
        )
    return found[0]


def _parts(entries: Iterable[Path]) -> dict[str, Path]:
    """The file or folder of each part, by the names that parts go by."""
    found: dict[str, Path] = {}
    for entry in sorted(entries):
        stem = entry.name.removesuffix(".gz").removesuffix(ending(entry))
        for part, names in _PARTS.items():
            if stem not in names:
                continue
            if part in found:
                raise DataError(
                    f"{entry.parent} has both {found[part].name} and {entry.name} for the part "
                    f"{part}",
                    remedy="Keep one of them, or pass a file.",
                )
            found[part] = entry
    return found


def _read_parts(
    folder: Path, entries: list[Path], read: Callable[[Path], Utterances]
) -> UtteranceSplits:
    named = _parts(entries)
    if "train" not in named:
        raise DataError(
            f"{folder} has no part named train",
            remedy="Name the parts train, validation (or valid or dev) and test.",
        )
    return UtteranceSplits(**{name: read(entry) for name, entry in named.items()})


# Tables: a column of words, one of tags, one of intents.


def _is_table(path: Path) -> bool:
    if not path.is_dir():
        return ending(path) in TABLES
    found = fitting(path, TABLES)
    return len(found) == 1 or bool(_parts(found))


def _read_tables(path: Path, columns: UtteranceColumns) -> UtteranceSplits:
    def read(file: Path) -> Utterances:
        return gathered(_table_rows(file, columns), file)

    found = fitting(path, TABLES) if path.is_dir() else []
    if path.is_dir() and (_parts(found) or len(found) != 1):
        return _read_parts(path, found, read)
    return UtteranceSplits(train=read(only_table(path)))


def _table_rows(path: Path, columns: UtteranceColumns) -> Iterator[Utterance]:
    for where, row in rows(path, (columns.tokens, columns.tags, columns.intent)):
        intent = row[columns.intent]
        if not isinstance(intent, str):
            raise DataError(
                f'{where}: "{columns.intent}" is {type(intent).__name__}, not text',
                remedy="Choose another column for the intent, or write its name as text.",
            )
        words = _words(row[columns.tokens], columns.tokens, where)
        tags = _words(row[columns.tags], columns.tags, where)
        yield checked(words, tags, intent.strip(), where)


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


# Parallel files: a line of `seq.in` (words), `seq.out` (BIO tags) and `label` (intent) each.
# Goo et al. (2018), "Slot-Gated Modeling for Joint Slot Filling and Intent Prediction", released
# ATIS and Snips in this form.


def _is_parallel(path: Path) -> bool:
    if not path.is_dir():
        return False
    return _has_parallel(path) or any(map(_has_parallel, _parts(_folders(path)).values()))


def _read_parallel(path: Path, _: UtteranceColumns) -> UtteranceSplits:
    folder = require_folder(path)
    if _has_parallel(folder):
        return UtteranceSplits(train=_parallel_part(folder))
    return _read_parts(folder, _folders(folder), _parallel_part)


def _parallel_part(folder: Path) -> Utterances:
    missing = [name for name in PARALLEL if not (folder / name).is_file()]
    if missing:
        raise DataError(
            f"{folder} has no {missing[0]}",
            remedy=f"Put {', '.join(PARALLEL[:2])} and {PARALLEL[2]} into one folder.",
        )
    names = f"{', '.join(PARALLEL[:2])} and {PARALLEL[2]}"
    found = (
        checked(tokens.split(), tags.split(), intent, f"{folder}, line {number} of {names}")
        for number, (tokens, tags, intent) in enumerate(
            parallel_lines([folder / name for name in PARALLEL]), start=1
        )
    )
    return gathered(found, folder)


def _has_parallel(folder: Path) -> bool:
    return any((folder / name).is_file() for name in PARALLEL)


def _folders(path: Path) -> list[Path]:
    return [entry for entry in sorted(path.iterdir()) if entry.is_dir()]


# Detection of NLU-Evaluation-Data and of the original Snips files; `nlu_corpora` reads them.


def _is_nlu_evaluation(path: Path) -> bool:
    if path.is_dir():
        found = fitting(path, TABLES)
        return len(found) == 1 and not _parts(found) and _is_nlu_evaluation(found[0])
    if ending(path) not in (".csv", ".tsv"):
        return False
    header = next(lines_of(path), "")
    return all(column in header for column in ("scenario", "intent", "answer_annotation"))


def snips_intents(folder: Path) -> list[str]:
    """The intents X for which a folder has training files, X/train_X*.json."""
    if not folder.is_dir():
        return []
    return [e.name for e in _folders(folder) if any(e.glob(f"train_{e.name}*.json"))]


def _imported(function: str) -> Callable[[Path, UtteranceColumns], UtteranceSplits]:
    def read(path: Path, _: UtteranceColumns) -> UtteranceSplits:
        found = getattr(import_module("vestige.data.formats.nlu_corpora"), function)
        splits: UtteranceSplits = found(path)
        return splits

    return read


for _name, _read, _detect, _stage in (
    ("parallel", _read_parallel, _is_parallel, NAMES),
    ("nlu-evaluation", _imported("read_nlu_evaluation"), _is_nlu_evaluation, ROWS),
    ("snips-json", _imported("read_snips"), lambda path: bool(snips_intents(path)), TABLE),
    ("table", _read_tables, _is_table, TEXT),
):
    UTTERANCE_FORMATS.add(_name, UtteranceFormat(read=_read, detect=_detect, stage=_stage))
