"""Largest values, with ties in the order of their ids.

Which of two equal values `topk` returns depends on the processor's kernel, and so does the last bit
of values that are mathematically equal. Here equal values are ordered by their ids, and values that
round to the same multiple of `alike` count as equal. (`argmax` returns the first by definition.)
"""

import math

import torch
from torch import Tensor

ROUNDED = 1e-5
"""Scores and logarithms that differ by less count as equal: float32 resolves one part in 10^7."""

TIE = 1e-6
"""Smallest difference per token that sums of float32 can show; it widens bounds."""

PART = 64
"""Columns of one block in `_top`, whose maximum is taken first."""

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
    # One value more than k shows whether there are ties.
    top_values, top_columns = _top(rows, min(k + 1, rows.shape[1]))
    columns = top_columns[:, :k].clone()
    if 0 < k < rows.shape[1]:
        tied_rows = (top_values[:, k] >= _least(top_values[:, k - 1], alike)).nonzero()[:, 0]
        columns[tied_rows] = _first_columns(_rounded(rows[tied_rows], alike), k)
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
    """Rows, columns and values (k,) of cells of a table (r, v) above the floor (r,) of the row.

    Example:
        >>> cells_above(torch.tensor([[1.0, 5.0], [2.0, 0.0]]), torch.tensor([3.0, 1.0]))
        (tensor([0, 1]), tensor([1, 0]), tensor([5., 2.]))
    """
    blocked = table.shape[1] // BLOCK * BLOCK
    blocks = table[:, :blocked].view(len(table), -1, BLOCK) if blocked else table[:, :0, None]
    row, block = (
        (blocks.amax(2) > floor[:, None]).nonzero(as_tuple=True)
        if blocked
        else (torch.empty(2, 0, dtype=torch.int64, device=table.device))
    )
    hit, column = (blocks[row, block] > floor[row, None]).nonzero(as_tuple=True)
    last_row, last_column = (table[:, blocked:] > floor[:, None]).nonzero(as_tuple=True)
    rows = torch.cat([row[hit], last_row])
    columns = torch.cat([block[hit] * BLOCK + column, last_column + blocked])
    return rows, columns, table[rows, columns]


def rounded(score: float) -> float:
    """A rounded score for sorting: nearly equal scores become ties.

    Example:
        >>> found = [(1.2, "b"), (1.2000001, "c"), (1.2, "a")]
        >>> sorted(found, key=lambda pair: (-rounded(pair[0]), pair[1]))
        [(1.2, 'a'), (1.2, 'b'), (1.2000001, 'c')]
    """
    return score if math.isinf(score) else round(score / ROUNDED)


def _top(rows: Tensor, k: int) -> tuple[Tensor, Tensor]:
    """The k largest values of each row (n, v), best first, and their columns.

    They are in the k blocks with the highest maximum: `topk` of whole rows is ten times slower.
    """
    v = rows.shape[1]
    if v < 8 * k * PART:
        best = rows.topk(k)
        return best.values, best.indices
    blocked = v - v % PART
    maxima = rows[:, :blocked].view(len(rows), blocked // PART, PART).amax(2)
    if blocked < v:
        maxima = torch.cat([maxima, rows[:, blocked:].amax(1, keepdim=True)], 1)
    starts = maxima.topk(k).indices[:, :, None] * PART
    columns = (starts + torch.arange(PART, device=rows.device)).flatten(1)
    values = rows.gather(1, columns.clamp(max=v - 1)).masked_fill_(columns >= v, -math.inf)
    best = values.topk(k)
    return best.values, columns.gather(1, best.indices)


def _first_columns(keys: Tensor, k: int) -> Tensor:
    """(n, k) columns of the k largest keys (n, v) in rising order; of equal keys the first."""
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
