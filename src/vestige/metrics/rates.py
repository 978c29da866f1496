"""Rates of an event, by the number of copies of a canary."""

from collections.abc import Iterable
from dataclasses import dataclass

from vestige.metrics.intervals import Interval, clopper_pearson


@dataclass(frozen=True, kw_only=True)
class Rate:
    """A share of some trials, with its Clopper-Pearson interval.

    Attributes:
        successes: how many of them.
        trials: of how many; at least 1.
        interval: two fractions.
    """

    successes: int
    trials: int
    interval: Interval

    @property
    def rate(self) -> float:
        """A fraction."""
        return self.successes / self.trials


def rate(happened: Iterable[bool], *, confidence: float = 0.95) -> Rate | None:
    """The share of the trials in which it happened; None without trials.

    Example:
        >>> rate([True, False, False, False]).rate
        0.25
    """
    trials = [bool(one) for one in happened]
    if not trials:
        return None
    interval = clopper_pearson(sum(trials), len(trials), confidence=confidence)
    return Rate(successes=sum(trials), trials=len(trials), interval=interval)


def rates_by(
    keys: Iterable[int], happened: Iterable[bool], *, confidence: float = 0.95
) -> dict[int, Rate]:
    """A rate for each key, in ascending order of the keys.

    Args:
        keys: of each trial, such as how often its canary was planted.
        happened: as many.
        confidence: of each interval by itself.

    Example:
        >>> {copies: found.rate for copies, found in rates_by([5, 1, 1], [1, 0, 1]).items()}
        {1: 0.5, 5: 1.0}
    """
    groups: dict[int, list[bool]] = {}
    for key, one in zip(keys, happened, strict=True):
        groups.setdefault(int(key), []).append(bool(one))
    found = {key: rate(groups[key], confidence=confidence) for key in sorted(groups)}
    return {key: one for key, one in found.items() if one is not None}
