"""Norms and weighted sums of per-unit gradients, computed from their factors.

A weight W (o, i) that multiplies a_t has the gradient sum_t g_t a_t^T, g_t the gradient of W a_t;
t runs over the tokens of a unit: of a sequence, or of all sequences of a user. Two Gram matrices
give its squared norm without forming the gradient:

    ||sum_t g_t a_t^T||^2 = sum_{t,s} (g_t . g_s)(a_t . a_s)

Goodfellow (2015), "Efficient Per-Example Gradient Computations", arXiv:1510.01799; Li et al.
(2022), "Large Language Models Can Be Strong Differentially Private Learners", section 4. The
clipped sum over units is one product (c g)^T a of the stored factors, without a second backward
pass: Bu et al. (2023), "Differentially Private Optimization on Large Model at Small Cost". An
embedding is such a product: g_t is one-hot at the token x_t, and a_t is d_t, the gradient of the
looked-up vector. If the head shares the weight of the embedding, their product counts twice:
sum_{t,s} g_t[x_s] (a_t . d_s). A gradient is formed if it is no larger than its factors.

Rounding. Let S be the sum over weights of sum_t ||g_t|| ||a_t||. From Gram matrices in float32, a
squared norm has an error of about 1e-7 S^2. If the tokens cancel to 3e-4 of S, that is the whole
norm. So below 1e-4 S^2 the gradient of the unit is formed in float64, in parts, and S / 2^21 is
added to its norm, for the rounding of the clipped sum in float32. The remaining error of a norm
from Gram matrices is at most 1e-7 / 1e-4 / 2 = 0.05 %, so a unit moves the sum by at most 1.0005 C.
A unit whose gradient is formed moves it by at most C, as long as the rounding of the sum is below 8
float32 units of S.

Speed. torch computes `mm` in float32 with MKL and `nn.LSTM` with oneDNN. MKL uses 512-bit vectors
on Intel processors only. On others its products take twice as long (benchmarks/training_steps), and
a private step would be slower for that reason alone. So `linear` uses oneDNN for large products on
these processors. On Intel, MKL takes two thirds of the time of oneDNN.
"""

import platform
from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import groupby
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional

_CHUNK_SIZE = 1 << 24
"""Numbers multiplied at once."""
_CANCELLATION = 1e-4
"""Squared norm over S^2 below which Gram matrices are not trusted."""
_FORMED_SHARE = 1e-4
"""Share of S^2 that counts for a gradient formed in float32: its error is 1e-7 S, squared."""
_ROUNDING = 2.0**-21
"""Rounding error of a float32 sum over S: 8 units."""
_LARGE = 1 << 28
"""Multiplications of a product that is large enough for oneDNN. A kernel for a new shape costs a
millisecond, and with Poisson sampling nearly every batch has one. Only the shape decides, so a
resumed training computes the same products."""
_CHUNK_ROWS = 1 << 12
"""Rows of a product added at once, to avoid a second copy of a large gradient."""

Pair = tuple[Tensor, Tensor]


@dataclass
class _ParameterGradients:
    """Per-unit gradients of one parameter: formed (units, numbers), or factors of each use."""

    formed: Tensor | None = None
    products: list[Pair] = field(default_factory=list)
    lookups: list[Pair] = field(default_factory=list)


