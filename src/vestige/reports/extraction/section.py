"""Was a secret read back? Runs of `vestige extract-nlu` as sentences, charts and tables."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from markupsafe import Markup

from vestige.reports.components.disclosure import printable
from vestige.reports.components.table import Table
from vestige.reports.extraction import charts as extraction_charts
from vestige.reports.extraction import rank_charts
from vestige.reports.extraction.tables import (
    group_listing,
    guess_listing,
    guess_shares,
    said,
    trial_listing,
)
from vestige.reports.extraction.words import (
    describe_audit,
    describe_extraction,
    describe_method,
    entries,
)

Row = Mapping[str, Any]
_OF_A_GROUP = re.compile("(planted|controls|drawn)_(?!p_value)")


@dataclass(frozen=True, kw_only=True)
class Exhibit:
    """Sentences, charts and tables, ready for the template.

    Attributes:
        because: what follows the answer.
        warnings: what the reader must know first, a paragraph each.
        figures: charts and what stands under them.
        listings: tables.
        method: how it was measured.
    """

    because: str = ""
    warnings: tuple[str, ...] = ()
    figures: tuple[tuple[Markup, str], ...] = ()
    listings: tuple[Table, ...] = ()
    method: str = ""


def extraction_parts(rows: Sequence[Row], summary: Row, *, show_secrets: bool) -> dict[str, Any]:
    """What the page's section says of one pattern's secrets."""
    found = entries(rows, summary)
    if not found:
        return _parts("Was the secret read back?", ["Nothing was asked."], Exhibit())
    sentences = describe_extraction(found, summary)
    listings = [trial_listing(found, show_secrets=show_secrets)]
    if len(found) == 1:
        listings.append(guess_listing(found[0], show_secrets=show_secrets))
    figures = _rank_figure(found)
    if not figures and len(found) == 1:
        figures = _share_figure(found[0], summary)
    exhibit = Exhibit(figures=figures, listings=tuple(listings), method=describe_method(summary))
    return _parts("Was the secret read back?", sentences, exhibit)


def audit_parts(rows: Sequence[Row], summary: Row, *, show_secrets: bool) -> dict[str, Any]:
    """What the page's section says of planted secrets and their controls."""
    found = entries(rows, summary)
    exhibit = Exhibit(
        figures=_rank_figure(found),
        listings=(group_listing(found), trial_listing(found, show_secrets=show_secrets)),
        method=describe_method(summary),
    )
    return _parts(
        "Does the model give planted secrets away?", describe_audit(found, summary), exhibit
    )


def together(summary: Row) -> dict[str, Any]:
    """The summary of an audit without what its tables say already."""
    return {key: value for key, value in summary.items() if not _OF_A_GROUP.match(key)}


def table_figures(rows: Sequence[Row]) -> tuple[tuple[Markup, str], ...]:
    """The charts of a table of defences, or of accuracies by length and copies; none for others."""
    keys = set[str]().union(*(row.keys() for row in rows))
    if not {"canary", "copies", "attack", "hamming", "hamming_by_chance"} <= keys:
        return ()
    if "defence" in keys:
        return _defence_figures(rows)
    return _curve_figures(rows) if {"length", "accuracy"} <= keys else ()


def _parts(title: str, sentences: Sequence[str], exhibit: Exhibit) -> dict[str, Any]:
    return {
        "kind": "extraction",
        "title": title,
        "lede": " ".join(sentences[:2]),
        "exhibit": Exhibit(
            because=" ".join(sentences[2:]),
            figures=exhibit.figures,
            listings=exhibit.listings,
            method=exhibit.method,
        ),
    }


def _rank_figure(rows: Sequence[Row]) -> tuple[tuple[Markup, str], ...]:
    ranked = [row for row in rows if row["rank"] is not None and not row["drawn"]]
    if not ranked:
        return ()
    points = [
        {
            "label": " · ".join(filter(None, (printable(row["pattern"]), said(row["copies"])))),
            "rank": float(row["rank"]),
            "low": float(row["rank_low"]),
            "high": float(row["rank_high"]),
            "space": float(2 ** row["space_bits"]),
            "said": row["copies"] != 0,
        }
        for row in ranked
    ]
    caption = (
        "Rank of each true secret among all that there could be, on a logarithmic axis: further "
        "left is easier to guess. "
        + ("A disc was planted, a ring never said. " if rows[0]["copies"] is not None else "")
        + "The tick is what somebody who knows nothing needs on average."
    )
    return ((_markup(rank_charts.ranks(points)), caption),)


def _share_figure(row: Row, summary: Row) -> tuple[tuple[Markup, str], ...]:
    among = "all secrets" if summary["certainty_among"] == "all" else "all that were tried"
    caption = (
        f"How far the best guesses stand out: their shares of the weight exp(-loss) of {among}. "
        "The first is the certainty."
    )
    return ((_markup(rank_charts.shares(guess_shares(row))), caption),)


def _defence_figures(rows: Sequence[Row]) -> tuple[tuple[Markup, str], ...]:
    figures = []
    for attack in dict.fromkeys(str(row["attack"]) for row in rows):
        own = [row for row in rows if str(row["attack"]) == attack and row["hamming"] is not None]
        if own:
            caption = (
                f"Share of words that are wrong under the attack “{printable(attack)}”, by defence "
                "and copies. The stronger the colour, the more of the secret; a point marks what "
                "guessing may reach as well (its interval holds the baseline, the last line). "
                "Beside: what the defence costs."
            )
            figures.append((_markup(extraction_charts.heat_map(own)), caption))
    return tuple(figures)


def _curve_figures(rows: Sequence[Row]) -> tuple[tuple[Markup, str], ...]:
    captions = {
        "hamming": "Share of words that are wrong, by copies planted; the dotted line is guessing",
        "accuracy": "Share of secrets that come back whole, by copies planted",
    }
    figures = []
    for dataset in dict.fromkeys(row.get("dataset") for row in rows):
        own = [row for row in rows if row.get("dataset") == dataset]
        told = (
            "n: unknown words." if dataset is None else f"n: unknown words; {printable(dataset)}."
        )
        for measure, caption in captions.items():
            if any(row.get(measure) is not None for row in own):
                chart = extraction_charts.curves(own, measure=measure)
                figures.append((_markup(chart), f"{caption}. {told}"))
    return tuple(figures)


def _markup(svg: str) -> Markup:
    # vl-convert escapes every text that it draws; tests/reports holds it to that.
    return Markup(svg)
