"""A linear chain's numbers are those of all its sequences, written out one by one."""

import copy
import math
from itertools import pairwise, product

import pytest
import torch
from torch.func import functional_call

from vestige.models.crf import LinearChain

FORBIDDEN = -math.inf


def chain(tags, *, scale=1.0, dtype=torch.float64):
    torch.manual_seed(tags)
    made = LinearChain(tags).to(dtype)
    for parameter in made.parameters():
        torch.nn.init.uniform_(parameter, -scale, scale)
    return made


def every_score(made, emissions):
    """The score of each sequence for one row (t, k) of emissions, in float64."""
    rows = emissions.double().tolist()
    parts = (made.begin, made.end, made.transitions)
    begin, end, moves = (parameter.detach().double().tolist() for parameter in parts)
    return {
        tags: begin[tags[0]]
        + sum(row[tag] for row, tag in zip(rows, tags, strict=True))
        + sum(moves[tag][after] for tag, after in pairwise(tags))
        + end[tags[-1]]
        for tags in product(range(len(begin)), repeat=len(rows))
    }


def log_sum(scores):
    return torch.tensor(list(scores.values()), dtype=torch.float64).logsumexp(0).item()


def expected_losses(made, emissions, sequences):
    losses = []
    for row, tags in zip(emissions.detach(), sequences, strict=True):
        scores = every_score(made, row)
        losses.append(log_sum(scores) - scores[tuple(tags.tolist())])
    return losses


@pytest.mark.parametrize("tags", [1, 2, 4])
@pytest.mark.parametrize("t", [1, 2, 3, 4])
def test_partition_score_loss_and_best_are_those_of_enumeration(tags, t):
    made = chain(tags, scale=2)
    emissions = torch.randn(3, t, tags, dtype=torch.float64)
    sequences = torch.randint(0, tags, (3, t))
    scores = [every_score(made, row) for row in emissions]
    expected_scores = [
        row_scores[tuple(row.tolist())] for row_scores, row in zip(scores, sequences, strict=True)
    ]
    assert made.log_partition(emissions).tolist() == pytest.approx([*map(log_sum, scores)])
    assert made.score(emissions, sequences).tolist() == pytest.approx(expected_scores)
    losses = expected_losses(made, emissions, sequences)
    assert made.loss(emissions, sequences).tolist() == pytest.approx(losses, abs=1e-12)
    best = [max(row_scores, key=row_scores.__getitem__) for row_scores in scores]
    assert [tuple(row) for row in made.best(emissions).tolist()] == best
    all_sequences = torch.tensor(list(scores[0]))
    probabilities = (
        -made.loss(emissions[:1].expand(len(all_sequences), -1, -1), all_sequences)
    ).exp()
    assert probabilities.sum().item() == pytest.approx(1)


@pytest.mark.parametrize("t", [1, 2, 3])
def test_gradients_are_those_of_finite_differences(t):
    made = chain(3, scale=2)
    emissions = torch.randn(2, t, 3, dtype=torch.float64, requires_grad=True)
    sequences = torch.randint(0, 3, (2, t))
    inputs = (emissions, *made.parameters())
    assert torch.autograd.gradcheck(lambda e, *_: made.log_partition(e), inputs)
    assert torch.autograd.gradcheck(lambda e, *_: made.loss(e, sequences), inputs)


def test_the_gradient_by_emissions_is_what_each_tag_is_likely_at_each_word():
    made = chain(3, scale=2)
    emissions = torch.randn(1, 3, 3, dtype=torch.float64, requires_grad=True)
    (gradient,) = torch.autograd.grad(made.log_partition(emissions).sum(), emissions)
    scores = every_score(made, emissions.detach()[0])
    total, expected = log_sum(scores), torch.zeros(3, 3, dtype=torch.float64)
    for tags, score in scores.items():
        for position, tag in enumerate(tags):
            expected[position, tag] += math.exp(score - total)
    torch.testing.assert_close(gradient[0], expected)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("scale", [20.0, 95.0, 1000.0])
def test_large_transitions_stay_finite_and_right(scale, dtype):
    made = chain(4, scale=scale, dtype=dtype)
    emissions = (10 * torch.randn(8, 4, 4, dtype=dtype)).requires_grad_()
    sequences = torch.randint(0, 4, (8, 4))
    losses = made.loss(emissions, sequences)
    losses.sum().backward()
    expected = expected_losses(made, emissions, sequences)
    assert losses.tolist() == pytest.approx(expected, rel=1e-5, abs=1e-5)
    assert emissions.grad.isfinite().all()
    assert made.transitions.grad.isfinite().all()


@pytest.mark.parametrize("value", [95.0, -95.0, 700.0])
def test_transitions_beyond_the_exponent_of_float32_are_no_nan(value):
    made = LinearChain(3)
    torch.nn.init.constant_(made.transitions, value)
    partition = made.log_partition(torch.zeros(2, 5, 3))
    torch.testing.assert_close(partition, torch.full((2,), 4 * value + 5 * math.log(3)))


