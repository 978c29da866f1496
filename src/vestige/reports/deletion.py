"""Whether deleted texts are still known: what was found, what each model knows, and what is left.

The terminal shows the same words.
"""

from collections.abc import Sequence

from vestige.claims import NO_LEAK, UNDECIDED
from vestige.reports.audit.charts import two_groups
from vestige.reports.audit.words import p_value
from vestige.reports.blocks import Prose
from vestige.reports.charts import Figure
from vestige.reports.disclosure import disclose
from vestige.reports.file_note import file_note
from vestige.reports.numbers import NOTHING, Row, decimal, percent
from vestige.reports.report import Report, lines
from vestige.reports.tables import Table
from vestige.results import Run

LISTED = 25
"""Texts that a page lists one by one."""

PAIR = (
    "What the two models reveal together, which neither does alone: vestige diff BEFORE AFTER "
    "--removed --out pair."
)

METHOD = (
    "Each text counts with the mean log-probability of its tokens, each less the mean at the same "
    "position of all texts that reach it. What a model knows of the deleted texts is their mean "
    "less that of the reference; what the retrained model knows, where there is one, is subtracted "
    "for each text. Near-duplicates, and texts of one author where authors are named, are one "
    "unit. P-values deal whole units at random to both sides; the share left is a ratio of two "
    "such differences over the same units, with Fieller’s interval."
)

LIMITS = (
    "“No leak shown” excludes that more than a quarter of what BEFORE knew is left, on average "
    "over the texts. A smaller share can remain.",
    "All of it holds only against a reference of the same kind, source and time as the deleted "
    "texts, that no model here was trained on. The checks find differences in words, case, script "
    "and length; others can remain.",
    "The p-value is about the deleted texts as a whole. One of them may be memorized where the "
    "mean shows nothing: vestige extract tests each.",
    "A model that hides what it knows until it is trained on, or queried in another way, is not "
    "detected.",
)


ASKED = (
    "Whether a model still knows {texts} better than a reference, and how much of what it knew "
    "before the deletion is left."
)

UNKNOWN = "Nothing can be said of these texts: a check did not pass."


def answer(summary: Row) -> tuple[str, str]:
    """What was found, its number first, and what it means."""
    if summary["verdict"] == UNDECIDED:
        return UNKNOWN, _why(summary)
    texts = f"the {int(summary['deleted']):,} deleted texts"
    than = f"than the reference of {int(summary['reference']):,} texts"
    if summary["with_retrained"]:
        than += ", and than the retrained model does"
    if summary["verdict"] == NO_LEAK:
        first = f"{_left(summary)}AFTER is not shown to know {texts} better {than}."
        return first, _could(summary)
    if summary["finding"] == "suppressed":
        return (
            f"AFTER knows {texts} less {than}, and less than BEFORE did "
            f"(p = {_p(summary['less_p_value'])}).",
            "They were suppressed, not deleted: anyone who has the model can see that they were in "
            "its training data.",
        )
    return (
        f"{_left(summary)}AFTER still knows {texts} better {than} (p = {_p(summary['p_value'])}).",
        "They are not deleted. That does not say that one of them can be extracted: vestige "
        "extract tests that.",
    )


def _why(summary: Row) -> str:
    """What would decide, where BEFORE is not shown to know the texts."""
    p = summary["before_p_value"]
    if summary["left"] is not None or p is None or p != p:
        return ""
    return (
        f"BEFORE is not shown to know them either (p = {_p(p)}): more deleted texts, a larger "
        "reference or a retrained model (--retrained) may show it."
    )


def _p(value: float) -> str:
    return p_value(float(value))


def _told(value: float | None) -> str:
    return NOTHING if value is None or value != value else _p(value)


def _left(summary: Row) -> str:
    if summary["left"] is None:
        return ""
    ends = f"{_share(summary['left_low'])} to {_share(summary['left_high'])}"
    return f"{_share(summary['left'])} of what BEFORE knew is left (95% CI {ends}). "


def _share(value: float) -> str:
    """In percent; below 0 where AFTER knows less than nothing."""
    return f"{100 * value:.0f}%"


def _could(summary: Row) -> str:
    most = _share(max(0.0, summary["left_high"]))
    return f"At most {most} of what BEFORE knew can be left (upper end of the 95% interval)."


