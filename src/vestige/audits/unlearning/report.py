"""The report of `vestige unlearning`: the remaining share, each model's knowledge, the texts."""

from collections.abc import Sequence
from math import isnan

from vestige.claims import NO_LEAK, UNDECIDED
from vestige.reports.blocks import Prose, Table, audit_note, table
from vestige.reports.charts import Figure, two_groups
from vestige.reports.disclosure import printable
from vestige.reports.report import Report, lines
from vestige.reports.words import NOTHING, Row, decimal, interval, p_value, percent
from vestige.results import Run

LISTED = 25
"""Most texts in the table of a page."""

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
    answer, *evidence = _findings(summary)
    rows = {kind: [row for row in run.rows if row["kind"] == kind] for kind in DATA}
    deleted, reference = ([_score(row) or 0.0 for row in rows[kind]] for kind in DATA)
    question = (
        f"Whether a model still knows {int(summary['deleted']):,} deleted texts better than a "
        "reference, and how much of what it knew before the deletion remains."
    )
    return Report(
        title="Are these texts gone?",
        answer=answer,
        evidence=tuple(evidence),
        blocks=(
            _knowledge(summary),
            _chart(deleted, reference),
            _text_table(rows["deleted"], reference, show_secrets=show_secrets),
            Prose(title="Next", lines=(NEXT,)),
            audit_note(
                run.run,
                question=question,
                models=MODELS,
                data=DATA,
                finding=" ".join((answer, *evidence)),
                limits=LIMITS,
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


def _findings(summary: Row) -> tuple[str, ...]:
    """The answer in one sentence, and what supports it."""
    texts = f"the {int(summary['deleted']):,} deleted texts"
    than = f"than the {int(summary['reference']):,} reference texts"
    if summary["with_retrained"]:
        than += " and than the retrained model does"
    p, less, before = (p_value(summary[f"{name}p_value"]) for name in ("", "less_", "before_"))
    if summary["verdict"] == UNDECIDED:
        before_p = summary["before_p_value"]
        if summary["left"] is not None or before_p is None or isnan(before_p):
            return ("A check failed, so these scores do not support a verdict.",)
        return (
            f"BEFORE is not shown to know {texts} (p = {before}).",
            "More deleted texts, a larger reference or --retrained can help.",
        )
    if summary["finding"] == "suppressed":
        return (
            f"AFTER knows {texts} less {than}, and less than BEFORE did (p = {less}).",
            "They were suppressed, not deleted: anyone with the model can see that they were in "
            "its training data.",
        )
    remains = ""
    if summary["left"] is not None:
        # negative if AFTER knows the texts less than the reference
        shares = (f"{100 * summary[name]:.0f}%" for name in ("left", "left_low", "left_high"))
        remains = "{} of what BEFORE knew remains (95% CI {} to {}).".format(*shares)
    if summary["verdict"] == NO_LEAK:
        most = f"{100 * max(0.0, summary['left_high']):.0f}%"
        return lines(
            remains,
            f"AFTER does not know {texts} better {than} (p = {p}).",
            f"At most {most} can remain (upper end of the 95% CI).",
        )
    return lines(
        remains,
        f"AFTER still knows {texts} better {than} (p = {p}).",
        "This does not say that a text can be extracted: vestige extract tests that.",
    )


def _knowledge(summary: Row) -> Table:
    beyond = ", beyond the retrained model" if summary["with_retrained"] else ""
    names = {"before": f"BEFORE{beyond}", "after": f"AFTER{beyond}", "retrained": "retrained"}
    estimates = {
        name: [summary[f"{role}_knows{end}"] for end in ("", "_low", "_high")]
        for role, name in names.items()
        if summary[f"{role}_knows"] is not None
    }
    return table(
        "What each model knows of the deleted texts beyond the reference, in nats per token",
        list(estimates),
        {
            "model": str,
            "knows": lambda name: decimal(estimates[name][0], 3),
            "95% CI": lambda name: interval(*estimates[name][1:], digits=3),
        },
    )


def _chart(deleted: Sequence[float], reference: Sequence[float]) -> Figure:
    return Figure(
        draw=lambda width: two_groups(
            deleted, reference, names=("deleted", "reference"), of="texts",
            score="how well AFTER knows a text", width=width,
        ),
        caption="How well AFTER knows each deleted text (above) and each reference text (below). "
        "If nothing remains, both look the same.",
        points=len(deleted),
        slim=True,
    )  # fmt: skip


def _text_table(rows: Sequence[Row], reference: Sequence[float], *, show_secrets: bool) -> Table:
    """The deleted texts that AFTER knows best."""

    def text(row: Row) -> str:
        excerpt = f" · {printable(str(row['text']))}" if show_secrets and row["text"] else ""
        return f"{row['number']}{excerpt}"

    def as_high(row: Row) -> str:
        score = _score(row)
        if score is None:
            return NOTHING
        return percent(sum(other >= score for other in reference) / len(reference))

    return table(
        "Deleted texts that AFTER knows best",
        sorted(rows, key=lambda row: (-(_score(row) or 0.0), row["number"])),
        most=LISTED,
        text=text,
        tokens=lambda row: None if row["length"] is None else int(row["length"]),
        BEFORE=lambda row: decimal(row["before"], 3),
        AFTER=lambda row: decimal(_score(row), 3),
        reference_as_high=as_high,
    )


def _score(row: Row) -> float | None:
    """AFTER's score of a text; None if it is missing or NaN."""
    value = row["after"]
    return None if value is None or isnan(value) else float(value)
