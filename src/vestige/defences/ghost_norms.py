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

Rounding. Let S^2 be the sum over weights of (sum_t ||g_t|| ||a_t||)^2: what a unit's squared norm
would be if its tokens' gradients pointed one way. From Gram matrices in float32, a squared norm has
an error of about 1e-7 S^2, which is all of it where the tokens cancel to 3e-4 of S. So where a
squared norm is below 1e-4 S^2, the unit's gradient is formed in float64, a part at a time, and
S / 2^21 is added to its norm, for the rounding of the clipped sum in float32. What remains: a norm
that is taken from Gram matrices may be wrong by 1e-7 / 1e-4 / 2 = 0.05 %, so that a unit moves the
sum by at most 1.0005 C; one that is formed moves it by no more than C as long as the sum's rounding
is below 8 of float32's units of S.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import groupby

import torch
from torch import Tensor

_AT_ONCE = 1 << 24
"""Numbers that are multiplied at once; of more units, some at a time."""

_CANCELLED = 1e-4
"""Squared norm over S^2 below which Gram matrices are not trusted."""
_DIRECT = 1e-4
"""Share of a weight's S^2 where its gradient is formed in float32: its error is 1e-7 S, squared."""
_ROUNDING = 2.0**-21
"""Of a sum in float32, over S: 8 units."""

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
        each: list[tuple[Tensor, Tensor]] = []
        for parameter, held in self._held.items():
            with torch.autocast(parameter.device.type, enabled=False):
                each.append(self._squared(parameter, held))
        squared, scales = (
            torch.stack([one.to(each[0][0].device) for one in parts]).sum(0)
            for parts in zip(*each, strict=True)
        )
        norms = squared.clamp_min(0).sqrt()
        for unit in cancelled(squared, scales):
            norms[unit] = self._exact_norm(unit)
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

    def _squared(self, parameter: Tensor, held: _Held) -> tuple[Tensor, Tensor]:
        """(units,) squared norms of one parameter, and S^2; what was formed is completed."""
        if held.formed is None:
            product, lookup = _joined(held.products), _joined(held.lookups)
            some = self._by_units(product, lookup, at_once=_AT_ONCE)
            found = [_squared_norms(len(parameter), *parts) for parts in some]
            squared, scales = (torch.cat(parts) for parts in zip(*found, strict=True))
            return squared, scales
        rows = torch.arange(self.rows, device=parameter.device)
        units = rows if self.units is None else self.units.to(parameter.device)
        into = held.formed.view(-1, *parameter.shape)
        for ids, gradients in held.lookups:
            place = (units[:, None].expand_as(ids), ids)
            into.index_put_(place, _exact(gradients), accumulate=True)
        held.lookups = []
        squared = torch.linalg.vector_norm(held.formed, dim=1).square()
        return squared, torch.zeros_like(squared)  # its sum is made of what it is the norm of

    def _exact_norm(self, unit: int) -> Tensor:
        """One unit's, whose tokens cancel."""
        begin = sum(self.counts[:unit])
        rows, found = slice(begin, begin + self.counts[unit]), list[Pair]()

        def own(pairs: list[Pair]) -> list[Pair]:
            return [(one[rows].flatten(0, 1), two[rows].flatten(0, 1)) for one, two in pairs]

        for parameter, held in self._held.items():
            if held.formed is None:
                height = len(parameter)
                found.append(exact_squares(height, own(held.products), own(held.lookups)))
            else:
                squared = held.formed[unit].double().square().sum().cpu()
                found.append((squared, torch.zeros_like(squared)))
        return exact_norm(found)

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


def cancelled(squared: Tensor, scales: Tensor) -> list[int]:
    """Units whose squared norms (units,) are small beside S^2 (units,)."""
    found: list[int] = (squared < _CANCELLED * scales).nonzero().flatten().tolist()
    return found


def exact_squares(height: int, products: list[Pair], lookups: list[Pair]) -> Pair:
    """The squared norm of one unit's gradient of a weight (height, i), and S^2, in float64.

    Args:
        height: of the weight.
        products: (places, height) and (places, i) of each use.
        lookups: int64 (places,) and (places, i) of each use.
    """
    factors = [(_double(left), _double(right)) for left, right in products]
    looked_up = [(ids, _double(gradients)) for ids, gradients in lookups]
    found = [(ids.to(gradients.device), gradients) for ids, gradients in looked_up]
    lengths = [left.norm(dim=1) * right.norm(dim=1) for left, right in factors]
    lengths += [gradients.norm(dim=1) for _, gradients in found]
    scale = torch.cat(lengths).sum()
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


def exact_norm(found: list[Pair]) -> Tensor:
    """The norm of one unit's gradient, rounding above, from `exact_squares` of all weights."""
    squared, scales = (torch.stack([pair[place] for pair in found]).sum() for place in (0, 1))
    return squared.sqrt() + _ROUNDING * scales.sqrt()


def _double(values: Tensor) -> Tensor:
    return (values.cpu() if values.device.type == "mps" else values).double()


def _squared_norms(height: int, product: Pair | None, lookup: Pair | None) -> tuple[Tensor, Tensor]:
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
        squared.append(_squared_lookups(ids, gradients, height=height))
        scales.append(_DIRECT**0.5 * torch.linalg.vector_norm(gradients, dim=2).sum(1))
    if product is not None and lookup is not None:
        at_tokens = left.gather(2, ids[:, None].expand(-1, left.shape[1], -1))
        squared.append(2 * (at_tokens * torch.bmm(right, gradients.mT)).sum((1, 2)))
        scales[-1] = scales[-1] / _DIRECT**0.5
    return torch.stack(squared).sum(0), torch.stack(scales).sum(0).square()


def _squared_products(left: Tensor, right: Tensor) -> tuple[Tensor, Tensor]:
    """(units,) squared norms of left^T right, (units, places, o) and (units, places, i), and S."""
    _, places, width = left.shape
    if places * (width + right.shape[2]) <= width * right.shape[2]:
        one, other = torch.bmm(left, left.mT), torch.bmm(right, right.mT)
        lengths = one.diagonal(0, 1, 2) * other.diagonal(0, 1, 2)
        return one.mul_(other).sum((1, 2)), lengths.sqrt().sum(1)
    formed = [(one.mT @ other).square().sum() for one, other in zip(left, right, strict=True)]
    lengths = torch.linalg.vector_norm(left, dim=2) * torch.linalg.vector_norm(right, dim=2)
    return torch.stack(formed), _DIRECT**0.5 * lengths.sum(1)


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