def knowledge(summary: Row) -> Table:
    """What each model knows of the deleted texts."""
    names = {"before": "BEFORE", "after": "AFTER", "retrained": "retrained"}
    beyond = ", beyond the retrained model" if summary["with_retrained"] else ""
    return Table(
        title="What each model knows of the deleted texts beyond the reference, nats per token",
        columns=("model", "knows", "95% interval"),
        rows=tuple(
            (
                f"{title}{beyond if name != 'retrained' else ''}",
                decimal(summary[f"{name}_knows"], 3),
                f"{decimal(summary[f'{name}_knows_low'], 3)} to "
                f"{decimal(summary[f'{name}_knows_high'], 3)}",
            )
            for name, title in names.items()
            if summary[f"{name}_knows"] is not None
        ),
    )


def text_table(rows: Sequence[Row], *, show_secrets: bool, most: int = LISTED) -> Table:
    """The deleted texts that AFTER knows best, one a row."""
    own = sorted(
        (row for row in rows if row["kind"] == "deleted"),
        key=lambda row: (-(_score(row) or 0.0), row["number"]),
    )
    others = [_score(row) or 0.0 for row in rows if row["kind"] == "reference"]
    left = len(own) - most
    return Table(
        title="Deleted texts, those that AFTER knows best first"
        + (f" ({left:,} more are in the run directory)" if left > 0 else ""),
        columns=("text", "tokens", "BEFORE", "AFTER", "reference as high"),
        rows=tuple(_cells(row, others, show_secrets) for row in own[:most]),
    )


def _cells(row: Row, others: Sequence[float], show_secrets: bool) -> tuple[str, ...]:
    told = disclose([str(row["text"] or "")], show_secrets=True)[0] if show_secrets else ""
    own = _score(row)
    as_high = None if own is None else sum(other >= own for other in others) / len(others)
    return (
        f"{row['number']} · {told}" if told else str(row["number"]),
        NOTHING if row["length"] is None else f"{int(row['length']):,}",
        decimal(row["before"], 3),
        decimal(own, 3),
        NOTHING if as_high is None else percent(as_high),
    )


def _score(row: Row) -> float | None:
    """How well AFTER knows a text; None where that is not finite."""
    value = row["after"]
    return None if value is None or value != value else float(value)


def deletion_report(run: Run, *, show_secrets: bool) -> Report:
    """The report of a `Deletion`."""
    summary = run.summary
    first, because = answer(summary)
    deleted, others = (
        [_score(row) or 0.0 for row in run.rows if row["kind"] == kind]
        for kind in ("deleted", "reference")
    )
    figure = Figure(
        draw=lambda width: two_groups(
            deleted, others, names=("deleted", "reference"), of="texts",
            score="how well AFTER knows a text", width=width,
        ),
        caption="What AFTER knows of each deleted text, above, and of each reference text, below: "
        "alike where nothing is left.",
        points=len(deleted),
        slim=True,
    )  # fmt: skip
    return Report(
        kind="deletion",
        title="Are these texts gone?",
        evidence=lines(first, because),
        notices=(PAIR,),
        blocks=(
            knowledge(summary),
            figure,
            text_table(run.rows, show_secrets=show_secrets),
            file_note(
                run.run,
                asked=ASKED.format(texts=f"{int(summary['deleted']):,} deleted texts"),
                models={
                    "before": "the model before the deletion",
                    "after": "the model after it",
                    "retrained": "a model stated to be trained without them",
                },
                data={
                    "deleted": "the deleted texts",
                    "reference": "texts stated not to be in the training data",
                },
                found=f"{first} {because}",
                unsaid=LIMITS,
            ),
            Prose(title="How it was measured", lines=(METHOD,)),
        ),
        facts=(
            ("p-value", _told(summary["p_value"])),
            ("p-value, known less", _told(summary["less_p_value"])),
            ("p-value, BEFORE", _told(summary["before_p_value"])),
            ("level", f"{float(summary['rate']):g}"),
            ("independent deleted texts", f"{int(summary['deleted_units']):,}"),
            ("independent reference texts", f"{int(summary['reference_units']):,}"),
        ),
    )
