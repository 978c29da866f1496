"""Ranks are places in a stable sort, however the product is sliced."""

import math

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor, nn

from vestige.errors import ModelError
from vestige.models import ranks as module
from vestige.models.ranks import RankCounter, ranks_by, ranks_in, true_ranks


def by_sorting(logits: Tensor, truth: Tensor) -> Tensor:
    """The definition: the place in a stable sort of all words."""
    order = np.argsort(-logits.numpy().astype(np.float64), axis=1, kind="stable")
    return torch.from_numpy((order == truth.numpy()[:, None]).argmax(1) + 1)


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


@pytest.mark.parametrize("rows", [1, 16, 40, 512])
@pytest.mark.parametrize("columns", [1, 16, 33, 64, 512])
@pytest.mark.parametrize(("n", "words"), [(1, 2), (3, 15), (50, 16), (70, 129), (33, 300)])
def test_slices_of_every_size_give_the_places_of_a_stable_sort(rows, columns, n, words) -> None:
    hidden, head, truth = whole_numbers(n, 5, words)
    found = true_ranks(hidden, head, truth, rows=rows, columns=columns)
    assert found.equal(by_sorting(head(hidden).detach(), truth))
    alone = ranks_in(head(hidden).detach(), truth, columns=columns).ranks
    assert alone.equal(found)


@pytest.mark.parametrize("bias", [True, False])
def test_every_word_of_a_tied_row_has_a_rank_of_its_own(bias: bool) -> None:
    _, head, _ = whole_numbers(1, 3, 200, reach=1, bias=bias)
    hidden = torch.tensor([[1.0, 0.0, -1.0]]).expand(200, 3)
    found = true_ranks(hidden, head, torch.arange(200), columns=16)
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
    truth = torch.arange(words)
    logits = exact[:, twin % 10].float()
    assert true_ranks(hidden, head, truth).equal(by_sorting(logits, truth))


def test_a_wrong_first_guess_of_the_true_logits_changes_nothing(monkeypatch) -> None:
    torch.manual_seed(0)
    head, hidden, truth = nn.Linear(9, 77), torch.randn(40, 9), torch.randint(77, (40,))
    expected = true_ranks(hidden, head, truth)
    guess = RankCounter._guess
    monkeypatch.setattr(
        RankCounter, "_guess", lambda *given: guess(*given) + torch.randn(len(given[1]), 1)
    )
    assert true_ranks(hidden, head, truth).equal(expected)


def test_a_device_that_never_agrees_with_itself_is_an_error(monkeypatch) -> None:
    plain = torch.addmm
    monkeypatch.setattr(
        torch, "addmm", lambda *given, out: out.copy_(plain(*given)).add_(torch.rand(()))
    )
    with pytest.raises(ModelError, match="another product each time"):
        true_ranks(torch.randn(4, 3), nn.Linear(3, 5), torch.zeros(4, dtype=torch.int64))


def test_ranks_of_random_products_differ_from_float64_by_near_ties_only() -> None:
    torch.manual_seed(1)
    head, hidden, truth = nn.Linear(64, 3000), torch.randn(300, 64), torch.randint(3000, (300,))
    exact = (hidden.double() @ head.weight.double().T + head.bias.double()).detach()
    true = exact.gather(1, truth[:, None])
    found = true_ranks(hidden, head, truth)
    assert (found >= 1 + (exact > true + 1e-5).sum(1)).all()
    assert (found <= (exact > true - 1e-5).sum(1)).all()


floats = st.sampled_from([-math.inf, -3e38, -1.0, -1e-45, -0.0, 0.0, 1e-45, 1.0, 3e38, math.inf])


@settings(max_examples=150, deadline=None)
@given(st.lists(floats, min_size=1, max_size=40), st.integers(1, 50))
def test_extreme_logits_are_ranked_exactly(row: list[float], columns: int) -> None:
    logits = torch.tensor([row] * len(row))
    truth = torch.arange(len(row))
    assert ranks_in(logits, truth, columns=columns).ranks.equal(by_sorting(logits, truth))


def test_words_that_the_head_forbids_stand_last_in_the_order_of_their_ids() -> None:
    head = nn.Linear(2, 40)
    head.bias.data[10:30] = -math.inf
    found = true_ranks(torch.randn(20, 2), head, torch.arange(10, 30), columns=16)
    assert found.tolist() == list(range(21, 41))