class UnitGradients:
    """Gradients of the units of a pass, by parameter.

    Args:
        units: int64 (rows,) the unit of each row, ascending from 0.
    """

    def __init__(self, units: Tensor) -> None:
        self.units, self.rows = units, len(units)
        self.counts: list[int] = torch.bincount(units).tolist()
        self._gradients: dict[Tensor, _ParameterGradients] = {}

    def add(self, parameter: Tensor, gradients: Tensor) -> None:
        """Add the rows' gradients, (rows, ...), of one use of a parameter."""
        gradients = _exact(gradients).flatten(1)
        if len(self.counts) < self.rows:
            summed = gradients.new_zeros(len(self.counts), gradients.shape[1])
            gradients = summed.index_add_(0, self.units.to(gradients.device), gradients)
        self._form(parameter, gradients)

    def add_product(self, parameter: Tensor, left: Tensor, right: Tensor) -> None:
        """Add the rows' left^T right, (rows, t, o) and (rows, t, i), of one use of a parameter."""
        stored = self._gradients.setdefault(parameter, _ParameterGradients())
        small = len(self.counts) * parameter.numel() <= left.numel() + right.numel()
        if stored.formed is None and not (small and not stored.products):
            stored.products.append((left, right))
            return
        parts = [torch.bmm(a.mT, b).flatten(1) for a, b in self._by_units(left, right)]
        self._form(parameter, _exact(parts[0] if len(parts) == 1 else torch.cat(parts)))

    def add_lookup(self, parameter: Tensor, ids: Tensor, gradients: Tensor) -> None:
        """Add gradients (rows, t, i) of the rows of a parameter that ids, int64 (rows, t), name."""
        self._gradients.setdefault(parameter, _ParameterGradients()).lookups.append(
            (ids, gradients)
        )

    @torch.no_grad()
    def norms(self) -> Tensor:
        """(units,) L2 norm of each unit's gradient, all parameters together."""
        squares_and_scales = [self._squared(*item) for item in self._gradients.items()]
        device = squares_and_scales[0][0].device
        squared, scales = (
            torch.stack([value.to(device) for value in parts]).sum(0)
            for parts in zip(*squares_and_scales, strict=True)
        )
        norms = squared.clamp_min(0).sqrt()
        for unit in (squared < _CANCELLATION * scales).nonzero().flatten().tolist():
            norms[unit] = self._exact_norm(unit)
        return norms

    @torch.no_grad()
    def add_weighted(self, weights: Tensor) -> None:
        """Add the units' gradients, each times its weight (units,), to `.grad`."""
        row_weights = weights[self.units.to(weights.device)]
        for parameter, stored in self._gradients.items():
            target = parameter.grad
            assert target is not None
            if stored.formed is not None:
                target.add_((weights.to(stored.formed) @ stored.formed).view_as(target))
            for left, right in stored.products:
                _add_products(target, left, right, row_weights)
            for ids, gradients in stored.lookups:
                scaled = gradients * row_weights.to(gradients.device)[:, None, None]
                target.index_add_(0, ids.flatten(), scaled.to(target).flatten(0, 1))

    def _form(self, parameter: Tensor, gradients: Tensor) -> None:
        stored = self._gradients.setdefault(parameter, _ParameterGradients())
        stored.formed = gradients if stored.formed is None else stored.formed + gradients

    def _squared(self, parameter: Tensor, stored: _ParameterGradients) -> Pair:
        """(units,) squared norms of one parameter, and S^2. Adds lookups to formed ones."""
        if stored.formed is None:
            chunks = self._by_units(*_joined(stored.products), *_joined(stored.lookups))
            results = [_squared_norms(len(parameter), *parts) for parts in chunks]
            squared, scales = (torch.cat(parts) for parts in zip(*results, strict=True))
            return squared, scales
        formed = stored.formed.view(-1, *parameter.shape)
        for ids, gradients in stored.lookups:
            unit = self.units.to(ids.device)[:, None].expand_as(ids)
            formed.index_put_((unit, ids), _exact(gradients), accumulate=True)
        stored.lookups = []
        squared = torch.linalg.vector_norm(stored.formed, dim=1).square()
        return squared, torch.zeros_like(squared)  # the clipped sum uses the same formed gradients

    def _exact_norm(self, unit: int) -> Tensor:
        """Norm of one unit whose tokens cancel, rounded up."""
        begin = sum(self.counts[:unit])
        rows = slice(begin, begin + self.counts[unit])
        squared = scale = torch.zeros((), dtype=torch.float64)
        for parameter, stored in self._gradients.items():
            if stored.formed is not None:
                squared = squared + stored.formed[unit].double().square().sum().cpu()
                continue
            products, lookups = (
                [(_double(a[rows].flatten(0, 1)), _double(b[rows].flatten(0, 1))) for a, b in pairs]
                for pairs in (stored.products, stored.lookups)
            )
            parameter_squared, parameter_scale = _exact_squares(len(parameter), products, lookups)
            squared, scale = squared + parameter_squared, scale + parameter_scale
        return squared.sqrt() + _ROUNDING * scale.sqrt()

    def _by_units(self, *tensors: Any) -> Iterator[list[Any]]:
        """Tensors as (units, positions, .), for some units with equally many rows at a time."""
        row_size = max(tensor[0].numel() for tensor in tensors if tensor is not None)
        begin = 0
        for count, group in groupby(self.counts):
            remaining = len(list(group))
            while remaining:
                units = min(remaining, max(1, _CHUNK_SIZE // (count * row_size)))
                rows = slice(begin, begin + units * count)
                yield [
                    None if tensor is None else tensor[rows].reshape(units, -1, *tensor.shape[2:])
                    for tensor in tensors
                ]
                begin, remaining = rows.stop, remaining - units


def _exact_squares(height: int, products: list[Pair], lookups: list[Pair]) -> Pair:
    """The squared norm of one unit's gradient of a weight (height, i), and S^2, from float64."""
    lengths = [left.norm(dim=1) * right.norm(dim=1) for left, right in products]
    scale = torch.cat(lengths + [gradients.norm(dim=1) for _, gradients in lookups]).sum()
    squared, width = torch.zeros_like(scale), (products or lookups)[0][1].shape[1]
    size = max(1, _CHUNK_SIZE // width)
    for begin in range(0, height, size):
        part = scale.new_zeros(min(size, height - begin), width)
        for left, right in products:
            part.addmm_(left[:, begin : begin + size].t(), right)
        for ids, gradients in lookups:
            inside = (ids >= begin) & (ids < begin + size)
            part.index_add_(0, ids[inside] - begin, gradients[inside])
        squared += part.square().sum()
    return squared.cpu(), scale.square().cpu()


def _squared_norms(
    height: int,
    left: Tensor | None,
    right: Tensor | None,
    ids: Tensor | None,
    gradients: Tensor | None,
) -> Pair:
    """(units,) squared norms of left^T right plus the lookups in `height` rows, and S^2."""
    squared, scale = list[Tensor](), torch.zeros(())
    if left is not None and right is not None:
        left, right = _exact(left), _exact(right)
        products, scale = _squared_products(left, right)
        squared.append(products)
    if ids is not None and gradients is not None:
        gradients = _exact(gradients)
        squared.append(_squared_lookups(ids, gradients, height))
        lengths = torch.linalg.vector_norm(gradients, dim=2).sum(1)
        if left is None or right is None:
            scale = _FORMED_SHARE**0.5 * lengths
        else:
            at_tokens = left.gather(2, ids[:, None].expand(-1, left.shape[1], -1))
            squared.append(2 * (at_tokens * torch.bmm(right, gradients.mT)).sum((1, 2)))
            scale = scale + lengths
    return torch.stack(squared).sum(0), scale.square()


def _squared_products(left: Tensor, right: Tensor) -> Pair:
    """(units,) squared norms of left^T right, (units, t, o) and (units, t, i), and S."""
    _, positions, width = left.shape
    if positions * (width + right.shape[2]) <= width * right.shape[2]:
        left_gram, right_gram = torch.bmm(left, left.mT), torch.bmm(right, right.mT)
        lengths = left_gram.diagonal(0, 1, 2) * right_gram.diagonal(0, 1, 2)
        return left_gram.mul_(right_gram).sum((1, 2)), lengths.sqrt().sum(1)
    formed = [(a.mT @ b).square().sum() for a, b in zip(left, right, strict=True)]
    lengths = torch.linalg.vector_norm(left, dim=2) * torch.linalg.vector_norm(right, dim=2)
    return torch.stack(formed), _FORMED_SHARE**0.5 * lengths.sum(1)


def _squared_lookups(ids: Tensor, gradients: Tensor, height: int) -> Tensor:
    """(units,) squared norms. The gradients of a repeated token are summed."""
    units = torch.arange(len(ids), device=ids.device)
    unit_rows = (units[:, None] * height + ids).flatten()
    rows, index = torch.unique(unit_rows, return_inverse=True)
    summed = gradients.new_zeros(len(rows), gradients.shape[2])
    summed.index_put_((index,), gradients.flatten(0, 1), accumulate=True)
    squared = gradients.new_zeros(len(ids))
    return squared.index_put_((rows // height,), summed.square().sum(1), accumulate=True)


def _add_products(target: Tensor, left: Tensor, right: Tensor, weights: Tensor) -> None:
    """Add the sum over rows of weight * left^T right; the narrower factor is scaled."""
    weights = _exact(weights).to(left.device)[:, None, None]
    size = max(1, _CHUNK_SIZE // max(left[0].numel(), right[0].numel()))
    for begin in range(0, len(left), size):
        chunk = slice(begin, begin + size)
        factors = [_exact(left[chunk]), _exact(right[chunk])]
        narrow = int(left.shape[2] >= right.shape[2])
        factors[narrow] = factors[narrow] * weights[chunk]
        first, second = (factor.flatten(0, 1).to(target).t() for factor in factors)
        add_linear(target, first, second)


def _joined(uses: list[Pair]) -> tuple[Tensor | None, Tensor | None]:
    """Several uses of a parameter as one use with more positions."""
    if len(uses) < 2:
        return uses[0] if uses else (None, None)
    first, second = (torch.cat(parts, 1) for parts in zip(*uses, strict=True))
    return first, second


def _exact(values: Tensor) -> Tensor:
    """In float32 at least; ids as they are."""
    half = values.is_floating_point() and values.dtype.itemsize < 4
    return values.float() if half else values


def _double(values: Tensor) -> Tensor:
    """In float64, which Apple's devices lack; ids as they are."""
    values = values.cpu() if values.device.type == "mps" else values
    return values.double() if values.is_floating_point() else values


def linear(rows: Tensor, weight: Tensor, bias: Tensor | None = None, *, times: int = 1) -> Tensor:
    """(n, m) rows @ weight.T + bias, outside the graph.

    Args:
        rows: (n, d), of any strides.
        weight: (m, d), of any strides.
        bias: (m,).
        times: how many products in a row have this shape.
    """
    if not _by_onednn(rows, weight, times):
        return functional.linear(rows, weight, bias)
    product: Tensor = _ONEDNN(rows, weight, bias, "none", [], "")
    return product


def add_linear(target: Tensor, rows: Tensor, weight: Tensor) -> None:
    """Add rows @ weight.T to a tensor (n, m)."""
    if not _by_onednn(rows, weight, 1):
        target.addmm_(rows, weight.t())
        return
    parts = -(-len(target) // _CHUNK_ROWS)
    pairs = zip(torch.tensor_split(rows, parts), torch.tensor_split(target, parts), strict=True)
    for row_part, target_part in pairs:
        target_part += linear(row_part, weight)


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


def _by_intel() -> bool:
    """Whether the system reports a processor of Intel."""
    try:
        with Path("/proc/cpuinfo").open(encoding="utf-8", errors="replace") as file:
            named = file.read(1 << 12)
    except OSError:
        named = platform.processor()
    return "GenuineIntel" in named


_ONEDNN: Any = None if _by_intel() else _onednn()
