"""Ranks and the k largest values equal positions in a stable sort."""

import math

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import array_shapes, arrays
from torch import nn

from vestige.errors import ModelError
from vestige.models import ranks as module
from vestige.models.largest import ROUNDED, cells_above, largest, largest_by
from vestige.models.predictions import Predictions, finite, log_prob, rank, ranks_in
from vestige.models.ranks import LinearRanks


def by_sorting(logits, targets):
    """The definition: the position in a stable sort of all tokens."""
    order = np.argsort(-logits.numpy().astype(np.float64), axis=1, kind="stable")
    return torch.from_numpy((order == targets.numpy()[:, None]).argmax(1) + 1).int()


def head_ranks(hidden, head, targets):
    return LinearRanks(head)(hidden, targets)["ranks"]


def whole_numbers(n, width, words, *, largest=2, bias=True):
    """Inputs, head and targets with exact products, which have many exact ties."""
    generator = torch.Generator().manual_seed(n * 1000 + width * 10 + words)

    def integers(*shape):
        return torch.randint(-largest, largest + 1, shape, generator=generator).float()

    head = nn.Linear(width, words, bias=bias)
    head.weight.data, hidden = integers(words, width), integers(n, width)
    if bias:
        head.bias.data = integers(words)
    return hidden, head, torch.randint(words, (n,), generator=generator)


@pytest.mark.slow
@pytest.mark.parametrize("rows", [16, 48, 512])
@pytest.mark.parametrize("columns", [1, 16, 33, 512])
def test_ranks_in_blocks_of_every_size_equal_a_stable_sort(monkeypatch, rows, columns):
    monkeypatch.setattr(module, "ROWS", rows)
    monkeypatch.setattr(module, "COLUMNS", columns)
    for n, words in ((1, 2), (3, 15), (50, 16), (70, 129), (33, 300)):
        hidden, head, targets = whole_numbers(n, 5, words)
        logits = head(hidden).detach()
        tensors = [hidden, targets, logits, head.weight]
        before = [tensor.clone() for tensor in tensors]
        result = LinearRanks(head, log_probs=True)(hidden, targets)
        assert result["ranks"].equal(by_sorting(logits, targets))
        assert head_ranks(hidden, head, targets).equal(result["ranks"])
        assert ranks_in(logits, targets).equal(result["ranks"])
        expected = logits.log_softmax(1).gather(1, targets[:, None])[:, 0]
        torch.testing.assert_close(result["log_probs"], expected)
        log_probs = log_prob(Predictions(logits, targets))
        torch.testing.assert_close(log_probs["log_probs"], expected)
        rank(Predictions(logits, targets))
        assert all(after.equal(old) for after, old in zip(tensors, before, strict=True))


@pytest.mark.parametrize("bias", [True, False])
def test_tied_words_have_different_ranks(monkeypatch, bias):
    monkeypatch.setattr(module, "COLUMNS", 16)
    _, head, _ = whole_numbers(1, 3, 200, largest=1, bias=bias)
    hidden = torch.tensor([[1.0, 0.0, -1.0]]).expand(200, 3)
    ranks = head_ranks(hidden, head, torch.arange(200))
    assert sorted(ranks.tolist()) == list(range(1, 201))


@pytest.mark.parametrize("words", [64, 1000, 1013])
@pytest.mark.parametrize("width", [7, 128])
def test_equal_rows_of_the_head_tie_at_any_position(words, width):
    """The last bit of a product depends on its shape; comparisons must not."""
    torch.manual_seed(words + width)
    head, kind = nn.Linear(width, words), torch.randperm(words) % 10
    with torch.no_grad():
        head.weight.copy_(head.weight[kind])
        head.bias.copy_(head.bias[kind])
    hidden = torch.randn(words, width)
    logits = (hidden.double() @ head.weight.double().T + head.bias.double()).detach()
    exact = torch.stack([logits[:, (kind == n).nonzero()[0, 0]] for n in range(10)], 1)
    targets = torch.arange(words)
    assert head_ranks(hidden, head, targets).equal(by_sorting(exact[:, kind].float(), targets))


