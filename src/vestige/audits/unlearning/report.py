"""The report of `vestige unlearning`: what remains, what each model knows, and of which texts."""

from collections.abc import Sequence

from vestige.claims import NO_LEAK, UNDECIDED
from vestige.reports.blocks import Prose, Table, file_note, table
from vestige.reports.charts import Figure, two_groups
from vestige.reports.disclosure import printable
from vestige.reports.report import Report, lines
from vestige.reports.words import NOTHING, Row, decimal, interval, p_value, percent
from vestige.results import Run

LISTED = 25
"""Texts that a page lists."""

NEXT = (
    "Both models together can reveal more than AFTER alone: vestige diff BEFORE AFTER --removed "
    "--out pair."
)
METHOD = (
    "A text's score is the mean log-probability of its tokens, each less the mean at the same "
    "position of all texts that reach it. What a model knows of the deleted texts is their mean "
    "score less that of the reference; if there is a retrained model, its score of each text is "
    "subtracted. Near-duplicates are one unit, and so are texts of one author if authors are "
    "named. P-values are of a permutation test of units. The remaining share is a ratio of two "
    "such differences over the same units, with Fieller’s interval."
)
LIMITS = (
    "“No leak shown” excludes that more than a quarter of what BEFORE knew remains, on average "
    "over the texts. A smaller share can remain.",
    "All of this holds only for a reference of the same kind, source and time as the deleted "
    "texts, which no model here was trained on. The checks find differences in words, case, script "
    "and length; others can remain.",
    "The p-value is about the deleted texts together. A single text can be memorized although the "
    "mean shows nothing: vestige extract tests each text.",
    "A model that hides what it knows until it is trained or queried in another way is not "
    "detected.",
)
MODELS = {
    "before": "the model before the deletion",
    "after": "the model after it",
    "retrained": "a model stated to be trained without them",
}
DATA = {
    "deleted": "the deleted texts",
    "reference": "texts stated not to be in the training data",
}


def unlearning_report(run: Run, *, show_secrets: bool) -> Report:
    """The report of a `Deletion`."""
    summary = run.summary
    answer, *evidence = findings(summary)
    question = (
        f"Whether a model still knows {int(summary['deleted']):,} deleted texts better than a "
        "reference, and how much of what it knew before the deletion remains."
    )
    found = " ".join((answer, *evidence))
    return Report(
        title="Are these texts gone?",
        answer=answer,
        evidence=tuple(evidence),
        blocks=(
            _knowledge(summary),
            _chart(run.rows),
            _text_table(run.rows, show_secrets=show_secrets),
            Prose(title="Next", lines=(NEXT,)),
            file_note(
                run.run, asked=question, models=MODELS, data=DATA, found=found, unsaid=LIMITS
            ),
            Prose(title="Method", lines=(METHOD,)),
        ),
        facts=(
            ("p-value", p_value(summary["p_value"])),
            ("p-value, known less", p_value(summary["less_p_value"])),
            ("p-value, BEFORE", p_value(summary["before_p_value"])),
            ("alpha", f"{float(summary['rate']):g}"),
            ("independent deleted texts", f"{int(summary['deleted_units']):,}"),
            ("independent reference texts", f"{int(summary['reference_units']):,}"),
        ),
    )


def findings(summary: Row) -> tuple[str, ...]:
    """The answer in one sentence, and what supports it."""
    texts = f"the {int(summary['deleted']):,} deleted texts"
    than = f"than the {int(summary['reference']):,} reference texts"
    if summary["with_retrained"]:
        than += " and than the retrained model does"
    p = f"(p = {p_value(summary['p_value'])})"
    if summary["verdict"] == UNDECIDED:
        before = summary["before_p_value"]
        if summary["left"] is not None or before is None or before != before:
            return ("A check failed, so these scores do not support a verdict.",)
        return (
            f"BEFORE is not shown to know {texts} (p = {p_value(before)}).",
            "More deleted texts, a larger reference or --retrained can help.",
        )
    if summary["finding"] == "suppressed":
        return (
            f"AFTER knows {texts} less {than}, and less than BEFORE did "
            f"(p = {p_value(summary['less_p_value'])}).",
            "They were suppressed, not deleted: anyone with the model can see that they were in "
            "its training data.",
        )
    if summary["verdict"] == NO_LEAK:
        most = _share(max(0.0, summary["left_high"]))
        return lines(
            _remains(summary),
            f"AFTER does not know {texts} better {than} {p}.",
            f"At most {most} can remain (upper end of the 95% CI).",
        )
    return lines(
        _remains(summary),
        f"AFTER still knows {texts} better {than} {p}.",
        "This does not say that a text can be extracted: vestige extract tests that.",
    )


def _remains(summary: Row) -> str:
    if summary["left"] is None:
        return ""
    share, low, high = (_share(summary[name]) for name in ("left", "left_low", "left_high"))
    return f"{share} of what BEFORE knew remains (95% CI {low} to {high})."


def _share(value: float) -> str:
    """In percent; below 0 if AFTER knows the texts less than the reference."""
    return f"{100 * value:.0f}%"


def _knowledge(summary: Row) -> Table:
    beyond = ", beyond the retrained model" if summary["with_retrained"] else ""
    names = {"before": f"BEFORE{beyond}", "after": f"AFTER{beyond}", "retrained": "retrained"}
    return table(
        "What each model knows of the deleted texts beyond the reference, in nats per token",
        [role for role in names if summary[f"{role}_knows"] is not None],
        {
            "model": lambda role: names[role],
            "knows": lambda role: decimal(summary[f"{role}_knows"], 3),
            "95% CI": lambda role: interval(
                summary[f"{role}_knows_low"], summary[f"{role}_knows_high"], digits=3
            ),
        },
    )


def _chart(rows: Sequence[Row]) -> Figure:
    deleted, others = (_scores(rows, kind) for kind in ("deleted", "reference"))
    return Figure(
        draw=lambda width: two_groups(
            deleted, others, names=("deleted", "reference"), of="texts",
            score="how well AFTER knows a text", width=width,
        ),
        caption="How well AFTER knows each deleted text (above) and each reference text (below). "
        "If nothing remains, both look the same.",
        points=len(deleted),
        slim=True,
    )  # fmt: skip


def _text_table(rows: Sequence[Row], *, show_secrets: bool) -> Table:
    """The deleted texts that AFTER knows best."""
    deleted = [row for row in rows if row["kind"] == "deleted"]
    others = _scores(rows, "reference")

    def text(row: Row) -> str:
        excerpt = f" · {printable(str(row['text']))}" if show_secrets and row["text"] else ""
        return f"{row['number']}{excerpt}"

    def as_high(row: Row) -> str:
        score = _score(row)
        if score is None:
            return NOTHING
        return percent(sum(other >= score for other in others) / len(others))

    return table(
        "Deleted texts that AFTER knows best",
        sorted(deleted, key=lambda row: (-(_score(row) or 0.0), row["number"])),
        most=LISTED,
        text=text,
        tokens=lambda row: None if row["length"] is None else int(row["length"]),
        BEFORE=lambda row: decimal(row["before"], 3),
        AFTER=lambda row: decimal(_score(row), 3),
        reference_as_high=as_high,
    )


def _scores(rows: Sequence[Row], kind: str) -> list[float]:
    return [_score(row) or 0.0 for row in rows if row["kind"] == kind]


def _score(row: Row) -> float | None:
    """How well AFTER knows a text; None if that is not finite."""
    value = row["after"]
    return None if value is None or value != value else float(value)
