"""The report of an anatomy: which words and hidden units hold the training text.

Song and Shmatikov (2019), "Auditing Data Provenance in Text-Generation Models", KDD,
arXiv:1811.00513, Figures 5, 6 and 7.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from vestige.audits.anatomy import charts
from vestige.audits.anatomy.tables import describe_anatomy, listings, method
from vestige.reports.blocks import Prose
from vestige.reports.charts import Chart, Figure
from vestige.reports.report import Report, lines
from vestige.reports.words import pairs
from vestige.results import Run

_LINES = "Filled or solid: seen text; dashed: unseen text."
_IN_THE_TABLES = "(log_prob_gap|rank_ratio|rank_fall|kept|perplexity_ratio)_.*"
_FIGURES = (
    (
        charts.log_probabilities,
        f"Log-probability of the true words, frequent ones and the rest. {_LINES}",
    ),
    (
        charts.ranks,
        "Mean rank of the true word in the model’s predictions, by the word’s position in the "
        f"table of frequencies. Bands are intervals. {_LINES}",
    ),
    (
        charts.accuracy,
        "Share of words that the model lists first, by the share of silent hidden units. "
        f"Bands are intervals. {_LINES}",
    ),
    (
        charts.fall,
        "Rank of the true words by the share of silent hidden units, as a multiple of their "
        f"rank in the whole model (mean of log ranks). Bands are intervals. {_LINES}",
    ),
)
LIMITS = (
    "Seen and unseen text must differ in training only. Another time, topic or group of people "
    "makes the same differences, and the null does not show that.",
    "If words are counted in the seen text, its rare words are not those of the unseen text, for "
    "any model. Only the words that both texts have compare fairly.",
    "With fewer than twenty users, or texts, intervals are too narrow.",
    "A model that hardly ever lists a rare word first has no accuracy to lose. Read the ranks.",
    "A unit that matters to rare words need not store them: units are silenced at the output layer "
    "only, and together they show what none shows alone.",
    "Intervals do not cover other trainings of the same kind; repeat with other seeds.",
)


def anatomy_report(run: Run, *, show_secrets: bool) -> Report:
    """The report of an `Anatomy`; no text is in it."""
    rows, summary = run.rows, run.summary
    sentences = describe_anatomy(summary)
    drawn = _FIGURES if summary["silenced"] is not None else _FIGURES[:2]
    return Report(
        kind="anatomy",
        title="Which words does the model memorize?",
        evidence=lines(sentences[0], " ".join(sentences[1:])),
        blocks=(
            *(Figure(draw=_at(draw, rows), caption=caption, slim=True) for draw, caption in drawn),
            *listings(rows, summary),
            Prose(title="How it was measured", lines=(method(summary),)),
        ),
        facts=pairs(summary, show_secrets=show_secrets, left_out=_IN_THE_TABLES),
        limits=LIMITS,
    )


def _at(draw: Callable[..., Chart], rows: Sequence[Mapping[str, Any]]) -> Callable[[int], Chart]:
    return lambda width: draw(rows, width=width)
