"""The report of passages that are extracted from texts."""

from collections.abc import Sequence
from math import isinf

from vestige.claims import UNDECIDED
from vestige.reports.blocks import Prose, Table, file_note, table
from vestige.reports.charts import Figure, intervals
from vestige.reports.disclosure import disclose
from vestige.reports.report import Report, lines
from vestige.reports.words import NOTHING, Row, chance, decimal, interval, percent
from vestige.results import Run

METHOD = (
    "The model reads all text before a passage. Greedy decoding generates the passage if each of "
    "its tokens is the most probable one. Sampling generates it with probability p, the product of "
    "its tokens’ probabilities among the most probable; one of n samples is the passage with "
    "probability 1 - (1 - p)^n (Hayes et al. 2024). The p-value compares the share of sampled "
    "passages with the reference at the same positions. Near-duplicates, and texts of one author, "
    "are one unit. Extraction strength: share of a text, from its end, that greedy decoding "
    "generates after the rest. Tokens exact: those that are the most probable. Edit similarity and "
    "BLEU compare the greedy continuation of a text’s first tokens with the true one."
)
LIMITS = (
    "This is what an attacker extracts who has the text before a passage. One without it extracts "
    "less: vestige diff searches without it.",
    "A passage that is not sampled can still be extracted by other prompts or after more training.",
    "Common phrases and quotations are extracted from models that never read these texts. Only the "
    "difference to a reference of the same kind shows memorization.",
    "Intervals are for independent texts like these, under this one model.",
)
_MEASURES = (
    ("texts_sampled", "texts with a sampled passage"),
    ("sampled", "passages sampled"),
    ("greedy", "passages by greedy decoding"),
    ("strength", "extraction strength, mean"),
    ("exact", "tokens exact, mean"),
    ("edit", "edit similarity of continuations, mean"),
    ("approximate", "continuations of BLEU 0.75 or more"),
)
LISTED = 25
"""Texts that are listed one by one."""


