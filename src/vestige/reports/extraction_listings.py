"""Which secrets were read back, in tables for a terminal and a page?

Words of secrets become blocks here, one a word, unless secrets are wanted.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import exp
from statistics import fmean, median
from typing import Any

from vestige.metrics.extraction import share_interval
from vestige.metrics.rates import rate
from vestige.reports.disclosure import conceal, printable
from vestige.reports.numbers import NOTHING, decimal, ends, percent, whole

Row = Mapping[str, Any]
GROUPS = (
    *("pattern", "said", "secrets", "came back", "95 %", "words wrong", "95 %"),
    *("by chance", "median rank", "exposure, bits", "95 %"),
)
TRIALS = (
    *("pattern", "said", "guess", "loss", "certainty", "right", "words wrong", "rank of the truth"),
    *("exposure, bits", "95 %"),
)
GUESSES = ("guess", "loss", "share of the weight", "right")
LISTED = 100
"""Secrets that the page lists one by one."""


@dataclass(frozen=True, kw_only=True)
class Listing:
    """A table with its title.

    Attributes:
        title: of it.
        columns: their names.
        texts: how many of the first columns hold words; the others stand right.
        rows: cells in the columns' order.
    """

    title: str
    columns: tuple[str, ...]
    texts: int
    rows: tuple[tuple[str, ...], ...]


def group_listing(rows: Sequence[Row]) -> Listing:
    """A row for each pattern and number of copies, controls last.

    Args:
        rows: `entries` of an audit.
    """
    groups: dict[tuple[Any, ...], list[Row]] = {}
    for row in rows:
        key = (row["pattern"], row["space_bits"], row["copies"])
        groups.setdefault(key, []).append(row)
    cells = tuple(_group_cells(group) for group in groups.values())
    return Listing(title="Planted, and never said", columns=GROUPS, texts=2, rows=cells)


def trial_listing(rows: Sequence[Row], *, show_secrets: bool) -> Listing:
    """A row for each secret, as many as are listed.

    Args:
        rows: `entries`.
        show_secrets: guesses in the clear.
    """
    cells = [_trial_cells(row, show_secrets) for row in rows[:LISTED]]
    kept = [place for place, name in enumerate(TRIALS) if any(c[place] != "" for c in cells)]
    left = len(rows) - len(cells)
    return Listing(
        title="Secret by secret" + (f", the first {LISTED} ({left} more)" if left else ""),
        columns=tuple(TRIALS[place] for place in kept),
        texts=sum(place < 3 for place in kept),
        rows=tuple(tuple(row[place] for place in kept) for row in cells),
    )


def guess_listing(row: Row, *, show_secrets: bool, most: int | None = None) -> Listing:
    """The best guesses of one trial with what they lose, best first."""
    weights = guess_shares(row)
    cells = [
        (
            conceal(guess.split(" "), show_secrets=show_secrets),
            f"{loss:.4g}",
            percent(weight),
            "" if row["truth"] is None else "yes" if guess == row["truth"] else "no",
        )
        for guess, loss, weight in zip(row["guesses"], row["losses"], weights, strict=True)
    ][:most]
    known = len(GUESSES) if row["truth"] is not None else len(GUESSES) - 1
    return Listing(
        title="The best guesses",
        columns=GUESSES[:known],
        texts=1,
        rows=tuple(cell[:known] for cell in cells),
    )


def guess_shares(row: Row) -> list[float]:
    """Each guess's share of the weight exp(-loss); the first one's is the certainty."""
    return [row["certainty"] * exp(row["losses"][0] - loss) for loss in row["losses"]]


def said(copies: int | None) -> str:
    """How often a secret was said; nothing where that is not known."""
    if copies is None:
        return ""
    return "never" if copies == 0 else "once" if copies == 1 else f"{copies:,} ×"


def _group_cells(group: Sequence[Row]) -> tuple[str, ...]:
    first = group[0]
    back = rate(bool(row["right"]) for row in group)
    assert back is not None
    wrong = [float(row["hamming"]) for row in group]
    spread = share_interval(wrong)
    ranked = [row for row in group if row["rank"] is not None]
    bits, interval = NOTHING, NOTHING
    if ranked:
        bits = _at_least(ranked) + decimal(fmean(row["exposure"] for row in ranked))
        mean = share_interval([row["exposure"] for row in ranked], ceiling=first["space_bits"])
        interval = _exposure_ends(ranked[0]) if mean is None else ends(mean.low, mean.high)
    return (
        printable(first["pattern"]),
        said(first["copies"]),
        f"{len(group):,}",
        f"{back.successes} of {back.trials}",
        f"{100 * back.interval.low:.0f} to {100 * back.interval.high:.0f} %",
        percent(fmean(wrong)),
        NOTHING if spread is None else f"{100 * spread.low:.0f} to {100 * spread.high:.0f} %",
        percent(first["hamming_by_chance"]),
        whole(median(row["rank"] for row in ranked)) if ranked else NOTHING,
        bits,
        interval,
    )


def _trial_cells(row: Row, show_secrets: bool) -> tuple[str, ...]:
    known, ranked = row["truth"] is not None, row["rank"] is not None
    return (
        printable(row["pattern"]),
        said(row["copies"]),
        conceal(row["guess"].split(" "), show_secrets=show_secrets),
        f"{row['loss']:.4g}",
        percent(row["certainty"]),
        "" if not known else "yes" if row["right"] else "no",
        percent(row["hamming"]) if known else "",
        _rank(row) if ranked else NOTHING if known else "",
        _at_least([row]) + decimal(row["exposure"]) if ranked else NOTHING if known else "",
        _exposure_ends(row) if ranked else NOTHING if known else "",
    )


def _rank(row: Row) -> str:
    about = "" if row["rank_exact"] else "≤ " if row["at_ceiling"] else "≈ "
    rank = row["rank_high"] if row["at_ceiling"] else row["rank"]
    shown = whole(rank if row["rank_exact"] else round(rank))
    return f"{about}{shown} of {whole(round(2 ** row['space_bits']))}"


def _at_least(rows: Sequence[Row]) -> str:
    return "≥ " if any(row["at_ceiling"] for row in rows) else ""


def _exposure_ends(row: Row) -> str:
    if row["rank_exact"]:
        return "exact"
    if row["at_ceiling"]:
        return f"from {decimal(row['exposure_low'])}"
    return ends(row["exposure_low"], row["exposure_high"])
