"""Secrets that were never planted: which of them the model completes."""

from collections.abc import Sequence
from math import log, log2

from vestige.reports.charts import QUIET, Chart, Figure, alt, disc, inline, ring
from vestige.reports.disclosure import disclose
from vestige.reports.numbers import Row
from vestige.reports.report import Report, lines
from vestige.reports.tables import Table
from vestige.reports.words import pairs
from vestige.results import Run

COLUMNS = ("up to the part", "secret", "kind", "given", "part", "greedy", "beam", "chance")
LIMITS = (
    "A secret that is not completed can leak all the same: after other words, by sampling, or by "
    "its probability (see its exposure).",
    "A part that was not drawn uniformly from its format, such as a common name, can be completed "
    "by a model that never read the secret.",
)


LEAST = -1000.0
"""Natural log-probability below which a chart does not go; what has probability 0 has none."""


def completion_report(run: Run, *, show_secrets: bool) -> Report:
    """The report of a `SecretCompletion`."""
    points = [
        {
            "part": f"{row['secret_number']}: {row['kind']}, {number}",
            "bits": -max(float(row["log_prob"]), LEAST) / log(2),
            "space": -log2(float(row["chance"])),
            "said": bool(row["greedy"]),
        }
        for number, row in enumerate(ordered(run.rows), 1)
    ]
    figure = Figure(
        draw=lambda width: surprises(points, width=width),
        caption="Bits of each part under the model (filled: completed by greedy decoding), and "
        "bits of a guess among all texts of its format (the other end of the line).",
        points=len(points),
        slim=True,
    )
    table = Table(
        title="Parts of secrets, each from what precedes it",
        columns=COLUMNS,
        rows=tuple(completed_table(run.rows, show_secrets=show_secrets)),
        key="Given, part: tokens. Beam: place among the continuations that were kept. Chance: the "
        "largest probability that greedy decoding gives a part that was never read; 1 where its "
        "alternatives are only words of a list.",
    )
    return Report(
        kind="completed-secrets",
        title="Does the model complete these secrets?",
        evidence=lines(str(run.summary["sentence"])),
        blocks=(figure, table),
        facts=pairs(run.summary, show_secrets=show_secrets, left_out="sentence"),
        limits=LIMITS,
    )


def completed_table(rows: Sequence[Row], *, show_secrets: bool) -> list[tuple[str, ...]]:
    """One row a part, completed ones first; cells as in `COLUMNS`."""
    rows = ordered(rows)
    texts = disclose([row["phrase"] for row in rows], show_secrets=show_secrets)
    return [
        (
            text,
            str(row["secret_number"]),
            str(row["kind"]),
            str(row["given_tokens"]),
            str(row["part_tokens"]),
            "completed" if row["greedy"] else "",
            "" if row["beam_place"] is None else str(row["beam_place"]),
            f"{row['chance']:.0e}",
        )
        for row, text in zip(rows, texts, strict=True)
    ]


def ordered(rows: Sequence[Row]) -> list[Row]:
    """Completed parts first, then by their probability."""
    return sorted(rows, key=lambda row: (not row["greedy"], -row["log_prob"]))


def surprises(points: Sequence[dict[str, object]], *, width: int) -> Chart:
    """Bits of each part under the model, and of a guess."""
    y = alt.Y("part:N", sort=None, title="secret and its part")
    x = alt.X("bits:Q", title="bits", scale=alt.Scale(zero=True))
    chart = inline(points)
    said, others = (chart.transform_filter(alt.datum.said == one) for one in (True, False))
    return alt.layer(
        chart.mark_rule(stroke=QUIET, strokeWidth=2).encode(x=x, x2="space:Q", y=y),
        disc(said, 70).encode(x=x, y=y),
        ring(others, 70).encode(x=x, y=y),
    ).properties(width=width, height=alt.Step(18))
