"""A clipping norm that follows a quantile: what it costs, where it goes, that it is kept."""

import math

import numpy as np
import pytest
import torch

from vestige.defences.adaptive_clipping import AdaptiveClipping
from vestige.defences.dp_sgd import DPSGDStep
from vestige.defences.noise import GaussianNoise
from vestige.training.batches import Batch
from vestige.training.secret import Secret

KEY = bytes(range(32))


@pytest.mark.parametrize(("noise", "expected"), [(0.5, 8), (1.3, 20), (1.0, 10_000)])
def test_gradients_and_count_together_are_as_private_as_was_asked(noise, expected):
    """A unit moves the clipped sum by C and the count by 1/2: one Gaussian with both."""
    own = AdaptiveClipping(0.5, noise, expected)
    shift = math.hypot(1 / own.of_gradients, 0.5 / own.of_count)
    assert shift == pytest.approx(1 / noise, rel=1e-12)
    assert noise < own.of_gradients < 1.006 * noise


def test_a_unit_moves_the_count_by_half():
    own, norms = AdaptiveClipping(0.5, 1.0, 4), torch.tensor([0.5, 1.0, 2.0, 3.0])
    every = own.count(norms, 1.0).item()
    assert every == 0.0
    for left in range(4):
        rest = torch.cat([norms[:left], norms[left + 1 :]])
        assert abs(own.count(rest, 1.0).item() - every) == 0.5


def test_a_step_is_that_of_the_paper():
    own, noise = AdaptiveClipping(0.3, 1.0, 10), GaussianNoise(KEY)
    norms = torch.linspace(0.1, 2.0, 12)
    drawn = torch.empty(1)
    noise.fill([drawn], step=4, deviation=own.of_count)
    share = (int((norms <= 0.8).sum()) - 6 + drawn.item()) / 10 + 0.5
    expected = 0.8 * math.exp(-0.2 * (share - 0.3))
    found = own.moved(0.8, own.count(norms, 0.8), noise, step=4)
    assert found == pytest.approx(expected, rel=1e-6)


@pytest.mark.parametrize("first", [0.01, 1.0, 100.0])
@pytest.mark.parametrize("quantile", [0.3, 0.5, 0.9])
def test_it_finds_the_quantile_from_wherever_it_begins(first, quantile):
    generator = np.random.default_rng(0)
    own, noise = AdaptiveClipping(quantile, 1.0, 200), GaussianNoise(KEY)
    norms = generator.lognormal(0.7, 0.5, (400, 200))
    clip, late = first, []
    for step, row in enumerate(norms):
        clip = own.moved(clip, own.count(torch.from_numpy(row), clip), noise, step=step)
        late += [clip] * (step >= 200)
    assert np.mean(late) == pytest.approx(np.quantile(norms, quantile), rel=0.05)


@pytest.mark.parametrize("quantile", [0.0, 1.0, -0.5])
def test_a_quantile_that_nothing_can_be_above_and_below_is_refused(quantile):
    with pytest.raises(ValueError, match="clip_quantile must lie in"):
        AdaptiveClipping(quantile, 1.0, 10)


def test_a_step_clips_to_the_norm_that_the_step_before_has_left(tiny_model):
    model = tiny_model("lstm")
    step = DPSGDStep(
        noise_multiplier=0.0, max_grad_norm=0.5, expected_units=4, sequence_length=5,
        clip_quantile=0.5,
    )  # fmt: skip
    ids = torch.randint(1, 5, (4, 6), generator=torch.Generator().manual_seed(0))
    batch = Batch(ids[:, :-1].contiguous(), ids[:, 1:].contiguous())
    step.draw_from(Secret.of_seed(1), 0)
    for _ in range(3):
        clip = step.clip
        step(model, batch, None)
        norms = step.norms[-1]
        share = float((norms <= clip).double().mean())
        assert step.clip == pytest.approx(clip * math.exp(-0.2 * (share - 0.5)))
        total = torch.nn.utils.get_total_norm([p.grad for p in model.parameters()])
        assert total <= clip * (1 + 1e-5)
    assert step.measured()["clip"] == step.clip
    other = DPSGDStep(
        noise_multiplier=0.0, max_grad_norm=0.5, expected_units=4, sequence_length=5,
        clip_quantile=0.5,
    )  # fmt: skip
    other.restore(step.tensors())
    assert other.clip == step.clip
