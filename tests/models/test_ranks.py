"""Ranks are positions in a stable sort, however the product is cut into blocks."""

import math

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor, nn

from vestige.errors import ModelError
from vestige.models import ranks as module
from vestige.models.predictions import Predictions, finite, log_prob, rank, ranks_in
from vestige.models.ranks import LinearRanks


def by_sorting(logits: Tensor, targets: Tensor) -> Tensor:
    """The definition: the position in a stable sort of all tokens."""
    order = np.argsort(-logits.numpy().astype(np.float64), axis=1, kind="stable")
    return torch.from_numpy((order == targets.numpy()[:, None]).argmax(1) + 1).int()


def true_ranks(hidden: Tensor, head: nn.Linear, targets: Tensor) -> Tensor:
    return LinearRanks(head)(hidden, targets)["ranks"]


def whole_numbers(n: int, width: int, words: int, *, reach: int = 2, bias: bool = True):
    """A head and inputs whose products are exact, so that ties are many and certain."""
    generator = torch.Generator().manual_seed(n * 1000 + width * 10 + words)

    def draw(*shape: int) -> Tensor:
        return torch.randint(-reach, reach + 1, shape, generator=generator).float()

    head = nn.Linear(width, words, bias=bias)
    head.weight.data, hidden = draw(words, width), draw(n, width)
    if bias:
        head.bias.data = draw(words)
    return hidden, head, torch.randint(words, (n,), generator=generator)


@pytest.mark.parametrize("rows", [16, 48, 512])
@pytest.mark.parametrize("columns", [1, 16, 33, 64, 512])
@pytest.mark.parametrize(("n", "words"), [(1, 2), (3, 15), (50, 16), (70, 129), (33, 300)])
def test_blocks_of_every_size_give_the_places_of_a_stable_sort(
    monkeypatch, rows, columns, n, words
) -> None:
    monkeypatch.setattr(module, "ROWS", rows)
    monkeypatch.setattr(module, "COLUMNS", columns)
    hidden, head, targets = whole_numbers(n, 5, words)
    found = true_ranks(hidden, head, targets)
    assert found.equal(by_sorting(head(hidden).detach(), targets))
    assert ranks_in(head(hidden).detach(), targets).equal(found)


@pytest.mark.parametrize("bias", [True, False])
def test_every_word_of_a_tied_row_has_a_rank_of_its_own(monkeypatch, bias: bool) -> None:
    monkeypatch.setattr(module, "COLUMNS", 16)
    _, head, _ = whole_numbers(1, 3, 200, reach=1, bias=bias)
    hidden = torch.tensor([[1.0, 0.0, -1.0]]).expand(200, 3)
    found = true_ranks(hidden, head, torch.arange(200))
    assert sorted(found.tolist()) == list(range(1, 201))


@pytest.mark.parametrize("words", [64, 1000, 1013])
@pytest.mark.parametrize("width", [7, 128])
def test_equal_rows_of_the_head_tie_wherever_they_stand(words: int, width: int) -> None:
    """The last bit of a product depends on its shape: what is compared must not."""
    torch.manual_seed(words + width)
    head = nn.Linear(width, words)
    twin = torch.randperm(words)
    with torch.no_grad():
        head.weight.copy_(head.weight[twin % 10])
        head.bias.copy_(head.bias[twin % 10])
    hidden = torch.randn(words, width)
    kinds = (hidden.double() @ head.weight.double().T + head.bias.double())[:, :].detach()
    exact = torch.stack([kinds[:, (twin % 10 == kind).nonzero()[0, 0]] for kind in range(10)], 1)
    targets = torch.arange(words)
    logits = exact[:, twin % 10].float()
    assert true_ranks(hidden, head, targets).equal(by_sorting(logits, targets))


def test_a_wrong_estimate_of_the_true_logits_changes_nothing(monkeypatch) -> None:
    torch.manual_seed(0)
    head, hidden, targets = nn.Linear(9, 77), torch.randn(40, 9), torch.randint(77, (40,))
    expected = LinearRanks(head, log_probs=True)(hidden, targets)
    estimate = LinearRanks._estimate
    monkeypatch.setattr(
        LinearRanks, "_estimate", lambda *given: estimate(*given) + torch.randn(len(given[2]), 1)
    )
    found = LinearRanks(head, log_probs=True)(hidden, targets)
    assert all(found[name].equal(expected[name]) for name in expected)


def test_a_device_that_never_agrees_with_itself_is_an_error(monkeypatch) -> None:
    plain = torch.addmm
    monkeypatch.setattr(
        torch, "addmm", lambda *given, out: out.copy_(plain(*given)).add_(torch.rand(()))
    )
    with pytest.raises(ModelError, match="another product each time"):
        true_ranks(torch.randn(4, 3), nn.Linear(3, 5), torch.zeros(4, dtype=torch.int64))


