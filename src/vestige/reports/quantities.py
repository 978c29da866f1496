"""Numbers of runs that can be limited and compared, read from their summaries."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import NamedTuple

from vestige.claims import NO_LEAK, UNDECIDED
from vestige.reports.verdicts import claim_of
from vestige.reports.words import Row
from vestige.results import Run

FEW = "too few cases for an interval"
MORE = "there is no upper bound"


@dataclass(frozen=True)
class Measured:
    """A number of a run.

    Attributes:
        value: None where nothing was measured.
        low: end of its 95% interval; None without one.
        high: likewise.
        unknown: what is missing, in words; "" if nothing is.
        bounded: False for a count that does not exclude more. It can be compared with another
            count, but is never within a limit.
    """

    value: float | None
    low: float | None
    high: float | None
    unknown: str = ""
    bounded: bool = True

    @property
    def interval(self) -> str:
        """Both ends; "" for a count, or if one is unknown."""
        if self.low is None or self.high is None or self.low == self.high:
            return ""
        return f"{self.low:.4g} to {self.high:.4g}"

    def amount(self, unit: str) -> str:
        """The value with its unit; "at least" if it is a lower bound."""
        if self.value is None:
            return "not known"
        least = "at least " if self.low == self.value and self.high != self.value else ""
        return f"{least}{self.value:.4g} {unit}".strip()


class Quantity(NamedTuple):
    """A number on which a limit can be set: its unit, and by kind of result how it is read."""

    unit: str
    of: Mapping[str, Callable[[Row], Measured]]


def _interval(name: str) -> Callable[[Row], Measured]:
    """A number with its interval: NAME, NAME_low and NAME_high of a summary."""

    def read(summary: Row) -> Measured:
        value, low, high = (summary.get(name + end) for end in ("", "_low", "_high"))
        return Measured(value, low, high, "" if value is None or high is not None else FEW)

    return read


def _exactly(name: str) -> Callable[[Row], Measured]:
    def read(summary: Row) -> Measured:
        value = summary.get(name)
        return Measured(value, value, value)

    return read


def _count(count: int, most: int | None) -> Measured:
    """A count, and how many there are at most; without that it excludes no more."""
    if most is not None:
        return Measured(count, count, most)
    return Measured(count, count, count, MORE, bounded=False)


def _exposure(summary: Row) -> Measured:
    found = _interval("exposure_planted")(summary)
    if summary.get("exposure_planted_is_bound"):
        why = f"a lower bound, the most that {summary['references']:,} references can show"
        return Measured(found.value, found.low, None, why)
    return found


def _found(summary: Row) -> Measured:
    count = summary.get("found")
    if count is None:
        return Measured(None, None, None, "counting needs 19 null models")
    if summary.get("complete") is False:
        return Measured(count, count, None, "the search was stopped before its end")
    return _count(count, count if summary.get("verdict") == NO_LEAK else None)


def _secrets(summary: Row) -> Measured:
    count = summary["found"]
    most = count + (summary.get("in_part") or 0)
    return _count(count, most if summary.get("verdict") == NO_LEAK else None)


def _members(summary: Row) -> Measured:
    return _count(summary["called"], summary.get("at_most"))


def _used(summary: Row) -> Measured:
    least, most = summary["at_least"], summary["at_most"]
    why = "" if most is not None else "an upper bound needs known members (--used)"
    return Measured(least, least, most, why)


def _memorized(summary: Row) -> Measured:
    """Less what is extracted of reference texts, where there are any."""
    side = "" if summary.get("sampled_difference") is None else "_difference"
    return _interval(f"sampled_per_10000{side}")(summary)


def _left(summary: Row) -> Measured:
    found = _interval("left")(summary)
    if found.value is None:
        return Measured(None, None, None, "the earlier model did not know the texts")
    return found


QUANTITIES: Mapping[str, Quantity] = {
    # The median of planted canaries or secrets.
    "exposure": Quantity(
        "bits",
        {
            "CanaryExposure": _exposure,
            "SecretAudit": _interval("planted_exposure"),
            "Extraction": _interval("exposure"),
        },
    ),
    # Planted canaries, or parts of secrets, that greedy decoding completes.
    "completed": Quantity(
        "canaries", dict.fromkeys(("Completion", "SecretCompletion"), _exactly("greedy_completed"))
    ),
    # Phrases that the update reveals, or secrets that the model knows.
    "found": Quantity(
        "phrases", {"UpdateDiff": _found, "SecretExposure": _secrets, "SecretRank": _secrets}
    ),
    "members": Quantity("flagged", {"UserAudit": _members}),
    "used": Quantity("texts", {"TextAudit": _used}),
    "memorized": Quantity("per 10,000 tokens", {"TextMemorization": _memorized}),
    # Of what the earlier model knew of deleted texts.
    "left": Quantity("share", {"Deletion": _left}),
    "perplexity": Quantity(
        "",
        dict.fromkeys(
            ("DefendedTraining", "IntentSlotTraining", "PairTraining"),
            _exactly("validation_perplexity"),
        ),
    ),
}
"""By name."""


def measured(name: str, run: Run) -> Measured:
    """A quantity of a run that measures it; unknown if the verdict is undecided.

    Raises:
        LookupError: its summary is damaged.
    """
    claim = claim_of(run)
    if claim is not None and claim.verdict == UNDECIDED:
        return Measured(None, None, None, f"its verdict is {UNDECIDED}")
    return QUANTITIES[name].of[run.result](run.summary)
