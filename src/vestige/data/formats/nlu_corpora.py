"""Two corpora of utterances in forms of their own: NLU-Evaluation-Data and the original Snips."""

import json
import re
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from vestige.data.formats.reading import raw_lines
from vestige.data.formats.tables import rows
from vestige.data.formats.utterances import (
    checked,
    gathered,
    only_table,
    require_folder,
    snips_intents,
)
from vestige.data.utterances import OUTSIDE, Utterance, UtteranceSplits
from vestige.errors import DataError, reason

_COLUMNS = ("scenario", "intent", "answer_annotation")
_SLOT = re.compile(r"\[([^\[\]:]*):([^\[\]]*)\]")
_SHAPE = (
    'The file must be {"Intent": [{"data": [{"text": "...", "entity": "..."}, ...]}, ...]}, '
    'where "entity" may be left out.'
)

Pieces = Iterable[tuple[str, str | None]]
"""Texts in order, each with the slot that it fills, or None."""


def from_pieces(pieces: Pieces, intent: str, where: str) -> Utterance:
    """An utterance from pieces of its text.

    Words end at blanks and where a piece ends: "Prince" in the slot artist, followed by "'s
    songs" in none, makes three words, the first of them tagged.

    Raises:
        DataError: a slot has no name or no words, or the utterance has a fault.

    Example:
        >>> said = from_pieces([("Prince", "artist"), ("'s songs", None)], "Play", "line 1")
        >>> said.tokens, said.tags
        (('Prince', "'s", 'songs'), ('B-artist', 'O', 'O'))
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
            raise DataError(
                f"{where}: a slot has no {'words' if slot else 'name'}",
                remedy="Add a name and at least one word, or remove it.",
            )
    return checked(tokens, tags, intent, where)


def read_nlu_evaluation(path: Path) -> UtteranceSplits:
    """NLU-Evaluation-Data, in the order of the file; intents are "scenario_intent".

    Liu et al. (2019), "Benchmarking Natural Language Understanding Services for building
    Conversational Agents". A text reads "wake me at [time : nine am]". The paper's 64 intents are
    the pairs of scenario and intent. The corpus has no split of its own.

    Args:
        path: a table with the columns `scenario`, `intent` and `answer_annotation`, or its folder.

    Raises:
        DataError: a column is missing, a bracket is not closed, or a row has another fault.
    """
    file = only_table(path)
    return UtteranceSplits(train=gathered(_annotated(file), file))


def _annotated(file: Path) -> Iterator[Utterance]:
    for where, row in rows(file, _COLUMNS):
        for column in _COLUMNS:
            if not isinstance(row[column], str) or not row[column].strip():
                raise DataError(
                    f'{where} has no text in the column "{column}"',
                    remedy="Fill it in or remove the row.",
                )
        scenario, intent, text = (row[column].strip() for column in _COLUMNS)
        yield from_pieces(_slots(text, where), f"{scenario}_{intent}", where)


def _slots(text: str, where: str) -> Iterator[tuple[str, str | None]]:
    """The text outside of slots and inside of them, in order."""
    done = 0
    for slot in _SLOT.finditer(text):
        yield _outside(text[done : slot.start()], where), None
        yield slot[2], slot[1].strip()
        done = slot.end()
    yield _outside(text[done:], where), None


def _outside(text: str, where: str) -> str:
    if "[" in text or "]" in text:
        raise DataError(
            f"{where}: a bracket is not closed, not opened or has no colon",
            remedy="Write every slot as [name : words]; use no other brackets.",
        )
    return text


def read_snips(folder: Path) -> UtteranceSplits:
    """The original Snips files, one intent after the other.

    Coucke et al. (2018), "Snips Voice Platform: an embedded Spoken Language Understanding system
    for private-by-design voice interfaces": 2017-06-custom-intent-engines of snips/nlu-benchmark.
    Case and punctuation stay.

    Args:
        folder: has a folder X for each intent X, with train_X_full.json (or train_X.json, where
            that is missing) and, where there is a validation part, validate_X.json.

    Raises:
        DataError: a file is missing, broken or of another shape.
    """
    folder = require_folder(folder)
    names = snips_intents(folder)
    if not names:
        raise DataError(
            f"{folder} has no folder X with train_X_full.json",
            remedy="Pass the folder 2017-06-custom-intent-engines of snips/nlu-benchmark.",
        )
    full = [folder / name / f"train_{name}_full.json" for name in names]
    files = [
        file if file.exists() else file.with_name(f"train_{name}.json")
        for name, file in zip(names, full, strict=True)
    ]
    train = gathered((one for file in files for one in _intents(file)), folder)
    files = [folder / name / f"validate_{name}.json" for name in names]
    if not any(file.exists() for file in files):
        return UtteranceSplits(train=train)
    held = gathered((one for file in files for one in _intents(file)), folder)
    return UtteranceSplits(train=train, validation=held)


def _intents(path: Path) -> Iterator[Utterance]:
    try:
        content = json.loads(_text(path))
    except (ValueError, RecursionError) as error:
        raise DataError(
            f"{path}: invalid JSON: {reason(error)}", remedy="Fetch it again."
        ) from error
    if not isinstance(content, dict):
        raise DataError(f"{path} is not a JSON object", remedy=_SHAPE)
    for intent, utterances in content.items():
        if not isinstance(utterances, list):
            raise DataError(f"{path}: {intent!r} has no list of utterances", remedy=_SHAPE)
        for number, row in enumerate(utterances, start=1):
            where = f"{path}, utterance {number}"
            yield from_pieces(_pieces(row, where), intent.strip(), where)


def _text(path: Path) -> str:
    """A file in which a character may be two halves of three bytes each (CESU-8), joined.

    One of the published files has such an emoji. Any other byte that is not UTF-8 is an error.
    """
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
