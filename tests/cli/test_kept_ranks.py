"""Ranks are computed once, and again where what was kept of them is damaged."""

from types import SimpleNamespace

import numpy as np
import pytest

from vestige.cli.audit_directory import RankCache

ASKED = SimpleNamespace(texts=np.array([0, 0, 1]), positions=np.array([0, 1, 0]))
TOKENS = SimpleNamespace(tokens=np.arange(5), offsets=np.array([0, 3, 5]))
RANKS = np.array([1, 7, 2], np.int32)
LOG_PROBS = np.array([-0.5, -2.0, -1.0], np.float32)


class Asked(SimpleNamespace):
    def __len__(self):
        return 3


@pytest.fixture
def keep(tmp_path):
    """Ask for the ranks; how often they were computed is counted."""

    def run():
        run.folder = tmp_path / "ranks"

        def make():
            run.computed += 1
            return SimpleNamespace(ranks=RANKS, log_probs=LOG_PROBS)

        asking = SimpleNamespace(targets=TOKENS, texts=TOKENS)
        return RankCache(run.folder).of("ab", asking, Asked(**vars(ASKED)), make)

    run.computed = 0
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
def test_damaged_ranks_are_computed_again_and_said_so(keep, harm, capsys):
    keep()
    [path] = keep.folder.iterdir()
    HARM[harm](path, path.read_bytes())
    for _ in range(2):
        ranks, log_probs = keep()
        assert ranks.tolist() == RANKS.tolist()
        assert log_probs.tolist() == LOG_PROBS.tolist()
    assert keep.computed == 2
    assert capsys.readouterr().err.count("is damaged: these ranks are computed again") == 1


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
