"""The report of a training: its guarantee, and how well the model learned.

The sentences of the guarantee were written when the training ended (`run.json`, "privacy").
"""

from collections.abc import Mapping, Sequence
from typing import Any

from vestige.reports.blocks import Table, table
from vestige.reports.charts import ACCENT, QUIET, Chart, Figure, alt, dashed, disc, inline, ring
from vestige.reports.disclosure import printable
from vestige.reports.report import Report, lines
from vestige.reports.words import NOTHING, Row, decimal, listed, percent
from vestige.results import Run
from vestige.training_runs import useless_training

LIMITS = (
    "A guarantee is a proof about the training. Nothing here measures what the model reveals.",
    "Perplexities, losses and norms are computed from the text without noise. Do not release this "
    "page, or the folder of the training; release its folder model/ alone.",
    "A guarantee for one person does not cover what many people wrote: the model may learn it.",
)
SCORES = (
    ("intent accuracy", "intent_accuracy"),
    ("slot F1", "slot_f1"),
    ("intent and all tags", "exact_match"),
    ("BLEU", "bleu"),
)
SCORED: Mapping[str, str] = {
    "intent_accuracy": "intent accuracy",
    "slot_f1": "slot F1",
    "exact_match": "intent and all tags",
    "accuracy": "word accuracy",
    "perplexity": "perplexity",
    "bleu": "BLEU",
}
"""Scores with intervals, by their names in a summary."""

_LARGEST = 1e12
_CAPTION = "Perplexity on the validation text (disc) and on the training text (ring), by step"


def training_report(run: Run, *, show_secrets: bool) -> Report:
    """The report of a training on text."""
    summary, terms = run.summary, run.run.get("privacy") or {}
    stated = {printable(str(name)): printable(str(text)) for name, text in terms.items()}
    notices = [stated.get("earlier trainings", "")]
    if stated and summary.get("vocabulary_made_of") != "other":
        notices.append(stated.get("vocabulary", ""))
    promise = Table(
        title="The guarantee, and what it leaves out",
        texts=2,
        rows=tuple(stated.items()),
        folded=True,
    )
    level = summary.get("word_frequency_perplexity")
    caption = f"{_CAPTION}. The dashed line is the perplexity of word frequencies."
    return Report(
        kind="training",
        title="What does this training guarantee?",
        evidence=lines(
            stated.get("guarantee")
            or "No defence with a guarantee: nothing bounds what the model reveals."
        ),
        notices=lines(*notices, useless_training(summary, who="The model") or ""),
        blocks=(
            *_figure(run.rows, level, caption),
            *((promise,) if stated else ()),
            _evaluations(run.rows),
        ),
        limits=LIMITS,
    )


def learning_report(run: Run, *, show_secrets: bool) -> Report:
    """The report of a training on utterances or on pairs of texts."""
    rows, summary = run.rows, run.summary
    found = [f"Perplexity {_number(summary['validation_perplexity'])} on the validation text"]
    found += [f"{name} {summary[key]:.3g}" for name, key in SCORES if summary.get(key) is not None]
    return Report(
        kind="training",
        title="How well did this model learn?",
        evidence=lines(f"{listed(found)}. This does not measure what the model reveals."),
        blocks=(*_figure(rows, None, f"{_CAPTION}."), _evaluations(rows), *_scores(summary)),
        limits=LIMITS[1:],
    )


def repeated_report(run: Run, *, show_secrets: bool) -> Report:
    """The report of trainings that differ in their seed alone."""
    rows = run.rows
    useless = sum(useless_training(row) is not None for row in rows)
    warning = f"{useless} of {len(rows)} models predict no better than word frequencies."
    return Report(
        kind="training",
        title="How much do trainings with different seeds differ?",
        evidence=(f"{len(rows)} trainings.",),
        notices=lines(warning if useless else ""),
        blocks=(
            table(
                "Trainings",
                rows,
                model=lambda row: row["model"],
                epoch=lambda row: f"{row['epoch']:g}",
                training=lambda row: _number(row["perplexity"]),
                validation=lambda row: _number(row["validation_perplexity"]),
            ),
        ),
        limits=LIMITS[1:],
    )


def _figure(rows: Sequence[Row], level: float | None, caption: str) -> tuple[Figure, ...]:
    points = perplexities(rows)

    def draw(width: int) -> Chart:
        return curve(points, level, width=width)

    return (Figure(draw=draw, caption=caption, points=len(points), slim=True),) if points else ()


def _evaluations(rows: Sequence[Row]) -> Table:
    """Perplexities by evaluation, and the scores of the task."""
    scores = [(name, key) for name, key in SCORES if any(key in row for row in rows)]
    return Table(
        title="Perplexity",
        columns=("epoch", "step", "training", "validation", *(name for name, _ in scores)),
        texts=0,
        rows=tuple(
            (
                f"{row['epoch']:g}",
                f"{row['step']:,d}",
                _number(row["perplexity"]),
                _number(row["validation_perplexity"]),
                *(decimal(row[key], 3) for _, key in scores),
            )
            for row in rows
        ),
    )


def _scores(summary: Row) -> tuple[Table, ...]:
    """Scores with their intervals on the test utterances, or on the validation texts."""
    part = "test" if "test_utterances" in summary else "validation"
    size = summary.get("test_utterances" if part == "test" else "validation_tokens")
    if size is None:
        return ()
    title = f"Test part, {size:,} utterances" if part == "test" else f"Validation, {size:,} words"
    found = [key for key in SCORED if summary.get(f"{part}_{key}") is not None]
    return (
        table(
            title,
            found,
            {
                "score": lambda key: SCORED[key],
                "value": lambda key: _score(key, summary[f"{part}_{key}"]),
                "95% CI": lambda key: _interval(key, summary, f"{part}_{key}"),
            },
        ),
    )


def _interval(key: str, summary: Row, name: str) -> str:
    low, high = summary.get(f"{name}_low"), summary.get(f"{name}_high")
    return NOTHING if low is None else f"{_score(key, low)} to {_score(key, high)}"


def _score(key: str, value: float | None) -> str:
    if value is None:
        return NOTHING
    return f"{value:.3g}" if key in ("perplexity", "bleu", "accuracy") else percent(value)


def perplexities(rows: Sequence[Row]) -> list[dict[str, Any]]:
    """Points of the curve: step, kind ("disc" of the validation text) and perplexity."""
    return [
        {"step": row["step"], "kind": kind, "perplexity": row[name]}
        for row in rows
        for kind, name in (("disc", "validation_perplexity"), ("ring", "perplexity"))
        if row[name] is not None and 0 < row[name] < _LARGEST
    ]


def curve(points: Sequence[Row], frequencies: float | None, *, width: int) -> Chart:
    """Perplexity by step, on the validation text (disc) and on the training text (ring).

    Args:
        points: `perplexities`.
        frequencies: of word frequencies, a dashed line; None leaves it out.
        width: in pixels.
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


def _number(value: float | None) -> str:
    return NOTHING if value is None else f"{value:,.1f}" if value < 1e6 else f"{value:.3g}"
