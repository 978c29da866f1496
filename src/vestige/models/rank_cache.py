"""Ranks under a model, kept in a folder: computed once, and again where a file is damaged."""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from vestige.data.atomic_write import replacing
from vestige.models.word_ranks import WordRanks

Ranks = tuple[NDArray[np.int32], NDArray[np.float32]]
"""(w,) ranks from 1, and (w,) natural logarithms of probabilities."""


@dataclass(frozen=True)
class RankCache:
    """Cached ranks of words under models.

    Attributes:
        folder: one file each, named by its key.
        log: told of a damaged file in a line.
    """

    folder: Path
    log: Callable[[str], object] = lambda line: None

    def get(self, key: str, words: int, compute: Callable[[], WordRanks]) -> Ranks:
        """Ranks and log-probabilities of w words, computed where they are not kept.

        Args:
            key: name of what decides them, such as a hash of model and texts.
            words: w.
            compute: gives ranks with log-probabilities.

        Raises:
            ValueError: what was computed lacks the log-probabilities.
        """
        path = self.folder / f"{key}.npz"
        if path.is_file():
            if (kept := _read(path, words)) is not None:
                return kept
            self.log(f"{path} is damaged: ranks are computed again")
        made = compute()
        if made.log_probs is None:
            raise ValueError("log_probs must be given, got None")
        with replacing(path) as file:
            np.savez(file, ranks=made.ranks, log_probs=made.log_probs)
        return made.ranks, made.log_probs


def _read(path: Path, words: int) -> Ranks | None:
    """What a file keeps of so many words; None where it is damaged."""
    try:
        with path.open("rb") as file, np.load(file, allow_pickle=False) as found:
            ranks, log_probs = found["ranks"], found["log_probs"]
    except Exception:  # BadZipFile, zlib.error, struct.error, ...: by which byte it is
        return None
    sound = ranks.shape == log_probs.shape == (words,)
    whole = sound and ranks.dtype.kind == "i" and log_probs.dtype.kind == "f"
    # A rank is a count from 1; what a rank alone tells has no log-probability.
    if not whole or (ranks < 1).any() or (log_probs > 0).any():
        return None
    return ranks, log_probs
