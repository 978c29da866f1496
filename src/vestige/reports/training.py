"""How well did a model learn, and what does its training promise? A training of text as a section.

The sentences of its promise were written when it ended (`run.json`, "privacy") and are shown here.
"""

from collections.abc import Mapping, Sequence
from typing import Any

import altair as alt

from vestige.reports.components.charts import ACCENT, QUIET, to_svg
from vestige.reports.components.disclosure import printable
from vestige.reports.components.table import Table

Row = Mapping[str, Any]


def training_parts(
    rows: Sequence[Row], summary: Row, terms: Mapping[str, Any]
) -> tuple[str, tuple[str, ...], tuple[Table, ...]]:
    """The lede, warnings and tables of a training's section.

    Args:
        rows: one an evaluation.
        summary: of the training.
        terms: sentences of its privacy statement by what they are about; empty where it has none.
    """
    said = {printable(str(name)): printable(str(text)) for name, text in terms.items()}
    lede = said.get("guarantee") or (
        "This training had no defence with a guarantee: nothing bounds what its model gives away."
    )
    warnings = [said[name] for name in ("earlier trainings",) if name in said]
    if said and summary.get("vocabulary_made_of") != "other":
        warnings.append(said.get("vocabulary", ""))
    warnings += [_frequencies(summary)]
    promise = Table(
        title="What it promises, and what it does not",
        columns=("", ""),
        texts=2,
        rows=tuple(said.items()),
    )
    curve = Table(
        title="Perplexity",
        columns=("epoch", "step", "training", "validation"),
        texts=0,
        rows=tuple(
            (
                f"{row['epoch']:g}",
                f"{row['step']:,d}",
                _number(row["perplexity"]),
                _number(row["validation_perplexity"]),
            )
            for row in rows
        ),
    )
    return lede, tuple(filter(None, warnings)), ((promise, curve) if said else (curve,))


def curve(rows: Sequence[Row], frequencies: float | None) -> str | None:
    """Perplexity by step, on the validation text (disc) and while training (ring), as SVG.

    Args:
        rows: one an evaluation.
        frequencies: what word frequencies alone reach, a dashed line; None leaves it out.

    Returns:
        None where no evaluation has a finite perplexity.
    """
    values = [
        {"step": row["step"], "kind": kind, "perplexity": row[name]}
        for row in rows
        for kind, name in (("disc", "validation_perplexity"), ("ring", "perplexity"))
        if row[name] is not None and 0 < row[name] < _LARGEST
    ]
    if not values:
        return None
    x = alt.X("step:Q", title="steps", axis=alt.Axis(grid=False, tickMinStep=1))
    y = alt.Y("perplexity:Q", title="perplexity", scale=alt.Scale(type="log", nice=False))
    layers: list[Any] = []
    for kind, colour in (("ring", QUIET), ("disc", ACCENT)):
        own = [value for value in values if value["kind"] == kind]
        chart = alt.Chart(alt.InlineData(values=own)).encode(x=x, y=y)
        filled: dict[str, Any] = {"fill": colour} if kind == "disc" else {}
        layers += [
            chart.mark_line(stroke=colour, strokeWidth=1.5),
            chart.mark_point(stroke=colour, size=50, opacity=1, **filled),
        ]
    if frequencies is not None and 0 < frequencies < _LARGEST:
        line = alt.Chart(alt.InlineData(values=[{"perplexity": frequencies}]))
        layers.append(line.mark_rule(stroke=QUIET, strokeDash=[5, 4]).encode(y=y))
    return to_svg(alt.layer(*layers), height=220)


_LARGEST = 1e12


def _frequencies(summary: Row) -> str:
    """That the model is no better than word frequencies, where it is not."""
    alone = summary.get("word_frequency_perplexity")
    training = summary.get("judged_by") == "training"
    own = summary.get("perplexity" if training else "validation_perplexity")
    if alone is None or (own is not None and own < alone):
        return ""
    return (
        "The model predicts no better than word frequencies: perplexity "
        f"{_number(own)}, where they alone reach {_number(alone)}. "
        "That it leaks little says nothing about a model that has learnt."
    )


def _number(value: float | None) -> str:
    if value is None:
        return "–"
    return f"{value:,.1f}" if value < 1e6 else f"{value:.3g}"
