"""The original Snips files: one folder per intent, each utterance's text in pieces.

Coucke et al. (2018), "Snips Voice Platform: an embedded Spoken Language Understanding system for
private-by-design voice interfaces"; the files are those of snips/nlu-benchmark,
2017-06-custom-intent-engines.

Case and punctuation are kept as they are. One of the published files (PlayMusic) is not UTF-8:
it holds an emoji as two halves of three bytes each (CESU-8). Such halves are joined to the
character that they stand for; any other byte that is not UTF-8 is an error.
"""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from vestige.data.loaders.registry import (
    TABLE,
    UTTERANCE_FORMATS,
    UtteranceColumns,
    UtteranceFormat,
)
from vestige.data.loaders.utterance_parts import require_folder
from vestige.data.loaders.utterance_rows import from_pieces, gathered
from vestige.data.text_file import raw_lines
from vestige.data.utterances import Utterance, Utterances, UtteranceSplits
from vestige.errors import DataError, reason

_SHAPE = (
    'The file must be {"Intent": [{"data": [{"text": "...", "entity": "..."}, ...]}, ...]}, '
    'where "entity" may be left out.'
)


def intents(folder: str | Path) -> list[str]:
    """The intents for which a folder holds training files."""
    found = sorted(entry for entry in Path(folder).iterdir() if entry.is_dir())
    return [entry.name for entry in found if any(entry.glob(f"train_{entry.name}*.json"))]


def read_snips_json(folder: str | Path) -> tuple[Utterances, Utterances | None]:
    """The utterances of all intents, one intent after the other.

    Args:
        folder: holds a folder X for each intent X, with train_X_full.json (or train_X.json,
            where that is missing) and validate_X.json.

    Returns:
        (training part, validation part or None when no intent has one).

    Raises:
        DataError: a file is missing, broken or of another shape.
    """
    folder = Path(folder)
    names = intents(folder)
    if not names:
        raise DataError(
            f"{folder} has no folder X with train_X_full.json",
            remedy="Pass the folder 2017-06-custom-intent-engines of snips/nlu-benchmark.",
        )
    train = gathered((said for name in names for said in _read(_train(folder / name))), folder)
    checks = [folder / name / f"validate_{name}.json" for name in names]
    if not any(path.exists() for path in checks):
        return train, None
    return train, gathered((said for path in checks for said in _read(path)), folder)


def _train(folder: Path) -> Path:
    full = folder / f"train_{folder.name}_full.json"
    return full if full.exists() else folder / f"train_{folder.name}.json"


def _read(path: Path) -> Iterator[Utterance]:
    whole = _parsed(path)
    if not isinstance(whole, dict):
        raise DataError(f"{path} is not a JSON object", remedy=_SHAPE)
    for intent, rows in whole.items():
        if not isinstance(rows, list):
            raise DataError(f"{path}: {intent!r} has no list of utterances", remedy=_SHAPE)
        for number, row in enumerate(rows, start=1):
            where = f"{path}, utterance {number}"
            yield from_pieces(_pieces(row, where), intent.strip(), where)


def _parsed(path: Path) -> Any:
    try:
        return json.loads(_text(path))
    except (ValueError, RecursionError) as error:
        raise DataError(
            f"{path}: invalid JSON: {reason(error)}", remedy="Fetch it again."
        ) from error


def _text(path: Path) -> str:
    read = []
    for number, line in enumerate(raw_lines(path), start=1):
        try:
            halves = line.decode("utf-8", "surrogatepass")
            read.append(halves.encode("utf-16-le", "surrogatepass").decode("utf-16-le"))
        except UnicodeDecodeError as error:
            raise DataError(
                f"{path}, line {number}: not UTF-8",
                remedy="Download it again, or convert it with `iconv -f latin1 -t utf-8`.",
            ) from error
    return "".join(read).removeprefix("\ufeff")


def _pieces(row: Any, where: str) -> list[tuple[str, str | None]]:
    data = row.get("data") if isinstance(row, dict) else None
    if not isinstance(data, list):
        raise DataError(f'{where} has no list "data"', remedy=_SHAPE)
    pieces: list[tuple[str, str | None]] = []
    for number, piece in enumerate(data, start=1):
        text = piece.get("text") if isinstance(piece, dict) else None
        slot = piece.get("entity") if isinstance(piece, dict) else None
        if not isinstance(text, str) or not isinstance(slot, str | None):
            raise DataError(
                f'{where}: piece {number} has no "text", or a value is not text',
                remedy=_SHAPE,
            )
        pieces.append((text, slot))
    return pieces


def _splits(path: Path, _: UtteranceColumns) -> UtteranceSplits:
    train, validation = read_snips_json(require_folder(path))
    return UtteranceSplits(train=train, validation=validation)


def _recognised(path: Path) -> bool:
    return path.is_dir() and bool(intents(path))


UTTERANCE_FORMATS.add(
    "snips-json", UtteranceFormat(read=_splits, recognised=_recognised, stage=TABLE)
)
