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


def linear(rows: Tensor, weight: Tensor, bias: Tensor | None = None, *, times: int = 1) -> Tensor:
    """rows @ weight.T + bias, no part of a graph.

    Args:
        rows: (n, d), of any strides.
        weight: (m, d), of any strides.
        bias: (m,).
        times: how often in a row a product of this shape is asked for.

    Returns:
        (n, m).
    """
    large = rows.numel() * weight.shape[0] * times >= _LARGE
    if _ONEDNN is None or not large or rows.device.type != "cpu" or rows.dtype != torch.float32:
        return functional.linear(rows, weight, bias)
    product: Tensor = _ONEDNN(rows, weight, bias, "none", [], "")
    return product


def _onednn() -> Any:
    """oneDNN's linear layer, as torch's compiler calls it; None where this torch lacks it."""
    try:
        if not torch.backends.mkldnn.is_available():  # type: ignore[no-untyped-call]
            return None
        return torch.ops.mkldnn._linear_pointwise.default
    except AttributeError:
        return None


_ONEDNN = _onednn()
