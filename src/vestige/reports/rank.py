"""The rank of a phrase among all of its length: the estimate first, then what is proven."""

from collections.abc import Sequence

from vestige.reports.charts import ACCENT, Chart, Figure, alt, disc, inline, ring
from vestige.reports.disclosure import disclose
from vestige.reports.numbers import Row, whole
from vestige.reports.report import Report, lines
from vestige.reports.tables import Table
from vestige.results import Run

COLUMNS = ("token", "before", "after", "gain", "sum")
"""Of the table: probabilities, gain in score and its running sum."""

LIMITS = (
    "The rank counts token sequences of the same length only, in this vocabulary's tokens.",
    "Bounds are proven. Where between them the rank lies is estimated from samples, which can "
    "miss phrases that are many and each unlikely to be drawn: an estimate proves nothing.",
    "A rank measures this phrase in this pair of models: the same phrase after another "
    "update, or in another context, has another.",
    "A low probability without a prefix does not protect the end of a phrase from someone "
    "who knows its beginning: read the profile.",
)


def rank_report(run: Run, *, show_secrets: bool) -> Report:
    """The report of a `DifferentialRank`."""
    labels = disclose([str(row["piece"]) for row in run.rows], show_secrets=show_secrets)
    figure = Figure(
        draw=lambda width: profile(run.rows, labels, width=width),
        caption="Probability of each token once the tokens before it are known: "
        "before the update (ring) and after it (disc).",
        points=len(labels),
        slim=True,
    )
    table = Table(
        title="Token by token", columns=COLUMNS, rows=tuple(map(_cells, run.rows, labels))
    )
    return Report(
        kind="rank",
        title="How exposed is this phrase?",
        evidence=lines(describe_rank(run.summary)),
        blocks=(figure, table) if run.rows else (),
        limits=LIMITS,
    )


def _cells(row: Row, label: str) -> tuple[str, ...]:
    numbers = (f"{row['gain']:+.3f}", f"{row['cumulative']:+.3f}")
    return (label, _probability(row["before"]), _probability(row["after"]), *numbers)


def _probability(value: float) -> str:
    return f"{value:.0e}" if 0 < value < 1e-4 else f"{value:.4f}"


def profile(rows: Sequence[Row], labels: Sequence[str], *, width: int) -> Chart:
    """Probability of each token after the true prefix, before and after the update.

    Args:
        rows: of a DifferentialRank: before, after.
        labels: what stands under each position.

    Returns:
        The length of each line is the token's gain, as in the paper's Figure 1.
    """
    ends = [{end: float(row[end]) for end in ("before", "after")} for row in rows]
    values = [
        {"position": index, "token": f"{index + 1} · {label}", **own}
        for index, (own, label) in enumerate(zip(ends, labels, strict=True))
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


def describe_rank(summary: Row) -> str:
    """A differential rank and its certainty as a sentence."""
    lower = summary["rank_lower"]
    if not summary["exact"]:
        low, high = (_size(summary, f"rank_{end}") for end in ("lower", "upper"))
        between = f"between {low} and {high}, both proven."
        return f"{_estimated(summary)}{between}{_not_estimated(summary)}"
    higher = "no sequence" if lower == 0 else "1 sequence" if lower == 1 else f"{lower:,} sequences"
    verb = "scores" if lower < 2 else "score"
    return f"Rank {lower:,}, exactly: {higher} of the same length {verb} higher."


def _estimated(summary: Row) -> str:
    if not _has_estimate(summary):
        return "Rank "
    low, high = (_size(summary, f"rank_estimate_{end}") for end in ("low", "high"))
    return (
        f"Rank about {_size(summary, 'rank_estimate')}, an estimate from "
        f"{summary['samples']:,} samples (95 % interval {low} to {high}); it is "
    )


def _not_estimated(summary: Row) -> str:
    if not summary.get("samples") or _has_estimate(summary):
        return ""
    if not summary["hits"]:
        return (
            f" Of {summary['samples']:,} samples, drawn towards this phrase and towards what was "
            "promoted, none scores higher, which proves nothing."
        )
    return (
        f" No estimate between them: too few of the runs reached what scores higher (worth "
        f"{summary['effective_runs']:.1f} runs). More --samples may give one."
    )


def _size(summary: Row, name: str) -> str:
    """A rank of a summary, which keeps only the logarithm of one that no float holds."""
    number = summary[name]
    return whole(number) if number is not None else f"10^{summary[f'log10_{name}']:.0f}"


def _has_estimate(summary: Row) -> bool:
    names = ("rank_estimate", "log10_rank_estimate")
    return any(summary.get(name) is not None for name in names)
