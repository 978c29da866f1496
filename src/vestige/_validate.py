"""Argument checks. Each message names the argument, the requirement and the value."""

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
    """Raise ValueError unless every value is allowed."""
    _require(values, allowed.__contains__, f"be one of {allowed}", repr)


def all_different(**values: Sequence[object]) -> None:
    """Raise ValueError unless every sequence is non-empty and without duplicates."""
    _require(
        values,
        lambda value: 0 < len(value) == len(set(value)),
        "be at least one and all different",
        lambda value: f"{len(set(value))} in {len(value)}",
    )


def whole(low: int, high: int, **values: int) -> None:
    """Raise ValueError unless every value is an int from low to high."""

    def is_valid(value: object) -> bool:
        return isinstance(value, int) and not isinstance(value, bool) and low <= value <= high

    _require(values, is_valid, f"be a whole number from {low:,} to {high:,}", _short)


def _require(
    values: dict[str, Any],
    is_valid: Callable[[Any], bool],
    requirement: str,
    formatted: Callable[[Any], str] = str,
) -> None:
    for name, value in values.items():
        if not is_valid(value):
            raise ValueError(f"{name} must {requirement}, got {formatted(value)}")


def _short(value: object) -> str:
    if (
        isinstance(value, int) and abs(value) >= 10**30
    ):  # Python refuses to format very long integers
        return "a larger one"
    text = repr(value)
    return text if len(text) <= 80 else f"{text[:80]}…"
