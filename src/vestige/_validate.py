"""One-line argument checks; every message names the argument, the requirement and the value."""

import math
from collections.abc import Container, Sequence


def positive(**values: float) -> None:
    """Raise ValueError unless every value is > 0."""
    for name, value in values.items():
        if not value > 0:
            raise ValueError(f"{name} must be positive, got {value}")


def at_least(minimum: float, **values: float) -> None:
    """Raise ValueError unless every value is >= minimum."""
    for name, value in values.items():
        if not value >= minimum:
            raise ValueError(f"{name} must be at least {minimum}, got {value}")


def finite(**values: float) -> None:
    """Raise ValueError unless every value is a finite number."""
    for name, value in values.items():
        if not math.isfinite(value):
            raise ValueError(f"{name} must be finite, got {value}")


def fraction(**values: float) -> None:
    """Raise ValueError unless every value lies in [0, 1)."""
    for name, value in values.items():
        if not 0 <= value < 1:
            raise ValueError(f"{name} must lie in [0, 1), got {value}")


def open_fraction(**values: float) -> None:
    """Raise ValueError unless every value lies in (0, 1)."""
    for name, value in values.items():
        if not 0 < value < 1:
            raise ValueError(f"{name} must lie in (0, 1), got {value}")


def one_of(allowed: Container[str], **values: str) -> None:
    """Raise ValueError unless every value is among the allowed ones."""
    for name, value in values.items():
        if value not in allowed:
            raise ValueError(f"{name} must be one of {allowed}, got {value!r}")


def all_different(**values: Sequence[object]) -> None:
    """Raise ValueError unless every sequence holds something, and nothing twice."""
    for name, value in values.items():
        if not value or len(set(value)) < len(value):
            raise ValueError(
                f"{name} must be at least one and all different, got {len(set(value))} in "
                f"{len(value)}"
            )


def whole(low: int, high: int, **values: int) -> None:
    """Raise ValueError unless every value is a whole number from low to high."""
    for name, value in values.items():
        counted = isinstance(value, int) and not isinstance(value, bool)
        if not (counted and low <= value <= high):
            raise ValueError(
                f"{name} must be a whole number from {low:,} to {high:,}, got {short(value)}"
            )


def short(value: object) -> str:
    """A value in a message, however long it is."""
    if isinstance(value, int) and abs(value) >= 10**30:
        return "a larger one"
    text = repr(value)
    return text if len(text) <= 80 else f"{text[:80]}…"
