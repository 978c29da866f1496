"""The report of `vestige membership --unit user`: one person, or all users of a model's owner."""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import groupby
from statistics import fmean

from vestige.audits.membership.user_charts import DOTS, one_among
from vestige.metrics.extraction import share_interval
from vestige.metrics.intervals import Interval
from vestige.reports.blocks import Prose
from vestige.reports.charts import Figure
from vestige.reports.disclosure import disclose_names
from vestige.reports.group_charts import sorted_p_values, two_groups
from vestige.reports.numbers import NOTHING, Row, decimal, p_value, percent, whole
from vestige.reports.report import Report, lines
from vestige.reports.tables import Table, table
from vestige.results import Run

LISTED = 25
"""Users in the table."""
UNANSWERED = 0.1
"""Share of unanswered queries above which a reader is warned."""

METHOD = (
    "The score of a user is the mean over their words: how much higher the model ranks each word, "
    "or how much more probable it is, than expected for a non-member. Vestige learns the "
    "expectation from {learned}. The p-value is the share of non-members who score as high over "
    "equally many words. The verdict is about all users together; users are flagged by the "
    "procedure of Benjamini and Hochberg."
)
LIMITS = (
    "A p-value is not the probability that a text was used. It is how often a non-member would "
    "score as high.",
    "A user who is not flagged can still have been used.",
    "Copies and quotations by others count as use. The result does not say who gave the text, "
    "when, or whether its use was lawful.",
    "The reference must have the same subjects, time and kind of text. A member among the "
    "reference users makes the audit weaker, but causes no false flag.",
    "Repeating an audit with other options until it finds something invalidates its error rate.",
    "The false-discovery rate is an average over audits.",
)
_GROUPS = {
    "calibrated_on": "to compare with",
    "fitted_on": "to learn the expectation from",
    "counted_on": "to count words of",
}
_QUERIES = {
    "words_asked": "queried words of all users",
    "queries": "queries",
    "budget": "budget",
    "calls": "calls",
    "tokens": "tokens",
    "cached": "cached answers",
    "failures": "failed calls",
    "timeouts": "calls that timed out",
    "short_lists": "lists of fewer words",
    "unknown_words": "listed words that the reference does not have",
    "words_unanswered": "words without an answer",
}


@dataclass(frozen=True, kw_only=True)
class AuditedRows:
    """The rows of an audit by their kind.

    Attributes:
        audited: the smallest p-value first.
        known: scores of non-members, falling.
        null: rows of p-values against models that never saw the audited users.
    """

    audited: tuple[Row, ...]
    known: tuple[float, ...]
    null: tuple[Row, ...]

    @classmethod
    def of(cls, rows: Sequence[Row]) -> "AuditedRows":
        """Sort the rows of a run.

        Raises:
            ValueError: there is no audited user.
        """
        audited = tuple(row for row in rows if row["kind"] == "audited")
        if not audited:
            raise ValueError("rows must hold at least one of the kind 'audited'")
        return cls(
            audited=audited,
            known=tuple(float(row["score"]) for row in rows if row["kind"] == "known out"),
            null=tuple(row for row in rows if row["kind"] == "null"),
        )

    @property
    def one(self) -> bool:
        """Whether one person is audited."""
        return len(self.audited) == 1

    @property
    def scored(self) -> list[Row]:
        """The audited users of whom a word was queried."""
        return [row for row in self.audited if row["score"] is not None]

    def null_share(self, alpha: float) -> tuple[float, Interval | None] | None:
        """Share of null p-values up to alpha, with its interval over users; None without any."""
        if not self.null:
            return None
        named = sorted((str(row["user"]), float(row["p_value"]) <= alpha) for row in self.null)
        by_user = groupby(named, key=lambda one: one[0])
        shares = [fmean(low for _, low in of_user) for _, of_user in by_user]
        return fmean(shares), share_interval(shares)


