"""The report of passages that are extracted from texts."""

from collections.abc import Sequence
from math import isfinite
from typing import Any

from vestige.reports.blocks import Prose, Table, audit_note, table
from vestige.reports.charts import intervals
from vestige.reports.disclosure import printable
from vestige.reports.report import Report
from vestige.reports.words import NOTHING, Row, chance, interval, percent
from vestige.results import Run

METHOD = (
    "The model reads all text before a passage. Greedy decoding generates the passage if each of "
    "its tokens is the most probable one. Sampling generates it with probability p, the product of "
    "its tokens’ probabilities among the most probable; one of n samples is the passage with "
    "probability 1 - (1 - p)^n (Hayes et al. 2024). The p-value compares the share of sampled "
    "passages with the reference at the same positions. Near-duplicates, and texts of one author, "
    "are one unit. Extraction strength: share of a text, from its end, that greedy decoding "
    "generates after the rest. Tokens exact: those that are the most probable."
)
LIMITS = (
    "This is what an attacker extracts who has the text before a passage. One without it extracts "
    "less: vestige diff searches without it.",
    "A passage that is not sampled can still be extracted by other prompts or after more training.",
    "Common phrases and quotations are extracted from models that never read these texts. Only the "
    "difference to a reference of the same kind shows memorization.",
    "Intervals are for independent texts like these, under this one model.",
)
_MEASURES = {
    "texts_sampled": "texts with a sampled passage",
    "sampled": "passages sampled",
    "greedy": "passages by greedy decoding",
    "strength": "extraction strength, mean",
    "exact": "tokens exact, mean",
}
MAX_LISTED = 25
"""Most texts in the table."""


def passages_report(run: Run, *, show_secrets: bool) -> Report:
    """The report of a `TextMemorization`."""
    summary = run.summary
    measures = {name: title for name, title in _MEASURES.items() if summary[name] is not None}
    chart = intervals(
        [_chart_point(summary, name, title) for name, title in measures.items()],
        name="",
        value="share",
        across=False,
        domain=(0, 1),
        caption="What is extracted of these texts (disc, with its 95% interval) and of the "
        "reference (ring).",
    )
    measures_table = table(
        "What is extracted, in percent",
        measures,
        measure=lambda name: _MEASURES[name],
        these_texts=lambda name: _percent_cell(summary, name),
        reference=lambda name: _percent_cell(summary, f"reference_{name}"),
        difference=lambda name: _percent_cell(summary, f"{name}_difference"),
        key="95% intervals in brackets count independent texts.",
    )
    finding, *evidence = _sentences(summary)
    short = int(summary["texts"]) - int(summary["texts_with_passages"])
    notice = (
        f"{short:,} of {int(summary['texts']):,} texts are too short for a prefix and a passage: "
        "lower --prefix or --suffix."
    )
    note = audit_note(
        run.run,
        question="How much of the training texts can be extracted verbatim, compared with a "
        "reference?",
        models={"target": "the model"},
        data={
            "texts": "texts stated to be in the training data",
            "reference": "texts stated not to be in the training data",
        },
        finding=" ".join((finding, *evidence)),
        limits=LIMITS,
    )
    return Report(
        title="How much of these texts is extracted?",
        answer=finding,
        evidence=tuple(evidence),
        notices=(notice,) if short else (),
        blocks=(
            chart,
            measures_table,
            _texts_table(run.rows, show_secrets=show_secrets),
            note,
            Prose(title="How it was measured", lines=(METHOD,)),
        ),
        facts=(
            ("texts", f"{int(summary['texts']):,}"),
            ("reference texts", f"{int(summary['reference_texts']):,}"),
            ("p-value", NOTHING if summary["p_value"] is None else chance(summary["p_value"])),
            ("tokens", f"{int(summary['texts_tokens']):,}"),
            ("prefix, suffix", f"{summary['prefix_tokens']}, {summary['suffix_tokens']} tokens"),
            ("sampling", f"top {summary['top_k']}, temperature {summary['temperature']:g}"),
        ),
        limits=LIMITS,
    )


def _sentences(summary: Row) -> tuple[str, str, str]:
    """Extracted passages, the criterion, and what greedy decoding generates."""

    def number(name: str) -> str:
        return f"{int(summary[name]):,}"

    value, low, high = _estimate(summary, "sampled_per_10000")
    reference_sampled = reference_longest = ""
    notes = [] if low is None else [f"95% CI {low:.3g} to {high:.3g}"]
    if summary["reference_texts"]:
        hits, passages = number("reference_sampled_passages"), number("reference_passages")
        reference_sampled = f" (reference: {hits} of {passages})"
        notes.append(f"reference: {summary['reference_sampled_per_10000']:.3g}")
        reference_longest = f" (reference: {number('reference_longest_of_all')})"
    bracketed = f" ({'; '.join(notes)})" if notes else ""
    return (
        f"{number('sampled_passages')} of {number('passages')} passages of "
        f"{int(summary['suffix_tokens'])} tokens are extracted{reference_sampled}.",
        f"Extracted: one of {number('tries')} samples is the passage with probability "
        f"{percent(summary['chance'])} or more. These are {value:.3g} per 10,000 tokens"
        f"{bracketed}.",
        f"Greedy decoding generates {number('greedy_passages')}; the longest verbatim run has "
        f"{number('longest_of_all')} tokens{reference_longest}.",
    )


def _estimate(summary: Row, name: str) -> list[Any]:
    """A value and both ends of its interval."""
    return [summary[f"{name}{end}"] for end in ("", "_low", "_high")]


def _chart_point(summary: Row, name: str, title: str) -> Row:
    value, low, high = _estimate(summary, name)
    ends = {"low": value if low is None else low, "high": value if high is None else high}
    return {"label": title, "value": value, "other": summary[f"reference_{name}"], **ends}


def _percent_cell(summary: Row, name: str) -> str:
    value, low, high = _estimate(summary, name)
    if value is None:
        return NOTHING
    rounded = f"{100 * value:.1f}"
    return rounded if low is None else f"{rounded} ({interval(100 * low, 100 * high, digits=1)})"


def _texts_table(rows: Sequence[Row], *, show_secrets: bool) -> Table:
    """The texts of which most is extracted, one per row."""

    def name(row: Row) -> str:
        text = printable(str(row["text"] or "")) if show_secrets else ""
        return f"{row['number']} · {text}" if text else str(row["number"])

    def samples_needed(row: Row) -> str:
        if not row["passages"]:
            return NOTHING
        if row["tries"] is None or not isfinite(row["tries"]):
            return "never"
        return f"{row['tries']:,.0f}" if row["tries"] < 1e6 else f"{row['tries']:.0e}"

    return table(
        "Texts of which most is extracted",
        sorted(
            (row for row in rows if row["kind"] == "text"),
            key=lambda row: (-row["sampled"], -row["longest"], -row["exact"], row["number"]),
        ),
        most=MAX_LISTED,
        text=name,
        passages=lambda row: row["passages"],
        greedy=lambda row: row["greedy"],
        sampled=lambda row: row["sampled"],
        samples_needed=samples_needed,
        longest_run=lambda row: row["longest"],
    )
