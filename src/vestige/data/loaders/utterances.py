"""From sources of any registered format to labelled utterances in their parts."""

import json
from dataclasses import replace
from pathlib import Path

import numpy as np

from vestige import _validate
from vestige.data.atomic_write import write_text
from vestige.data.loaders import tables
from vestige.data.loaders.registry import UTTERANCE_FORMATS, UtteranceColumns, UtteranceFormat
from vestige.data.utterances import Utterances, UtteranceSplits
from vestige.errors import DataError

AUTO = "auto"


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
    chosen = _recognised(path) if format == AUTO else UTTERANCE_FORMATS[format]
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
    rows = (json.dumps(said._asdict(), ensure_ascii=False) for said in utterances)
    write_text(path, "".join(f"{row}\n" for row in rows))


def _recognised(path: Path) -> UtteranceFormat:
    """The first format that takes what stands at a path for its own."""
    for found in sorted(UTTERANCE_FORMATS.values(), key=lambda one: one.stage):
        if found.recognised(path):
            return found
    if path.is_dir():
        raise DataError(
            f"{path} has no utterances in a known format",
            remedy=(
                "Pass a folder of train.jsonl, validation.jsonl and test.jsonl (or CSV or "
                "Parquet), or of train/, valid/ and test/ with seq.in, seq.out and label in "
                "each."
            ),
        )
    raise DataError(
        f"the name of {path} ends in no known format",
        remedy=(
            f"Use one of {', '.join(tables.SUFFIXES)}, pass the folder of parallel files, or pass "
            f"--format: {', '.join(UTTERANCE_FORMATS.names())}."
        ),
    )
