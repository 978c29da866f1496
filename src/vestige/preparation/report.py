"""The reports of a planting, and of a training: its guarantee, and how well the model learned.

The sentences of the guarantee were written when the training ended (`run.json`, "privacy").
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

MANIFEST = (
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
"""Scores by their names in a summary."""

OF_TASKS = ("intent_accuracy", "slot_f1", "exact_match", "bleu")
"""Scores that each evaluation of some tasks has."""

_KINDS: Mapping[str, Callable[[Row], Any]] = {
    "pattern": lambda row: row["pattern"],
    "intent": lambda row: row.get("intent"),
    "copies": lambda row: row["copies"] or "control",
    "in_validation": lambda row: row.get("validation"),
}
"""What canaries of one kind have in common."""

_LARGEST = 1e12
_CAPTION = "Perplexity on the validation text (disc) and on the training text (ring), by step"


def planting_report(run: Run, *, show_secrets: bool) -> Report:
    """The report of a planting."""
    summary = run.summary
    where = printable(str(summary.get("directory", "")))
    planted, copies, controls = (int(summary[one]) for one in ("canaries", "copies", "controls"))
    counts = (
        f"{planted:,} {'canary' if planted == 1 else 'canaries'} planted ({copies:,} "
        f"{'copy' if copies == 1 else 'copies'} in all), and {controls:,} "
        f"{'control' if controls == 1 else 'controls'}."
    )
    seal = f"SHA-256 of the manifest: {summary['sha256']}"
    if summary.get("verified"):
        seal = f"{where} agrees with its sealed manifest. {seal}"
    elif where:
        seal = f"{where} holds the planted copy and manifest.json. {seal}"

    blocks: tuple[Table, ...] = ()
    if not summary.get("verified"):
        blocks = (_canaries(run.rows) if show_secrets else _counts(run.rows),)
    return Report(
        title="Which canaries were planted?",
        evidence=lines(counts, seal),
        blocks=blocks,
        limits=MANIFEST,
    )


def _canaries(rows: Sequence[Row]) -> Table:
    """Canaries and controls, a row each, in plain text."""

    def words(name: str) -> Callable[[Row], str]:
        def shown(row: Row) -> str:
            given = row.get(name) or ()
            return printable(given if isinstance(given, str) else " ".join(given))

        return shown

    return table(
        f"{len(rows):,} canaries and controls",
        rows,
        texts=4,
        drop_empty=True,
        phrase=words("phrase"),
        secret=words("secret"),
        **_KINDS,
    )


def _counts(rows: Sequence[Row]) -> Table:
    """Canaries and controls of one kind in a row, which tells more than redacted phrases."""
    numbers = Counter(tuple(column(row) for column in _KINDS.values()) for row in rows)
    kinds = [{**dict(zip(_KINDS, kind, strict=True)), "number": n} for kind, n in numbers.items()]
    columns = {name: itemgetter(name) for name in (*_KINDS, "number")}
    title = "Canaries and controls (--show-secrets lists them)"
    return table(title, kinds, texts=2, drop_empty=True, **columns)


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
    return Report(
        title="What does this training guarantee?",
        evidence=lines(
            stated.get("guarantee")
            or "No defence with a guarantee: nothing bounds what the model reveals."
        ),
        notices=lines(*notices, useless_training(summary) or ""),
        blocks=(
            *_figure(run.rows, summary.get("word_frequency_perplexity"), dashes=True),
            *((promise,) if stated else ()),
            _evaluations(run.rows),
        ),
        limits=LIMITS,
    )


def learning_report(run: Run, *, show_secrets: bool) -> Report:
    """The report of a training on utterances or on pairs of texts."""
    rows, summary = run.rows, run.summary
    found = [f"Perplexity {_number(summary['validation_perplexity'])} on the validation text"]
    found += [
        f"{SCORES[key]} {summary[key]:.3g}" for key in OF_TASKS if summary.get(key) is not None
    ]
    return Report(
        title="How well did this model learn?",
        evidence=lines(f"{listed(found)}. This does not measure what the model reveals."),
        blocks=(*_figure(rows), _evaluations(rows), *_scores(summary)),
        limits=LIMITS[1:],
    )


def repeated_report(run: Run, *, show_secrets: bool) -> Report:
    """The report of trainings that differ in their seed alone."""
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


def _evaluations(rows: Sequence[Row]) -> Table:
    """Perplexities by evaluation, and the scores of the task."""
    columns: dict[str, Callable[[Row], object]] = {
        "epoch": lambda row: f"{row['epoch']:g}",
        "step": lambda row: row["step"],
        "training": lambda row: _number(row["perplexity"]),
        "validation": lambda row: _number(row["validation_perplexity"]),
    }
    for key in OF_TASKS:
        if any(key in row for row in rows):
            columns[SCORES[key]] = lambda row, key=key: decimal(row[key], 3)  # type: ignore[misc]
    return table("Perplexity", rows, columns, texts=0)


def _scores(summary: Row) -> tuple[Table, ...]:
    """Scores with their intervals on the test utterances, or on the validation texts."""
    part = "test" if "test_utterances" in summary else "validation"
    size = summary.get("test_utterances" if part == "test" else "validation_tokens")
    if size is None:
        return ()
    title = f"Test part, {size:,} utterances" if part == "test" else f"Validation, {size:,} words"

    def shown(key: str, end: str = "") -> str:
        value = summary.get(f"{part}_{key}{end}")
        if value is None:
            return NOTHING
        return f"{value:.3g}" if key in ("perplexity", "bleu", "accuracy") else percent(value)

    def interval(key: str) -> str:
        low = shown(key, "_low")
        return low if low == NOTHING else f"{low} to {shown(key, '_high')}"

    measured = [key for key in SCORES if summary.get(f"{part}_{key}") is not None]
    columns: dict[str, Callable[[str], object]] = {"score": SCORES.__getitem__, "value": shown}
    return (table(title, measured, {**columns, "95% CI": interval}),)


def _figure(
    rows: Sequence[Row], frequencies: float | None = None, *, dashes: bool = False
) -> tuple[Figure, ...]:
    """Perplexity by step, and that of word frequencies as a dashed line; none without a value."""
    points: list[dict[str, Any]] = [
        {"step": row["step"], "kind": kind, "perplexity": row[name]}
        for row in rows
        for kind, name in (("disc", "validation_perplexity"), ("ring", "perplexity"))
        if row[name] is not None and 0 < row[name] < _LARGEST
    ]

    def draw(width: int) -> Chart:
        x = alt.X("step:Q", title="steps", axis=alt.Axis(grid=False, tickMinStep=1))
        y = alt.Y("perplexity:Q", title="perplexity", scale=alt.Scale(type="log", nice=False))
        layers: list[Any] = []
        for kind, colour, point in (("ring", QUIET, ring), ("disc", ACCENT, disc)):
            chart = inline(p for p in points if p["kind"] == kind).encode(x=x, y=y)
            line = chart.mark_line(stroke=colour, strokeWidth=1.5)
            layers += [line, point(chart, 50, colour)]
        if frequencies is not None and 0 < frequencies < _LARGEST:
            layers.append(dashed(perplexity=frequencies).encode(y=y))
        return alt.layer(*layers).properties(width=width, height=220)

    caption = f"{_CAPTION}."
    if dashes:
        caption = f"{_CAPTION}. The dashed line is the perplexity of word frequencies."
    return (Figure(draw=draw, caption=caption, points=len(points), slim=True),) if points else ()


def _number(value: float | None) -> str:
    return NOTHING if value is None else f"{value:,.1f}" if value < 1e6 else f"{value:.3g}"
