"""An analysis of memorization: where the memory of training text sits.

Song and Shmatikov (2019), "Auditing Data Provenance in Text-Generation Models", KDD,
arXiv:1811.00513, Figures 5, 6 and 7.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from vestige.reports.anatomy import charts
from vestige.reports.anatomy.words import describe_anatomy, listings, method
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
        "Mean rank of the true word in the model’s predictions, by the word’s place in the "
        f"table of frequencies; bands are intervals. {_LINES}",
    ),
    (
        charts.accuracy,
        "Share of words that the model lists first, by the share of its hidden units that "
        f"are silent; bands are intervals. {_LINES}",
    ),
    (
        charts.fall,
        "How many times further down the model lists the true words as units fall silent, "
        f"by the mean of log ranks; bands are intervals. {_LINES}",
    ),
)
LIMITS = (
    "Seen and unseen text must differ in training only. Another time, topic or kind of people "
    "makes the same differences; the null, two halves of the unseen text, does not show that.",
    "Where the seen text says how frequent words are, its rare words are not those of the "
    "unseen text, for any model: only the same words in both texts compare fairly.",
    "With few people, or few texts, intervals are too narrow: twenty of each at least.",
    "A model that hardly ever lists a rare word first has no accuracy to lose there: then read "
    "how far down words fall.",
    "That a unit matters to rare words does not say that it holds them: units are silenced at "
    "the head only, and many units together say what none says alone.",
    "Intervals say nothing about another training of the same kind: repeat it with other "
    "seeds for that.",
)


def anatomy_report(run: Run, *, show_secrets: bool) -> Report:
    """The report of an `Anatomy`; no text is in it."""
    rows, summary = run.rows, run.summary
    sentences = describe_anatomy(summary)
    drawn = _FIGURES if summary["silenced"] is not None else _FIGURES[:2]
    return Report(
        kind="anatomy",
        title="Where does the memory sit?",
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
