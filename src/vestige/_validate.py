"""One-line argument checks; every message names the argument, the requirement and the value."""

import math
from collections.abc import Callable, Container, Sequence
from typing import Any


def positive(**values: float) -> None:
    """Raise ValueError unless every value is > 0."""
    _require(values, lambda value: value > 0, "be positive")


def at_least(minimum: float, **values: float) -> None:
    """Raise ValueError unless every value is >= minimum."""
    _require(values, lambda value: value >= minimum, f"be at least {minimum}")


def finite(**values: float) -> None:
    """Raise ValueError unless every value is a finite number."""
    _require(values, math.isfinite, "be finite")


def fraction(**values: float) -> None:
    """Raise ValueError unless every value lies in [0, 1)."""
    _require(values, lambda value: 0 <= value < 1, "lie in [0, 1)")


def open_fraction(**values: float) -> None:
    """Raise ValueError unless every value lies in (0, 1)."""
    _require(values, lambda value: 0 < value < 1, "lie in (0, 1)")


def one_of(allowed: Container[str], **values: str) -> None:
    """Raise ValueError unless every value is among the allowed ones."""
    _require(values, allowed.__contains__, f"be one of {allowed}", repr)


def all_different(**values: Sequence[object]) -> None:
    """Raise ValueError unless every sequence holds something, and nothing twice."""
    _require(
        values,
        lambda value: 0 < len(value) == len(set(value)),
        "be at least one and all different",
        lambda value: f"{len(set(value))} in {len(value)}",
    )


def whole(low: int, high: int, **values: int) -> None:
    """Raise ValueError unless every value is a whole number from low to high."""

    def holds(value: object) -> bool:
        return isinstance(value, int) and not isinstance(value, bool) and low <= value <= high

    _require(values, holds, f"be a whole number from {low:,} to {high:,}", _short)


def _require(
    values: dict[str, Any],
    holds: Callable[[Any], bool],
    requirement: str,
    shown: Callable[[Any], str] = str,
) -> None:
    for name, value in values.items():
        if not holds(value):
            raise ValueError(f"{name} must {requirement}, got {shown(value)}")


def _short(value: object) -> str:
    if isinstance(value, int) and abs(value) >= 10**30:  # Python refuses to write the longest
        return "a larger one"
    text = repr(value)
    return text if len(text) <= 80 else f"{text[:80]}…"
