"""Findings and warnings of an audit of users, in sentences.

For readers without statistics: every probability is also said as so many people of so many.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import groupby
from statistics import fmean

from vestige.claims import LEAK, UNDECIDED
from vestige.metrics.extraction import share_interval
from vestige.metrics.intervals import Interval
from vestige.reports.numbers import Row, chance, percent

METHOD = (
    "Each word of a text was looked up among the model's most probable words in its place. A word "
    "that ranks higher than such a word does on average is evidence for membership, one that ranks "
    "lower is evidence against it; the mean over all words is the score. What to expect of a word "
    "was learnt from {learnt}. Then each score is compared with those of non-members over exactly "
    "as many words: where one has more, only that many count."
)

OLDER = "An older version of Vestige made this audit: its verdict is not checked."

LITTLE = 0.1
"""Share of questions without an answer from which on the reader is told."""


@dataclass(frozen=True, kw_only=True)
class AuditedRows:
    """Rows of an audit by their kind.

    Attributes:
        audited: the smallest p-value first.
        known: scores of non-members, falling.
        null: rows of p-values against models that never saw the audited.
    """

    audited: tuple[Row, ...]
    known: tuple[float, ...]
    null: tuple[Row, ...]

    @classmethod
    def of(cls, rows: Sequence[Row]) -> "AuditedRows":
        """Sort the rows of a run; an audit without anyone audited is a ValueError."""
        audited = tuple(row for row in rows if row["kind"] == "audited")
        if not audited:
            raise ValueError("rows must hold at least one of the kind 'audited'")
        return cls(
            audited=audited,
            known=tuple(float(row["score"]) for row in rows if row["kind"] == "known out"),
            null=tuple(row for row in rows if row["kind"] == "null"),
        )

    def null_share(self, rate: float) -> tuple[float, Interval | None] | None:
        """The share of null p-values at or below a rate, with its interval over users.

        Nothing where there are none. One user has no interval.
        """
        if not self.null:
            return None
        named = sorted((str(row["user"]), float(row["p_value"]) <= rate) for row in self.null)
        users = groupby(named, key=lambda one: one[0])
        shares = [fmean(low for _, low in of_user) for _, of_user in users]
        return fmean(shares), share_interval(shares)


def describe(found: AuditedRows, summary: Row) -> tuple[str, str]:
    """The answer and why, for one person or for an owner."""
    one = len(found.audited) == 1
    return (describe_person if one else describe_owner)(found, summary)


def describe_person(found: AuditedRows, summary: Row) -> tuple[str, str]:
    """The answer for one person, and why."""
    own, rate = found.audited[0], float(summary["rate"])
    if own["score"] is None:
        return (
            "None of the words could be asked about.",
            "Give more text, or text in the language and vocabulary of the model.",
        )
    if "claim" not in summary:
        answer = OLDER
    elif summary["verdict"] == LEAK:
        answer = "The model predicts this text better than chance explains."
    elif summary["verdict"] == UNDECIDED:
        answer = "This audit cannot tell whether this text was used."
    else:
        answer = "The model does not predict this text better than chance explains."
    side = "within" if float(own["p_value"]) <= rate else "above"
    limit = f"That is {side} the limit of {_in_a_hundred(rate)}, which was set before."
    return answer, f"{_comparison(found)} {limit}"


def describe_owner(found: AuditedRows, summary: Row) -> tuple[str, str]:
    """The answer for the owner of a model, and why."""
    users, called, rate = int(summary["users"]), int(summary["called"]), float(summary["rate"])
    if "claim" not in summary:
        return OLDER, f"It flagged {called:,} of {users:,} users."
    if summary["p_value"] is None:
        return "No user could be audited.", "None of their words could be asked about."
    listed = summary["list_p_value"]
    tested = f"All users together have p = {p_value(float(summary['p_value']))}" + (
        "." if listed is None else f" (as a list alone p = {p_value(float(listed))})."
    )
    if summary["verdict"] == UNDECIDED:
        answer = f"This audit cannot tell whether text of the {users:,} users was used."
    elif called:
        subject = "one" if called == 1 else f"{called:,}"
        answer = (
            f"For {subject} of {users:,} users an outsider could show that their text was used."
        )
    elif summary["verdict"] == LEAK:
        answer = (
            f"Text of some of the {users:,} users was used; of nobody in particular is it shown."
        )
    else:
        answer = f"Of none of the {users:,} users could it be shown that their text was used."
    if called:
        return answer, (
            f"{tested} {called:,} users are flagged. In audits like this one, about "
            f"{_in_a_hundred(rate)} of those flagged, or fewer, were not in the training data at "
            "all. Others may have been used as well. What bounds this with a proof: vestige train "
            "--defence dp-fedavg."
        )
    least = _needed_at_once(found, rate)
    weak = (
        f" With {int(summary['calibrated_on']):,} people to compare with, no one is flagged before "
        f"{least:,} users stand out at once: hold out more for a sharper audit."
        if least > 1
        else ""
    )
    return answer, f"{tested} No user is flagged; how many were used is not bounded.{weak}"


def _needed_at_once(found: AuditedRows, rate: float) -> int:
    """How many users must stand above everybody before one is flagged, by Benjamini–Hochberg."""
    lowest = sorted(1 / (int(row["compared_with"]) + 1) for row in found.audited)
    m = len(lowest)
    fits = (n for n, p in enumerate(lowest, start=1) if p <= rate * n / m + 1e-12)
    return next(fits, m)


def p_value(value: float) -> str:
    """A p-value to two digits, so that 1 of 68 does not read as 0.01.

    Example:
        >>> p_value(1 / 68), p_value(0.5), p_value(0.00002)
        ('0.015', '0.5', '0.00002')
    """
    return f"{value:.2g}" if value >= 1e-4 else chance(value)


def words_compared(row: Row) -> str:
    """How many of a user's words were compared with as many of others.

    Example:
        >>> words_compared({"words": 1200, "compared_words": 300})
        '300 of 1,200'
    """
    used, words = int(row["compared_words"]), int(row["words"])
    return f"{used:,}" if used == words else f"{used:,} of {words:,}"


def describe_person_null(found: AuditedRows, rate: float) -> str:
    """What models that never saw the text say of it."""
    values = [float(row["p_value"]) for row in found.null]
    if not values:
        return ""
    low = sum(p <= rate for p in values)
    said = f"{_none(low).lower()} of them fall{'s' if low < 2 else ''} within the limit (shaded)"
    return (
        f"The same test, put to {_models(len(values))} that never saw the text (rings): "
        f"{said}. In a fair comparison few do."
    )


def describe_owner_null(found: AuditedRows, summary: Row) -> str:
    """The null check in a sentence; nothing where it was not made."""
    rate = float(summary["rate"])
    if (checked := found.null_share(rate)) is None:
        return ""
    share, interval = checked
    ends = "" if interval is None else _ends(interval)
    return (
        f"The same audit of models that never saw these users puts {percent(share)}{ends} of "
        f"their p-values at or below {rate:g}; a fair comparison puts {percent(rate)} there."
    )


def warnings(summary: Row) -> tuple[str, ...]:
    """What the reader must know before believing the answer, beside the checks."""
    asked, left = (int(summary.get(name) or 0) for name in ("words_asked", "words_unanswered"))
    if not asked or left / asked <= LITTLE:
        return ()
    return (
        f"{left:,} of {asked:,} questions stayed without an answer ({percent(left / asked)}). "
        "Their words were left out; if the service refuses some texts rather than others, "
        "the comparison suffers.",
    )


def _comparison(found: AuditedRows) -> str:
    """How many score as high, and what that comes to."""
    own = found.audited[0]
    reached = sum(score >= float(own["score"]) for score in found.known)
    people, tries = len(found.known), len(found.known) + 1
    score = "scores" if reached in (0, 1) else "score"
    words, used = int(own["words"]), int(own["compared_words"])
    cut = f" (over {used:,} of its {words:,} words: few have more)" if used < words else ""
    return (
        f"Of {people:,} people whose text was certainly not used, each with as much of it, "
        f"{_none(reached).lower()} {score} as high{cut}. Somebody whose text was not used would "
        f"come this far in {reached + 1:,} of {tries:,} audits, or fewer "
        f"(p = {p_value(own['p_value'])})."
    )


def _in_a_hundred(rate: float) -> str:
    return f"{100 * rate:g} in 100"


def _none(count: int) -> str:
    return f"{count:,}" if count else "None"


def _models(count: int) -> str:
    return "one model" if count == 1 else f"{count:,} models"


def _ends(interval: Interval) -> str:
    return f" ({100 * interval.low:.0f} to {100 * interval.high:.0f} %)"
