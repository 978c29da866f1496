"""Reports of plantings and trainings: the guarantee of a training, and the scores of its model.

The sentences of the guarantee are in `run.json` ("privacy").
"""

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from operator import itemgetter
from typing import Any

from vestige.reports.blocks import Table, table
from vestige.reports.charts import ACCENT, QUIET, Chart, Figure, alt, dashed, disc, inline, ring
from vestige.reports.disclosure import printable
from vestige.reports.report import Report, lines
from vestige.reports.words import NOTHING, Row, decimal, listed, percent
from vestige.results import Run
from vestige.training.word_frequencies import useless_training

PLANTING_LIMITS = (
    "The manifest holds every canary unredacted. Keep it apart from the model and from the text "
    "to train on.",
)
LIMITS = (
    "A guarantee is a proof about the training. Nothing here measures what the model reveals.",
    "Perplexities, losses and norms are computed from the text without noise. Do not release this "
    "page, or the folder of the training; release its folder model/ alone.",
    "A guarantee for one person does not cover what many people wrote: the model may learn it.",
)
SCORES: Mapping[str, str] = {
    "intent_accuracy": "intent accuracy",
    "slot_f1": "slot F1",
    "exact_match": "intent and all tags",
    "accuracy": "word accuracy",
    "perplexity": "perplexity",
    "bleu": "BLEU",
}
"""Names of scores by their keys in a summary."""

TASK_SCORES = ("intent_accuracy", "slot_f1", "exact_match", "bleu")
"""Scores that the evaluations of some tasks have."""

_KIND_COLUMNS: Mapping[str, Callable[[Row], Any]] = {
    "pattern": lambda row: row["pattern"],
    "intent": lambda row: row.get("intent"),
    "copies": lambda row: row["copies"] or "control",
    "in validation": lambda row: row.get("validation"),
}
"""Columns that define a kind of canaries."""

_LARGEST_SHOWN = 1e12
_CAPTION = "Perplexity on the validation text (disc) and on the training text (ring), by step"


def planting_report(run: Run, *, show_secrets: bool) -> Report:
    """The report of a planting."""
    summary = run.summary
    folder = printable(str(summary.get("directory", "")))
    planted, copies, controls = (int(summary[name]) for name in ("canaries", "copies", "controls"))
    counts = (
        f"{planted:,} {'canary' if planted == 1 else 'canaries'} planted ({copies:,} "
        f"{'copy' if copies == 1 else 'copies'} in all), and {controls:,} "
        f"{'control' if controls == 1 else 'controls'}."
    )
    manifest_line = f"SHA-256 of the manifest: {summary['sha256']}"
    if summary.get("verified"):
        manifest_line = f"{folder} agrees with its sealed manifest. {manifest_line}"
    elif folder:
        manifest_line = f"{folder} holds the planted copy and manifest.json. {manifest_line}"

    blocks: tuple[Table, ...] = ()
    if not summary.get("verified"):
        blocks = (_canaries_table(run.rows) if show_secrets else _kinds_table(run.rows),)
    return Report(
        title="Which canaries were planted?",
        evidence=lines(counts, manifest_line),
        blocks=blocks,
        limits=PLANTING_LIMITS,
    )


def _canaries_table(rows: Sequence[Row]) -> Table:
    """All canaries and controls, unredacted."""

    def words(name: str) -> Callable[[Row], str]:
        def shown(row: Row) -> str:
            value = row.get(name) or ()
            return printable(value if isinstance(value, str) else " ".join(value))

        return shown

    return table(
        f"{len(rows):,} canaries and controls",
        rows,
        {"phrase": words("phrase"), "secret": words("secret"), **_KIND_COLUMNS},
        texts=4,
        drop_empty=True,
    )


def _kinds_table(rows: Sequence[Row]) -> Table:
    """Number of canaries and controls by kind."""
    numbers = Counter(tuple(column(row) for column in _KIND_COLUMNS.values()) for row in rows)
    kinds = [
        {**dict(zip(_KIND_COLUMNS, kind, strict=True)), "number": count}
        for kind, count in numbers.items()
    ]
    columns: dict[str, Callable[[Row], Any]] = {
        name: itemgetter(name) for name in (*_KIND_COLUMNS, "number")
    }
    title = "Canaries and controls (--show-secrets lists them)"
    return table(title, kinds, columns, texts=2, drop_empty=True)


def training_report(run: Run, *, show_secrets: bool) -> Report:
    """The report of a training on text."""
    summary, terms = run.summary, run.run.get("privacy") or {}
    statements = {printable(str(name)): printable(str(text)) for name, text in terms.items()}
    notices = [statements.get("earlier trainings", "")]
    if statements and summary.get("vocabulary_made_of") != "other":
        notices.append(statements.get("vocabulary", ""))
    guarantee = Table(
        title="The guarantee, and what it leaves out",
        texts=2,
        rows=tuple(statements.items()),
        folded=True,
    )
    return Report(
        title="What does this training guarantee?",
        evidence=lines(
            statements.get("guarantee")
            or "No defence with a guarantee: nothing bounds what the model reveals."
        ),
        notices=lines(*notices, useless_training(summary) or ""),
        blocks=(
            *_perplexity_chart(run.rows, summary.get("word_frequency_perplexity"), dashes=True),
            *((guarantee,) if statements else ()),
            _evaluations_table(run.rows),
        ),
        limits=LIMITS,
    )


