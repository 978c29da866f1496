"""Dropout masks of rows: what they follow from, and that a row more moves the sum by C at most."""

import pytest
import torch
from torch.nn import functional
from torch.utils.checkpoint import checkpoint

from vestige.errors import TrainingError
from vestige.privacy.dp_sgd import NoisyStep
from vestige.privacy.randomness import StepRandomness, kept, refuse_other_randomness, scale
from vestige.training.secret import Secret

CPU = torch.device("cpu")
CHANCE = StepRandomness(bytes(range(32)), CPU)
ROWS = torch.arange(40)


def drawn(numbers: torch.Tensor, shape=(12, 9), p=0.3, chance=CHANCE) -> torch.Tensor:
    """Masks of two calls of dropout."""
    with chance.by_row(numbers):
        ones = torch.ones(len(numbers), *shape)
        return torch.stack([functional.dropout(ones, p), functional.dropout(ones, p)], 1)


def test_a_mask_follows_from_its_row_and_not_from_those_read_beside_it():
    every = drawn(ROWS)
    torch.testing.assert_close(drawn(ROWS[7:8])[0], every[7])
    torch.testing.assert_close(drawn(ROWS.flip(0)).flip(0), every)
    wider = drawn(ROWS, (12, 14))
    torch.testing.assert_close(wider[..., :9], every)
    longer = drawn(ROWS, (20, 9))
    torch.testing.assert_close(longer[..., :12, :], every)
    other = drawn(ROWS, chance=StepRandomness(bytes(32), CPU))
    assert (other != every).any()


def test_masks_are_independent_and_drop_as_many_as_they_should():
    p = 0.3
    keys = StepRandomness(bytes(32), CPU).keys(torch.arange(64))
    first = kept(keys, 5, (64, 100, 201), p)
    assert first.double().mean().item() == pytest.approx(1 - p, abs=4 * (p * 0.7 / 1.28e6) ** 0.5)
    assert scale(p) == pytest.approx(1 / 0.7, rel=1e-4)
    other = kept(keys, 6, (64, 100, 201), p)
    pairs = [(first, other), (first[1:], first[:-1]), (first[:, 1:], first[:, :-1])]
    pairs += [(first[..., n:], first[..., :-n]) for n in (1, 2, 3, 4, 8)]
    for one, two in pairs:
        both = torch.stack([one.flatten(), two.flatten()]).double()
        assert abs(torch.corrcoef(both)[0, 1].item()) < 5 / both.shape[1] ** 0.5


def test_torchs_generators_are_left_as_they_were_and_torch_s_functions_too():
    before, dropout = torch.get_rng_state(), functional.dropout
    drawn(ROWS)
    with CHANCE.for_unit(3):
        alone = torch.rand(4)
    assert torch.equal(torch.get_rng_state(), before)
    assert functional.dropout is dropout
    with CHANCE.for_unit(3):
        assert torch.equal(torch.rand(4), alone)
    with CHANCE.for_unit(4):
        assert not torch.equal(torch.rand(4), alone)


@pytest.mark.parametrize("reentrant", [False, True])
def test_activations_that_are_computed_again_see_the_same_masks(reentrant):
    given = torch.randn(5, 7, requires_grad=True)

    def layer(values):
        return functional.dropout(functional.dropout(values.sin(), 0.4).sin(), 0.4)

    gradients = []
    for again in (False, True):
        with CHANCE.by_row(ROWS[:5]):
            read = functional.dropout(given, 0.2)
            read = checkpoint(layer, read, use_reentrant=reentrant) if again else layer(read)
            read = functional.dropout(read, 0.2)
            given.grad = None
            read.square().sum().backward()
            gradients.append(given.grad)
    torch.testing.assert_close(*gradients, rtol=0, atol=0)


def test_attention_with_dropout_is_that_of_its_parts():
    torch.manual_seed(0)
    query, key, value = torch.randn(3, 5, 4, 6, 8).unbind(0)
    seen = torch.rand(5, 1, 6, 6) > 0.3
    seen |= torch.eye(6, dtype=torch.bool)
    for given in ({"is_causal": True}, {"attn_mask": seen}, {"attn_mask": seen * 3.0, "scale": 1}):
        plain = functional.scaled_dot_product_attention(query, key, value, **given)
        with CHANCE.by_row(ROWS[:5]):
            attend = functional.scaled_dot_product_attention
            torch.testing.assert_close(attend(query, key, value, **given), plain)
            tiny = attend(query, key, value, dropout_p=2.0**-16, **given)
            torch.testing.assert_close(tiny, plain, rtol=1e-3, atol=1e-3)
    with CHANCE.by_row(ROWS[:5]):
        attend = functional.scaled_dot_product_attention
        shared = attend(query, key[:, :2], value[:, :2], dropout_p=0.5, enable_gqa=True)
    with CHANCE.by_row(ROWS[:5]):
        pair = [one[:, :2].repeat_interleave(2, 1) for one in (key, value)]
        torch.testing.assert_close(attend(query, *pair, dropout_p=0.5), shared)


class Drops(torch.nn.Module):
    """A linear layer between dropouts, or a layer that draws in a way of its own."""

    def __init__(self, own=None) -> None:
        super().__init__()
        self.linear, self.own = torch.nn.Linear(6, 5), own

    def forward(self, given):
        read = self.linear(functional.dropout(given, 0.3))
        return functional.dropout(read if self.own is None else self.own(read), 0.3)


@pytest.mark.parametrize("at_once", [None, 3])
@pytest.mark.parametrize("new", [0, 4, 8])
def test_a_row_anywhere_moves_the_sum_by_the_clipping_norm_alone(new, at_once):
    torch.manual_seed(0)
    model, data = Drops().double(), torch.randn(9, 4, 6, dtype=torch.float64)
    step = NoisyStep(0.0, 0.5, 1)
    step.draw_from(Secret.of_seed(1), 0)

    def summed(numbers):
        model.linear.weight.grad = torch.zeros_like(model.linear.weight)
        model.linear.bias.grad = torch.zeros_like(model.linear.bias)

        def losses(positions):
            return model(data[numbers[positions]]).square().sum((1, 2))

        units = torch.arange(len(numbers))
        step.draw_from(Secret.of_seed(1), 0)
        step.add_clipped(model, losses, units, numbers, rows_at_once=at_once)
        return torch.cat([p.grad.flatten() for p in model.parameters()])

    every = torch.arange(9)
    moved = (summed(every) - summed(every[every != new])).norm().item()
    assert moved == pytest.approx(0.5, rel=1e-9)


def test_chance_that_rows_draw_otherwise_is_refused():
    def check(own):
        model = Drops(own)
        refuse_other_randomness(CHANCE, lambda positions: model(torch.ones(len(positions), 4, 6)))

    check(None)
    check(lambda read: read * (torch.rand(()) > 0.1))  # once for all rows
    with pytest.raises(TrainingError, match="uses randomness per row"):
        check(lambda read: read + torch.rand_like(read))
    lstm = torch.nn.LSTM(5, 5, num_layers=2, dropout=0.2, batch_first=True)
    with pytest.raises(TrainingError, match="uses randomness per row"):
        check(lambda read: lstm(read)[0])
    with pytest.raises(TrainingError, match=r"dropout has .*masks per row are unknown"):
        check(lambda read: functional.dropout(read.flatten(0, 1), 0.5).view_as(read))
