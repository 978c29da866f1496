"""Parallel files: a line of `seq.in` (words), `seq.out` (BIO tags) and `label` (intent) each.

Goo et al. (2018), "Slot-Gated Modeling for Joint Slot Filling and Intent Prediction", released
ATIS and Snips in this form; much later work reads it.
"""

from pathlib import Path

from vestige.data.loaders.registry import UTTERANCE_FORMATS, UtteranceColumns, UtteranceFormat
from vestige.data.loaders.utterance_parts import named_parts, read_parts, require_folder
from vestige.data.loaders.utterance_rows import checked, gathered
from vestige.data.text_file import parallel_lines
from vestige.data.utterances import Utterances, UtteranceSplits
from vestige.errors import DataError

FILES = ("seq.in", "seq.out", "label")


def read_parallel_tags(folder: str | Path) -> Utterances:
    """Utterances of one folder; blank lines at the files' ends are ignored.

    Args:
        folder: holds `seq.in`, `seq.out` and `label`.

    Raises:
        DataError: a file is missing, has other lines than the others, or a line has a fault.
    """
    folder = Path(folder)
    missing = [name for name in FILES if not (folder / name).is_file()]
    if missing:
        raise DataError(
            f"{folder} has no {missing[0]}",
            remedy=f"Put {', '.join(FILES[:2])} and {FILES[2]} into one folder.",
        )
    utterances = parallel_lines([folder / name for name in FILES])
    rows = (
        checked(
            tokens.split(),
            tags.split(),
            intent,
            f"{folder}, line {number} of {', '.join(FILES[:2])} and {FILES[2]}",
        )
        for number, (tokens, tags, intent) in enumerate(utterances, start=1)
    )
    return gathered(rows, folder)


def _holds(folder: Path) -> bool:
    return any((folder / name).is_file() for name in FILES)


def _folders(path: Path) -> list[Path]:
    return [entry for entry in sorted(path.iterdir()) if entry.is_dir()]


def _read(path: Path, _: UtteranceColumns) -> UtteranceSplits:
    folder = require_folder(path)
    if _holds(folder):
        return UtteranceSplits(train=read_parallel_tags(folder))
    return read_parts(folder, _folders(folder), read_parallel_tags)


def _recognised(path: Path) -> bool:
    return path.is_dir() and (
        _holds(path) or any(map(_holds, named_parts(_folders(path)).values()))
    )


UTTERANCE_FORMATS.add("parallel", UtteranceFormat(read=_read, recognised=_recognised))
