"""Limits of a release: --fail-above NAME=NUMBER."""

from collections.abc import Mapping, Sequence
from difflib import get_close_matches
from math import isfinite

from vestige.reports.quantities import QUANTITIES


def limits_of(words: Sequence[str]) -> Mapping[str, float]:
    """Limits by quantity.

    Raises:
        ValueError: one is not NAME=NUMBER, or a name is given twice.
    """
    found: dict[str, float] = {}
    for word in words:
        name, _, number = word.partition("=")
        if name not in QUANTITIES:
            near = get_close_matches(name, QUANTITIES, n=1)
            also = f" Did you mean {near[0]}?" if near else ""
            names = ", ".join(QUANTITIES)
            raise ValueError(f"`fail_above` has an unknown quantity. Choose {names}.{also}")
        limit = _number(number)
        if limit is None:
            raise ValueError(f"`fail_above` must be NAME=NUMBER, such as {name}=6")
        if name in found:
            raise ValueError(f"`fail_above` has two limits for {name}")
        found[name] = limit
    return found


def _number(text: str) -> float | None:
    try:
        value = float(text)
    except ValueError:
        return None
    return value if isfinite(value) else None
