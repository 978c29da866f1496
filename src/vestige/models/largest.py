"""Largest values, ties in the order of their ids.

Which of two equal values `topk` returns depends on the processor's kernel, and so does the last bit
of values that are equal on paper. Here equal values come in the order of their ids, and values that
round to the same multiple of `alike` are equal. (`argmax` gives the first by its definition.)
"""

import math

import torch
from torch import Tensor

ROUNDED = 1e-5
"""Scores and logarithms that differ by less are alike: float32 resolves one part in 10^7."""

TIE = 1e-6
"""Sums of float32 that differ by less per token cannot be told apart; they widen bounds."""

PART = 64
"""Columns whose maximum is taken first."""

BLOCK = 100
"""Columns that `cells_above` skips together: a maximum costs a tenth of comparing every cell."""


def largest(values: Tensor, k: int, *, alike: float = 0.0) -> Tensor:
    """Columns (..., k) of the k largest values of each row (..., v), best first, ties by column.

    Values that round to the same multiple of `alike` are equal; with 0 only equal ones. No NaN.

    Example:
        >>> largest(torch.tensor([[1.0, 3.0, 2.0, 3.0, 3.0]]), 2)
        tensor([[1, 3]])
    """
    rows = values.flatten(0, -2) if values.ndim > 1 else values[None]
    best, found = _top(rows, min(k + 1, rows.shape[1]))  # the next says whether more are alike
    columns = found[:, :k].clone()
    if 0 < k < rows.shape[1]:
        crowded = (best[:, k] >= _least(best[:, k - 1], alike)).nonzero()[:, 0]
        columns[crowded] = _first_columns(_rounded(rows[crowded], alike), k)
    columns = columns.sort(1).values
    keys = _rounded(rows.gather(1, columns), alike)
    order = keys.argsort(dim=1, descending=True, stable=True)
    return columns.gather(1, order).view(*values.shape[:-1], k)


def largest_by(values: Tensor, ids: Tensor, k: int, *, alike: float = 0.0) -> Tensor:
    """Positions (min(k, n),) of the k largest of values (n,), best first, ties by their ids (n,).

    Example:
        >>> largest_by(torch.tensor([1.0, 3.0, 3.0]), torch.tensor([5, 9, 2]), 2)
        tensor([2, 1])
    """
    k = min(k, len(values))
    if not k:
        return ids[:0]
    least = _least(values.topk(k, sorted=False).values.amin(), alike)
    near = (values >= least).nonzero()[:, 0]
    near = near[ids[near].argsort()]
    order = _rounded(values[near], alike).argsort(descending=True, stable=True)
    return near[order[:k]]


def cells_above(table: Tensor, floor: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Rows, columns and values (k,) of the cells of a table (r, v) above their row's floor (r,).

    Example:
        >>> cells_above(torch.tensor([[1.0, 5.0], [2.0, 0.0]]), torch.tensor([3.0, 1.0]))
        (tensor([0, 1]), tensor([1, 0]), tensor([5., 2.]))
    """
    whole = table.shape[1] // BLOCK * BLOCK
    blocks = table[:, :whole].view(len(table), -1, BLOCK) if whole else table[:, :0, None]
    owner, block = (
        (blocks.amax(2) > floor[:, None]).nonzero(as_tuple=True)
        if whole
        else (torch.empty(2, 0, dtype=torch.int64, device=table.device))
    )
    inside, column = (blocks[owner, block] > floor[owner, None]).nonzero(as_tuple=True)
    rest_row, rest = (table[:, whole:] > floor[:, None]).nonzero(as_tuple=True)
    rows = torch.cat([owner[inside], rest_row])
    columns = torch.cat([block[inside] * BLOCK + column, rest + whole])
    return rows, columns, table[rows, columns]


def rounded(score: float) -> float:
    """Rounded scores for sorting, so that nearly equal ones are ties.

    Example:
        >>> found = [(1.2, "b"), (1.2000001, "c"), (1.2, "a")]
        >>> sorted(found, key=lambda pair: (-rounded(pair[0]), pair[1]))
        [(1.2, 'a'), (1.2, 'b'), (1.2000001, 'c')]
    """
    return score if math.isinf(score) else round(score / ROUNDED)


def _top(rows: Tensor, k: int) -> tuple[Tensor, Tensor]:
    """The k largest values of each row (n, v), best first, and columns that have them.

    They stand in the k parts of highest maximum: `topk` of whole rows takes ten times as long.
    """
    v = rows.shape[1]
    if v < 8 * k * PART:
        best = rows.topk(k)
        return best.values, best.indices
    whole = v - v % PART
    highest = rows[:, :whole].view(len(rows), whole // PART, PART).amax(2)
    if whole < v:
        highest = torch.cat([highest, rows[:, whole:].amax(1, keepdim=True)], 1)
    first = highest.topk(k).indices[:, :, None] * PART
    columns = (first + torch.arange(PART, device=rows.device)).flatten(1)
    values = rows.gather(1, columns.clamp(max=v - 1)).masked_fill_(columns >= v, -math.inf)
    best = values.topk(k)
    return best.values, columns.gather(1, best.indices)


def _first_columns(keys: Tensor, k: int) -> Tensor:
    """(n, k) columns of the k largest keys (n, v) in rising order, of equal keys the first."""
    last = keys.topk(k).values[:, -1:]
    above, equal = keys > last, keys == last
    missing = k - above.sum(1, keepdim=True)
    chosen = above | (equal & (equal.cumsum(1) <= missing))
    return chosen.nonzero()[:, 1].view(len(keys), k)


def _rounded(values: Tensor, alike: float) -> Tensor:
    return (values.double() / alike).round() if alike else values


def _least(value: Tensor, alike: float) -> Tensor:
    """Lower bound of all values that count as equal."""
    if not alike:
        return value
    edge = ((_rounded(value, alike) - 0.5) * alike).to(value.dtype)
    return edge.nextafter(torch.full_like(edge, -math.inf))
