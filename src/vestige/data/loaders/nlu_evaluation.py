"""NLU-Evaluation-Data: a table with `;` between columns and slots inside the text.

Liu et al. (2019), "Benchmarking Natural Language Understanding Services for building
Conversational Agents". An annotated text reads "wake me at [time : nine am]". The paper's 64
intents are the pairs of scenario and intent, here "alarm_set" for the scenario "alarm" and the
intent "set". The corpus has no split of its own.
"""

import re
from collections.abc import Iterator
from pathlib import Path

from vestige.data.loaders.registry import ROWS, UTTERANCE_FORMATS, UtteranceColumns, UtteranceFormat
from vestige.data.loaders.tables import SUFFIXES, rows
from vestige.data.loaders.utterance_parts import named_parts, only_table
from vestige.data.loaders.utterance_rows import from_pieces, gathered
from vestige.data.text_file import ending, fitting, lines
from vestige.data.utterances import Utterance, Utterances, UtteranceSplits
from vestige.errors import DataError

COLUMNS = ("scenario", "intent", "answer_annotation")
_SLOT = re.compile(r"\[([^\[\]:]*):([^\[\]]*)\]")


def read_nlu_evaluation(path: str | Path) -> Utterances:
    """Every utterance in the order of the file; intents are "scenario_intent".

    Args:
        path: a table with the columns `scenario`, `intent` and `answer_annotation`.

    Raises:
        DataError: a column is missing, a bracket is not closed, or a row has another fault.
    """
    return gathered(_read(Path(path)), path)


def _read(path: Path) -> Iterator[Utterance]:
    for where, row in rows(path, COLUMNS):
        scenario, intent, text = (_text(row[column], column, where) for column in COLUMNS)
        yield from_pieces(_pieces(text, where), f"{scenario}_{intent}", where)


def _text(value: object, column: str, where: str) -> str:
    if not isinstance(value, str) or not value.strip():
        raise DataError(
            f'{where} has no text in the column "{column}"', remedy="Fill it in or remove the row."
        )
    return value.strip()


def _pieces(text: str, where: str) -> Iterator[tuple[str, str | None]]:
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


def _splits(path: Path, _: UtteranceColumns) -> UtteranceSplits:
    return UtteranceSplits(train=read_nlu_evaluation(only_table(path)))


def _recognised(path: Path) -> bool:
    if path.is_dir():
        found = fitting(path, SUFFIXES)
        return len(found) == 1 and not named_parts(found) and _recognised(found[0])
    if ending(path) not in (".csv", ".tsv"):
        return False
    header = next(lines(path), "")
    return all(column in header for column in COLUMNS)


UTTERANCE_FORMATS.add(
    "nlu-evaluation", UtteranceFormat(read=_splits, recognised=_recognised, stage=ROWS)
)
