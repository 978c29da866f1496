"""Norms and clipped sums of units' gradients, held as what a backward pass makes them of.

A weight W (o, i) that multiplies a_t has the gradient sum_t g_t a_t^T, g_t the gradient of W a_t;
t runs over the places of a unit: the tokens of a sequence, or of all sequences of a user. Its
squared norm follows from two Gram matrices, and the gradient is never formed:

    ||sum_t g_t a_t^T||^2 = sum_{t,s} (g_t . g_s)(a_t . a_s)

Goodfellow (2015), "Efficient Per-Example Gradient Computations", arXiv:1510.01799; Li et al.
(2022), "Large Language Models Can Be Strong Differentially Private Learners", section 4. The
clipped sum over units is one product (c g)^T a of what is held, without a second backward pass:
Bu et al. (2023), "Differentially Private Optimization on Large Model at Small Cost".

An embedding is such a product whose g_t is one-hot at the token x_t and whose a_t is d_t, the
gradient of what was looked up. Where the head shares its weight, the gradient is the sum of both,
and their product counts twice: sum_{t,s} g_t[x_s] (a_t . d_s).

A gradient is formed where it is no larger than what it is made of, o i numbers against o + i for
each place: low-rank matrices, and biases and norms, whose gradients are single rows. Formed or not,
what takes less memory then takes fewer multiplications, too.

Limits: float32 leaves a squared norm from Gram matrices an error of about 1e-7 of the squared sum
over t of ||g_t|| ||a_t||. Where the tokens' gradients cancel to a thousandth of that sum, the norm
is known to some per cent.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import groupby

import torch
from torch import Tensor

_AT_ONCE = 1 << 24
"""Numbers that are multiplied at once; of more units, some at a time."""

Pair = tuple[Tensor, Tensor]


@dataclass
class _Held:
    """What is known of the gradients of one parameter.

    Attributes:
        formed: (units, numbers), or None.
        products: (rows, t, o) and (rows, t, i) of each use; none where gradients are formed.
        lookups: int64 (rows, t) and (rows, t, i) of each use.
    """

    formed: Tensor | None = None
    products: list[Pair] = field(default_factory=list)
    lookups: list[Pair] = field(default_factory=list)


class ExampleGradients:
    """Gradients of some units, by parameter: of sequences, or of users with several each.

    Args:
        rows: of the pass that they come from.
        units: int64 (rows,) the unit of each row, ascending from 0; None: each row is one.
    """

    def __init__(self, rows: int, units: Tensor | None = None) -> None:
        self.rows, self.units = rows, units
        self.counts = [1] * rows if units is None else torch.bincount(units).tolist()
        self._held: dict[Tensor, _Held] = {}

    def add(self, parameter: Tensor, gradients: Tensor) -> None:
        """Add the rows' gradients, (rows, ...), of one use of a parameter."""
        gradients = _exact(gradients)
        if self.units is not None:
            gradients = torch.stack([own.sum(0) for own in torch.split(gradients, self.counts)])
        self._form(parameter, gradients)

    def add_product(self, parameter: Tensor, left: Tensor, right: Tensor) -> None:
        """Add the rows' left^T right, of one use of a parameter (o, i).

        Args:
            parameter: what the gradients are of.
            left: (rows, t, o).
            right: (rows, t, i).
        """
        held = self._held.setdefault(parameter, _Held())
        small = len(self.counts) * parameter.numel() <= left.numel() + right.numel()
        if held.formed is not None or (small and not held.products):
            parts = [pair for pair, _ in self._by_units((left, right)) if pair]
            formed = [torch.bmm(one.mT, other) for one, other in parts]
            self._form(parameter, formed[0] if len(formed) == 1 else torch.cat(formed))
        else:
            held.products.append((left, right))

    def add_lookup(self, parameter: Tensor, ids: Tensor, gradients: Tensor) -> None:
        """Add gradients (rows, t, i) of the rows of a parameter that ids, int64 (rows, t), name."""
        self._held.setdefault(parameter, _Held()).lookups.append((ids, gradients))

    @torch.no_grad()
    def norms(self) -> Tensor:
        """(units,) L2 norm of each unit's gradient, all parameters together."""
        each: list[Tensor] = []
        for parameter, held in self._held.items():
            with torch.autocast(parameter.device.type, enabled=False):
                each.append(self._norms(parameter, held))
        together = torch.stack([one.to(each[0].device) for one in each])
        norms: Tensor = torch.linalg.vector_norm(together, dim=0)
        return norms

    @torch.no_grad()
    def add_weighted(self, weights: Tensor) -> None:
        """Add the units' gradients, each times its weight (units,), to `.grad`."""
        of_rows = weights if self.units is None else weights[self.units]
        for parameter, held in self._held.items():
            # In half precision the sum would be of other gradients than the norms are.
            with torch.autocast(parameter.device.type, enabled=False):
                assert parameter.grad is not None
                if held.formed is not None:
                    summed = weights.to(held.formed) @ held.formed
                    parameter.grad.add_(summed.view_as(parameter))
                for left, right in held.products:
                    _add_products(parameter.grad, left, right, of_rows)
                for ids, gradients in held.lookups:
                    scaled = gradients * of_rows.to(gradients.device)[:, None, None]
                    parameter.grad.index_put_((ids,), scaled.to(parameter), accumulate=True)

    def _form(self, parameter: Tensor, gradients: Tensor) -> None:
        """Add the units' gradients, (units, ...), of one use of a parameter."""
        held = self._held.setdefault(parameter, _Held())
        own = _exact(gradients.flatten(1))
        held.formed = own if held.formed is None else held.formed + own

    def _norms(self, parameter: Tensor, held: _Held) -> Tensor:
        """(units,) of one parameter; what was formed is completed."""
        if held.formed is None:
            product, lookup = _joined(held.products), _joined(held.lookups)
            some = self._by_units(product, lookup, at_once=_AT_ONCE)
            squared = [_squared_norms(len(parameter), *parts) for parts in some]
            return torch.cat(squared).clamp_min(0).sqrt()
        rows = torch.arange(self.rows, device=parameter.device)
        units = rows if self.units is None else self.units.to(parameter.device)
        into = held.formed.view(-1, *parameter.shape)
        for ids, gradients in held.lookups:
            place = (units[:, None].expand_as(ids), ids)
            into.index_put_(place, _exact(gradients), accumulate=True)
        held.lookups = []
        norms: Tensor = torch.linalg.vector_norm(held.formed, dim=1)
        return norms

    def _by_units(
        self, product: Pair | None, lookup: Pair | None = None, *, at_once: int | None = None
    ) -> Iterator[tuple[Pair | None, Pair | None]]:
        """The same, (units, places, .) each, of units with equally many rows.

        Args:
            product: (rows, t, .) each, or None.
            lookup: (rows, t) and (rows, t, .), or None.
            at_once: numbers of the widest of them at most, unless it is one unit; None: any.
        """

        def of(pair: Pair | None, rows: slice, units: int) -> Pair | None:
            if pair is None:
                return None
            first, second = (part[rows].reshape(units, -1, *part.shape[2:]) for part in pair)
            return first, second

        widest = max(part[0].numel() for pair in (product, lookup) if pair for part in pair)
        begin = 0
        for count, equal in groupby(self.counts):
            units = sum(1 for _ in equal)
            most = units if at_once is None else max(1, at_once // (count * widest))
            for first in range(0, units, most):
                some = min(most, units - first)
                rows = slice(begin, begin + some * count)
                yield of(product, rows, some), of(lookup, rows, some)
                begin += some * count


def _squared_norms(height: int, product: Pair | None, lookup: Pair | None) -> Tensor:
    """(units,) of the sum of products and of what was looked up among `height` rows."""
    squared: list[Tensor] = []
    if product is not None:
        left, right = _exact(product[0]), _exact(product[1])
        squared.append(_squared_products(left, right))
    if lookup is not None:
        ids, gradients = lookup[0], _exact(lookup[1])
        squared.append(_squared_lookups(ids, gradients, height=height))
    if product is not None and lookup is not None:
        at_tokens = left.gather(2, ids[:, None].expand(-1, left.shape[1], -1))
        squared.append(2 * (at_tokens * torch.bmm(right, gradients.mT)).sum((1, 2)))
    return torch.stack(squared).sum(0)


def _squared_products(left: Tensor, right: Tensor) -> Tensor:
    """(units,) squared norms of left^T right, (units, places, o) and (units, places, i)."""
    _, places, width = left.shape
    if places * (width + right.shape[2]) <= width * right.shape[2]:
        return (torch.bmm(left, left.mT) * torch.bmm(right, right.mT)).sum((1, 2))
    formed = [(one.mT @ other).square().sum() for one, other in zip(left, right, strict=True)]
    return torch.stack(formed)


def _squared_lookups(ids: Tensor, gradients: Tensor, *, height: int) -> Tensor:
    """(units,) squared norms: a token's gradients are summed where it stands more than once."""
    units = torch.arange(len(ids), device=ids.device)
    own = (units[:, None] * height + ids).flatten()
    rows, place = torch.unique(own, return_inverse=True)
    summed = gradients.new_zeros(len(rows), gradients.shape[2])
    summed.index_put_((place,), gradients.flatten(0, 1), accumulate=True)
    squared = gradients.new_zeros(len(ids))
    return squared.index_put_((rows // height,), summed.square().sum(1), accumulate=True)


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


def _add_products(into: Tensor, left: Tensor, right: Tensor, weights: Tensor) -> None:
    """Add the sum over rows of weight * left^T right."""
    weights = _exact(weights).to(left.device)[:, None, None]
    size = max(1, _AT_ONCE // max(left[0].numel(), right[0].numel()))
    for begin in range(0, len(left), size):
        some = slice(begin, begin + size)
        one, other = _exact(left[some]), _exact(right[some])
        if one.shape[2] < other.shape[2]:
            one = one * weights[some]
        else:
            other = other * weights[some]
        one, other = one.flatten(0, 1).to(into), other.flatten(0, 1).to(into)
        into.addmm_(one.t(), other)
