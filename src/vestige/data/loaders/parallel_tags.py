"""Parallel files: a line of `seq.in` (words), `seq.out` (BIO tags) and `label` (intent) each.

Goo et al. (2018), "Slot-Gated Modeling for Joint Slot Filling and Intent Prediction", released
ATIS and Snips in this form; much later work reads it.
"""

from pathlib import Path

from vestige.data.loaders.parallel_lines import parallel_lines
from vestige.data.loaders.utterance_rows import checked, gathered
from vestige.data.utterances import Utterances
from vestige.errors import DataError

FILES = ("seq.in", "seq.out", "label")


def read_parallel_tags(folder: str | Path) -> Utterances:
    """The utterances of one folder; blank lines at the files' ends are of no account.

    Args:
        folder: holds `seq.in`, `seq.out` and `label`.

    Raises:
        DataError: a file is missing, has other lines than the others, or a line has a fault.
    """
    folder = Path(folder)
    missing = [name for name in FILES if not (folder / name).is_file()]
    if missing:
        raise DataError(
            f"{folder} holds no {missing[0]}",
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
