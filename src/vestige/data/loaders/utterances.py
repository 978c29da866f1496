"""Where are labelled utterances, in which format, and in which parts: one door to all formats."""

import json
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

import numpy as np

from vestige import _validate
from vestige.data.atomic_write import write_text
from vestige.data.loaders import nlu_evaluation, parallel_tags, snips_json, tables
from vestige.data.loaders.plain_text import ending, fitting, lines
from vestige.data.loaders.utterance_tables import read_utterance_table
from vestige.data.utterances import Utterances
from vestige.errors import DataError

UTTERANCE_FORMATS = ("auto", "parallel", "snips-json", "nlu-evaluation", "table")
_NAMES = {
    "train": ("train",),
    "validation": ("validation", "valid", "dev"),
    "test": ("test",),
}


@dataclass(frozen=True, kw_only=True)
class UtteranceSplits:
    """What a corpus calls its parts.

    Attributes:
        train: the part to train on; all there is, where the corpus has no parts.
        validation: the part to stop and choose by, or None.
        test: the part to report on, or None.
    """

    train: Utterances
    validation: Utterances | None
    test: Utterances | None

    def parts(self) -> dict[str, Utterances]:
        """The parts that there are, by name, in order."""
        parts = {"train": self.train, "validation": self.validation, "test": self.test}
        return {name: part for name, part in parts.items() if part is not None}


def read_utterances(
    source: str | Path,
    *,
    format: str = "auto",
    tokens_column: str = "tokens",
    tags_column: str = "tags",
    intent_column: str = "intent",
    limit: int | None = None,
) -> UtteranceSplits:
    """Read labelled utterances with whatever parts they come in.

    Args:
        source: a table; a folder of train, validation (also valid or dev) and test, each a
            table or a folder of parallel files; a folder of parallel files or with one table;
            the original Snips folder; the NLU-Evaluation-Data table.
        format: one of `UTTERANCE_FORMATS`; "auto" looks at names and at header lines.
        tokens_column: the column of the words, in tables.
        tags_column: the column of the BIO tags, in tables.
        intent_column: the column of the intents, in tables.
        limit: keep only the first so many utterances of each part.

    Raises:
        ValueError: the format is unknown, or the limit is not positive.
        DataError: naming the file, the line where there is one, and the remedy.
    """
    _validate.one_of(UTTERANCE_FORMATS, format=format)
    _validate.positive(limit=1 if limit is None else limit)
    path = Path(source)
    if not path.exists():
        raise DataError(f"{path} does not exist", remedy="Check the path.")
    chosen = _recognised(path) if format == "auto" else format
    table = partial(
        read_utterance_table,
        tokens_column=tokens_column,
        tags_column=tags_column,
        intent_column=intent_column,
    )
    readers: dict[str, Callable[[Path], UtteranceSplits]] = {
        "parallel": _read_parallel,
        "snips-json": _read_snips,
        "nlu-evaluation": _read_nlu_evaluation,
        "table": partial(_read_tables, read=table),
    }
    return _limited(readers[chosen](path), limit)


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
    rows = (json.dumps(said._asdict(), ensure_ascii=False) for said in utterances)
    write_text(path, "".join(f"{row}\n" for row in rows))


def _recognised(path: Path) -> str:
    """The format of what stands at a path, by names and header lines."""
    if path.is_file():
        return _recognised_file(path)
    if _holds_parallel(path) or any(map(_holds_parallel, _named(_folders(path)).values())):
        return "parallel"
    found = fitting(path, tables.SUFFIXES)
    if _named(found):
        return "table"
    if snips_json.intents(path):
        return "snips-json"
    if len(found) == 1:
        return _recognised_file(found[0])
    raise DataError(
        f"{path} holds no utterances of a format that we know",
        remedy="Give a folder of train.jsonl, validation.jsonl and test.jsonl (or CSV or "
        "Parquet), or of train/, valid/ and test/ with seq.in, seq.out and label in each.",
    )


def _recognised_file(path: Path) -> str:
    if ending(path) in (".csv", ".tsv"):
        header = next(lines(path), "")
        if all(column in header for column in nlu_evaluation.COLUMNS):
            return "nlu-evaluation"
    if ending(path) in tables.SUFFIXES:
        return "table"
    raise DataError(
        f"{path} has a name that says nothing about its format",
        remedy=f"Give a file that ends in {', '.join(tables.SUFFIXES)}; of parallel files give "
        f"the folder; or name the format, one of {', '.join(UTTERANCE_FORMATS[1:])}.",
    )


def _folders(path: Path) -> list[Path]:
    return [entry for entry in sorted(path.iterdir()) if entry.is_dir()]


def _holds_parallel(folder: Path) -> bool:
    return any((folder / name).is_file() for name in parallel_tags.FILES)


def _read_parallel(path: Path) -> UtteranceSplits:
    folder = _folder(path)
    if _holds_parallel(folder):
        return UtteranceSplits(
            train=parallel_tags.read_parallel_tags(folder), validation=None, test=None
        )
    return _split(folder, _folders(folder), parallel_tags.read_parallel_tags)


def _read_snips(path: Path) -> UtteranceSplits:
    train, validation = snips_json.read_snips_json(_folder(path))
    return UtteranceSplits(train=train, validation=validation, test=None)


def _read_nlu_evaluation(path: Path) -> UtteranceSplits:
    train = nlu_evaluation.read_nlu_evaluation(_only_table(path))
    return UtteranceSplits(train=train, validation=None, test=None)


def _read_tables(path: Path, read: Callable[[Path], Utterances]) -> UtteranceSplits:
    if path.is_dir():
        found = fitting(path, tables.SUFFIXES)
        if _named(found) or len(found) != 1:
            return _split(path, found, read)
    return UtteranceSplits(train=read(_only_table(path)), validation=None, test=None)


def _split(
    folder: Path, entries: list[Path], read: Callable[[Path], Utterances]
) -> UtteranceSplits:
    named = _named(entries)
    if "train" not in named:
        raise DataError(
            f"{folder} holds no part called train",
            remedy="Name the parts train, validation (or valid or dev) and test.",
        )
    parts = {name: read(entry) for name, entry in named.items()}
    return UtteranceSplits(
        train=parts["train"], validation=parts.get("validation"), test=parts.get("test")
    )


def _named(entries: Iterable[Path]) -> dict[str, Path]:
    """The entry for each part that has one."""
    found: dict[str, Path] = {}
    for entry in sorted(entries):
        stem = entry.name.removesuffix(".gz").removesuffix(ending(entry))
        for part, names in _NAMES.items():
            if stem not in names:
                continue
            if part in found:
                raise DataError(
                    f"{entry.parent} holds both {found[part].name} and {entry.name}, which could "
                    f"each be the {part} part",
                    remedy="Keep one of them in the folder, or give a file instead of the folder.",
                )
            found[part] = entry
    return found


def _folder(path: Path) -> Path:
    if not path.is_dir():
        raise DataError(f"{path} is a file, not a folder", remedy="Give the folder it is in.")
    return path


def _only_table(path: Path) -> Path:
    found = fitting(path, tables.SUFFIXES) if path.is_dir() else [path]
    if len(found) != 1:
        raise DataError(
            f"{path} holds {len(found)} tables, where one is needed", remedy="Give the file itself."
        )
    return found[0]


def _limited(splits: UtteranceSplits, limit: int | None) -> UtteranceSplits:
    if limit is None:
        return splits
    kept = {
        name: part.take(np.arange(min(limit, len(part)))) for name, part in splits.parts().items()
    }
    return replace(splits, **kept)
