"""An audit of users: one person's page, and that of a model's owner."""

from vestige.reports.audit import charts
from vestige.reports.audit.words import (
    METHOD,
    AuditedRows,
    describe,
    describe_owner_null,
    describe_person_null,
    p_value,
    warnings,
    words_compared,
)
from vestige.reports.blocks import Prose
from vestige.reports.charts import Figure
from vestige.reports.disclosure import disclose_names
from vestige.reports.numbers import NOTHING, Row, decimal, percent, whole
from vestige.reports.report import Report, lines
from vestige.reports.tables import Table
from vestige.results import Run

LIMITS = (
    "A p-value is not the chance that a text was used. It says how often somebody whose text "
    "was not used would come as far.",
    "What is not shown is not thereby excluded: few words, few shown words or a model that "
    "learnt little hide what there is.",
    "Membership is of the words: copies and quotations by others count as well, and nothing "
    "is said about who gave the text, when, or whether they were allowed to.",
    "The comparison is fair only with people who write about the same things, at the same "
    "time, in the same kind of text. Somebody wrongly held to be out makes the audit weaker, "
    "but raises no false alarm.",
    "An audit that is repeated with other options until it says yes says nothing. Choose the "
    "options first, and ask once.",
    "Among users who are flagged, the stated share of wrong ones is an average over audits.",
)

LISTED = 25
"""Users that the owner's page lists one by one."""

COLUMNS = ("user", "flagged", "p-value", "score as high", "score", "words compared")
_GROUPS = {
    "calibrated_on": "to compare with",
    "fitted_on": "to learn what to expect",
    "counted_on": "to count words of",
}
_ACCOUNT = {
    "words_asked": "words of everybody asked about",
    "queries": "questions sent",
    "budget": "questions allowed",
    "cached": "questions answered from memory",
    "failures": "calls that failed",
    "short_lists": "answers of fewer words than could be shown",
    "unknown_words": "words in answers that are not in the vocabulary",
    "words_unanswered": "words without an answer",
}


def audit_report(run: Run, *, show_secrets: bool) -> Report:
    """The report of a `UserAudit`: of one person, or of many users."""
    found, summary = AuditedRows.of(run.rows), run.summary
    one = len(found.audited) == 1
    answer, because = describe(found, summary)
    learnt = "all who are audited or compared, both sides alike"
    if summary["fitted_on"]:
        learnt = "other non-members, who had no part in anything else"
    if summary["references"]:
        learnt += ", and from models that never saw the person"
    figures = _person_figures(found, summary) if one else _owner_figures(found, summary)
    users = () if one else (user_table(found, show_secrets=show_secrets),)
    method = Prose(title="How it was measured", lines=(METHOD.format(learnt=learnt),))
    return Report(
        kind="user-audit",
        title="Was my text used?" if one else "Audit before release",
        evidence=lines(answer, because),
        notices=warnings(summary),
        blocks=(*figures, *users, method),
        facts=(
            ("answer", str(summary["verdict"])),
            *_numbers(found, summary),
            *_queries(summary),
        ),
        limits=LIMITS,
    )


def user_table(found: AuditedRows, *, show_secrets: bool) -> Table:
    """The most exposed users, one a row."""
    shown = found.audited[:LISTED]
    names = disclose_names([str(row["user"]) for row in shown], show_secrets=show_secrets)
    left = len(found.audited) - len(shown)
    return Table(
        title="The most exposed users" + (f" ({left:,} more are not listed)" if left else ""),
        columns=COLUMNS,
        texts=2,
        rows=tuple(
            _cells(f"{place} · {name}", row)
            for place, (name, row) in enumerate(zip(names, shown, strict=True), start=1)
        ),
    )


def _cells(name: str, row: Row) -> tuple[str, ...]:
    asked, known = row["score"] is not None, int(row["compared_with"])
    reached = round(float(row["p_value"]) * (known + 1)) - 1
    return (
        name,
        "yes" if row["called"] else "no",
        p_value(float(row["p_value"])) if asked else NOTHING,
        f"{reached:,} of {known:,}" if asked else NOTHING,
        decimal(row["score"], 3),
        words_compared(row),
    )


