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
"""

from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import groupby

import torch
from torch import Tensor

from vestige.privacy.products import add_linear

_AT_ONCE = 1 << 24
"""Numbers that are multiplied at once."""
_CANCELLED = 1e-4
"""Squared norm over S^2 below which Gram matrices are not trusted."""
_DIRECT = 1e-4
"""Share of a weight's S^2 where its gradient is formed in float32: its error is 1e-7 S, squared."""
_ROUNDING = 2.0**-21
"""Of a sum in float32, over S: 8 units."""

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
        parts = [pair for pair, _ in self._by_units((left, right)) if pair]
        formed = [torch.bmm(one.mT, other).flatten(1) for one, other in parts]
        self._form(parameter, _exact(formed[0] if len(formed) == 1 else torch.cat(formed)))

    def add_lookup(self, parameter: Tensor, ids: Tensor, gradients: Tensor) -> None:
        """Add gradients (rows, t, i) of the rows of a parameter that ids, int64 (rows, t), name."""
        self._held.setdefault(parameter, _Held()).lookups.append((ids, gradients))

    @torch.no_grad()
    def norms(self) -> Tensor:
        """(units,) L2 norm of each unit's gradient, all parameters together."""
        each = [self._squared(parameter, held) for parameter, held in self._held.items()]
        squared, scales = (
            torch.stack([one.to(each[0][0].device) for one in parts]).sum(0)
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
            product, lookup = _joined(held.products), _joined(held.lookups)
            some = self._by_units(product, lookup)
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
        rows, found = slice(begin, begin + self.counts[unit]), list[Pair]()

        def own(pairs: list[Pair]) -> list[Pair]:
            return [(one[rows].flatten(0, 1), two[rows].flatten(0, 1)) for one, two in pairs]

        for parameter, held in self._held.items():
            if held.formed is None:
                height = len(parameter)
                found.append(_exact_squares(height, own(held.products), own(held.lookups)))
            else:
                squared = held.formed[unit].double().square().sum().cpu()
                found.append((squared, torch.zeros_like(squared)))
        squared, scales = (torch.stack(parts).sum() for parts in zip(*found, strict=True))
        return squared.sqrt() + _ROUNDING * scales.sqrt()

    def _by_units(
        self, product: Pair | None, lookup: Pair | None = None
    ) -> Iterator[tuple[Pair | None, Pair | None]]:
        """The same, (units, places, .) each, of some units with equally many rows at a time."""
        widest = max(part[0].numel() for pair in (product, lookup) if pair for part in pair)

        def of(pair: Pair | None, rows: slice, units: int) -> Pair | None:
            if pair is None:
                return None
            first, second = (part[rows].reshape(units, -1, *part.shape[2:]) for part in pair)
            return first, second

        begin = 0
        for count, equal in groupby(self.counts):
            units = sum(1 for _ in equal)
            most = max(1, _AT_ONCE // (count * widest))
            for first in range(0, units, most):
                some = min(most, units - first)
                rows = slice(begin, begin + some * count)
                yield of(product, rows, some), of(lookup, rows, some)
                begin += some * count


def _exact_squares(height: int, products: list[Pair], lookups: list[Pair]) -> Pair:
    """The squared norm of one unit's gradient of a weight (height, i), and S^2, in float64."""
    factors = [(_double(left), _double(right)) for left, right in products]
    found = [(ids.cpu() if ids.device.type == "mps" else ids, _double(g)) for ids, g in lookups]
    lengths = [left.norm(dim=1) * right.norm(dim=1) for left, right in factors]
    scale = torch.cat(lengths + [gradients.norm(dim=1) for _, gradients in found]).sum()
    squared, width = torch.zeros_like(scale), (factors or found)[0][1].shape[1]
    size = max(1, _AT_ONCE // width)
    for begin in range(0, height, size):
        part = scale.new_zeros(min(size, height - begin), width)
        for left, right in factors:
            part.addmm_(left[:, begin : begin + size].t(), right)
        for ids, gradients in found:
            here = (ids >= begin) & (ids < begin + size)
            part.index_add_(0, ids[here] - begin, gradients[here])
        squared += part.square().sum()
    return squared.cpu(), scale.square().cpu()


def _squared_norms(height: int, product: Pair | None, lookup: Pair | None) -> Pair:
    """(units,) of the sum of products and of what was looked up among `height` rows, and S^2."""
    squared: list[Tensor] = []
    scales: list[Tensor] = []
    if product is not None:
        left, right = _exact(product[0]), _exact(product[1])
        found, scale = _squared_products(left, right)
        squared.append(found)
        scales.append(scale)
    if lookup is not None:
        ids, gradients = lookup[0], _exact(lookup[1])
        squared.append(_squared_lookups(ids, gradients, height))
        scales.append(_DIRECT**0.5 * torch.linalg.vector_norm(gradients, dim=2).sum(1))
    if product is not None and lookup is not None:
        at_tokens = left.gather(2, ids[:, None].expand(-1, left.shape[1], -1))
        squared.append(2 * (at_tokens * torch.bmm(right, gradients.mT)).sum((1, 2)))
        scales[-1] = scales[-1] / _DIRECT**0.5
    return torch.stack(squared).sum(0), torch.stack(scales).sum(0).square()


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


def _joined(uses: list[Pair]) -> Pair | None:
    """Several uses of a parameter as one with more places."""
    if len(uses) < 2:
        return uses[0] if uses else None
    first, second = (torch.cat(parts, 1) for parts in zip(*uses, strict=True))
    return first, second


def _exact(values: Tensor) -> Tensor:
    """In float32 at least; ids as they are."""
    half = values.is_floating_point() and values.dtype.itemsize < 4
    return values.float() if half else values


def _double(values: Tensor) -> Tensor:
    return (values.cpu() if values.device.type == "mps" else values).double()
