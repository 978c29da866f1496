"""Tables of extracted secrets, for a terminal and a page.

Words of secrets become blocks here, one a word, unless secrets are wanted.
"""

from collections.abc import Callable, Sequence
from math import ceil, exp
from statistics import fmean
from typing import Any

from vestige.metrics.extraction import share_interval
from vestige.metrics.rates import rate
from vestige.reports.disclosure import disclose, printable
from vestige.reports.numbers import NOTHING, Row, decimal, ends, percent, whole
from vestige.reports.tables import Table

GROUPS = (
    *("model", "pattern", "planted", "secrets", "came back", "95 %", "words wrong", "95 %"),
    *("by chance", "median rank", "exposure, bits", "95 %"),
)
TRIALS = (
    *("model", "pattern", "planted", "guess", "loss", "certainty", "right", "words wrong"),
    *("rank of the truth", "exposure, bits", "95 %"),
)
GUESSES = ("guess", "loss", "share of the weight", "right")
_MARKS = {"exact": "", "sampled": "≈ ", "bounded": "≤ "}
_NO_GUESS = (NOTHING,) * 4
LISTED = 100
"""Secrets that the page lists one by one."""


def group_listing(rows: Sequence[Row]) -> Table:
    """A row for each pattern and number of copies, controls last, from `entries` of an audit."""
    groups: dict[tuple[Any, ...], list[Row]] = {}
    for row in rows:
        key = tuple(row[name] for name in ("model", "pattern", "space_bits", "copies", "drawn"))
        groups.setdefault(key, []).append(row)
    several = len({row["model"] for row in rows}) > 1
    cells = [_group_cells(group) for group in groups.values()]
    return _without_empty_columns(
        "Planted secrets and controls", GROUPS, cells, texts=3, first=not several
    )


def trial_listing(rows: Sequence[Row], *, show_secrets: bool) -> Table:
    """A row for each of the first `LISTED` secrets, from `entries`."""
    asked = [row for row in rows if not row["drawn"]]
    cells = [_trial_cells(row, show_secrets) for row in asked[:LISTED]]
    left = len(asked) - len(cells)
    title = "Secret by secret" + (f", the first {LISTED} ({left} more)" if left else "")
    several = len({row["model"] for row in rows}) > 1
    return _without_empty_columns(title, TRIALS, cells, texts=4, first=not several)


def guess_listing(row: Row, *, show_secrets: bool, most: int | None = None) -> Table:
    """The best guesses of one trial with what they lose, best first."""
    weights = guess_shares(row)
    cells = [
        (
            _secret(guess, show_secrets),
            f"{loss:.4g}",
            percent(weight),
            "" if row["truth"] is None else "yes" if guess == row["truth"] else "no",
        )
        for guess, loss, weight in zip(row["guesses"], row["losses"], weights, strict=True)
    ][:most]
    known = len(GUESSES) if row["truth"] is not None else len(GUESSES) - 1
    return Table(
        title="The best guesses",
        columns=GUESSES[:known],
        texts=1,
        rows=tuple(cell[:known] for cell in cells),
    )


def guess_shares(row: Row) -> list[float]:
    """Each guess's share of the weight exp(-loss); the first one's is the certainty."""
    return [row["certainty"] * exp(row["losses"][0] - loss) for loss in row["losses"]]


def times_planted(copies: int | None) -> str:
    """How often a secret was planted; nothing where that is not known."""
    if copies is None:
        return ""
    return "never" if copies == 0 else "once" if copies == 1 else f"{copies:,} ×"