def test_inexact_estimates_of_target_logits_do_not_change_ranks(monkeypatch):
    torch.manual_seed(0)
    head, hidden, targets = nn.Linear(9, 77), torch.randn(40, 9), torch.randint(77, (40,))
    expected = LinearRanks(head, log_probs=True)(hidden, targets)
    estimate = LinearRanks._estimate
    monkeypatch.setattr(
        LinearRanks,
        "_estimate",
        lambda *arguments: estimate(*arguments) + torch.randn(len(arguments[2]), 1),
    )
    result = LinearRanks(head, log_probs=True)(hidden, targets)
    assert all(result[name].equal(expected[name]) for name in expected)


def test_products_that_differ_each_time_are_an_error(monkeypatch):
    plain = torch.addmm
    monkeypatch.setattr(
        torch, "addmm", lambda *arguments, out: out.copy_(plain(*arguments)).add_(torch.rand(()))
    )
    with pytest.raises(ModelError, match="another product each time"):
        head_ranks(torch.randn(4, 3), nn.Linear(3, 5), torch.zeros(4, dtype=torch.int64))


def test_ranks_of_random_products_differ_from_float64_by_near_ties_only():
    torch.manual_seed(1)
    head, hidden, targets = nn.Linear(64, 3000), torch.randn(300, 64), torch.randint(3000, (300,))
    exact = (hidden.double() @ head.weight.double().T + head.bias.double()).detach()
    true = exact.gather(1, targets[:, None])
    ranks = head_ranks(hidden, head, targets)
    assert (ranks >= 1 + (exact > true + 1e-5).sum(1)).all()
    assert (ranks <= (exact > true - 1e-5).sum(1)).all()


EXTREME = [-math.inf, -3e38, -1.0, -1e-45, -0.0, 0.0, 1e-45, 1.0, 3e38, math.inf]


@settings(max_examples=100)
@given(st.lists(st.sampled_from(EXTREME), min_size=1, max_size=40))
def test_extreme_logits_are_ranked_exactly(row):
    logits, targets = torch.tensor([row] * len(row)), torch.arange(len(row))
    assert ranks_in(logits, targets).equal(by_sorting(logits, targets))
    order = torch.sort(logits[0], descending=True, stable=True).indices
    assert largest(logits[:1], len(row))[0].equal(order)


class Model(nn.Module):
    """A model that is only its head."""

    separate_head = True

    def __init__(self, head):
        super().__init__()
        self.head = head


class Adapted(nn.Linear):
    """A head that may be more than a product."""


def test_only_heads_that_are_finite_float32_products_are_ranked_by_blocks():
    assert LinearRanks.of(Model(nn.Linear(3, 5))) is not None
    for head in (nn.Linear(3, 5).half(), Adapted(3, 5), nn.Sequential(nn.Linear(3, 5))):
        assert LinearRanks.of(Model(head)) is None
    inseparable = Model(nn.Linear(3, 5))
    inseparable.separate_head = False
    assert LinearRanks.of(inseparable) is None
    head = nn.Linear(2, 40)
    head.bias.data[10:30] = -math.inf  # forbidden words
    assert LinearRanks.of(Model(head)) is None
    logits = head(torch.randn(20, 2)).detach()
    assert ranks_in(logits, torch.arange(10, 30)).tolist() == list(range(21, 41))


@pytest.mark.parametrize("value", [math.nan, math.inf])
def test_values_that_are_not_finite_are_not_ranked(value):
    for part in ("weight", "bias"):
        head = nn.Linear(3, 5)
        getattr(head, part).data.view(-1)[4] = value
        assert LinearRanks.of(Model(head)) is None
    targets = torch.zeros(2, dtype=torch.int64)
    with pytest.raises(ModelError, match="not finite"):
        head_ranks(torch.full((2, 3), value), nn.Linear(3, 5), targets)
    with pytest.raises(ModelError, match="not finite"):
        finite(Predictions(torch.tensor([[0.0, math.nan]]), targets[:1]))


def test_memory_of_ranks_is_one_block(monkeypatch):
    monkeypatch.setattr(module, "ROWS", 32)
    monkeypatch.setattr(module, "COLUMNS", 64)
    ranks = LinearRanks(nn.Linear(4, 5_000), log_probs=True)
    ranks(torch.randn(300, 4), torch.randint(5_000, (300,)))
    assert ranks._memory.numel() == 32 * 64


FEW = [-np.inf, -1.0, -0.0, 0.0, 0.5, 0.5 + 1e-7, 2.0, np.inf]
"""Few different values, so that most of them occur several times."""


