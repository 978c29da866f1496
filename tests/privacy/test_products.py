"""Matrix products by oneDNN against those of torch."""

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
    """Use oneDNN on Intel's processors too, where MKL is the default."""
    monkeypatch.setattr(products, "_ONEDNN", products._onednn())


@pytest.mark.slow
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("transposed", [(False, False), (True, False), (False, True), (True, True)])
@pytest.mark.parametrize("shape", SHAPES)
def test_products_of_any_strides_match_float64(shape, transposed, dtype, monkeypatch):
    monkeypatch.setattr(products, "_LARGE", 0)
    n, d, m = shape
    generator = torch.Generator().manual_seed(n)
    rows, weight = (torch.randn(k, d, generator=generator, dtype=dtype) for k in (n, m))
    bias = torch.randn(m, generator=generator, dtype=dtype)
    left, right = (
        x.t().contiguous().t() if t else x for x, t in zip((rows, weight), transposed, strict=True)
    )
    expected = rows.double() @ weight.double().t()
    tolerance = {"rtol": 1e-5, "atol": 1e-5 * d**0.5}
    torch.testing.assert_close(linear(left, right).double(), expected, **tolerance)
    torch.testing.assert_close(linear(left, right, bias).double(), expected + bias, **tolerance)


@pytest.mark.parametrize("large", [0, 1 << 60])
def test_products_are_added_in_chunks(large, monkeypatch):
    monkeypatch.setattr(products, "_LARGE", large)
    monkeypatch.setattr(products, "_CHUNK_ROWS", 7)
    total, rows, weight = torch.randn(40, 12), torch.randn(40, 5), torch.randn(12, 5)
    expected = total + rows @ weight.t()
    products.add_linear(total, rows, weight)
    torch.testing.assert_close(total, expected, rtol=1e-4, atol=1e-5)


def test_torch_multiplies_where_onednn_is_missing(monkeypatch):
    monkeypatch.setattr(products, "_LARGE", 0)
    rows, weight = torch.randn(300, 128), torch.randn(77, 128)
    by_onednn = linear(rows, weight)
    monkeypatch.setattr(products, "_ONEDNN", None)
    assert linear(rows, weight).equal(torch.nn.functional.linear(rows, weight))
    torch.testing.assert_close(linear(rows, weight), by_onednn, rtol=1e-4, atol=1e-4)


def test_installed_torch_provides_onednn():
    assert products._ONEDNN is not None


@pytest.mark.parametrize(("maker", "by_intel"), [("GenuineIntel", True), ("AuthenticAMD", False)])
def test_intel_processors_are_recognized(monkeypatch, maker, by_intel):
    def missing(self, *args, **named):
        raise FileNotFoundError

    monkeypatch.setattr(products.Path, "open", missing)
    monkeypatch.setattr(products.platform, "processor", lambda: f"Family 6 Model 85, {maker}")
    assert products._by_intel() == by_intel


def test_onednn_multiplies_only_large_or_repeated_products_of_float32(monkeypatch):
    shapes = []

    def record(rows, weight, bias, *_):
        shapes.append(tuple(rows.shape))
        return torch.nn.functional.linear(rows, weight, bias)

    monkeypatch.setattr(products, "_ONEDNN", record)
    small, large, weight = torch.ones(64, 512), torch.ones(1024, 512), torch.ones(512, 512)
    linear(small, weight)
    assert shapes == []
    linear(small, weight, times=16)
    linear(large, weight)
    assert shapes == [(64, 512), (1024, 512)]
    linear(large.double(), weight.double())
    assert len(shapes) == 2
