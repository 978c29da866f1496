"""The report of an anatomy: sentences, tables and charts of seen and unseen text.

Song and Shmatikov (2019), "Auditing Data Provenance in Text-Generation Models", KDD,
arXiv:1811.00513, Figures 5, 6 and 7.
"""

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

from vestige.audits.anatomy.findings import RowIndex, cell, ratio_cell, sentences_of
from vestige.reports.blocks import Prose, Table
from vestige.reports.charts import ACCENT, BROAD, INK, Chart, Figure, alt, inline, titled
from vestige.reports.report import Report, lines
from vestige.reports.words import NOTHING, Row, decimal, pairs, percent, whole
from vestige.results import Run

_GROUPS = ("all", "frequent", "rest", "frequent, same words", "rest, same words")
_PANELS = {"frequent": "frequent words", "rest": "the rest"}
WORDS = ("words", "of seen text", "seen", "unseen", "seen less unseen", "null", "ranks, times")
RANKS = (
    *("position by frequency", "words seen", "mean rank, seen", "unseen"),
    *("ranks, times", "null"),
)
SILENCED = ("silent", "frequent, seen", "rest, seen", "frequent, unseen", "rest, unseen")
_KEY = "In brackets: the 95% interval."
_LINES = "Solid: seen text; dashed: unseen text."
_IN_TABLES = "(log_prob_gap|rank_ratio|rank_fall|kept|perplexity_ratio)_.*"
LIMITS = (
    "Seen and unseen text must differ in training only. Another time, topic or group of people "
    "makes the same differences, and the null does not show that.",
    "If words are counted in the seen text, its rare words are not those of the unseen text, for "
    "any model. “Same words” are in both texts, each counted equally often: the answer uses only "
    "these.",
    "With fewer than twenty users, or texts, intervals are too narrow.",
    "A model that hardly ever lists a rare word first has no accuracy to lose. Read the ranks.",
    "A unit that matters to rare words need not store them: units are silenced at the output layer "
    "only, and together they show what none shows alone.",
    "Intervals do not cover other trainings of the same kind; repeat with other seeds.",
)


def anatomy_report(run: Run, *, show_secrets: bool) -> Report:
    """The report of an "Anatomy" run; it contains no text."""
    rows, summary = run.rows, run.summary
    index, has_ablation = RowIndex(rows), summary["silenced"] is not None
    answer, *sentences = sentences_of(summary)
    charts = CHARTS if has_ablation else CHARTS[:-1]
    tables = [_words(index), _ranks(index)]
    if has_ablation:
        title = "Ranks with silent units, times those of the whole model"
        tables.append(_silent(index, "Accuracy with silent units", "accuracy", _share))
        tables.append(_silent(index, title, "log_rank_lost", ratio_cell))
    return Report(
        title="Which words does the model memorize?",
        answer=answer,
        evidence=lines(" ".join(sentences)),
        blocks=(
            *(Figure(draw=partial(draw, rows), caption=text, slim=True) for draw, text in charts),
            *tables,
            Prose(title="How it was measured", lines=(_method(summary),)),
        ),
        facts=pairs(summary, show_secrets=show_secrets, left_out=_IN_TABLES),
        limits=LIMITS,
    )


def _method(summary: Row) -> str:
    ablation = (
        f" Silent units are zero at the output layer, for every word, in "
        f"{whole(summary['orders'])} random orders, which intervals resample too. There, the "
        f"commonest {percent(summary['ablated_frequent'])} are frequent."
    )
    return (
        f"Words are ordered by how often they occur in the {summary['counted']}; the commonest "
        f"{percent(summary['frequent'])} of the {whole(summary['table_words'])} words that occur "
        "are called frequent. Words that the model’s vocabulary lacks and the ends of texts are "
        f"left out. Intervals ({percent(summary['confidence'])}) resample whole {summary['unit']}. "
        "The null is the same difference between two random halves of the unseen text; its "
        "interval should contain 0, or 1 for a ratio. Log-probabilities are natural logarithms. "
        "“Ranks, times” is the ratio of the ranks of unseen words to those of seen words, by the "
        f"mean of log ranks.{'' if summary['silenced'] is None else ablation}"
    )


def _words(index: RowIndex) -> Table:
    def means(text: str, words: str, measure: str = "log_prob") -> Row:
        return index["means", text, words, measure]

    rows = [
        (
            words,
            percent(means("seen", words, "share")["value"]),
            decimal(means("seen", words)["value"]),
            decimal(means("unseen", words)["value"]),
            cell(means("gap", words), decimal),
            cell(means("null", words), decimal),
            ratio_cell(means("gap", words, "log_rank"), sign=-1),
        )
        for words in _GROUPS
    ]
    return Table(title="Log-probabilities", columns=WORDS, rows=tuple(rows), key=_KEY)


def _ranks(index: RowIndex) -> Table:
    rows = []
    for start in index.starts("ranks"):
        seen, unseen = (index["ranks", text, "bin", "rank", start] for text in ("seen", "unseen"))
        gap, null = (index["ranks", text, "bin", "log_rank", start] for text in ("gap", "null"))
        means = (cell(row, partial(decimal, digits=0)) for row in (seen, unseen))
        times = (ratio_cell(row, sign=-1) for row in (gap, null))
        positions = f"{whole(start)} to {whole(seen['stop'])}"
        rows.append((positions, whole(seen["n"]), *means, *times))
    return Table(title="Ranks by frequency", columns=RANKS, rows=tuple(rows), key=_KEY)


