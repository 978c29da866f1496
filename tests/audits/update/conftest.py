"""The definitions of the paper, computed naively on tables."""

import itertools
from collections.abc import Callable

import pytest

from tests.tables import one_thread
from vestige.models.table import TableModel

__all__ = ["every_phrase", "naive_score", "one_thread"]

Tokens = tuple[int, ...]


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
