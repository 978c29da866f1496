"""An interval as a small bar beside its number."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, kw_only=True)
class Bar:
    """An interval on an axis that all bars of a column share; places are percentages of its width.

    Attributes:
        low: where the interval begins.
        middle: the value.
        high: where it ends.
        reference: a line to compare with, or None.
        band: ends of what counts as equal, or None.
    """

    low: float
    middle: float
    high: float
    reference: float | None = None
    band: tuple[float, float] | None = None


def bar(
    row: Mapping[str, Any],
    name: str,
    axis: tuple[float, float],
    *,
    reference: float | None = None,
    band: tuple[float, float] | None = None,
) -> Bar | None:
    """The bar of `name` in a row with `name`_low and `name`_high; None without an interval."""
    if row[f"{name}_low"] is None:
        return None
    low, high = axis

    def place(value: float) -> float:
        return round(100 * min(1.0, max(0.0, (value - low) / (high - low))), 1)

    return Bar(
        low=place(row[f"{name}_low"]),
        middle=place(row[name]),
        high=place(row[f"{name}_high"]),
        reference=None if reference is None else place(reference),
        band=None if band is None else (place(band[0]), place(band[1])),
    )


def interval(low: float | None, high: float | None, *, digits: int = 2, unit: str = "") -> str:
    """Both ends of an interval; "or more" without the upper one, a dash without any.

    Example:
        >>> interval(1.0, 2.5), interval(1.0, None), interval(None, None)
        ('1.00 to 2.50', '1.00 or more', '–')
    """
    if low is None:
        return "–"
    if high is None:
        return f"{low:.{digits}f}{unit} or more"
    return f"{low:.{digits}f} to {high:.{digits}f}{unit}"