def _group_cells(group: Sequence[Row]) -> tuple[str, ...]:
    first = group[0]
    ranked = [row for row in group if row["rank"] is not None]
    bits, interval, middle = NOTHING, NOTHING, NOTHING
    if ranked:
        middle = median_rank(ranked)
        bits = _at_least(ranked) + decimal(fmean(row["exposure"] for row in ranked))
        mean = share_interval([row["exposure"] for row in ranked], ceiling=first["space_bits"])
        interval = _exposure_ends(ranked[0]) if mean is None else ends(mean.low, mean.high)
    return (
        str(first["model"]),
        printable(first["pattern"]),
        "never, drawn now" if first["drawn"] else times_planted(first["copies"]),
        f"{len(group):,}",
        *(_NO_GUESS if first["drawn"] else _guess_cells(group)),
        percent(first["hamming_by_chance"]),
        middle,
        bits,
        interval,
    )


def _guess_cells(group: Sequence[Row]) -> tuple[str, ...]:
    back = rate(bool(row["right"]) for row in group)
    assert back is not None
    wrong = [float(row["hamming"]) for row in group]
    spread = share_interval(wrong)
    return (
        f"{back.successes} of {back.trials}",
        f"{100 * back.interval.low:.0f} to {100 * back.interval.high:.0f} %",
        percent(fmean(wrong)),
        NOTHING if spread is None else f"{100 * spread.low:.0f} to {100 * spread.high:.0f} %",
    )


def _secret(words: str, show_secrets: bool) -> str:
    [shown] = disclose([words], show_secrets=show_secrets)
    return shown


def _trial_cells(row: Row, show_secrets: bool) -> tuple[str, ...]:
    known, ranked = row["truth"] is not None, row["rank"] is not None
    return (
        str(row["model"]),
        printable(row["pattern"]),
        times_planted(row["copies"]),
        _secret(row["guess"], show_secrets),
        f"{row['loss']:.4g}",
        percent(row["certainty"]),
        "" if not known else "yes" if row["right"] else "no",
        percent(row["hamming"]) if known else "",
        *(_ranked_cells(row) if ranked else (NOTHING if known else "",) * 3),
    )


def _ranked_cells(row: Row) -> tuple[str, ...]:
    rank = f"{rank_of(row)} of {whole(round(2 ** row['space_bits']))}"
    return rank, _at_least([row]) + decimal(row["exposure"]), _exposure_ends(row)


def rank_of(row: Row) -> str:
    """A rank, marked "≤" where it is an upper bound and "≈" where it is an estimate."""
    rounding: dict[str, Callable[[float], float]]
    rounding = {"exact": float, "bounded": ceil, "sampled": round}
    return _MARKS[row["rank_known"]] + whole(rounding[row["rank_known"]](row["rank"]))


def median_rank(rows: Sequence[Row]) -> str:
    """The median of ranks; an upper bound where a bounded one stands there or behind it."""
    ordered = sorted(rows, key=lambda row: float(row["rank"]))
    middle = [ordered[(len(rows) - 1) // 2], ordered[len(rows) // 2]]
    known = {row["rank_known"] for row in middle}
    if any(row["rank_known"] == "bounded" and row["rank"] >= middle[0]["rank"] for row in rows):
        known = {"bounded"}
    found = fmean(float(row["rank"]) for row in middle)
    if known == {"exact"}:
        return whole(found)
    return _MARKS["bounded" if known == {"bounded"} else "sampled"] + whole(ceil(found))


def _at_least(rows: Sequence[Row]) -> str:
    return "≥ " if any(row["rank_known"] == "bounded" for row in rows) else ""


def _exposure_ends(row: Row) -> str:
    if row["rank_known"] == "exact":
        return "exact"
    if row["rank_known"] == "bounded":
        return f"from {decimal(row['exposure_low'])}"
    return ends(row["exposure_low"], row["exposure_high"])


def _without_empty_columns(
    title: str, columns: Sequence[str], rows: Sequence[Sequence[str]], *, texts: int, first: int = 0
) -> Table:
    """A table of the columns from `first` on that have a text in any row."""
    kept = [place for place in range(first, len(columns)) if any(row[place] != "" for row in rows)]
    return Table(
        title=title,
        columns=tuple(columns[place] for place in kept),
        texts=sum(place < texts for place in kept),
        rows=tuple(tuple(row[place] for place in kept) for row in rows),
    )
