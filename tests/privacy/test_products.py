"""Products by oneDNN are the products."""

import pytest
import torch

from vestige.privacy import unit_gradients as products
from vestige.privacy.unit_gradients import linear

pytestmark = pytest.mark.skipif(
    not torch.backends.mkldnn.is_available(), reason="this torch lacks oneDNN"
)
SHAPES = [(1, 1, 1), (7, 5, 3), (40, 300, 200), (333, 128, 77), (1, 2048, 1200)]


@pytest.fixture(autouse=True)
def _onednn(monkeypatch):
    """Also on Intel's processors, whose products are MKL's."""
    monkeypatch.setattr(products, "_ONEDNN", products._onednn())


@pytest.mark.slow
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("turned", [(False, False), (True, False), (False, True), (True, True)])
@pytest.mark.parametrize("shape", SHAPES)
def test_products_are_those_of_float64_whatever_the_strides(shape, turned, dtype, monkeypatch):
    monkeypatch.setattr(products, "_LARGE", 0)
    n, d, m = shape
    generator = torch.Generator().manual_seed(n)
    rows, weight = (torch.randn(k, d, generator=generator, dtype=dtype) for k in (n, m))
    bias = torch.randn(m, generator=generator, dtype=dtype)
    left, right = (
        x.t().contiguous().t() if t else x for x, t in zip((rows, weight), turned, strict=True)
    )
    expected = rows.double() @ weight.double().t()
    tolerance = {"rtol": 1e-5, "atol": 1e-5 * d**0.5}
    torch.testing.assert_close(linear(left, right).double(), expected, **tolerance)
    torch.testing.assert_close(linear(left, right, bias).double(), expected + bias, **tolerance)


@pytest.mark.parametrize("large", [0, 1 << 60])
def test_a_product_is_added_in_parts(large, monkeypatch):
    monkeypatch.setattr(products, "_LARGE", large)
    monkeypatch.setattr(products, "_CHUNK_ROWS", 7)
    into, rows, weight = torch.randn(40, 12), torch.randn(40, 5), torch.randn(12, 5)
    expected = into + rows @ weight.t()
    products.add_linear(into, rows, weight)
    torch.testing.assert_close(into, expected, rtol=1e-4, atol=1e-5)


def test_without_onednn_torch_multiplies(monkeypatch):
    monkeypatch.setattr(products, "_LARGE", 0)
    rows, weight = torch.randn(300, 128), torch.randn(77, 128)
    by_onednn = linear(rows, weight)
    monkeypatch.setattr(products, "_ONEDNN", None)
    assert linear(rows, weight).equal(torch.nn.functional.linear(rows, weight))
    torch.testing.assert_close(linear(rows, weight), by_onednn, rtol=1e-4, atol=1e-4)


def test_this_torch_has_what_large_products_go_to():
    assert products._ONEDNN is not None


@pytest.mark.parametrize(("maker", "by_intel"), [("GenuineIntel", True), ("AuthenticAMD", False)])
def test_intels_processors_are_known(monkeypatch, maker, by_intel):
    def hidden(self, *args, **named):
        raise FileNotFoundError

    monkeypatch.setattr(products.Path, "open", hidden)
    monkeypatch.setattr(products.platform, "processor", lambda: f"Family 6 Model 85, {maker}")
    assert products._by_intel() == by_intel


def test_small_products_are_torchs_own_and_repeated_ones_count_together(monkeypatch):
    asked = []

    def noted(rows, weight, bias, *_):
        asked.append(tuple(rows.shape))
        return torch.nn.functional.linear(rows, weight, bias)

    monkeypatch.setattr(products, "_ONEDNN", noted)
    small, large, weight = torch.ones(64, 512), torch.ones(1024, 512), torch.ones(512, 512)
    linear(small, weight)
    assert asked == []
    linear(small, weight, times=16)
    linear(large, weight)
    assert asked == [(64, 512), (1024, 512)]
    linear(large.double(), weight.double())
    assert len(asked) == 2
