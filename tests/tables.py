"""Fixtures with random bigram models, and one thread for computing them."""

from collections.abc import Callable
from copy import deepcopy

import numpy as np
import pytest
import torch

from vestige.models.table import TableModel


@pytest.fixture
def random_table() -> Callable[..., TableModel]:
    def make(seed: int, vocab_size: int = 5, concentration: float = 0.4) -> TableModel:
        rng = np.random.default_rng(seed)
        alpha = np.full(vocab_size, concentration)
        return TableModel(rng.dirichlet(alpha), rng.dirichlet(alpha, vocab_size))

    return make


@pytest.fixture(autouse=True)
def one_thread() -> None:
    torch.set_num_threads(1)


@pytest.fixture
def other_bits() -> Callable[[TableModel, int], TableModel]:
    """Changes the last bits of each number of a table, as another processor would."""

    def change(model: TableModel, seed: int) -> TableModel:
        generator = torch.Generator().manual_seed(seed)
        noise = torch.randint(-1, 2, model.log_table.shape, generator=generator)
        changed = deepcopy(model)
        changed.log_table.mul_(1 + noise * 1.2e-7)
        return changed

    return change