def learning_report(run: Run, *, show_secrets: bool) -> Report:
    """The report of a training on utterances or on pairs of texts."""
    rows, summary = run.rows, run.summary
    scores = [f"Perplexity {_number(summary['validation_perplexity'])} on the validation text"]
    scores += [
        f"{SCORES[key]} {summary[key]:.3g}" for key in TASK_SCORES if summary.get(key) is not None
    ]
    return Report(
        title="How well did this model learn?",
        evidence=lines(f"{listed(scores)}. This does not measure what the model reveals."),
        blocks=(*_perplexity_chart(rows), _evaluations_table(rows), *_scores_table(summary)),
        limits=LIMITS[1:],
    )


def repeated_report(run: Run, *, show_secrets: bool) -> Report:
    """The report of trainings that differ only in their seeds."""
    rows = run.rows
    useless = sum(useless_training(row) is not None for row in rows)
    warning = f"{useless} of {len(rows)} models predict no better than word frequencies."
    return Report(
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


def _evaluations_table(rows: Sequence[Row]) -> Table:
    """Perplexities and scores of the task by evaluation."""
    columns: dict[str, Callable[[Row], object]] = {
        "epoch": lambda row: f"{row['epoch']:g}",
        "step": lambda row: row["step"],
        "training": lambda row: _number(row["perplexity"]),
        "validation": lambda row: _number(row["validation_perplexity"]),
    }
    for key in TASK_SCORES:
        if any(key in row for row in rows):
            columns[SCORES[key]] = lambda row, key=key: decimal(row[key], 3)  # type: ignore[misc]
    return table("Perplexity", rows, columns, texts=0)


def _scores_table(summary: Row) -> tuple[Table, ...]:
    """Scores with their intervals on the test utterances, or on the validation texts."""
    part = "test" if "test_utterances" in summary else "validation"
    size = summary.get("test_utterances" if part == "test" else "validation_tokens")
    if size is None:
        return ()
    title = f"Test part, {size:,} utterances" if part == "test" else f"Validation, {size:,} words"

    def score_text(key: str, end: str = "") -> str:
        value = summary.get(f"{part}_{key}{end}")
        if value is None:
            return NOTHING
        return f"{value:.3g}" if key in ("perplexity", "bleu", "accuracy") else percent(value)

    def interval(key: str) -> str:
        low = score_text(key, "_low")
        return low if low == NOTHING else f"{low} to {score_text(key, '_high')}"

    measured = [key for key in SCORES if summary.get(f"{part}_{key}") is not None]
    columns: dict[str, Callable[[str], object]] = {"score": SCORES.__getitem__, "value": score_text}
    return (table(title, measured, {**columns, "95% CI": interval}),)


def _perplexity_chart(
    rows: Sequence[Row], frequencies: float | None = None, *, dashes: bool = False
) -> tuple[Figure, ...]:
    """Perplexity by step, with that of word frequencies as a dashed line; empty without values."""
    points: list[dict[str, Any]] = [
        {"step": row["step"], "kind": kind, "perplexity": row[name]}
        for row in rows
        for kind, name in (("disc", "validation_perplexity"), ("ring", "perplexity"))
        if row[name] is not None and 0 < row[name] < _LARGEST_SHOWN
    ]

    def draw(width: int) -> Chart:
        x = alt.X("step:Q", title="steps", axis=alt.Axis(grid=False, tickMinStep=1))
        y = alt.Y("perplexity:Q", title="perplexity", scale=alt.Scale(type="log", nice=False))
        layers: list[Any] = []
        for kind, colour, point in (("ring", QUIET, ring), ("disc", ACCENT, disc)):
            chart = inline(p for p in points if p["kind"] == kind).encode(x=x, y=y)
            line = chart.mark_line(stroke=colour, strokeWidth=1.5)
            layers += [line, point(chart, 50, colour)]
        if frequencies is not None and 0 < frequencies < _LARGEST_SHOWN:
            layers.append(dashed(perplexity=frequencies).encode(y=y))
        return alt.layer(*layers).properties(width=width, height=220)

    caption = f"{_CAPTION}."
    if dashes:
        caption = f"{_CAPTION}. The dashed line is the perplexity of word frequencies."
    return (Figure(draw=draw, caption=caption, points=len(points), slim=True),) if points else ()


def _number(value: float | None) -> str:
    return NOTHING if value is None else f"{value:,.1f}" if value < 1e6 else f"{value:.3g}"