def user_report(run: Run, *, show_secrets: bool) -> Report:
    """The report of a `UserAudit`."""
    found, summary = AuditedRows.of(run.rows), run.summary
    learned = "all audited and reference users alike"
    if summary["fitted_on"]:
        learned = "other non-members"
    if summary["references"]:
        learned += " and from shadow models that never saw the user"
    evidence = _of_person(found) if found.one else _of_owner(found, summary)
    figures = _person_figures(found) if found.one else _owner_figures(found, summary)
    return Report(
        kind="user-audit",
        title="Was my text used?" if found.one else "Whose text was used?",
        evidence=lines(*evidence),
        notices=lines(_unanswered(summary)),
        blocks=(
            *figures,
            user_table(found, show_secrets=show_secrets),
            Prose(title="Method", lines=(METHOD.format(learned=learned),)),
        ),
        facts=(*_facts(found, summary), *_query_facts(summary)),
        limits=LIMITS,
    )


def _of_person(found: AuditedRows) -> tuple[str, ...]:
    own, number = found.audited[0], len(found.known)
    if own["score"] is None:
        return ("No word of this text could be queried.", "Give more text in the model's language.")
    higher = sum(score >= float(own["score"]) for score in found.known)
    used, words = int(own["compared_words"]), int(own["words"])
    first = f"; {used:,} of its {words:,} words: few non-members have more" if used < words else ""
    return (
        f"{higher:,} of {number:,} non-members score as high over as many words{first} "
        f"(p = {p_value(float(own['p_value']))}).",
    )


def _of_owner(found: AuditedRows, summary: Row) -> tuple[str, ...]:
    users, flagged, alpha = int(summary["users"]), int(summary["called"]), float(summary["rate"])
    if not found.scored:
        return ("No word of any user could be queried.",)
    if flagged:
        return (
            f"{flagged:,} of {users:,} users flagged (false-discovery rate {percent(alpha)}). "
            "Others may have been used as well.",
            "A bound for all users: vestige train --defence dp-fedavg.",
        )
    least = _needed_together(found, alpha)
    number = int(summary["calibrated_on"])
    weak = (
        f"With {number:,} non-members, Vestige flags no one unless {least:,} users score highest "
        "together. Give more reference users."
    )
    return (
        f"No user flagged of {users:,}; how many were used is not bounded.",
        weak if least > 1 else "",
    )


def _needed_together(found: AuditedRows, alpha: float) -> int:
    """How many users must score above all non-members before one is flagged."""
    lowest = sorted(1 / (int(row["compared_with"]) + 1) for row in found.audited)
    m = len(lowest)
    fits = (n for n, p in enumerate(lowest, start=1) if p <= alpha * n / m + 1e-12)
    return next(fits, m)


def _unanswered(summary: Row) -> str:
    asked, left = (int(summary.get(name) or 0) for name in ("words_asked", "words_unanswered"))
    if not asked or left / asked <= UNANSWERED:
        return ""
    return (
        f"{left:,} of {asked:,} queries have no answer ({percent(left / asked)}). If the service "
        "refuses some texts and not others, the comparison is unfair."
    )


def user_table(found: AuditedRows, *, show_secrets: bool) -> Table:
    """The users with the smallest p-values."""
    rows = found.audited[:LISTED]
    names = disclose_names([str(row["user"]) for row in rows], show_secrets=show_secrets)
    pairs = zip(rows, names, strict=True)
    left = len(found.audited) - len(rows)
    return table(
        "Users" + (f" ({left:,} more in the run directory)" if left else ""),
        [{**row, "place": n, "name": name} for n, (row, name) in enumerate(pairs, 1)],
        {
            "user": lambda row: f"{row['place']} · {row['name']}",
            "flagged": lambda row: bool(row["called"]),
            "p-value": lambda row: _if_scored(row, p_value(float(row["p_value"]))),
            "score as high": lambda row: _if_scored(row, _as_high(row)),
            "score": lambda row: decimal(row["score"], 3),
            "texts": lambda row: whole(row["texts"]),
            "words compared": words_compared,
        },
        texts=2,
    )