def test_what_a_product_loses_to_underflow_is_summed_in_log_space():
    """The way over the second tag weighs all, though that tag is far behind at the first word."""
    made = LinearChain(2)
    with torch.no_grad():
        made.transitions.copy_(torch.tensor([[-200.0, 0.0], [0.0, 0.0]]))
    emissions = torch.tensor([[[0.0, -150.0], [0.0, -1000.0]]])
    expected = log_sum(every_score(made, emissions[0]))
    assert made.log_partition(emissions).item() == pytest.approx(expected)
    assert expected == pytest.approx(-150)


@pytest.mark.parametrize("scale", [1.0, 60.0, 71.0, 72.0, 200.0])
def test_products_and_log_space_agree(scale):
    made = chain(5, scale=scale / 2, dtype=torch.float32)
    emissions = (scale * torch.randn(50, 6, 5)).requires_grad_()
    exact, wide = copy.deepcopy(made).double(), emissions.detach().double().requires_grad_()
    found, expected = made.log_partition(emissions), exact._in_log_space(wide)
    torch.testing.assert_close(found.double(), expected, rtol=1e-6, atol=1e-5)
    inputs = [
        (one, of.begin, of.transitions, of.end) for one, of in ((emissions, made), (wide, exact))
    ]
    ours, theirs = (
        torch.autograd.grad(of.sum(), by) for of, by in zip((found, expected), inputs, strict=True)
    )
    for one, other in zip(ours, theirs, strict=True):
        torch.testing.assert_close(one.double(), other, rtol=1e-4, atol=2e-4)


class Loss(torch.nn.Module):
    def __init__(self, made):
        super().__init__()
        self.made = made

    def forward(self, emissions, tags):
        return self.made.loss(emissions, tags)


@pytest.mark.parametrize("scale", [2.0, 500.0])
def test_gradients_are_those_of_finite_differences_with_forbidden_moves(scale):
    made = chain(3, scale=scale)
    with torch.no_grad():
        made.transitions[0, 2] = made.transitions[1, 1] = made.begin[2] = FORBIDDEN
    emissions = torch.randn(2, 4, 3, dtype=torch.float64, requires_grad=True)
    sequences = torch.tensor([[0, 0, 1, 2], [1, 0, 1, 0]])

    def loss(finite_emissions, free):
        changed = {"made.transitions": made.transitions.detach() + free}
        return functional_call(Loss(made), changed, (finite_emissions, sequences))

    free = torch.zeros(3, 3, dtype=torch.float64, requires_grad=True)
    assert torch.autograd.gradcheck(loss, (emissions, free))
    losses = expected_losses(made, emissions, sequences)
    assert made.loss(emissions, sequences).tolist() == pytest.approx(losses, abs=1e-9)


def test_forbidden_tags_cost_infinity_and_leave_the_others_alone():
    made = chain(3)
    with torch.no_grad():
        made.transitions[0, 2] = made.begin[1] = made.end[2] = FORBIDDEN
        made.transitions[:, 1] = FORBIDDEN  # no way leads to it
    emissions = torch.randn(4, 3, 3, dtype=torch.float64, requires_grad=True)
    losses = made.loss(emissions, torch.tensor([[0, 0, 2], [1, 0, 0], [2, 2, 2], [2, 0, 0]]))
    assert losses.isinf().tolist() == [True, True, True, False]
    losses[3].backward()
    assert emissions.grad.isfinite().all()
    assert (made.best(emissions) != 1).all()


@pytest.mark.parametrize("sign", [1, -1])
def test_the_edges_of_float32_keep_the_loss_finite(sign):
    made = LinearChain(3)
    torch.nn.init.constant_(made.transitions, sign * 79.0)
    emissions = torch.full((1, 6, 3), sign * 1e4, requires_grad=True)
    loss = made.loss(emissions, torch.zeros(1, 6, dtype=torch.int64))
    loss.sum().backward()
    assert loss.item() == pytest.approx(6 * math.log(3), rel=1e-5)
    torch.testing.assert_close(emissions.grad.sum(), torch.tensor(0.0), atol=1e-5, rtol=0)


def test_a_loss_near_zero_is_told_apart_beside_large_scores_and_none_is_negative():
    emissions = torch.zeros(1, 5, 2)
    emissions[..., 0], emissions[..., 1] = 1000.0, 1000.0 - 9.0
    loss = LinearChain(2).loss(emissions, torch.zeros(1, 5, dtype=torch.int64)).item()
    assert loss == pytest.approx(5 * math.log1p(math.exp(-9)), rel=1e-3)
    made, emissions = chain(4, scale=3, dtype=torch.float32), 100 * torch.randn(500, 8, 4)
    losses = made.loss(emissions, made.best(emissions))
    assert losses.min() >= 0
    assert (losses == 0).any()


def test_a_lower_precision_around_it_does_not_reach_the_chain():
    made = chain(4, scale=2, dtype=torch.float32)
    emissions, sequences = torch.randn(3, 5, 4), torch.randint(0, 4, (3, 5))
    with torch.autocast("cpu", dtype=torch.bfloat16):
        losses = made.loss(emissions.bfloat16(), sequences)
    assert torch.equal(losses, made.loss(emissions.bfloat16().float(), sequences))