def _silent(index: RowIndex, title: str, measure: str, format: Callable[[Row], str]) -> Table:
    """A measure by share of silent units; a loss has no row for the share 0."""
    columns = [(text, words) for text in ("seen", "unseen") for words in _PANELS]
    shares = index.starts("ablation")
    rows = [
        (
            percent(share),
            *(format(index["ablation", *column, measure, share]) for column in columns),
        )
        for share in (shares[1:] if measure == "log_rank_lost" else shares)
    ]
    return Table(title=title, columns=SILENCED, rows=tuple(rows), key=_KEY)


def _share(row: Row) -> str:
    return cell(row, lambda share: NOTHING if share is None else f"{100 * share:.1f}%")


_HEIGHT = 220
_MIN_TOP = 0.02  # least upper end of the axis of accuracies
_NARROW = 400  # pixels; below this width, panels are stacked
_AXES = 130  # pixels for the axes of two panels


def log_probabilities(rows: Sequence[Row], width: int = BROAD) -> Chart:
    """Histograms of frequent words and of the rest, as in Figure 5."""
    cells = [row for row in rows if row["figure"] == "log-probabilities"]
    last = max((row["stop"] for row in cells), default=0.0)
    ends = [{**row, "start": row["stop"]} for row in cells if row["stop"] == last]
    x = alt.X("start:Q", title="log-probability of the true word", axis=alt.Axis(tickCount=6))
    y = partial(alt.Y, title="share of words", axis=alt.Axis(format="~p", tickCount=5))
    return _panels([*cells, *ends], x, y, width, interpolate="step-after")


def ranks(rows: Sequence[Row], width: int = BROAD) -> Chart:
    """Mean predicted rank by position in the table of frequencies, as in Figure 6."""
    bins = [
        {**row, "start": (row["start"] + row["stop"]) / 2}
        for row in rows
        if (row["figure"], row["measure"]) == ("ranks", "rank")
    ]
    x = alt.X("start:Q", title="position of the word by frequency (1 is the commonest)")
    y = partial(alt.Y, title="mean rank in the predictions", scale=alt.Scale(type="log"))
    return _curves(bins, x, y).properties(width=width - _AXES // 2, height=_HEIGHT + 40)


def accuracy(rows: Sequence[Row], width: int = BROAD) -> Chart:
    """Accuracy by the share of silent units, as in Figure 7."""
    accuracies = [row for row in rows if row["measure"] == "accuracy"]
    top = max([_MIN_TOP, *(row["high"] or row["value"] or 0.0 for row in accuracies)])
    axis, scale = alt.Axis(format="~p", tickCount=5), alt.Scale(domain=[0, top], nice=True)
    x = alt.X("start:Q", title="silent hidden units", axis=axis)
    y = partial(alt.Y, title="accuracy", axis=axis, scale=scale)
    return _panels(accuracies, x, y, width)


CHARTS = (
    (
        log_probabilities,
        f"Log-probability of the true words, frequent ones and the rest. {_LINES}",
    ),
    (
        ranks,
        "Mean rank of the true word in the model’s predictions, by the word’s position in the "
        f"table of frequencies. Bands are intervals. {_LINES}",
    ),
    (
        accuracy,
        "Share of words that the model lists first, by the share of silent hidden units. "
        f"Bands are intervals. {_LINES}",
    ),
)


def _curves(rows: Sequence[Row], x: Any, y: Any, **line: Any) -> Chart:
    """A solid line with its band for seen text, and a dashed one for unseen text."""
    layers = []
    names = ("start", "value", "low", "high")
    for text, colour, dash in (("seen", ACCENT, [1, 0]), ("unseen", INK, [5, 3])):
        points = [
            {name: row[name] for name in names}
            for row in rows
            if row["text"] == text and row["value"] is not None
        ]
        bands = [point for point in points if point["low"] is not None]
        band = inline(bands).mark_area(fill=colour, opacity=0.15)
        curve = inline(points).mark_line(stroke=colour, strokeWidth=2, strokeDash=dash, **line)
        layers += [band.encode(x=x, y=y("low:Q"), y2="high:Q"), curve.encode(x=x, y=y("value:Q"))]
    return alt.layer(*layers)


def _panels(rows: Sequence[Row], x: Any, y: Any, width: int, **line: Any) -> Chart:
    """Frequent words and the rest, side by side or stacked."""
    is_narrow = width < _NARROW
    panel_width = width - _AXES // 2 if is_narrow else (width - _AXES) // 2
    panels = [
        _curves([row for row in rows if row["words"] == words], x, y, **line).properties(
            width=panel_width, height=_HEIGHT, title=titled(title, fontSize=13)
        )
        for words, title in _PANELS.items()
    ]
    concatenate = alt.vconcat if is_narrow else alt.hconcat
    return concatenate(*panels, spacing=18).resolve_scale(y="independent")
