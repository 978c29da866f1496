"""The report of one phrase's rank: how many phrases score higher, and the profile of its tokens."""

from collections.abc import Sequence

from vestige.reports.blocks import Table
from vestige.reports.charts import ACCENT, Chart, Figure, alt, disc, inline, ring
from vestige.reports.disclosure import disclose
from vestige.reports.report import Report, lines
from vestige.reports.words import Row, whole
from vestige.results import Run

LIMITS = (
    "The rank counts token sequences of the same length only, in this vocabulary.",
    "Bounds are proven. The estimate between them is from samples, which can miss phrases that are "
    "many and each improbable: an estimate proves nothing.",
    "The rank holds for this phrase and this pair of models. After another update, or in another "
    "context, it is different.",
    "Someone who knows the beginning of a phrase may learn its end, even if the whole phrase is "
    "improbable: see the profile.",
)


def rank_report(run: Run, *, show_secrets: bool) -> Report:
    """The report of a `DifferentialRank`."""
    labels = disclose([str(row["piece"]) for row in run.rows], show_secrets=show_secrets)
    profile = Figure(
        draw=lambda width: chart_of_profile(run.rows, labels, width=width),
        caption="Probability of each token after the tokens before it: before the update (ring) "
        "and after it (disc).",
        points=len(labels),
        slim=True,
    )
    tokens = Table(
        title="Tokens, given those before",
        columns=("token", "before", "after", "gain", "sum of gains"),
        rows=tuple(map(_cells, run.rows, labels)),
    )
    return Report(
        kind="rank",
        title="How exposed is this phrase?",
        evidence=lines(rank_of(run.summary), estimate_of(run.summary)),
        blocks=(profile, tokens) if run.rows else (),
        limits=LIMITS,
    )


def rank_of(summary: Row) -> str:
    """How many phrases of the same length score higher, exactly or between bounds."""
    lower = summary["rank_lower"]
    if not summary["exact"]:
        low, high = (_size(summary, f"rank_{end}") for end in ("lower", "upper"))
        return f"Between {low} and {high} phrases of the same length score higher (proven bounds)."
    if not lower:
        return "Rank 1 (exact): no phrase of the same length scores higher."
    phrases = "1 phrase" if lower == 1 else f"{lower:,} phrases"
    score = "scores" if lower == 1 else "score"
    return f"Rank {lower + 1:,} (exact): {phrases} of the same length {score} higher."


def estimate_of(summary: Row) -> str:
    """The estimate between the bounds, or why there is none; empty for exact ranks."""
    samples = summary.get("samples")
    names = ("rank_estimate", "log10_rank_estimate")
    if any(summary.get(name) is not None for name in names):
        low, high = (_size(summary, f"rank_estimate_{end}") for end in ("low", "high"))
        return (
            f"Estimate: about {_size(summary, 'rank_estimate')} (95% CI {low} to {high}; "
            f"{samples:,} samples)."
        )
    if not samples:
        return ""
    if not summary["hits"]:
        return f"None of {samples:,} samples scores higher, which proves nothing."
    return (
        f"No estimate: too few samples score higher (worth {summary['effective_runs']:.1f} runs)."
    )


def chart_of_profile(rows: Sequence[Row], labels: Sequence[str], *, width: int) -> Chart:
    """Probability of each token after the true prefix, before and after the update.

    Args:
        rows: of a DifferentialRank: before, after.
        labels: of the tokens.

    Returns:
        The length of each line is the token's gain, as in the paper's Figure 1.
    """
    ends = [{end: float(row[end]) for end in ("before", "after")} for row in rows]
    values = [
        {"position": place, "token": f"{place} · {label}", **own}
        for place, (own, label) in enumerate(zip(ends, labels, strict=True), 1)
    ]
    order = alt.EncodingSortField(field="position", order="ascending")
    x = alt.X("token:N", sort=order, title=None, axis=alt.Axis(labelAngle=-35, labelLimit=110))
    y = alt.Y("before:Q", title="probability given the prefix", scale=alt.Scale(domain=[0, 1]))
    chart = inline(values).encode(x=x)
    return alt.layer(
        chart.mark_rule(stroke=ACCENT, strokeWidth=3).encode(y=y, y2="after:Q"),
        ring(chart, 55).encode(y=y),
        disc(chart, 75).encode(y="after:Q"),
    ).properties(width=width, height=240)


def _cells(row: Row, label: str) -> tuple[str, ...]:
    gains = (f"{row['gain']:+.3f}", f"{row['cumulative']:+.3f}")
    return (label, _probability(row["before"]), _probability(row["after"]), *gains)


def _probability(value: float) -> str:
    return f"{value:.0e}" if 0 < value < 1e-4 else f"{value:.4f}"


def _size(summary: Row, name: str) -> str:
    """A number of a summary, which has only the logarithm of one that no float holds."""
    number = summary[name]
    return whole(number) if number is not None else f"10^{summary[f'log10_{name}']:.0f}"