def _person_figures(found: AuditedRows, summary: Row) -> tuple[Figure, ...]:
    own, rate = found.audited[0], float(summary["rate"])
    if own["score"] is None or not found.known:
        return ()
    score, reached = float(own["score"]), float(own["p_value"])
    null = [float(row["p_value"]) for row in found.null]
    dots = "Each dot is one person" if len(found.known) <= charts.DOTS else "Bars are people"
    figures = [
        Figure(
            draw=lambda width: charts.person_among(
                found.known, score, label="this text", width=width
            ),
            caption=f"{dots} whose text was certainly not used, cut to as much text. Further "
            "right, the model knows the text better. If the line stands to the right of all or "
            "nearly all of them, the model has most likely seen this text; amid them, nothing is "
            "shown.",
            slim=True,
        )
    ]
    if null:
        figures.append(
            Figure(
                draw=lambda width: charts.person_and_null(reached, null, rate, width=width),
                caption="Is the comparison fair? " + describe_person_null(found, rate),
                slim=True,
            )
        )
    return tuple(figures)


def _owner_figures(found: AuditedRows, summary: Row) -> tuple[Figure, ...]:
    scored = [row for row in found.audited if row["score"] is not None]
    if not scored or not found.known:
        return ()
    scores = [float(row["score"]) for row in scored]
    p_values = [float(row["p_value"]) for row in scored]
    called = [bool(row["called"]) for row in scored]
    null = [float(row["p_value"]) for row in found.null]
    caption = (
        "P-values of all audited users, the smallest first. If nobody’s text could be recognised "
        "they would lie along the dashed line; the further below it, the more users stand out. "
        "A disc is flagged, a ring is not. "
    )
    if null:
        caption += (
            "The thin line, models that never saw these users, should follow the dashed one. "
            + describe_owner_null(found, summary)
        )
    return (
        Figure(
            draw=lambda width: charts.two_groups(scores, found.known, width=width),
            caption="Scores of the audited users, above, and of non-members, below, over as many "
            "words as the audited user in the middle is compared by. The more the upper part "
            "lies to the right of the lower, the more the model gives away.",
            slim=True,
        ),
        Figure(
            draw=lambda width: charts.sorted_p_values(p_values, called, null, width=width),
            caption=caption,
            slim=True,
        ),
    )


def _numbers(found: AuditedRows, summary: Row) -> list[tuple[str, str]]:
    k, words = int(summary["k"]), int(summary["vocab_size"])
    least, one = p_value(float(summary["least_p_value"])), len(found.audited) == 1
    flagged = f"{whole(summary['called'])} of {whole(summary['users'])} flagged"
    pairs = [("p-value", least)] if one else [("users", flagged), ("smallest p-value", least)]
    if not one and summary.get("p_value") is not None:
        pairs.append(("p-value of all together", p_value(float(summary["p_value"]))))
    if one:
        pairs.append(("texts asked about", whole(found.audited[0]["texts"])))
    pairs += [
        ("limit set before", f"{float(summary['rate']):g}"),
        ("words asked about", whole(summary["words"])),
        ("words that the model shows", f"{k:,} of {words:,}" if k < words else f"all {words:,}"),
        ("non-members", ", ".join(
            f"{whole(summary[name])} {what}" for name, what in _GROUPS.items() if summary[name])),
        ("models of our own", whole(summary["references"])),
    ]  # fmt: skip
    checked = found.null_share(float(summary["rate"]))
    if checked is not None:
        below = percent(checked[0]) if checked[0] >= 0.001 else "none"
        pairs.append(("their p-values within the limit", below))
    return pairs


def _queries(summary: Row) -> list[tuple[str, str]]:
    """What asking came to; entries of 0 are left out, but not what matters."""
    pairs = [
        (name, whole(summary[key]))
        for key, name in _ACCOUNT.items()
        if summary.get(key) or (key == "queries" and key in summary)
    ]
    if summary.get("shadow_perplexity_ratio") is not None:
        ratio = decimal(summary["shadow_perplexity_ratio"])
        pairs.append(("their perplexity on text not seen, over that on text seen", ratio))
    return pairs
