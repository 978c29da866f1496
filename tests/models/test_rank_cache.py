"""Ranks are computed once, and again where what was kept of them is damaged."""

import numpy as np
import pytest

from vestige.models.rank_cache import RankCache
from vestige.models.word_ranks import WordRanks

RANKS = np.array([1, 7, 2], np.int32)
LOG_PROBS = np.array([-0.5, -2.0, -1.0], np.float32)
PLACES = np.arange(3)


@pytest.fixture
def keep(tmp_path):
    """Ask for the ranks; how often they were computed is counted."""

    def run():
        def compute():
            run.computed += 1
            return WordRanks(
                texts=PLACES, positions=PLACES, tokens=PLACES, ranks=RANKS, log_probs=LOG_PROBS
            )

        return RankCache(run.folder, run.lines.append).get("ab", 3, compute)

    run.computed, run.lines, run.folder = 0, [], tmp_path / "ranks"
    return run


def save(path, **arrays):
    with path.open("wb") as file:
        np.savez(file, **arrays)


HARM = {
    "empty": lambda path, _: path.write_bytes(b""),
    "cut short": lambda path, whole: path.write_bytes(whole[:-40]),
    "cut in the middle": lambda path, whole: path.write_bytes(whole[:100]),
    "zeros": lambda path, whole: path.write_bytes(b"\0" * len(whole)),
    "something else": lambda path, _: path.write_text("PK is not enough"),
    "words too few": lambda path, _: save(path, ranks=RANKS[:2], log_probs=LOG_PROBS[:2]),
    "of other types": lambda path, _: save(path, ranks=LOG_PROBS, log_probs=RANKS),
    "one array": lambda path, _: save(path, ranks=RANKS),
    "no rank": lambda path, _: save(path, ranks=RANKS - 3, log_probs=LOG_PROBS),
    "no probability": lambda path, _: save(path, ranks=RANKS, log_probs=-LOG_PROBS),
    "objects": lambda path, _: save(path, ranks=np.array([{}] * 3), log_probs=LOG_PROBS),
}


@pytest.mark.parametrize("harm", HARM)
def test_damaged_ranks_are_computed_again_and_said_so(keep, harm):
    keep()
    [path] = keep.folder.iterdir()
    HARM[harm](path, path.read_bytes())
    for _ in range(2):
        ranks, log_probs = keep()
        assert ranks.tolist() == RANKS.tolist()
        assert log_probs.tolist() == LOG_PROBS.tolist()
    assert keep.computed == 2
    [line] = keep.lines
    assert "is damaged: ranks are computed again" in line


def test_no_flipped_bit_changes_a_rank(keep):
    keep()
    [path] = keep.folder.iterdir()
    whole = path.read_bytes()
    for place in range(0, len(whole), 7):
        flipped = bytearray(whole)
        flipped[place] ^= 4
        path.write_bytes(flipped)
        ranks, log_probs = keep()
        assert (ranks.tolist(), log_probs.tolist()) == (RANKS.tolist(), LOG_PROBS.tolist())
