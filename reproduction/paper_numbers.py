"""The numbers of the papers: a CSV file for each table, beside the code that computes ours."""

import csv
from collections.abc import Mapping
from importlib.resources import files
from typing import Any

Value = str | int | float | None
Numbers = Mapping[tuple[Value, ...], Mapping[str, Any]]
"""Columns by the values of the key columns."""


def paper_numbers(paper: str, table: str, *, key: int) -> dict[tuple[Value, ...], dict[str, Any]]:
    """The rows of a paper's table.

    Args:
        paper: the folder in `experiments`.
        table: the file `paper_<table>.csv` there.
        key: so many of the first columns name a row.

    Returns:
        By the key columns' values, the other columns by name. What reads as a number is one, and
        an empty cell, which the paper leaves out, is None.

    Raises:
        ValueError: two rows have the same key, or a row has more or fewer cells than the first.

    Example:
        >>> paper_numbers("updates", "table1", key=4)["ptb", "rnn", "all-low", 50]
        {'score': 3.94}
    """
    text = files("reproduction").joinpath(paper, f"paper_{table}.csv").read_text("utf-8")
    names, *rows = csv.reader(text.splitlines())
    found: dict[tuple[Value, ...], dict[str, Any]] = {}
    for row in rows:
        values = [value_of(cell) for cell in row]
        if len(row) != len(names) or tuple(values[:key]) in found:
            raise ValueError(f"paper_{table}.csv must have {names} and each key once, got {row}")
        found[tuple(values[:key])] = dict(zip(names[key:], values[key:], strict=True))
    return found


def value_of(cell: str) -> Value:
    """A cell as a number where it reads as one; None where it is empty.

    Example:
        >>> [value_of(cell) for cell in ("12", "0.50", "", "all-low")]
        [12, 0.5, None, 'all-low']
    """
    for kind in (int, float):
        try:
            return kind(cell)
        except ValueError:
            continue
    return cell or None
