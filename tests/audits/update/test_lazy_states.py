"""States are bounded, and what is read again is what was read before."""

from dataclasses import dataclass

import pytest
import torch
from torch import Tensor

from reproduction.updates.beam_search import (
    beam_search,
    group_beam_search,
    halving_widths,
)
from vestige.audits.update import pair as module
from vestige.audits.update.pair import Pair
from vestige.audits.update.rank import rank_bounds
from vestige.audits.update.scores import TokenScore
from vestige.models.protocols import read_each
from vestige.models.table import TableState

ROW = 1000
"""Bytes that a row of the heavy state says it takes."""


@dataclass(frozen=True)
class HeavyState(TableState):
    """A table's state that says to be large."""

    @property
    def nbytes(self) -> int:
        return len(self) * ROW


class Heavy:
    """A table model with heavy states, which notes the most rows that stood side by side."""

    def __init__(self, table):
        self.table, self.most = table, 0
        self.vocabulary, self.vocab_size, self.device = (
            table.vocabulary,
            table.vocab_size,
            table.device,
        )

    def start(self, n: int, *, anywhere: bool = False) -> HeavyState:
        return HeavyState(self.table.start(n).row, not anywhere)

    def advance(self, state: HeavyState, tokens: Tensor) -> HeavyState:
        self.most = max(self.most, len(state))
        return HeavyState(self.table.advance(state, tokens).row)

    def read(self, state: HeavyState, tokens: Tensor) -> HeavyState:
        return read_each(self, state, tokens)

    def logits(self, state: HeavyState) -> Tensor:
        return self.table.logits(state)


@pytest.fixture
def small(monkeypatch):
    """Slices of 8 rows, and states of 16 rows held."""
    monkeypatch.setattr(module, "CELLS_PER_SLICE", 8 * 60)
    monkeypatch.setattr(module, "LEAST_ROWS", 1)
    monkeypatch.setattr(module, "HELD_BYTES", 16 * 2 * ROW)


@pytest.fixture
def pair(random_table):
    heavy = (Heavy(random_table(seed, 60)) for seed in (1, 2))
    return Pair.of(*heavy, TokenScore("differential"))


def test_the_halving_beam_holds_no_more_rows_than_fit(pair, random_table, small):
    widths = halving_widths(60, 4, floor=10)
    light = Pair.of(pair.before.model.table, pair.after.model.table, pair.score)
    expected = beam_search(light, widths)

    found = beam_search(pair, widths)

    assert pair.after.model.most <= 16, "60 rows were advanced side by side"
    assert torch.equal(found.tokens, expected.tokens)
    assert torch.equal(found.score, expected.score)


def test_so_does_the_beam_in_groups(pair, small):
    light = Pair.of(pair.before.model.table, pair.after.model.table, pair.score)
    beams = zip(
        group_beam_search(pair, [60, 40, 20], groups=2),
        group_beam_search(light, [60, 40, 20], groups=2),
        strict=True,
    )
    assert all(torch.equal(one.tokens, other.tokens) for one, other in beams)
    assert pair.after.model.most <= 16


def test_a_rank_holds_no_more_rows_than_fit(pair, small):
    light = Pair.of(pair.before.model.table, pair.after.model.table, pair.score)
    tokens = tuple(beam_search(light, [60, 40, 20, 10]).tokens[5].tolist())
    expected = rank_bounds(light, tokens, budget=30)

    assert rank_bounds(pair, tokens, budget=30) == expected
    assert pair.after.model.most <= 16
    assert pair.before.model.most <= 16


def test_what_fits_is_read_once(pair, monkeypatch):
    read = []
    advance = Heavy.advance
    monkeypatch.setattr(
        Heavy, "advance", lambda self, s, t: read.append(len(t)) or advance(self, s, t)
    )
    beam_search(pair, [60, 30, 15])
    assert sum(read) == 2 * (1 + 60 + 1 + 30)  # two models; one row more to see what a row takes
