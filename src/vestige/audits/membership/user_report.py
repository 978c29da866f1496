"""The report of `vestige membership --unit user`: one person, or all users of a model's owner."""

from collections.abc import Sequence
from itertools import groupby
from statistics import fmean

from vestige.audits.membership.user_charts import DOTS, one_among
from vestige.metrics.extraction import share_interval
from vestige.metrics.intervals import Interval
from vestige.reports.blocks import Prose, Table, table
from vestige.reports.charts import Figure, sorted_p_values, two_groups
from vestige.reports.disclosure import disclose_names
from vestige.reports.report import Report, lines
from vestige.reports.words import NOTHING, Row, decimal, p_value, pairs, percent, whole
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


def user_report(run: Run, *, show_secrets: bool) -> Report:
    """The report of a `UserAudit`."""
    summary = run.summary
    audited = [row for row in run.rows if row["kind"] == "audited"]
    known = [float(row["score"]) for row in run.rows if row["kind"] == "known out"]
    null = [row for row in run.rows if row["kind"] == "null"]
    if not audited:
        raise ValueError("rows must hold at least one of the kind 'audited'")
    learned = "other non-members" if summary["fitted_on"] else "all audited and reference users"
    if summary["references"]:
        learned += " and from shadow models that never saw the user"
    one = len(audited) == 1
    return Report(
        kind="user-audit",
        title="Was my text used?" if one else "Whose text was used?",
        evidence=lines(*(_of_person(audited[0], known) if one else _of_owner(audited, summary))),
        notices=lines(_unanswered(summary)),
        blocks=(
            *_figures(audited, known, null, float(summary["rate"])),
            user_table(audited, show_secrets=show_secrets),
            Prose(title="Method", lines=(METHOD.format(learned=learned),)),
        ),
        facts=pairs(
            {key: value for key, value in summary.items() if value != 0},
            show_secrets=show_secrets,
            left_out=".*_needed",
        ),
        limits=LIMITS,
    )


def _of_person(own: Row, known: Sequence[float]) -> tuple[str, ...]:
    if own["score"] is None:
        return ("No word of this text could be queried.", "Give more text in the model's language.")
    higher = sum(score >= float(own["score"]) for score in known)
    used, words = int(own["compared_words"]), int(own["words"])
    first = f"; {used:,} of its {words:,} words: few non-members have more" if used < words else ""
    return (
        f"{higher:,} of {len(known):,} non-members score as high over as many words{first} "
        f"(p = {p_value(float(own['p_value']))}).",
    )


def _of_owner(audited: Sequence[Row], summary: Row) -> tuple[str, ...]:
    users, flagged, alpha = int(summary["users"]), int(summary["called"]), float(summary["rate"])
    if all(row["score"] is None for row in audited):
        return ("No word of any user could be queried.",)
    if flagged:
        return (
            f"{flagged:,} of {users:,} users flagged (false-discovery rate {percent(alpha)}). "
            "Others may have been used as well.",
            "A bound for all users: vestige train --defence dp-fedavg.",
        )
    least, number = _needed_together(audited, alpha), int(summary["calibrated_on"])
    weak = (
        f"With {number:,} non-members, Vestige flags no one unless {least:,} users score highest "
        "together. Give more reference users."
    )
    none = f"No user flagged of {users:,}; how many were used is not bounded."
    return none, weak if least > 1 else ""


def _needed_together(audited: Sequence[Row], alpha: float) -> int:
    """How many users must score above all non-members before one is flagged."""
    lowest = sorted(1 / (int(row["compared_with"]) + 1) for row in audited)
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


def user_table(audited: Sequence[Row], *, show_secrets: bool) -> Table:
    """The users with the smallest p-values."""
    rows, left = audited[:LISTED], len(audited) - LISTED
    names = disclose_names([str(row["user"]) for row in rows], show_secrets=show_secrets)
    places = [f"{place} · {name}" for place, name in enumerate(names, 1)]

    def scored(row: Row, text: str) -> str:
        return NOTHING if row["score"] is None else text

    def as_high(row: Row) -> str:
        known = int(row["compared_with"])
        return f"{round(float(row['p_value']) * (known + 1)) - 1:,} of {known:,}"

    def compared(row: Row) -> str:
        used, words = int(row["compared_words"]), int(row["words"])
        return f"{used:,}" if used == words else f"{used:,} of {words:,}"

    return table(
        "Users" + (f" ({left:,} more in the run directory)" if left > 0 else ""),
        [{**row, "place": place} for row, place in zip(rows, places, strict=True)],
        {
            "user": lambda row: row["place"],
            "flagged": lambda row: bool(row["called"]),
            "p-value": lambda row: scored(row, p_value(float(row["p_value"]))),
            "score as high": lambda row: scored(row, as_high(row)),
            "score": lambda row: decimal(row["score"], 3),
            "texts": lambda row: whole(row["texts"]),
            "words compared": compared,
        },
        texts=2,
    )


def _figures(
    audited: Sequence[Row], known: Sequence[float], null: Sequence[Row], alpha: float
) -> tuple[Figure, ...]:
    rows = [row for row in audited if row["score"] is not None]
    if not rows or not known:
        return ()
    scores, p_values = ([float(row[name]) for row in rows] for name in ("score", "p_value"))
    if len(audited) == 1:
        marks = "Each dot is a non-member" if len(known) <= DOTS else "Bars are non-members"
        return (
            Figure(
                draw=lambda width: one_among(known, scores[0], label="this text", width=width),
                caption=f"{marks}, over as many words. Further right, the model knows the text "
                "better. A line to the right of nearly all of them shows that the text was "
                "probably used.",
                slim=True,
            ),
        )
    flagged = [bool(row["called"]) for row in rows]
    low = [float(row["p_value"]) for row in null]
    return (
        Figure(
            draw=lambda width: two_groups(scores, known, width=width),
            caption="Scores of the audited users, above, and of non-members, below, over as many "
            "words as the middle user is compared over.",
            slim=True,
        ),
        Figure(
            draw=lambda width: sorted_p_values(p_values, flagged, low, width=width),
            caption="P-values in order; without membership they lie near the dashed line. A disc "
            f"is a flagged user. {_null_sentence(null, alpha)}".strip(),
            slim=True,
        ),
    )


def _null_sentence(null: Sequence[Row], alpha: float) -> str:
    checked = null_share(null, alpha)
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


def null_share(null: Sequence[Row], alpha: float) -> tuple[float, Interval | None] | None:
    """Share of null p-values up to alpha, with its interval over users; None without any."""
    if not null:
        return None
    named = sorted((str(row["user"]), float(row["p_value"]) <= alpha) for row in null)
    by_user = groupby(named, key=lambda one: one[0])
    shares = [fmean(low for _, low in of_user) for _, of_user in by_user]
    return fmean(shares), share_interval(shares)
