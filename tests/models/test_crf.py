"""The linear-chain CRF compared with an enumeration of all tag sequences."""

import copy
import math
from itertools import pairwise, product

import pytest
import torch
from torch.func import functional_call

from vestige.models.crf import LinearChain


def random_chain(tags, *, scale=2.0, dtype=torch.float64):
    torch.manual_seed(tags)
    chain = LinearChain(tags).to(dtype)
    for parameter in chain.parameters():
        torch.nn.init.uniform_(parameter, -scale, scale)
    return chain


def sequence_scores(chain, emissions):
    """The score of each sequence for one row (t, k) of emissions, in float64."""
    rows = emissions.double().tolist()
    parts = (chain.begin, chain.end, chain.transitions)
    begin, end, transitions = (parameter.detach().double().tolist() for parameter in parts)
    return {
        tags: begin[tags[0]]
        + sum(row[tag] for row, tag in zip(rows, tags, strict=True))
        + sum(transitions[tag][after] for tag, after in pairwise(tags))
        + end[tags[-1]]
        for tags in product(range(len(begin)), repeat=len(rows))
    }


def log_sum(scores):
    return torch.tensor(list(scores.values()), dtype=torch.float64).logsumexp(0).item()


def naive_losses(chain, emissions, sequences):
    losses = []
    for row, tags in zip(emissions.detach(), sequences, strict=True):
        scores = sequence_scores(chain, row)
        losses.append(log_sum(scores) - scores[tuple(tags.tolist())])
    return losses


@pytest.mark.parametrize("tags", [1, 2, 4])
@pytest.mark.parametrize("t", [1, 2, 3, 4])
def test_partition_score_loss_and_best_equal_an_enumeration(tags, t):
    chain = random_chain(tags)
    emissions = torch.randn(3, t, tags, dtype=torch.float64)
    sequences = torch.randint(0, tags, (3, t))
    rows = [sequence_scores(chain, row) for row in emissions]
    expected = [row[tuple(tags)] for row, tags in zip(rows, sequences.tolist(), strict=True)]
    assert chain.log_partition(emissions).tolist() == pytest.approx([*map(log_sum, rows)])
    assert chain.score(emissions, sequences).tolist() == pytest.approx(expected)
    losses = naive_losses(chain, emissions, sequences)
    assert chain.loss(emissions, sequences).tolist() == pytest.approx(losses, abs=1e-12)
    best = [max(row, key=row.__getitem__) for row in rows]
    assert [tuple(row) for row in chain.best(emissions).tolist()] == best


@pytest.mark.parametrize("t", [1, 2, 3])
def test_gradients_equal_finite_differences(t):
    chain = random_chain(3)
    emissions = torch.randn(2, t, 3, dtype=torch.float64, requires_grad=True)
    sequences = torch.randint(0, 3, (2, t))
    inputs = (emissions, *chain.parameters())
    assert torch.autograd.gradcheck(lambda e, *_: chain.log_partition(e), inputs)
    assert torch.autograd.gradcheck(lambda e, *_: chain.loss(e, sequences), inputs)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("scale", [20.0, 95.0, 1000.0])
def test_losses_are_exact_for_large_transitions(scale, dtype):
    chain = random_chain(4, scale=scale, dtype=dtype)
    emissions = (10 * torch.randn(8, 4, 4, dtype=dtype)).requires_grad_()
    sequences = torch.randint(0, 4, (8, 4))
    losses = chain.loss(emissions, sequences)
    losses.sum().backward()
    expected = naive_losses(chain, emissions, sequences)
    assert losses.tolist() == pytest.approx(expected, rel=1e-5, abs=1e-5)
    assert emissions.grad.isfinite().all()
    assert chain.transitions.grad.isfinite().all()


@pytest.mark.parametrize("value", [95.0, -95.0, 700.0])
def test_transitions_outside_the_range_of_float32_exponents_give_finite_partitions(value):
    chain = LinearChain(3)
    torch.nn.init.constant_(chain.transitions, value)
    partition = chain.log_partition(torch.zeros(2, 5, 3))
    torch.testing.assert_close(partition, torch.full((2,), 4 * value + 5 * math.log(3)))


def test_a_sequence_that_underflows_in_a_product_is_summed_in_log_space():
    """The second tag is improbable at the first word but starts the most probable sequence."""
    chain = LinearChain(2)
    with torch.no_grad():
        chain.transitions.copy_(torch.tensor([[-200.0, 0.0], [0.0, 0.0]]))
    emissions = torch.tensor([[[0.0, -150.0], [0.0, -1000.0]]])
    expected = log_sum(sequence_scores(chain, emissions[0]))
    assert chain.log_partition(emissions).item() == pytest.approx(expected)
    assert expected == pytest.approx(-150)


