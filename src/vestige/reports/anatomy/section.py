"""Where does the memory sit? A run of `vestige anatomy` as a section of the page.

Song and Shmatikov (2019), "Auditing Data Provenance in Text-Generation Models", KDD,
arXiv:1811.00513, Figures 5, 6 and 7.
"""

from collections.abc import Sequence
from typing import Any

from vestige.reports.anatomy import charts as anatomy_charts
from vestige.reports.anatomy.words import Row, describe_anatomy, listings, method
from vestige.reports.audit.charts import at_two_widths
from vestige.reports.extraction.section import Exhibit

_LINES = "Filled or solid: seen text; dashed: unseen text."


def anatomy_parts(rows: Sequence[Row], summary: Row) -> dict[str, Any]:
    """What the page's section says of an `Anatomy`."""
    sentences = describe_anatomy(summary)
    captions = [
        (
            anatomy_charts.log_probabilities,
            f"Log-probability of the true words, frequent ones and the rest. {_LINES}",
        ),
        (
            anatomy_charts.ranks,
            "Mean rank of the true word in the model’s predictions, by the word’s place in the "
            f"table of frequencies; bands are intervals. {_LINES}",
        ),
    ]
    if summary["silenced"] is not None:
        captions += [
            (
                anatomy_charts.accuracy,
                "Share of words that the model lists first, by the share of its hidden units that "
                f"are silent; bands are intervals. {_LINES}",
            ),
            (
                anatomy_charts.fall,
                "How many times further down the model lists the true words as units fall silent, "
                f"by the mean of log ranks; bands are intervals. {_LINES}",
            ),
        ]

    def chart(draw: Any) -> Any:
        return at_two_widths(lambda width: draw(rows, width=width))

    exhibit = Exhibit(
        because=" ".join(sentences[1:]),
        figures=tuple((chart(draw), caption) for draw, caption in captions),
        listings=listings(rows, summary),
        method=method(summary),
    )
    return {
        "kind": "extraction",
        "title": "Where does the memory sit?",
        "lede": sentences[0],
        "exhibit": exhibit,
    }