def test_log_probabilities_come_from_the_same_pass() -> None:
    hidden, head, truth = whole_numbers(37, 6, 150)
    found = RankCounter(head, log_probs=True, columns=32)(hidden, truth)
    expected = head(hidden).log_softmax(1).gather(1, truth[:, None])[:, 0].detach()
    torch.testing.assert_close(found.log_probs, expected)
    assert found.ranks.equal(true_ranks(hidden, head, truth))
    alone = ranks_in(head(hidden).detach(), truth, log_probs=True, columns=7)
    torch.testing.assert_close(alone.log_probs, expected)


def test_nothing_given_is_changed() -> None:
    hidden, head, truth = whole_numbers(20, 4, 50)
    logits = head(hidden).detach()
    given = [hidden, truth, logits, head.weight]
    before = [tensor.clone() for tensor in given]
    true_ranks(hidden, head, truth)
    ranks_in(logits, truth)
    assert all(one.equal(two) for one, two in zip(given, before, strict=True))


def test_without_words_there_are_no_ranks() -> None:
    none = torch.empty(0, dtype=torch.int64)
    found = RankCounter(nn.Linear(3, 5), log_probs=True)(torch.empty(0, 3), none)
    assert found.ranks.shape == (0,)
    assert found.log_probs is not None
    assert found.log_probs.shape == (0,)
    assert ranks_by(lambda logits: logits, 5)(torch.empty(0, 5), none).ranks.shape == (0,)


def test_memory_is_a_slice_however_many_words_are_asked() -> None:
    head = nn.Linear(4, 30_000)
    counter = RankCounter(head, rows=32, columns=64)
    counter(torch.randn(500, 4), torch.randint(30_000, (500,)))
    counting = counter._counting
    assert counting._memory.numel() <= 32 * 64
    assert counting._equal.numel() <= 32 * 64
    shapes: list[int] = []
    ranked = ranks_by(lambda x: shapes.append(x.shape[0]) or head(x).detach(), 30_000)
    ranked(torch.randn(1200, 4), torch.zeros(1200, dtype=torch.int64))
    assert max(shapes) * 30_000 <= module._CELLS
    assert sum(shapes) == 1200


IDS = torch.zeros(2, dtype=torch.int64)


@pytest.mark.parametrize(
    ("hidden", "truth", "message"),
    [
        (torch.zeros(2, 4), IDS, "hidden must be float32 of shape"),
        (torch.zeros(2, 3, 1), IDS, "hidden must be float32 of shape"),
        (torch.zeros(2, 3, dtype=torch.float64), IDS, "hidden must be float32"),
        (torch.zeros(2, 3, dtype=torch.bfloat16), IDS, "hidden must be float32"),
        (torch.zeros(3, 3), IDS, "truth must be int64"),
        (torch.zeros(2, 3), IDS.float(), "truth must be int64"),
        (torch.zeros(2, 3), IDS - 1, "ids in"),
        (torch.zeros(2, 3), IDS + 5, "ids in"),
    ],
)
def test_what_does_not_fit_is_named(hidden: Tensor, truth: Tensor, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        true_ranks(hidden, nn.Linear(3, 5), truth)


def test_heads_that_cannot_be_asked_are_refused() -> None:
    with pytest.raises(ValueError, match="float32"):
        RankCounter(nn.Linear(3, 5).half())
    with pytest.raises(ValueError, match="rows"):
        RankCounter(nn.Linear(3, 5), rows=0)
    with pytest.raises(ValueError, match="columns"):
        ranks_in(torch.zeros(1, 2), torch.tensor([0]), columns=0)


@pytest.mark.parametrize("value", [math.nan, math.inf])
def test_what_is_no_number_is_never_ranked(value: float) -> None:
    for part in ("weight", "bias"):
        head = nn.Linear(3, 5)
        getattr(head, part).data.view(-1)[4] = value
        with pytest.raises(ModelError, match="not finite"):
            RankCounter(head)
    with pytest.raises(ModelError, match="not finite"):
        true_ranks(torch.full((2, 3), value), nn.Linear(3, 5), IDS)
    with pytest.raises(ModelError, match="not finite"):
        ranks_in(torch.tensor([[0.0, math.nan]]), torch.tensor([0]))