def passages_report(run: Run, *, show_secrets: bool) -> Report:
    """The report of a `TextMemorization`."""
    summary = run.summary
    evidence = lines(_sampled(summary), _compared(summary), _greedy(summary))
    return Report(
        kind="memorization",
        title="How much of these texts is extracted?",
        evidence=evidence,
        notices=lines(_short(summary)),
        blocks=(
            _measures_chart(summary),
            _measures(summary),
            _texts(run.rows, show_secrets=show_secrets),
            file_note(
                run.run,
                asked="How much of the training texts can be extracted verbatim, compared with a "
                "reference?",
                models={"target": "the model"},
                data={
                    "texts": "texts stated to be in the training data",
                    "reference": "texts stated not to be in the training data",
                },
                found=" ".join(evidence),
                unsaid=LIMITS,
            ),
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


def _sampled(summary: Row) -> str:
    hits, trials = int(summary["sampled_passages"]), int(summary["passages"])
    return (
        f"{hits:,} of {trials:,} passages of {int(summary['suffix_tokens'])} tokens are extracted: "
        f"one of {int(summary['tries']):,} samples is the passage with probability "
        f"{float(summary['chance']):g} or more. That is {_per(summary, 'sampled')} per 10,000 "
        f"tokens (95% CI {_ends(summary, 'sampled_per_10000')})."
    )


def _compared(summary: Row) -> str:
    if not summary["reference_texts"]:
        return "Without a reference (--reference) common phrases count as extracted, too."
    if summary["reference_sampled"] is None:
        return "No reference text is long enough for a passage: nothing can be compared."
    other = f"Reference: {_per(summary, 'reference_sampled')} per 10,000"
    if summary["sampled_difference_low"] is None:
        return f"{other}. With one text on a side the difference has no interval."
    return f"{other} (difference: 95% CI {_ends(summary, 'sampled_per_10000_difference')})."


def _greedy(summary: Row) -> str:
    other = summary["reference_longest_of_all"]
    beside = "" if other is None else f" (reference: {int(other):,})"
    tokens = ""
    low = summary["exact_difference_low"]
    if low is not None and low > 0 and summary["verdict"] != UNDECIDED:
        own, rest = percent(summary["exact"]), percent(summary["reference_exact"])
        tokens = f" {own} of their tokens are the most probable one (reference: {rest})."
    return (
        f"Greedy decoding generates {int(summary['greedy_passages']):,}; the longest verbatim run "
        f"has {int(summary['longest_of_all']):,} tokens{beside}.{tokens}"
    )


def _short(summary: Row) -> str:
    left = int(summary["texts"]) - int(summary["texts_with_passages"])
    if not left:
        return ""
    return (
        f"{left:,} of {int(summary['texts']):,} texts are too short for a prefix and a passage: "
        "lower --prefix or --suffix."
    )


def _per(summary: Row, name: str) -> str:
    return f"{float(summary[f'{name}_per_10000']):.3g}"


def _ends(summary: Row, name: str) -> str:
    low, high = summary[f"{name}_low"], summary[f"{name}_high"]
    return "unknown for one text" if low is None else f"{low:.3g} to {high:.3g}"


def _measures_chart(summary: Row) -> Figure:
    points = [
        {
            "label": title,
            "value": summary[name],
            "low": summary[name] if summary[f"{name}_low"] is None else summary[f"{name}_low"],
            "high": summary[name] if summary[f"{name}_high"] is None else summary[f"{name}_high"],
            "other": summary[f"reference_{name}"],
        }
        for name, title in _MEASURES
        if summary[name] is not None
    ]
    return intervals(
        points,
        name="",
        value="share",
        across=False,
        domain=(0, 1),
        caption="What is extracted of these texts (disc, with its 95% interval) and of the "
        "reference (ring).",
    )


def _measures(summary: Row) -> Table:
    """Each measure, that of the reference and the difference, with intervals."""

    def cell(name: str) -> str:
        value, low, high = (summary[f"{name}{end}"] for end in ("", "_low", "_high"))
        if value is None:
            return NOTHING
        shown = f"{100 * value:.1f}"
        return shown if low is None else f"{shown} ({interval(100 * low, 100 * high, digits=1)})"

    return table(
        "What is extracted, in percent",
        [(name, title) for name, title in _MEASURES if summary[name] is not None],
        measure=lambda m: m[1],
        these_texts=lambda m: cell(m[0]),
        reference=lambda m: cell(f"reference_{m[0]}"),
        difference=lambda m: cell(f"{m[0]}_difference"),
        key="95% intervals in brackets count independent texts.",
    )


def _texts(rows: Sequence[Row], *, show_secrets: bool) -> Table:
    """The texts of which most is extracted, one per row."""
    own = sorted(
        (row for row in rows if row["kind"] == "text"),
        key=lambda row: (-row["sampled"], -row["longest"], -row["exact"], row["number"]),
    )
    left = len(own) - LISTED

    def name(row: Row) -> str:
        shown = disclose([str(row["text"] or "")], show_secrets=True)[0] if show_secrets else ""
        return f"{row['number']} · {shown}" if shown else str(row["number"])

    return table(
        "Texts of which most is extracted"
        + (f" ({left:,} more are in the run directory)" if left > 0 else ""),
        own[:LISTED],
        text=name,
        passages=lambda r: r["passages"],
        greedy=lambda r: r["greedy"],
        sampled=lambda r: r["sampled"],
        samples_needed=_needed_samples,
        longest_run=lambda r: r["longest"],
        extraction_strength=lambda r: decimal(r["strength"]),
        tokens_exact=lambda r: percent(r["exact"]),
        edit_similarity=lambda r: decimal(r["edit"]),
    )


def _needed_samples(row: Row) -> str:
    if not row["passages"]:
        return NOTHING
    tries = float("inf") if row["tries"] is None else float(row["tries"])
    if isinf(tries):
        return "never"
    return f"{tries:,.0f}" if tries < 1e6 else f"{tries:.0e}"
