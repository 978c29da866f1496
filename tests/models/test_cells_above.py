import pytest
import torch

from vestige.models.largest import cells_above


@pytest.mark.parametrize("columns", [1, 7, 99, 100, 101, 250, 400])
def test_every_cell_above_its_rows_floor_is_found_once(columns):
    generator = torch.Generator().manual_seed(columns)
    table = torch.randn(9, columns, generator=generator)
    floor = torch.randn(9, generator=generator)
    rows, cols, values = cells_above(table, floor)
    naive = {
        (r, c) for r in range(9) for c in range(columns) if float(table[r, c]) > float(floor[r])
    }
    found = list(zip(rows.tolist(), cols.tolist(), strict=True))
    assert len(found) == len(set(found))
    assert set(found) == naive
    assert torch.equal(values, table[rows, cols])


def test_a_floor_of_minus_infinity_keeps_every_finite_cell():
    table = torch.zeros(2, 130)
    table[0, 5] = -torch.inf
    assert len(cells_above(table, torch.full((2,), -torch.inf))[0]) == 259
