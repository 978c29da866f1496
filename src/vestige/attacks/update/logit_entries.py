"""Entries of a large logit table above a floor; blocks are skipped by their maximum."""

import torch
from torch import Tensor

BLOCK = 100
"""Columns looked at together: one maximum costs a tenth of comparing every cell."""


def cells_above(table: Tensor, floor: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """The cells of each row that exceed the row's floor.

    Args:
        table: (r, v) numbers.
        floor: (r,) one for each row.

    Returns:
        (k,) rows, (k,) columns and (k,) values, in no particular order.

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