def test_ranks_of_random_products_differ_from_float64_by_near_ties_only() -> None:
    torch.manual_seed(1)
    head, hidden, targets = nn.Linear(64, 3000), torch.randn(300, 64), torch.randint(3000, (300,))
    exact = (hidden.double() @ head.weight.double().T + head.bias.double()).detach()
    true = exact.gather(1, targets[:, None])
    found = true_ranks(hidden, head, targets)
    assert (found >= 1 + (exact > true + 1e-5).sum(1)).all()
    assert (found <= (exact > true - 1e-5).sum(1)).all()


floats = st.sampled_from([-math.inf, -3e38, -1.0, -1e-45, -0.0, 0.0, 1e-45, 1.0, 3e38, math.inf])


@settings(max_examples=150, deadline=None)
@given(st.lists(floats, min_size=1, max_size=40))
def test_extreme_logits_are_ranked_exactly(row: list[float]) -> None:
    logits = torch.tensor([row] * len(row))
    targets = torch.arange(len(row))
    assert ranks_in(logits, targets).equal(by_sorting(logits, targets))


class Model(nn.Module):
    """A head as models have it."""

    separate_head = True

    def __init__(self, head: nn.Module) -> None:
        super().__init__()
        self.head = head


def test_words_that_the_head_forbids_stand_last_in_the_order_of_their_ids() -> None:
    head = nn.Linear(2, 40)
    head.bias.data[10:30] = -math.inf
    assert LinearRanks.of(Model(head)) is None  # their logits are ranked as they are
    logits = head(torch.randn(20, 2)).detach()
    assert ranks_in(logits, torch.arange(10, 30)).tolist() == list(range(21, 41))


def test_log_probabilities_come_from_the_same_pass(monkeypatch) -> None:
    monkeypatch.setattr(module, "COLUMNS", 32)
    hidden, head, targets = whole_numbers(37, 6, 150)
    found = LinearRanks(head, log_probs=True)(hidden, targets)
    expected = head(hidden).log_softmax(1).gather(1, targets[:, None])[:, 0].detach()
    torch.testing.assert_close(found["log_probs"], expected)
    assert found["ranks"].equal(true_ranks(hidden, head, targets))
    alone = log_prob(Predictions(head(hidden).detach(), targets))
    torch.testing.assert_close(alone["log_probs"], expected)


def test_nothing_given_is_changed() -> None:
    hidden, head, targets = whole_numbers(20, 4, 50)
    logits = head(hidden).detach()
    given = [hidden, targets, logits, head.weight]
    before = [tensor.clone() for tensor in given]
    LinearRanks(head, log_probs=True)(hidden, targets)
    rank(Predictions(logits, targets))
    assert all(one.equal(two) for one, two in zip(given, before, strict=True))


def test_memory_is_a_block_however_many_words_are_asked(monkeypatch) -> None:
    monkeypatch.setattr(module, "ROWS", 32)
    monkeypatch.setattr(module, "COLUMNS", 64)
    counter = LinearRanks(nn.Linear(4, 30_000), log_probs=True)
    counter(torch.randn(500, 4), torch.randint(30_000, (500,)))
    assert counter._memory.numel() == 32 * 64


def test_heads_that_are_more_than_a_float32_product_are_left_to_logits() -> None:
    class Adapted(nn.Linear):
        """More than a product, perhaps."""

    assert LinearRanks.of(Model(nn.Linear(3, 5))) is not None
    for head in (nn.Linear(3, 5).half(), Adapted(3, 5), nn.Sequential(nn.Linear(3, 5))):
        assert LinearRanks.of(Model(head)) is None
    whole = Model(nn.Linear(3, 5))
    whole.separate_head = False
    assert LinearRanks.of(whole) is None


@pytest.mark.parametrize("value", [math.nan, math.inf])
def test_what_is_no_number_is_never_ranked(value: float) -> None:
    for part in ("weight", "bias"):
        head = nn.Linear(3, 5)
        getattr(head, part).data.view(-1)[4] = value
        assert LinearRanks.of(Model(head)) is None
    targets = torch.zeros(2, dtype=torch.int64)
    with pytest.raises(ModelError, match="not finite"):
        true_ranks(torch.full((2, 3), value), nn.Linear(3, 5), targets)
    with pytest.raises(ModelError, match="not finite"):
        finite(Predictions(torch.tensor([[0.0, math.nan]]), targets[:1]))