def naive_largest(values, ids, k, alike=0.0):
    """The definition: the first k in order of falling value, then of id."""
    # rounded as float32, which the tensor holds
    keys = [float(np.round(float(v) / alike)) if alike else float(v) for v in values]
    return sorted(range(len(keys)), key=lambda index: (-keys[index], ids[index]))[:k]


def naive_rows(table, k, alike):
    columns = np.arange(table.shape[1])
    return [naive_largest(row, columns, k, alike) for row in table]


@pytest.mark.slow
@given(
    table=arrays(
        np.float32,
        array_shapes(min_dims=2, max_dims=2, max_side=50),
        elements=st.sampled_from(FEW) | st.floats(-20, 20, width=32),
    ),
    share=st.floats(0, 1),
    alike=st.sampled_from([0.0, ROUNDED, 1e-5, 1.0]),
)
@settings(max_examples=200)
def test_the_largest_of_rows_equal_a_sort(table, share, alike):
    k = round(share * table.shape[1])
    assert largest(torch.from_numpy(table), k, alike=alike).tolist() == naive_rows(table, k, alike)


@pytest.mark.slow
@pytest.mark.parametrize("width", [1600, 1651, 4096])
@pytest.mark.parametrize("weights", [[1, 1, 1, 1, 1, 1], [50, 0, 1, 1, 0, 0], [1, 0, 0, 0, 0, 0]])
def test_the_largest_of_wide_rows_equal_a_sort(width, weights):
    few, rng = np.array(FEW, np.float32)[[0, 1, 4, 5, 6, 7]], np.random.default_rng(0)
    table = rng.choice(few, (6, width), p=np.array(weights) / sum(weights))
    table[:3] += rng.normal(size=(3, width)).astype(np.float32)
    for k, alike in ((1, 0.0), (2, 1e-5)):
        result = largest(torch.from_numpy(table), k, alike=alike)
        assert result.tolist() == naive_rows(table, k, alike)


@given(
    values=arrays(np.float32, st.integers(0, 60), elements=st.sampled_from(FEW)),
    k=st.integers(0, 70),
    seed=st.integers(0, 9),
    alike=st.sampled_from([0.0, 1e-5]),
)
def test_the_largest_with_ties_by_id_equal_a_sort(values, k, seed, alike):
    ids = np.random.default_rng(seed).permutation(len(values))
    positions = largest_by(torch.from_numpy(values), torch.from_numpy(ids), k, alike=alike)
    assert positions.tolist() == naive_largest(values, ids, k, alike)


@pytest.mark.parametrize("size", [1, 7, 8, 15, 16, 17, 100, 1000])
def test_noise_of_the_last_bit_does_not_change_the_largest(size):
    """Kernels of other processors change the last bits of equal values."""
    generator = torch.Generator().manual_seed(size)
    even = torch.full((20, size), 1.704748)
    noisy = even + torch.randint(-2, 3, even.shape, generator=generator) * 1.2e-7
    k = -(-size // 3)
    assert largest(noisy, k, alike=ROUNDED).tolist() == [list(range(k))] * 20
    ids = torch.randperm(size, generator=generator)
    assert ids[largest_by(noisy[0], ids, k, alike=ROUNDED)].tolist() == list(range(k))


def test_the_largest_keep_leading_dimensions():
    values = torch.randn(2, 3, 4, 9)
    assert largest(values, 2).shape == (2, 3, 4, 2)
    assert largest(values[0, 0, 0], 2).shape == (2,)
    assert largest(values[:, :, :0], 2).shape == (2, 3, 0, 2)
    assert largest(torch.zeros(0, 5000), 3).shape == (0, 3)


@pytest.mark.parametrize("columns", [1, 7, 99, 100, 101, 250, 400])
def test_cells_above_the_floor_of_their_row_are_listed_once(columns):
    generator = torch.Generator().manual_seed(columns)
    table = torch.randn(9, columns, generator=generator)
    floor = torch.randn(9, generator=generator)
    rows, cols, values = cells_above(table, floor)
    cells = list(zip(rows.tolist(), cols.tolist(), strict=True))
    expected = {(r, c) for r in range(9) for c in range(columns) if table[r, c] > floor[r]}
    assert len(cells) == len(set(cells))
    assert set(cells) == expected
    assert torch.equal(values, table[rows, cols])
    table[0, columns // 2] = -torch.inf  # a floor of minus infinity keeps every finite cell
    assert len(cells_above(table, torch.full((9,), -torch.inf))[0]) == 9 * columns - 1
