"""Norms and weighted sums of units' gradients, formed or held as factors.

A weight W (o, i) that multiplies a_t has the gradient sum_t g_t a_t^T, g_t the gradient of W a_t;
t runs over the places of a unit: the tokens of a sequence, or of all sequences of a user. Its
squared norm follows from two Gram matrices, and the gradient is never formed:

    ||sum_t g_t a_t^T||^2 = sum_{t,s} (g_t . g_s)(a_t . a_s)

Goodfellow (2015), "Efficient Per-Example Gradient Computations", arXiv:1510.01799; Li et al.
(2022), "Large Language Models Can Be Strong Differentially Private Learners", section 4. The
clipped sum over units is one product (c g)^T a of what is held, without a second backward pass:
Bu et al. (2023), "Differentially Private Optimization on Large Model at Small Cost". An embedding
is such a product whose g_t is one-hot at the token x_t and whose a_t is d_t, the gradient of what
was looked up. Where the head shares its weight, their product counts twice:
sum_{t,s} g_t[x_s] (a_t . d_s). A gradient is formed where it is no larger than its factors.

Rounding. Let S be the sum over weights of sum_t ||g_t|| ||a_t||. From Gram matrices in float32, a
squared norm has an error of about 1e-7 S^2, which is all of it where the tokens cancel to 3e-4 of
S. So where a squared norm is below 1e-4 S^2, the unit's gradient is formed in float64, a part at a
time, and S / 2^21 is added to its norm, for the rounding of the clipped sum in float32. What
remains: a norm from Gram matrices may be wrong by 1e-7 / 1e-4 / 2 = 0.05 %, so that a unit moves
the sum by at most 1.0005 C; one that is formed, by no more than C as long as the sum's rounding is
below 8 of float32's units of S.

torch hands `mm` in float32 to MKL and `nn.LSTM` to oneDNN. MKL leaves vectors of 512 bits alone on
processors of other makers than Intel: there its products take twice as long
(benchmarks/training_steps), and a private step would pay for that and not for its privacy. So
`linear` hands large products in float32 to oneDNN on these processors. On Intel's own, MKL takes
two thirds of oneDNN's time.
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

_AT_ONCE = 1 << 24
"""Numbers that are multiplied at once."""
_CANCELLED = 1e-4
"""Squared norm over S^2 below which Gram matrices are not trusted."""
_DIRECT = 1e-4
"""Share of a weight's S^2 where its gradient is formed in float32: its error is 1e-7 S, squared."""
_ROUNDING = 2.0**-21
"""Of a sum in float32, over S: 8 units."""
_LARGE = 1 << 28
"""Multiplications from which oneDNN gains more than the millisecond of a kernel for a new shape.
With Poisson sampling nearly every batch has one. It follows from the shape alone, so that a resumed
training takes the same products."""
_TALL = 1 << 12
"""Rows of a product that are added together: no second gradient of a whole vocabulary."""

Pair = tuple[Tensor, Tensor]