@pytest.mark.parametrize("scale", [1.0, 60.0, 71.0, 72.0, 200.0])
def test_the_product_and_the_log_space_sum_agree(scale):
    chain = random_chain(5, scale=scale / 2, dtype=torch.float32)
    emissions = (scale * torch.randn(50, 6, 5)).requires_grad_()
    exact, wide = copy.deepcopy(chain).double(), emissions.detach().double().requires_grad_()
    result, expected = chain.log_partition(emissions), exact._in_log_space(wide)
    torch.testing.assert_close(result.double(), expected, rtol=1e-6, atol=1e-5)
    inputs = [
        (x, of.begin, of.transitions, of.end) for x, of in ((emissions, chain), (wide, exact))
    ]
    gradients, expected_gradients = (
        torch.autograd.grad(partition.sum(), by)
        for partition, by in zip((result, expected), inputs, strict=True)
    )
    for gradient, other in zip(gradients, expected_gradients, strict=True):
        torch.testing.assert_close(gradient.double(), other, rtol=1e-4, atol=2e-4)


@pytest.mark.parametrize("scale", [2.0, 500.0])
def test_gradients_with_forbidden_transitions_equal_finite_differences(scale):
    chain = random_chain(3, scale=scale)
    with torch.no_grad():
        chain.transitions[0, 2] = chain.transitions[1, 1] = chain.begin[2] = -math.inf
    emissions = torch.randn(2, 4, 3, dtype=torch.float64, requires_grad=True)
    sequences = torch.tensor([[0, 0, 1, 2], [1, 0, 1, 0]])
    chain.forward = chain.loss

    def loss(emissions, offsets):
        changed = {"transitions": chain.transitions.detach() + offsets}
        return functional_call(chain, changed, (emissions, sequences))

    offsets = torch.zeros(3, 3, dtype=torch.float64, requires_grad=True)
    assert torch.autograd.gradcheck(loss, (emissions, offsets))
    losses = naive_losses(chain, emissions, sequences)
    assert chain.loss(emissions, sequences).tolist() == pytest.approx(losses, abs=1e-9)


def test_forbidden_tags_have_an_infinite_loss_and_no_gradient():
    chain = random_chain(3, scale=1)
    with torch.no_grad():
        chain.transitions[0, 2] = chain.begin[1] = chain.end[2] = -math.inf
        chain.transitions[:, 1] = -math.inf  # tag 1 cannot be reached
    emissions = torch.randn(4, 3, 3, dtype=torch.float64, requires_grad=True)
    losses = chain.loss(emissions, torch.tensor([[0, 0, 2], [1, 0, 0], [2, 2, 2], [2, 0, 0]]))
    assert losses.isinf().tolist() == [True, True, True, False]
    losses[3].backward()
    assert emissions.grad.isfinite().all()
    assert (chain.best(emissions) != 1).all()


@pytest.mark.parametrize("sign", [1, -1])
def test_losses_are_finite_at_the_limits_of_float32(sign):
    chain = LinearChain(3)
    torch.nn.init.constant_(chain.transitions, sign * 79.0)
    emissions = torch.full((1, 6, 3), sign * 1e4, requires_grad=True)
    loss = chain.loss(emissions, torch.zeros(1, 6, dtype=torch.int64))
    loss.sum().backward()
    assert loss.item() == pytest.approx(6 * math.log(3), rel=1e-5)
    torch.testing.assert_close(emissions.grad.sum(), torch.tensor(0.0), atol=1e-5, rtol=0)


def test_small_losses_are_exact_with_large_scores_and_never_negative():
    emissions = torch.full((1, 5, 2), 1000.0)
    emissions[..., 1] -= 9
    loss = LinearChain(2).loss(emissions, torch.zeros(1, 5, dtype=torch.int64)).item()
    assert loss == pytest.approx(5 * math.log1p(math.exp(-9)), rel=1e-3)
    chain, emissions = random_chain(4, scale=3, dtype=torch.float32), 100 * torch.randn(500, 8, 4)
    losses = chain.loss(emissions, chain.best(emissions))
    assert losses.min() >= 0
    assert (losses == 0).any()


def test_autocast_does_not_change_the_precision_of_the_chain():
    chain = random_chain(4, dtype=torch.float32)
    emissions, sequences = torch.randn(3, 5, 4), torch.randint(0, 4, (3, 5))
    with torch.autocast("cpu", dtype=torch.bfloat16):
        losses = chain.loss(emissions.bfloat16(), sequences)
    assert torch.equal(losses, chain.loss(emissions.bfloat16().float(), sequences))
