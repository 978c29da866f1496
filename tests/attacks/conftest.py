"""Pairs of bigram models whose every probability is known, and the definitions done naively."""

import itertools
from collections.abc import Callable
from copy import deepcopy

import numpy as np
import pytest
import torch

from vestige.models.table import TableModel

Tokens = tuple[int, ...]


@pytest.fixture
def random_table() -> Callable[..., TableModel]:
    def make(seed: int, vocab_size: int = 5, concentration: float = 0.4) -> TableModel:
        rng = np.random.default_rng(seed)
        alpha = np.full(vocab_size, concentration)
        return TableModel(rng.dirichlet(alpha), rng.dirichlet(alpha, vocab_size))

    return make


def probability(model: TableModel, tokens: Tokens, i: int) -> float:
    """p(token i | those before it), one look-up in the table at a time."""
    row = model.vocab_size if i == 0 else tokens[i - 1]
    return float(model.log_table[row, tokens[i]].double().exp())


@pytest.fixture
def naive_score() -> Callable[[TableModel, TableModel, Tokens], float]:
    """Definition 1 of the paper."""

    def score(before: TableModel, after: TableModel, tokens: Tokens) -> float:
        return sum(
            probability(after, tokens, i) - probability(before, tokens, i)
            for i in range(len(tokens))
        )

    return score


@pytest.fixture
def every_phrase() -> Callable[[int, int], list[Tokens]]:
    return lambda vocab_size, length: list(itertools.product(range(vocab_size), repeat=length))


@pytest.fixture(autouse=True)
def one_thread() -> None:
    torch.set_num_threads(1)


@pytest.fixture
def other_bits() -> Callable[[TableModel, int], TableModel]:
    """A table as another processor computes it: each number some last bits off."""

    def change(model: TableModel, seed: int) -> TableModel:
        generator = torch.Generator().manual_seed(seed)
        noise = torch.randint(-1, 2, model.log_table.shape, generator=generator)
        changed = deepcopy(model)
        changed.log_table.mul_(1 + noise * 1.2e-7)
        return changed

    return change