def words_compared(row: Row) -> str:
    """How many of a user's words were compared.

    Example:
        >>> words_compared({"words": 1200, "compared_words": 300})
        '300 of 1,200'
    """
    used, words = int(row["compared_words"]), int(row["words"])
    return f"{used:,}" if used == words else f"{used:,} of {words:,}"


def _if_scored(row: Row, text: str) -> str:
    return NOTHING if row["score"] is None else text


def _as_high(row: Row) -> str:
    known = int(row["compared_with"])
    return f"{round(float(row['p_value']) * (known + 1)) - 1:,} of {known:,}"


def _person_figures(found: AuditedRows) -> tuple[Figure, ...]:
    if not found.scored or not found.known:
        return ()
    score, known = float(found.audited[0]["score"]), found.known
    marks = "Each dot is a non-member" if len(known) <= DOTS else "Bars are non-members"
    return (
        Figure(
            draw=lambda width: one_among(known, score, label="this text", width=width),
            caption=f"{marks}, over as many words. Further right, the model knows the text better. "
            "A line to the right of nearly all of them shows that the text was probably used.",
            slim=True,
        ),
    )


def _owner_figures(found: AuditedRows, summary: Row) -> tuple[Figure, ...]:
    rows, known = found.scored, found.known
    if not rows or not known:
        return ()
    scores, p_values = ([float(row[name]) for row in rows] for name in ("score", "p_value"))
    flagged = [bool(row["called"]) for row in rows]
    null = [float(row["p_value"]) for row in found.null]
    return (
        Figure(
            draw=lambda width: two_groups(scores, known, width=width),
            caption="Scores of the audited users, above, and of non-members, below, over as many "
            "words as the middle user is compared over.",
            slim=True,
        ),
        Figure(
            draw=lambda width: sorted_p_values(p_values, flagged, null, width=width),
            caption="P-values in order; without membership they lie near the dashed line. A disc "
            f"is a flagged user. {_null_sentence(found, float(summary['rate']))}".strip(),
            slim=True,
        ),
    )


def _null_sentence(found: AuditedRows, alpha: float) -> str:
    checked = found.null_share(alpha)
    if checked is None:
        return ""
    share, interval = checked
    ends = ""
    if interval is not None:
        ends = f" (95% CI {100 * interval.low:.0f}% to {100 * interval.high:.0f}%)"
    return (
        f"Thin line: shadow models that never saw these users; {percent(share)}{ends} of their "
        f"p-values are at most {alpha:g}, {percent(alpha)} expected."
    )


def _facts(found: AuditedRows, summary: Row) -> list[tuple[str, str]]:
    k, words, alpha = int(summary["k"]), int(summary["vocab_size"]), float(summary["rate"])
    facts = []
    if not found.one:
        flagged = f"{whole(summary['called'])} of {whole(summary['users'])}"
        facts.append(("users flagged", flagged))
        for name, key in (("p-value of all users", "p_value"), ("of the list", "list_p_value")):
            if summary.get(key) is not None:
                facts.append((name, p_value(float(summary[key]))))
    facts += [
        ("smallest p-value", p_value(float(summary["least_p_value"]))),
        ("alpha", f"{alpha:g}"),
        ("words of the users", whole(summary["words"])),
        ("words shown", f"{k:,} of {words:,}" if k < words else f"all {words:,}"),
        ("non-members", ", ".join(
            f"{whole(summary[name])} {what}" for name, what in _GROUPS.items() if summary[name])),
        ("shadow models", whole(summary["references"])),
    ]  # fmt: skip
    if (checked := found.null_share(alpha)) is not None:
        facts.append(("their p-values up to alpha", percent(checked[0])))
    if summary.get("shadow_perplexity_ratio") is not None:
        ratio = decimal(summary["shadow_perplexity_ratio"])
        facts.append(("their perplexity on unseen text, over seen text", ratio))
    return facts


def _query_facts(summary: Row) -> list[tuple[str, str]]:
    """Statistics of the queries, without those that are 0."""
    return [
        (name, whole(summary[key]))
        for key, name in _QUERIES.items()
        if summary.get(key) or (key == "queries" and key in summary)
    ]
