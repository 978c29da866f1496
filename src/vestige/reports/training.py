"""A training: what it promises, how well its model learnt.

The sentences of its promise were written when it ended (`run.json`, "privacy") and are shown here.
"""

from collections.abc import Sequence
from typing import Any

from vestige.reports.charts import ACCENT, QUIET, Chart, Figure, alt, dashed, disc, inline, ring
from vestige.reports.disclosure import printable
from vestige.reports.numbers import NOTHING, Row, decimal, listed
from vestige.reports.report import Report, lines
from vestige.reports.tables import Table
from vestige.results import Run

_LARGEST = 1e12
_CAPTION = (
    "Perplexity on the validation text (disc) and on the training text while it trained (ring), "
    "by steps; the dashed line is what word frequencies alone reach."
)
LIMITS = (
    "A guarantee is a proof about the training, not a measurement: nothing on this page was "
    "measured of what the model gives away.",
    "Perplexities, losses and norms are computed without noise, from the text itself: this "
    "page is no more for release than the directory that it was made of.",
    "What many people wrote is no one's secret to a guarantee for one of them: the model may "
    "learn it.",
)


def training_report(run: Run, *, show_secrets: bool) -> Report:
    """The report of a training of text."""
    rows, summary, terms = run.rows, run.summary, run.run.get("privacy") or {}
    said = {printable(str(name)): printable(str(text)) for name, text in terms.items()}
    notices = [said[name] for name in ("earlier trainings",) if name in said]
    if said and summary.get("vocabulary_made_of") != "other":
        notices.append(said.get("vocabulary", ""))
    promise = Table(
        title="What it promises, and what it does not", texts=2, rows=tuple(said.items())
    )
    return Report(
        kind="training",
        title="What does this training promise?",
        evidence=(
            said.get("guarantee")
            or "This training had no defence with a guarantee: nothing bounds what its model "
            "reveals.",
        ),
        notices=tuple(filter(None, [*notices, _frequencies(summary)])),
        blocks=(
            *_figure(rows, summary.get("word_frequency_perplexity"), _CAPTION),
            *((promise,) if said else ()),
            _table(rows),
        ),
        limits=LIMITS,
    )


def learning_report(run: Run, *, show_secrets: bool) -> Report:
    """The report of a training on utterances or on pairs of texts."""
    rows, summary = run.rows, run.summary
    told = [f"Perplexity {_number(summary['validation_perplexity'])} on the validation text"]
    told += [f"{name} {summary[key]:.3g}" for name, key in _TASKS if summary.get(key) is not None]
    return Report(
        kind="training",
        title="How well did this model learn?",
        evidence=lines(f"{listed(told)}. That says nothing about what the model gives away."),
        blocks=(*_figure(rows, None, f"{_CAPTION.partition(';')[0]}."), _table(rows)),
        limits=LIMITS[1:],
    )


def _figure(rows: Sequence[Row], level: float | None, caption: str) -> tuple[Figure, ...]:
    points = perplexities(rows)

    def draw(width: int) -> Chart:
        return curve(points, level, width=width)

    return (Figure(draw=draw, caption=caption, points=len(points), slim=True),) if points else ()


_TASKS = (("intent accuracy", "intent_accuracy"), ("slot F1", "slot_f1"), ("BLEU", "bleu"))


def _table(rows: Sequence[Row]) -> Table:
    """Perplexities by evaluation, and what a task has beside them."""
    more = [(name, key) for name, key in _TASKS if any(key in row for row in rows)]
    return Table(
        title="Perplexity",
        columns=("epoch", "step", "training", "validation", *(name for name, _ in more)),
        texts=0,
        rows=tuple(
            (
                f"{row['epoch']:g}",
                f"{row['step']:,d}",
                _number(row["perplexity"]),
                _number(row["validation_perplexity"]),
                *(decimal(row[key], 3) for _, key in more),
            )
            for row in rows
        ),
    )


def perplexities(rows: Sequence[Row]) -> list[dict[str, Any]]:
    """Points of the curve: step, kind ("disc" of the validation text) and perplexity."""
    return [
        {"step": row["step"], "kind": kind, "perplexity": row[name]}
        for row in rows
        for kind, name in (("disc", "validation_perplexity"), ("ring", "perplexity"))
        if row[name] is not None and 0 < row[name] < _LARGEST
    ]


def curve(points: Sequence[Row], frequencies: float | None, *, width: int) -> Chart:
    """Perplexity by step, on the validation text (disc) and while training (ring).

    Args:
        points: `perplexities`.
        frequencies: what word frequencies alone reach, a dashed line; None leaves it out.
    """
    x = alt.X("step:Q", title="steps", axis=alt.Axis(grid=False, tickMinStep=1))
    y = alt.Y("perplexity:Q", title="perplexity", scale=alt.Scale(type="log", nice=False))
    layers: list[Any] = []
    for kind, colour in (("ring", QUIET), ("disc", ACCENT)):
        chart = inline(p for p in points if p["kind"] == kind).encode(x=x, y=y)
        point = disc if kind == "disc" else ring
        layers += [chart.mark_line(stroke=colour, strokeWidth=1.5), point(chart, 50, colour)]
    if frequencies is not None and 0 < frequencies < _LARGEST:
        layers.append(dashed(perplexity=frequencies).encode(y=y))
    return alt.layer(*layers).properties(width=width, height=220)


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
    return NOTHING if value is None else f"{value:,.1f}" if value < 1e6 else f"{value:.3g}"
