"""Secrets that their owner asked for: which of them the model says."""

from collections.abc import Sequence
from math import log, log2

from vestige.reports.components.charts import QUIET, Chart, Figure, alt
from vestige.reports.components.disclosure import disclose
from vestige.reports.components.facts import pairs
from vestige.reports.components.marks import disc, inline, ring
from vestige.reports.components.numbers import Row
from vestige.reports.components.table import Table
from vestige.reports.section import KINDS, Section
from vestige.results import Run

COLUMNS = ("up to the part", "secret", "kind", "given", "part", "greedy", "beam", "chance")
LIMITS = (
    "A secret that is not said is not thereby safe: other words before it, sampling, or a look at "
    "the probabilities may still give it away (see its exposure).",
    "A part that was not drawn like its alternatives, such as a common name, may be said by a "
    "model that never read the secret.",
)


LEAST = -1000.0
"""Natural log-probability below which a chart does not go; what is never said has none."""


@KINDS.register("SecretCompletion")
def completion_section(run: Run, *, show_secrets: bool) -> Section:
    """The section of a `SecretCompletion`."""
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
        caption="Surprise of the model at each part, in bits (filled: said by greedy decoding), "
        "and of one who guesses among all that could stand there (the line’s other end).",
        points=len(points),
        slim=True,
    )
    table = Table(
        title="Parts of secrets, each from what stands before it",
        columns=COLUMNS,
        rows=tuple(completed_table(run.rows, show_secrets=show_secrets)),
        key="Given, part: tokens. Beam: place among the continuations that were kept. Chance: the "
        "most with which greedy decoding says a part that was never read.",
    )
    return Section(
        kind="completed-secrets",
        title="Does the model say these secrets?",
        lede=str(run.summary["sentence"]),
        blocks=(figure, table),
        numbers=pairs(run.summary, show_secrets=show_secrets, left_out="sentence"),
        limits=LIMITS,
    )


def completed_table(rows: Sequence[Row], *, show_secrets: bool) -> list[tuple[str, ...]]:
    """One row a part, the ones said first; cells as in `COLUMNS`."""
    rows = ordered(rows)
    texts = disclose([row["phrase"] for row in rows], show_secrets=show_secrets)
    return [
        (
            text,
            str(row["secret_number"]),
            str(row["kind"]),
            str(row["given_tokens"]),
            str(row["part_tokens"]),
            "said" if row["greedy"] else "",
            "" if row["beam_place"] is None else str(row["beam_place"]),
            f"{row['chance']:.0e}",
        )
        for row, text in zip(rows, texts, strict=True)
    ]


def ordered(rows: Sequence[Row]) -> list[Row]:
    """The parts that are said first, then by their probability."""
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
