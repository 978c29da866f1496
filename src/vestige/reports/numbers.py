"""Counts, shares, probabilities, intervals and lists of names as text."""

from collections.abc import Mapping, Sequence
from typing import Any

NOTHING = "–"
Row = Mapping[str, Any]
"""A row or the summary of a run."""


def whole(number: float) -> str:
    """A count, with one digit after the point below 100; from a billion on only its magnitude.

    Example:
        >>> whole(4552), whole(2.5), whole(12**10), whole(10**10)
        ('4,552', '2.5', '6.2 × 10^10', '10^10')
    """
    if number < 10**9:
        return f"{number:,.{1 if number < 100 else 0}f}".removesuffix(".0")
    exponent = len(str(int(number))) - 1
    return f"{number / 10**exponent:.1f} × 10^{exponent}".removeprefix("1.0 × ")


def percent(share: float | None) -> str:
    """A share in percent; below 10% with two significant digits.

    Example:
        >>> percent(0.4), percent(0.00012), percent(None)
        ('40%', '0.012%', '–')
    """
    if share is None:
        return NOTHING
    return f"{100 * share:.0f}%" if share >= 0.1 or share == 0 else f"{100 * share:.2g}%"


def chance(probability: float) -> str:
    """A probability; of the smallest only a bound.

    Example:
        >>> chance(0.0003), chance(0.25), chance(1e-9)
        ('0.0003', '0.25', 'less than 10^-6')
    """
    if probability < 1e-6:
        return "less than 10^-6"
    shown = f"{probability:.1g}" if probability < 0.01 else f"{probability:.2f}"
    return shown if "e" not in shown else f"{probability:.6f}".rstrip("0")


def decimal(value: float | None, digits: int = 2) -> str:
    """A number with `digits` digits after the point; a dash for None."""
    return NOTHING if value is None else f"{value:.{digits}f}"


def ends(low: float | None, high: float | None, digits: int = 2) -> str:
    """Both ends of an interval; a dash without an upper one."""
    return NOTHING if high is None else interval(low, high, digits=digits)


def interval(low: float | None, high: float | None, *, digits: int = 2, unit: str = "") -> str:
    """Both ends of an interval; "or more" without the upper one, a dash without any.

    Example:
        >>> interval(1.0, 2.5), interval(1.0, None), interval(None, None)
        ('1.00 to 2.50', '1.00 or more', '–')
    """
    if low is None:
        return NOTHING
    if high is None:
        return f"{low:.{digits}f}{unit} or more"
    return f"{low:.{digits}f} to {high:.{digits}f}{unit}"


def listed(names: Sequence[str]) -> str:
    """Names in a sentence.

    Example:
        >>> listed(["a", "b", "c"])
        'a, b and c'
    """
    *most, last = names
    return f"{', '.join(most)} and {last}" if most else last


def p_value(value: float | None) -> str:
    """A p-value with two significant digits; a dash for None and NaN.

    Example:
        >>> p_value(1 / 68), p_value(0.5), p_value(0.00002), p_value(None)
        ('0.015', '0.5', '0.00002', '–')
    """
    if value is None or value != value:
        return NOTHING
    return f"{value:.2g}" if value >= 1e-4 else chance(value)
