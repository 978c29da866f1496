"""Numbers of runs that limits and comparisons use, read from summaries."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import NamedTuple

from vestige.claims import NO_LEAK, UNDECIDED
from vestige.reports.verdicts import claim_of
from vestige.reports.words import Row
from vestige.results import Run

TOO_FEW = "too few cases for an interval"
NO_UPPER_BOUND = "there is no upper bound"


@dataclass(frozen=True)
class Measured:
    """A number of a run.

    Attributes:
        value: the number; None if it was not measured.
        low: lower end of its 95% interval; None without one.
        high: upper end; None without one.
        unknown: the missing evidence in words; "" if nothing is missing.
        bounded: False for a count without an upper bound. It can be compared with another count,
            but is never within a limit.
    """

    value: float | None
    low: float | None
    high: float | None
    unknown: str = ""
    bounded: bool = True

    @property
    def interval(self) -> str:
        """The interval as text; "" for a count, or if an end is unknown."""
        if self.low is None or self.high is None or self.low == self.high:
            return ""
        return f"{self.low:.4g} to {self.high:.4g}"

    def amount(self, unit: str) -> str:
        """The value with its unit, and "at least" if it is a lower bound."""
        if self.value is None:
            return "not known"
        least = "at least " if self.low == self.value and self.high != self.value else ""
        return f"{least}{self.value:.4g} {unit}".strip()


class Quantity(NamedTuple):
    """A number that can have a limit: its unit, and its readers by kind of result."""

    unit: str
    of: Mapping[str, Callable[[Row], Measured]]


def _with_interval(name: str) -> Callable[[Row], Measured]:
    """Reader of the entries NAME, NAME_low and NAME_high of a summary."""

    def read(summary: Row) -> Measured:
        value, low, high = (summary.get(name + end) for end in ("", "_low", "_high"))
        return Measured(value, low, high, "" if value is None or high is not None else TOO_FEW)

    return read


def _exact(name: str) -> Callable[[Row], Measured]:
    def read(summary: Row) -> Measured:
        value = summary.get(name)
        return Measured(value, value, value)

    return read


def _count(count: int, maximum: int | None) -> Measured:
    """A count with its upper bound, if there is one."""
    if maximum is not None:
        return Measured(count, count, maximum)
    return Measured(count, count, count, NO_UPPER_BOUND, bounded=False)


def _exposure(summary: Row) -> Measured:
    exposure = _with_interval("exposure_planted")(summary)
    if summary.get("exposure_planted_is_bound"):
        reason = f"a lower bound, the most that {summary['references']:,} references can show"
        return Measured(exposure.value, exposure.low, None, reason)
    return exposure


def _phrases_found(summary: Row) -> Measured:
    count = summary.get("found")
    if count is None:
        return Measured(None, None, None, "counting needs 19 null models")
    if summary.get("complete") is False:
        return Measured(count, count, None, "the search was stopped before its end")
    return _count(count, count if summary.get("verdict") == NO_LEAK else None)


def _secrets_known(summary: Row) -> Measured:
    count = summary["found"]
    maximum = count + (summary.get("in_part") or 0)
    return _count(count, maximum if summary.get("verdict") == NO_LEAK else None)


def _members_flagged(summary: Row) -> Measured:
    return _count(summary["called"], summary.get("at_most"))


def _texts_used(summary: Row) -> Measured:
    least, most = summary["at_least"], summary["at_most"]
    reason = "" if most is not None else "an upper bound needs known members (--used)"
    return Measured(least, least, most, reason)


def _memorized(summary: Row) -> Measured:
    """Extracted tokens; with reference texts, the difference to these."""
    suffix = "" if summary.get("sampled_difference") is None else "_difference"
    return _with_interval(f"sampled_per_10000{suffix}")(summary)


def _share_left(summary: Row) -> Measured:
    share = _with_interval("left")(summary)
    if share.value is None:
        return Measured(None, None, None, "the earlier model did not know the texts")
    return share


QUANTITIES: Mapping[str, Quantity] = {
    # Median of planted canaries or secrets.
    "exposure": Quantity(
        "bits",
        {
            "CanaryExposure": _exposure,
            "SecretAudit": _with_interval("planted_exposure"),
            "Extraction": _with_interval("exposure"),
        },
    ),
    # Planted canaries, or parts of secrets, that greedy decoding completes.
    "completed": Quantity(
        "canaries", dict.fromkeys(("Completion", "SecretCompletion"), _exact("greedy_completed"))
    ),
    # Phrases that the update reveals, or secrets that the model knows.
    "found": Quantity(
        "phrases",
        {
            "UpdateDiff": _phrases_found,
            "SecretExposure": _secrets_known,
            "SecretRank": _secrets_known,
        },
    ),
    "members": Quantity("flagged", {"UserAudit": _members_flagged}),
    "used": Quantity("texts", {"TextAudit": _texts_used}),
    "memorized": Quantity("per 10,000 tokens", {"TextMemorization": _memorized}),
    # Remaining share of the knowledge about deleted texts.
    "left": Quantity("share", {"Deletion": _share_left}),
    "perplexity": Quantity(
        "",
        dict.fromkeys(
            ("DefendedTraining", "IntentSlotTraining", "PairTraining"),
            _exact("validation_perplexity"),
        ),
    ),
}
"""Quantities by name."""


def measured(name: str, run: Run) -> Measured:
    """A quantity of a run whose kind has it; unknown if the verdict is undecided.

    Raises:
        LookupError: its summary is damaged.
    """
    claim = claim_of(run)
    if claim is not None and claim.verdict == UNDECIDED:
        return Measured(None, None, None, f"its verdict is {UNDECIDED}")
    return QUANTITIES[name].of[run.result](run.summary)
