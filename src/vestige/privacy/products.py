"""Matrix products by the library that a plain LSTM's own kernels use.

torch hands `mm` in float32 to MKL and `nn.LSTM` to oneDNN. MKL leaves vectors of 512 bits alone on
processors of other makers: there its products take twice as long as oneDNN's (benchmarks/dp_sgd),
and a private step would pay for that and not for its privacy. So large products in float32 on the
CPU go to oneDNN, where this torch has it; all others take torch's own way.
"""

from typing import Any

import torch
from torch import Tensor
from torch.nn import functional

_LARGE = 1 << 28
"""Multiplications from which oneDNN gains more than it takes to make a kernel for a new shape, over
a millisecond: with Poisson sampling, nearly every batch has a shape of its own. It follows from the
shape alone, so that a training that is resumed takes the same products."""

_TALL = 1 << 12
"""Rows of a product that are added together: no second gradient of a whole vocabulary."""


def linear(rows: Tensor, weight: Tensor, bias: Tensor | None = None, *, times: int = 1) -> Tensor:
    """rows @ weight.T + bias, outside the graph.

    Args:
        rows: (n, d), of any strides.
        weight: (m, d), of any strides.
        bias: (m,).
        times: how many products in a row have this shape.

    Returns:
        (n, m).
    """
    if not _by_onednn(rows, weight, times):
        return functional.linear(rows, weight, bias)
    product: Tensor = _ONEDNN(rows, weight, bias, "none", [], "")
    return product


def add_linear(into: Tensor, rows: Tensor, weight: Tensor) -> None:
    """Add rows @ weight.T to a tensor (n, m)."""
    if not _by_onednn(rows, weight, 1):
        into.addmm_(rows, weight.t())
        return
    parts = -(-len(into) // _TALL)
    some = zip(torch.tensor_split(rows, parts), torch.tensor_split(into, parts), strict=True)
    for own, target in some:
        target += linear(own, weight)


def _by_onednn(rows: Tensor, weight: Tensor, times: int) -> bool:
    large = rows.numel() * weight.shape[0] * times >= _LARGE
    plain = rows.device.type == "cpu" and rows.dtype == weight.dtype == torch.float32
    return _ONEDNN is not None and large and plain and not torch.is_autocast_enabled("cpu")


def _onednn() -> Any:
    """oneDNN's linear layer, as torch's compiler calls it; None where this torch lacks it."""
    try:
        if not torch.backends.mkldnn.is_available():  # type: ignore[no-untyped-call]
            return None
        return torch.ops.mkldnn._linear_pointwise.default
    except AttributeError:
        return None


_ONEDNN = _onednn()
