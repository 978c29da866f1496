"""Secrets that were read back: sentences, charts and tables of `vestige extract-nlu`."""

from collections.abc import Sequence
from functools import partial

from vestige.reports.blocks import Prose
from vestige.reports.charts import Chart, Figure
from vestige.reports.disclosure import printable
from vestige.reports.extraction import charts
from vestige.reports.extraction.tables import (
    group_listing,
    guess_listing,
    guess_shares,
    times_planted,
    trial_listing,
)
from vestige.reports.extraction.words import (
    describe_audit,
    describe_extraction,
    describe_method,
    entries,
)
from vestige.reports.numbers import Row
from vestige.reports.report import Block, Report, lines
from vestige.reports.words import pairs
from vestige.results import Run

_OF_A_GROUP = "(planted|controls|drawn)_(?!p_value).*"
_EXPOSURE = (
    "Exposure is log2 of all secrets less log2 of the rank. Where no secret of a sample loses "
    "as little, the rank is an upper bound (≤) and the exposure a lower one (≥). Chance alone "
    "gives 1.44 bits on average."
)
LIMITS = (
    "A model that prefers some words has not thereby read them: without the truth, controls "
    "or a model that never saw the data, certainty proves nothing.",
    "A truth that is not the best guess is not thereby safe: an attacker who may try several "
    "needs as many tries as its rank.",
    _EXPOSURE,
    "The attacker is given weights, words, intent, tags and candidates; one who knows less "
    "learns less.",
)
AUDIT_LIMITS = (
    "That a leak is not shown does not say that there is none: another objective, another "
    "prefix or more copies may show it.",
    "A secret is compared with others drawn by the same rule that were never planted, in the same "
    "models. The p-value is exact whatever words a model prefers; it holds for secrets that "
    "were drawn at random, which a secret of your own choice was not.",
    "Planted secrets are random words: real ones that are likelier from the start, such as "
    "dates, are guessed sooner.",
    _EXPOSURE,
    "Intervals take secrets as drawn alike and each by itself. They say nothing about "
    "another training of the same kind: repeat it with other seeds for that.",
)


def extraction_report(run: Run, *, show_secrets: bool) -> Report:
    """The report of an `Extraction`: secrets of one pattern."""
    found, summary, title = entries(run.rows, run.summary), run.summary, "Was the secret read back?"
    if not found:
        return Report(
            kind="extraction", title=title, evidence=("Nothing was asked.",), limits=LIMITS
        )
    sentences = describe_extraction(found, summary)
    blocks: list[Block] = [*_rank_figure(found)]
    if not blocks and len(found) == 1:
        blocks += _share_figure(found[0], summary)
    blocks.append(trial_listing(found, show_secrets=show_secrets))
    if len(found) == 1:
        blocks.append(guess_listing(found[0], show_secrets=show_secrets))
    return Report(
        kind="extraction",
        title=title,
        evidence=lines(" ".join(sentences[:2]), " ".join(sentences[2:])),
        blocks=(*blocks, _method(summary)),
        limits=LIMITS,
    )


def audit_report(run: Run, *, show_secrets: bool) -> Report:
    """The report of a `SecretAudit`: planted secrets and their controls."""
    found, summary = entries(run.rows, run.summary), run.summary
    sentences = describe_audit(found, summary)
    return Report(
        kind="extraction",
        title="Does the model give planted secrets away?",
        evidence=lines(" ".join(sentences[:2]), " ".join(sentences[2:])),
        blocks=(
            *_rank_figure(found),
            group_listing(found),
            trial_listing(found, show_secrets=show_secrets),
            _method(summary),
        ),
        facts=pairs(summary, show_secrets=show_secrets, left_out=_OF_A_GROUP),
        limits=AUDIT_LIMITS,
    )


def _method(summary: Row) -> Prose:
    return Prose(title="How it was measured", lines=(describe_method(summary),))


def table_figures(rows: Sequence[Row]) -> tuple[Figure, ...]:
    """The charts of a table of defences, or of accuracies by length and copies; none for others."""
    keys = set[str]().union(*(row.keys() for row in rows))
    if not {"canary", "copies", "attack", "hamming", "hamming_by_chance"} <= keys:
        return ()
    if "defence" in keys:
        return _defence_figures(rows)
    return _curve_figures(rows) if {"length", "accuracy"} <= keys else ()


def _rank_figure(rows: Sequence[Row]) -> tuple[Figure, ...]:
    ranked = [row for row in rows if row["rank"] is not None and not row["drawn"]]
    if not ranked:
        return ()
    points = [
        {
            "label": " · ".join(
                filter(None, (printable(row["pattern"]), times_planted(row["copies"])))
            ),
            "rank": float(row["rank"]),
            "low": float(row["rank_low"]),
            "high": float(row["rank_high"]),
            "space": float(2 ** row["space_bits"]),
            "planted": row["copies"] != 0,
        }
        for row in ranked
    ]
    caption = (
        "Rank of each true secret among all that there could be, on a logarithmic axis: further "
        "left is easier to guess. "
        + ("A disc was planted, a ring never planted. " if rows[0]["copies"] is not None else "")
        + "The tick is what somebody who knows nothing needs on average."
    )
    return (Figure(draw=lambda _: charts.ranks(points), caption=caption, points=len(points)),)


def _share_figure(row: Row, summary: Row) -> tuple[Figure, ...]:
    among = "all secrets" if summary["certainty_among"] == "all" else "all that were tried"
    caption = (
        f"How far the best guesses stand out: their shares of the weight exp(-loss) of {among}. "
        "The first is the certainty."
    )
    shares = guess_shares(row)
    return (Figure(draw=lambda _: charts.shares(shares), caption=caption, points=len(shares)),)


def _defence_figures(rows: Sequence[Row]) -> tuple[Figure, ...]:
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
            figures.append(Figure(draw=partial(_heat_map, own), caption=caption))
    return tuple(figures)


def _curve_figures(rows: Sequence[Row]) -> tuple[Figure, ...]:
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
                draw = partial(_curves, own, measure)
                figures.append(Figure(draw=draw, caption=f"{caption}. {told}"))
    return tuple(figures)


def _heat_map(rows: Sequence[Row], _: int) -> Chart:
    return charts.heat_map(rows)


def _curves(rows: Sequence[Row], measure: str, _: int) -> Chart:
    return charts.curves(rows, measure=measure)