@dataclass
class _Held:
    """Gradients of one parameter: (units, numbers) formed, or factors (rows, t, .) of each use."""

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
        self._held: dict[Tensor, _Held] = {}

    def add(self, parameter: Tensor, gradients: Tensor) -> None:
        """Add the rows' gradients, (rows, ...), of one use of a parameter."""
        gradients = _exact(gradients).flatten(1)
        if len(self.counts) < self.rows:
            summed = gradients.new_zeros(len(self.counts), gradients.shape[1])
            gradients = summed.index_add_(0, self.units.to(gradients.device), gradients)
        self._form(parameter, gradients)

    def add_product(self, parameter: Tensor, left: Tensor, right: Tensor) -> None:
        """Add the rows' left^T right, (rows, t, o) and (rows, t, i), of one use of a parameter."""
        held = self._held.setdefault(parameter, _Held())
        small = len(self.counts) * parameter.numel() <= left.numel() + right.numel()
        if held.formed is None and not (small and not held.products):
            held.products.append((left, right))
            return
        parts = [torch.bmm(a.mT, b).flatten(1) for a, b in self._by_units(left, right)]
        self._form(parameter, _exact(parts[0] if len(parts) == 1 else torch.cat(parts)))

    def add_lookup(self, parameter: Tensor, ids: Tensor, gradients: Tensor) -> None:
        """Add gradients (rows, t, i) of the rows of a parameter that ids, int64 (rows, t), name."""
        self._held.setdefault(parameter, _Held()).lookups.append((ids, gradients))

    @torch.no_grad()
    def norms(self) -> Tensor:
        """(units,) L2 norm of each unit's gradient, all parameters together."""
        each = [self._squared(parameter, held) for parameter, held in self._held.items()]
        device = each[0][0].device
        squared, scales = (
            torch.stack([one.to(device) for one in parts]).sum(0)
            for parts in zip(*each, strict=True)
        )
        norms = squared.clamp_min(0).sqrt()
        for unit in (squared < _CANCELLED * scales).nonzero().flatten().tolist():
            norms[unit] = self._exact_norm(unit)
        return norms

    @torch.no_grad()
    def add_weighted(self, weights: Tensor) -> None:
        """Add the units' gradients, each times its weight (units,), to `.grad`."""
        of_rows = weights[self.units.to(weights.device)]
        for parameter, held in self._held.items():
            into = parameter.grad
            assert into is not None
            if held.formed is not None:
                into.add_((weights.to(held.formed) @ held.formed).view_as(into))
            for left, right in held.products:
                _add_products(into, left, right, of_rows)
            for ids, gradients in held.lookups:
                scaled = gradients * of_rows.to(gradients.device)[:, None, None]
                into.index_add_(0, ids.flatten(), scaled.to(into).flatten(0, 1))

    def _form(self, parameter: Tensor, own: Tensor) -> None:
        held = self._held.setdefault(parameter, _Held())
        held.formed = own if held.formed is None else held.formed + own

    def _squared(self, parameter: Tensor, held: _Held) -> Pair:
        """(units,) squared norms of one parameter, and S^2; what was formed is completed."""
        if held.formed is None:
            some = self._by_units(*_joined(held.products), *_joined(held.lookups))
            found = [_squared_norms(len(parameter), *parts) for parts in some]
            squared, scales = (torch.cat(parts) for parts in zip(*found, strict=True))
            return squared, scales
        into = held.formed.view(-1, *parameter.shape)
        for ids, gradients in held.lookups:
            unit = self.units.to(ids.device)[:, None].expand_as(ids)
            into.index_put_((unit, ids), _exact(gradients), accumulate=True)
        held.lookups = []
        squared = torch.linalg.vector_norm(held.formed, dim=1).square()
        return squared, torch.zeros_like(squared)  # its sum is made of what it is the norm of

    def _exact_norm(self, unit: int) -> Tensor:
        """The norm of one unit, whose tokens cancel, rounded upwards."""
        begin = sum(self.counts[:unit])
        rows = slice(begin, begin + self.counts[unit])
        squared = scale = torch.zeros((), dtype=torch.float64)
        for parameter, held in self._held.items():
            if held.formed is not None:
                squared = squared + held.formed[unit].double().square().sum().cpu()
                continue
            products, lookups = (
                [(_double(a[rows].flatten(0, 1)), _double(b[rows].flatten(0, 1))) for a, b in pairs]
                for pairs in (held.products, held.lookups)
            )
            own, lengths = _exact_squares(len(parameter), products, lookups)
            squared, scale = squared + own, scale + lengths
        return squared.sqrt() + _ROUNDING * scale.sqrt()

    def _by_units(self, *tensors: Any) -> Iterator[list[Any]]:
        """The same, (units, places, .) each, of some units with equally many rows at a time."""
        widest = max(one[0].numel() for one in tensors if one is not None)
        begin = 0
        for count, equal in groupby(self.counts):
            left = len(list(equal))
            while left:
                units = min(left, max(1, _AT_ONCE // (count * widest)))
                rows = slice(begin, begin + units * count)
                yield [
                    None if one is None else one[rows].reshape(units, -1, *one.shape[2:])
                    for one in tensors
                ]
                begin, left = rows.stop, left - units


def _exact_squares(height: int, products: list[Pair], lookups: list[Pair]) -> Pair:
    """The squared norm of one unit's gradient of a weight (height, i), and S^2, from float64."""
    lengths = [left.norm(dim=1) * right.norm(dim=1) for left, right in products]
    scale = torch.cat(lengths + [gradients.norm(dim=1) for _, gradients in lookups]).sum()
    squared, width = torch.zeros_like(scale), (products or lookups)[0][1].shape[1]
    size = max(1, _AT_ONCE // width)
    for begin in range(0, height, size):
        part = scale.new_zeros(min(size, height - begin), width)
        for left, right in products:
            part.addmm_(left[:, begin : begin + size].t(), right)
        for ids, gradients in lookups:
            here = (ids >= begin) & (ids < begin + size)
            part.index_add_(0, ids[here] - begin, gradients[here])
        squared += part.square().sum()
    return squared.cpu(), scale.square().cpu()


def _squared_norms(
    height: int,
    left: Tensor | None,
    right: Tensor | None,
    ids: Tensor | None,
    gradients: Tensor | None,
) -> Pair:
    """(units,) of left^T right and of what was looked up among `height` rows, and S^2."""
    squared, scale = list[Tensor](), torch.zeros(())
    if left is not None and right is not None:
        left, right = _exact(left), _exact(right)
        found, scale = _squared_products(left, right)
        squared.append(found)
    if ids is not None and gradients is not None:
        gradients = _exact(gradients)
        squared.append(_squared_lookups(ids, gradients, height))
        lengths = torch.linalg.vector_norm(gradients, dim=2).sum(1)
        if left is None or right is None:
            scale = _DIRECT**0.5 * lengths
        else:
            at_tokens = left.gather(2, ids[:, None].expand(-1, left.shape[1], -1))
            squared.append(2 * (at_tokens * torch.bmm(right, gradients.mT)).sum((1, 2)))
            scale = scale + lengths
    return torch.stack(squared).sum(0), scale.square()


def _squared_products(left: Tensor, right: Tensor) -> Pair:
    """(units,) squared norms of left^T right, (units, places, o) and (units, places, i), and S."""
    _, places, width = left.shape
    if places * (width + right.shape[2]) <= width * right.shape[2]:
        one, other = torch.bmm(left, left.mT), torch.bmm(right, right.mT)
        lengths = one.diagonal(0, 1, 2) * other.diagonal(0, 1, 2)
        return one.mul_(other).sum((1, 2)), lengths.sqrt().sum(1)
    formed = [(one.mT @ other).square().sum() for one, other in zip(left, right, strict=True)]
    lengths = torch.linalg.vector_norm(left, dim=2) * torch.linalg.vector_norm(right, dim=2)
    return torch.stack(formed), _DIRECT**0.5 * lengths.sum(1)


def _squared_lookups(ids: Tensor, gradients: Tensor, height: int) -> Tensor:
    """(units,) squared norms: a token's gradients are summed where it occurs more than once."""
    units = torch.arange(len(ids), device=ids.device)
    own = (units[:, None] * height + ids).flatten()
    rows, place = torch.unique(own, return_inverse=True)
    summed = gradients.new_zeros(len(rows), gradients.shape[2])
    summed.index_put_((place,), gradients.flatten(0, 1), accumulate=True)
    squared = gradients.new_zeros(len(ids))
    return squared.index_put_((rows // height,), summed.square().sum(1), accumulate=True)


def _add_products(into: Tensor, left: Tensor, right: Tensor, weights: Tensor) -> None:
    """Add the sum over rows of weight * left^T right; the narrower factor is scaled."""
    weights = _exact(weights).to(left.device)[:, None, None]
    size = max(1, _AT_ONCE // max(left[0].numel(), right[0].numel()))
    for begin in range(0, len(left), size):
        some = slice(begin, begin + size)
        factors = [_exact(left[some]), _exact(right[some])]
        narrow = int(left.shape[2] >= right.shape[2])
        factors[narrow] = factors[narrow] * weights[some]
        one, other = (factor.flatten(0, 1).to(into).t() for factor in factors)
        add_linear(into, one, other)


def _joined(uses: list[Pair]) -> tuple[Tensor | None, Tensor | None]:
    """Several uses of a parameter as one with more places."""
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


def _by_intel() -> bool:
    """Whether Intel made this processor, as far as the system says."""
    try:
        with Path("/proc/cpuinfo").open(encoding="utf-8", errors="replace") as file:
            named = file.read(1 << 12)
    except OSError:
        named = platform.processor()
    return "GenuineIntel" in named


_ONEDNN: Any = None if _by_intel() else _onednn()
