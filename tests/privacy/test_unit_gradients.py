"""Per-unit norms and weighted sums of gradients against naive definitions."""

import pytest
import torch
from torch import nn

from vestige.privacy.taps import tapped
from vestige.privacy.unit_gradients import UnitGradients

OTHERS = [nn.Conv1d(3, 4, 2), nn.GroupNorm(1, 3), nn.PReLU()]


@pytest.mark.parametrize("layer", OTHERS, ids=lambda layer: type(layer).__name__)
def test_gradients_of_other_layers_match_a_loop_over_rows(layer):
    torch.manual_seed(0)
    layer, inputs = layer.double(), torch.randn(4, 3, 5).double()
    row_gradients = []
    for row in range(4):
        loss = layer(inputs[row : row + 1]).square().sum()
        row_gradients.append(torch.autograd.grad(loss, list(layer.parameters())))
    unit_gradients = UnitGradients(torch.arange(4))
    with tapped(layer, unit_gradients):
        layer(inputs).square().sum().backward()
    for index, parameter in enumerate(layer.parameters()):
        expected = torch.stack([gradients[index].flatten() for gradients in row_gradients])
        torch.testing.assert_close(unit_gradients._gradients[parameter].formed, expected)


@pytest.mark.parametrize("layer", [nn.LayerNorm(5), nn.RMSNorm(5, eps=1e-3)])
@pytest.mark.parametrize("shape", [(3, 5), (3, 2, 5), (3, 2, 4, 5)])
def test_tapped_norm_layers_match_torch(layer, shape):
    """The output, the gradient of the input and the gradients of each row."""
    inputs = torch.randn(shape, generator=torch.Generator().manual_seed(0)).double()
    inputs.requires_grad_()
    layer = layer.double()
    nn.init.normal_(layer.weight)
    plain = layer(inputs)
    (input_gradient,) = torch.autograd.grad(plain.square().sum(), inputs)
    row_gradients = [
        torch.autograd.grad(layer(row[None]).square().sum(), layer.weight)[0] for row in inputs
    ]
    unit_gradients = UnitGradients(torch.arange(3))
    with tapped(layer, unit_gradients):
        output = layer(inputs)
        output.square().sum().backward()
    torch.testing.assert_close(output, plain)
    torch.testing.assert_close(inputs.grad, input_gradient)
    torch.testing.assert_close(
        unit_gradients._gradients[layer.weight].formed, torch.stack(row_gradients)
    )


UNITS = [None, [0, 1, 1, 2, 2, 2], [0, 0, 1, 1, 2, 2], [0] * 6]


@pytest.mark.slow
@pytest.mark.parametrize("units", UNITS)
@pytest.mark.parametrize("chunk_size", [1, 100, 1 << 24])
@pytest.mark.parametrize("shape", [(30, 40), (4, 5)])
@pytest.mark.parametrize("lookups", [0, 1, 2])
@pytest.mark.parametrize("products", [0, 1, 2])
def test_repeated_uses_of_a_parameter_add_up(
    monkeypatch, units, chunk_size, shape, products, lookups
):
    """Each may be a head, an embedding or both, once or twice."""
    monkeypatch.setattr("vestige.privacy.unit_gradients._CHUNK_SIZE", chunk_size)
    generator = torch.Generator().manual_seed(0)
    parameter = nn.Parameter(torch.zeros(shape, dtype=torch.float64))
    parameter.grad = torch.zeros_like(parameter)
    rows, (o, i) = 6, shape

    def normal(*sizes):
        return torch.randn(sizes, generator=generator, dtype=torch.float64)

    unit_of_row = None if units is None else torch.tensor(units)
    unit_gradients, naive = (
        UnitGradients(torch.arange(rows) if unit_of_row is None else unit_of_row),
        torch.zeros(rows, o, i, dtype=torch.float64),
    )
    for length in range(3, 3 + products):
        left, right = normal(rows, length, o), normal(rows, length, i)
        unit_gradients.add_product(parameter, left, right)
        naive += torch.einsum("rto,rti->roi", left, right)
    for length in range(4, 4 + lookups):
        ids = torch.randint(o, (rows, length), generator=generator)
        gradients = normal(rows, length, i)
        unit_gradients.add_lookup(parameter, ids, gradients)
        for row in range(rows):
            naive[row].index_add_(0, ids[row], gradients[row])
    if not products + lookups:
        return
    if units is not None:
        naive = torch.zeros(max(units) + 1, o, i, dtype=torch.float64).index_add(
            0, unit_of_row, naive
        )
    torch.testing.assert_close(unit_gradients.norms(), naive.flatten(1).norm(dim=1))
    weights = torch.rand(len(naive), generator=generator, dtype=torch.float64)
    unit_gradients.add_weighted(weights)
    torch.testing.assert_close(parameter.grad, torch.einsum("u,uoi->oi", weights, naive))


def test_norms_are_accurate_when_gradients_of_tokens_nearly_cancel():
    """Norms in float32 are then within 5% of the exact ones."""
    generator = torch.Generator().manual_seed(0)
    parameter = nn.Parameter(torch.zeros(300, 400))
    left, right = (torch.randn(8, 10, width, generator=generator) for width in parameter.shape)
    small = 2e-3 * torch.randn(8, 10, 300, generator=generator)
    left, right = torch.cat([left, small - left], 1), torch.cat([right, right], 1)
    unit_gradients = UnitGradients(torch.arange(8))
    unit_gradients.add_product(parameter, left, right)
    assert unit_gradients._gradients[parameter].products
    exact = torch.bmm(left.double().mT, right.double()).flatten(1).norm(dim=1)
    sum_of_norms = (left.norm(dim=2) * right.norm(dim=2)).sum(1)
    assert (exact / sum_of_norms).max() < 2e-3
    torch.testing.assert_close(unit_gradients.norms().double(), exact, rtol=0.05, atol=0)


@pytest.mark.parametrize("units", [None, torch.arange(4).repeat_interleave(2)])
@pytest.mark.parametrize("activation", [3, 30, 300, 3_000, 30_000])
def test_units_whose_tokens_cancel_are_clipped_by_their_norm(activation, units):
    """The part that all activations share drops out, since the gradients sum to zero."""
    torch.manual_seed(0)
    rows = 4 if units is None else 8
    weight = nn.Parameter(torch.zeros(300, 200))
    gradients, activations = torch.randn(rows, 8, 300), torch.randn(rows, 8, 200) + activation
    gradients -= gradients.mean(1, keepdim=True)
    unit_gradients = UnitGradients(torch.arange(rows) if units is None else units)
    unit_gradients.add_product(weight, gradients, activations)
    expected = gradients.double().mT @ activations.double()
    expected = expected if units is None else expected.unflatten(0, (4, 2)).sum(1)
    exact = expected.square().sum((1, 2)).sqrt()
    norms = unit_gradients.norms()
    scale = (gradients.norm(dim=2) * activations.norm(dim=2)).sum(1).max()
    torch.testing.assert_close(norms.double(), exact, rtol=5e-4, atol=float(scale) / 2**19)
    for unit in range(4):
        weight.grad = torch.zeros_like(weight)
        unit_gradients.add_weighted(torch.eye(4)[unit] / norms)
        assert 0.8 < weight.grad.norm().item() <= 1.0005
