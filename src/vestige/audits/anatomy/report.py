"""The report of an anatomy: sentences, tables and charts of seen and unseen text.

Song and Shmatikov (2019), "Auditing Data Provenance in Text-Generation Models", KDD,
arXiv:1811.00513, Figures 5, 6 and 7.
"""

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

from vestige.audits.anatomy.findings import Numbers, as_ratio, between, number, sentences_of
from vestige.reports.blocks import Prose, Table
from vestige.reports.charts import ACCENT, BROAD, INK, Chart, Figure, alt, inline, titled
from vestige.reports.report import Report, lines
from vestige.reports.words import NOTHING, Row, decimal, ends, pairs, percent, whole
from vestige.results import Run

_GROUPS = ("all", "frequent", "rest", "frequent, same words", "rest, same words")
_PANELS = {"frequent": "frequent words", "rest": "the rest"}
_CI = "95% CI"
WORDS = (
    *("words", "of seen text", "seen", "unseen", "seen less unseen", _CI),
    *("null", _CI, "ranks, times", _CI),
)
RANKS = (
    *("position by frequency", "words seen", "mean rank, seen", _CI, "unseen", _CI),
    *("ranks, times", _CI, "null", _CI),
)
SILENCED = (
    *("silent", "frequent, seen", _CI, "rest, seen", _CI),
    *("frequent, unseen", _CI, "rest, unseen", _CI),
)
_LINES = "Filled or solid: seen text; dashed: unseen text."
_IN_THE_TABLES = "(log_prob_gap|rank_ratio|rank_fall|kept|perplexity_ratio)_.*"
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
    """The report of an "Anatomy" run; no text is in it."""
    rows, summary = run.rows, run.summary
    numbers = Numbers(rows)
    answer, *sentences = sentences_of(summary)
    tables = [_word_table(numbers), _rank_table(numbers)]
    drawn = _FIGURES[:2] if summary["silenced"] is None else _FIGURES
    if summary["silenced"] is not None:
        tables += [
            _silent_table(numbers, "Accuracy with silent units", "accuracy", _share_cells),
            _silent_table(
                numbers, "Ranks with silent units, times those of the whole model",
                "log_rank_lost", _fall_cells,
            ),
        ]  # fmt: skip
    return Report(
        title="Which words does the model memorize?",
        answer=answer,
        evidence=lines(" ".join(sentences)),
        blocks=(
            *(Figure(draw=partial(draw, rows), caption=text, slim=True) for draw, text in drawn),
            *tables,
            Prose(title="How it was measured", lines=(_method(summary),)),
        ),
        facts=pairs(summary, show_secrets=show_secrets, left_out=_IN_THE_TABLES),
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


def _word_table(numbers: Numbers) -> Table:
    rows = []
    for words in _GROUPS:
        share = numbers("means", "seen", words, "share")
        seen, unseen, gap, null = (
            numbers("means", text, words, "log_prob") for text in ("seen", "unseen", "gap", "null")
        )
        times = _ratio_cells(numbers("means", "gap", words, "log_rank"))
        means = (decimal(seen["value"]), decimal(unseen["value"]))
        rows.append((words, percent(share["value"]), *means, *_cells(gap), *_cells(null), *times))
    return Table(title="Log-probabilities", columns=WORDS, rows=tuple(rows))


def _rank_table(numbers: Numbers) -> Table:
    rows = []
    for row in numbers.rows:
        if (row["figure"], row["text"], row["measure"]) != ("ranks", "seen", "rank"):
            continue
        start = row["start"]
        unseen = numbers("ranks", "unseen", "bin", "rank", start)
        gap, null = (numbers("ranks", text, "bin", "log_rank", start) for text in ("gap", "null"))
        places = f"{whole(start)} to {whole(row['stop'])}"
        means = (*_cells(row, 0), *_cells(unseen, 0))
        rows.append((places, whole(row["n"]), *means, *_ratio_cells(gap), *_ratio_cells(null)))
    return Table(title="Ranks by frequency", columns=RANKS, rows=tuple(rows))


def _silent_table(
    numbers: Numbers, title: str, measure: str, cells: Callable[[Row], tuple[str, str]]
) -> Table:
    """A measure by share of silent units; a loss begins with the first silent units."""
    rows = []
    for silent in numbers.silent()[measure == "log_rank_lost" :]:
        measured = [
            cells(numbers("ablation", text, words, measure, silent))
            for text in ("seen", "unseen")
            for words in _PANELS
        ]
        rows.append((percent(silent), *(cell for both in measured for cell in both)))
    return Table(title=title, columns=SILENCED, rows=tuple(rows))


def _cells(row: Row, digits: int = 2) -> tuple[str, str]:
    return decimal(row["value"], digits), ends(row["low"], row["high"], digits)


def _share_cells(row: Row) -> tuple[str, str]:
    low, high = row["low"], row["high"]
    known = NOTHING if low is None else f"{100 * low:.1f} to {100 * high:.1f}%"
    return percent(row["value"]), known


def _ratio_cells(row: Row, sign: int = -1) -> tuple[str, str]:
    """A difference of log ranks as the ratio of unseen ranks to seen ones."""
    ratio = as_ratio(row, sign=sign)
    return number(ratio["value"]), between(ratio["low"], ratio["high"])


def _fall_cells(row: Row) -> tuple[str, str]:
    return _ratio_cells(row, sign=1)


_HEIGHT = 220
_LEAST = 0.02  # least end of an axis of accuracies
_NARROW = 400  # pixels; below it, panels are stacked
_ASIDE = 130  # pixels of two panels' axes


def log_probabilities(rows: Sequence[Row], width: int = BROAD) -> Chart:
    """Histograms of frequent words and of the rest, as in Figure 5."""
    x = alt.X("x:Q", title="log-probability of the true word", axis=alt.Axis(tickCount=6))
    y = alt.Y("y:Q", title="share of words", axis=alt.Axis(format="~p", tickCount=5))

    def layers(words: str) -> list[Any]:
        found = []
        for text in ("seen", "unseen"):
            key = ("log-probabilities", text, words)
            own = [row for row in rows if (row["figure"], row["text"], row["words"]) == key]
            chart = inline(_steps(own)).encode(x=x, y=y)
            if text == "seen":
                found.append(chart.mark_area(fill=ACCENT, opacity=0.35, interpolate="step-after"))
            found.append(_line(chart, text, interpolate="step-after"))
        return found

    return _panels(layers, width)


def ranks(rows: Sequence[Row], width: int = BROAD) -> Chart:
    """Mean predicted rank by position in the table of frequencies, as in Figure 6."""
    own = [row for row in rows if (row["figure"], row["measure"]) == ("ranks", "rank")]
    points = [{**row, "x": (row["start"] + row["stop"]) / 2} for row in own]
    x = alt.X("x:Q", title="position of the word by frequency (1 is the commonest)")
    layers = _curves(points, x, "mean rank in the predictions", scale=alt.Scale(type="log"))
    return alt.layer(*layers).properties(width=width - _ASIDE // 2, height=_HEIGHT + 40)


def accuracy(rows: Sequence[Row], width: int = BROAD) -> Chart:
    """Accuracy by the share of silent units, as in Figure 7."""
    own = [{**row, "x": row["start"]} for row in rows if row["measure"] == "accuracy"]
    top = max([_LEAST, *(row["high"] or row["value"] or 0.0 for row in own)])
    axis, scale = alt.Axis(format="~p", tickCount=5), alt.Scale(domain=[0, top], nice=True)
    x = alt.X("x:Q", title="silent hidden units", axis=axis)

    def layers(words: str) -> list[Any]:
        points = [row for row in own if row["words"] == words]
        return _curves(points, x, "accuracy", axis=axis, scale=scale)

    return _panels(layers, width)


_FIGURES = (
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


def _curves(points: Sequence[Row], x: Any, title: str, **how: Any) -> list[Any]:
    """A line with its band for seen text, and one for unseen text."""
    layers = []
    y, low = (alt.Y(name, title=title, **how) for name in ("value:Q", "low:Q"))
    for text, colour in (("seen", ACCENT), ("unseen", INK)):
        own = [
            {name: point[name] for name in ("x", "value", "low", "high")}
            for point in points
            if point["text"] == text and point["value"] is not None
        ]
        if known := [point for point in own if point["low"] is not None]:
            area = inline(known).mark_area(fill=colour, opacity=0.15)
            layers.append(area.encode(x=x, y=low, y2="high:Q"))
        chart = inline(own)
        points_of = chart.mark_point(stroke=colour, fill=colour, size=22)
        layers += [one.encode(x=x, y=y) for one in (_line(chart, text), points_of)]
    return layers


def _line(chart: Any, text: str, **more: Any) -> Any:
    if text == "seen":
        return chart.mark_line(stroke=ACCENT, strokeWidth=2, **more)
    return chart.mark_line(stroke=INK, strokeWidth=1.6, strokeDash=[5, 3], **more)


def _steps(cells: Sequence[Row]) -> list[dict[str, float]]:
    """The corners of a histogram, down to 0 at its end."""
    known = [cell for cell in cells if cell["value"] is not None]
    corners = [{"x": float(cell["start"]), "y": float(cell["value"])} for cell in known]
    return [*corners, {"x": float(known[-1]["stop"]), "y": corners[-1]["y"]}] if known else []


def _panels(layers: Callable[[str], list[Any]], width: int) -> Chart:
    """Frequent words and the rest, side by side or stacked."""
    narrow = width < _NARROW
    own = width - _ASIDE // 2 if narrow else (width - _ASIDE) // 2
    panels = [
        alt.layer(*layers(words)).properties(
            width=own, height=_HEIGHT, title=titled(title, fontSize=13)
        )
        for words, title in _PANELS.items()
    ]
    together = alt.vconcat if narrow else alt.hconcat
    return together(*panels, spacing=18).resolve_scale(y="independent")
