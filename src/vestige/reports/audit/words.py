"""Verdicts and warnings of an audit of users, in sentences.

For readers without statistics: every probability is also said as so many people of so many.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import groupby
from statistics import fmean

from vestige.metrics.conformal import calibration_needed, most_by_chance
from vestige.metrics.extraction import share_interval
from vestige.metrics.intervals import Interval, clopper_pearson
from vestige.reports.components.numbers import Row, chance, percent

METHOD = (
    "Each word of a text was looked up among the words that the model holds likeliest in its "
    "place. A word that stands further up than such a word does on average speaks for membership, "
    "one that stands further down against it; the mean over all words is the score. What to "
    "expect of a word was learnt from non-members{references}. Then each score is "
    "compared with those of other non-members, who had no part in any of this, over exactly "
    "as many words: where one has more, only so many count."
)

LITTLE = 0.1
"""Share of questions without an answer from which on the reader is told."""

UNFAIR = "This comparison is not fair, and its answer does not hold."
"""What stands in place of the answer where more than membership sets the audited apart."""

_TOO_FEW = "This audit could not have told: there are too few non-members to compare with."

# Of one person's p-values under models that never saw them, however alike these are, half lie at
# or below a rate in twice the rate of all audits at most; more than a fifth are worth a word.
_HALF, _SOME = 0.5, 0.2


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
    """The answer and why, for one person or for an owner; none where it does not hold."""
    one = len(found.audited) == 1
    answer, because = (describe_person if one else describe_owner)(found, summary)
    if differ(found, summary):
        return UNFAIR, f"It would have read: “{answer}” {because}"
    return answer, because


def describe_person(found: AuditedRows, summary: Row) -> tuple[str, str]:
    """The answer for one person, and why."""
    own, rate = found.audited[0], float(summary["rate"])
    if own["score"] is None:
        return (
            "This audit could not have told: none of the words could be asked about.",
            "Give more text, or text in the language and vocabulary of the model.",
        )
    if summary["verdict"] == "underpowered":
        return _TOO_FEW, describe_need(summary)
    if own["called"]:
        answer = "Yes, says this test: the model knows this text better than chance explains."
    else:
        answer = "Not shown: the model does not know this text better than chance explains."
    side = "within" if own["called"] else "above"
    limit = f"That is {side} the limit of {_in_a_hundred(rate)}, which was set before."
    open_end = "" if own["called"] else " It does not prove that the text was not used."
    return answer, f"{_comparison(found)} {limit}{open_end}"


def describe_owner(found: AuditedRows, summary: Row) -> tuple[str, str]:
    """The answer for the owner of a model, and why."""
    users, called, rate = int(summary["users"]), int(summary["called"]), float(summary["rate"])
    if summary["verdict"] == "underpowered":
        return _TOO_FEW, describe_need(summary)
    interval = clopper_pearson(called, users)
    share = (
        f"That is {percent(called / users)} of them "
        f"({100 * interval.low:.0f} to {100 * interval.high:.0f} % with 95 % confidence)."
    )
    if called:
        subject = "one" if called == 1 else f"{called:,}"
        return (
            f"For {subject} of {users:,} users an outsider could show that their text was used.",
            f"{share} In audits like this one, about {_in_a_hundred(rate)} of those flagged, or "
            "fewer, were not in the training data at all. Who is not flagged is not thereby safe. "
            "What hides users with a proof: vestige train --defence dp-fedavg.",
        )
    least = _needed_at_once(found, rate)
    weak = (
        f" With {int(summary['calibrated_on']):,} people to compare with, no one is flagged before "
        f"{least:,} users stand out at once: hold out more for a sharper audit."
        if least > 1
        else ""
    )
    return (
        f"Of none of the {users:,} users could it be shown that their text was used.",
        f"{share} It does not prove that they are safe.{weak}",
    )


def _needed_at_once(found: AuditedRows, rate: float) -> int:
    """How many users must stand above everybody before one is flagged, by Benjamini–Hochberg."""
    lowest = sorted(1 / (int(row["compared_with"]) + 1) for row in found.audited)
    m = len(lowest)
    fits = (n for n, p in enumerate(lowest, start=1) if p <= rate * n / m + 1e-12)
    return next(fits, m)


def describe_need(summary: Row) -> str:
    """How many more people it takes before anything could be shown of anyone."""
    compared, rate = int(summary["calibrated_on"]), float(summary["rate"])
    there = compared + int(summary["fitted_on"]) + int(summary["counted_on"])
    known = int(summary["known_needed"])
    return (
        f"With {compared} people to compare with, even the highest score of all would come up by "
        f"chance once in {compared + 1} audits, and the limit was set to {_in_a_hundred(rate)}. "
        f"It takes {calibration_needed(rate)} to compare with, and {known} non-members in "
        "all, since half of them teach what to expect: add texts of "
        f"{max(1, known - there)} more people (--reference)."
    )


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
        f"their p-values at or below {rate:g}; a fair comparison puts {percent(rate)} there, and "
        f"by chance seldom more than {percent(_most(found, summary))}."
    )


def warnings(found: AuditedRows, summary: Row) -> tuple[str, ...]:
    """What the reader must know before believing the answer."""
    told = [_fairness(found, summary)]
    asked, left = (int(summary.get(name) or 0) for name in ("words_asked", "words_unanswered"))
    if asked and left / asked > LITTLE:
        told.append(
            f"{left:,} of {asked:,} questions stayed without an answer ({percent(left / asked)}). "
            "Their words were left out; if the service refuses some texts rather than others, "
            "the comparison suffers."
        )
    return tuple(filter(None, told))


def differ(found: AuditedRows, summary: Row) -> bool:
    """Whether more than membership sets the audited apart, by models that never saw them."""
    if (checked := found.null_share(float(summary["rate"]))) is None:
        return False
    if len(found.audited) == 1:
        return checked[0] >= _HALF and len(found.null) > 1
    return checked[0] > _most(found, summary)


def _fairness(found: AuditedRows, summary: Row) -> str:
    """A warning where the comparison is not fair, or nothing says whether it is."""
    rate = float(summary["rate"])
    if (checked := found.null_share(rate)) is None:
        return _unchecked(int(summary["references"]), int(summary["references_needed"]))
    if len(found.audited) == 1:
        return _person_fairness(found, rate)
    if not differ(found, summary):
        return ""
    share = checked[0]
    return (
        "The audited users differ from the non-members in more than membership. Models that "
        f"never saw them put {percent(share)} of their p-values at "
        f"or below {rate:g}, where {percent(rate)} belong. Look at topics, time and amount of "
        "text, hold out users at random, and audit again."
    )


def _unchecked(models: int, needed: int) -> str:
    if models >= needed:
        why = f"the {models} models of your own leave too few words of non-members."
    else:
        there = f"; here {'is' if models == 1 else 'are'} {models}" if models else ""
        why = (
            f"it takes {needed} models of your own at least (--shadows) that never saw "
            f"these texts{there}."
        )
    return f"Nothing checks here whether the comparison is fair: {why}"


def _person_fairness(found: AuditedRows, rate: float) -> str:
    low, models = sum(float(row["p_value"]) <= rate for row in found.null), len(found.null)
    if low < min(2, models) or low / models <= _SOME:
        return ""
    knows = "seems" if low == 1 else "seem"
    sure = "" if low / models >= _HALF and models > 1 else " may"
    return (
        f"Of {_models(models)} that never saw this text, {low} {knows} to know it as well. So it"
        f"{sure} differ{'' if sure else 's'} in more than membership from the texts that it is "
        "compared with: in topic, time or kind. Compare with people who write about the same "
        "things."
    )


def _most(found: AuditedRows, summary: Row) -> float:
    # No model has seen those who are compared with: there are as many of them as for the target.
    fewest = min(int(row["compared_with"]) for row in found.audited if row["score"] is not None)
    users, rate = len({row["user"] for row in found.null}), float(summary["rate"])
    return max(rate, most_by_chance(rate, calibration=fewest, tested=users))


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
