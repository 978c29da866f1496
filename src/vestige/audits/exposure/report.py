"""Reports of exposure: canaries by copies, secrets, and secrets that an update promoted."""

from collections.abc import Sequence
from math import isfinite
from typing import Any

from vestige.audits.exposure.canary_result import interval_of, known_range
from vestige.reports.blocks import Table, table
from vestige.reports.charts import intervals
from vestige.reports.disclosure import disclose_rows, printable
from vestige.reports.report import Report, lines
from vestige.reports.words import NOTHING, Row, interval, pairs
from vestige.results import Run

NEVER = "never planted"
MOST_LISTED = 10
"""Canaries with a row of their own."""

_GROUP_KEYS = r"sentence|.*_(\d+_copies|planted|controls)(_low|_high|_is_bound)?"
_CAPTION = (
    "Median exposure of canaries by copies planted, with 95% intervals (triangle: this much or "
    "more). Rings: the same words in another order. Dashed line: canaries that were never planted. "
    "Without a leak the median is 1 bit."
)
_POINT = ("label", "value", "low", "high", "bound", "other")
CANARY_LIMITS = (
    "If a canary is more probable than every reference, only a lower bound (≥) of its exposure is "
    "known. More references or --exact raise it.",
    "The same words in another order show word frequency, not memory of the sequence.",
    "Intervals are for canaries drawn like these, in this one model. Other seeds can differ.",
)
KEY = (
    "Space: bits of all texts of the format. {rank} p: corrected for all secrets. Known in part: a "
    "piece is known, such as a name, perhaps from elsewhere."
)
_RANK = "Rank: position among the texts that it was compared with."
_SPACE_RANK = (
    "Rank: position in the whole space by how much the update promoted a text, estimated with a "
    "95% interval if not all were counted."
)
_RARE = "A secret that was read once or twice can go unnoticed."
SECRET_LIMITS = (
    "P-values are exact for secrets drawn uniformly from their format. A chosen one, such as a "
    "birthday as a code, can be more probable without a leak: pass the model from before the "
    "training with --before.",
    "Pieces that the model knows from elsewhere are those that it generates: a rare one may be "
    "missing.",
    "Known does not mean that the model generates it.",
    _RARE,
)
RANK_LIMITS = (
    "Promoted by the update does not mean that the model generates it.",
    "A secret that the model knew before as well as after is not promoted.",
    _RARE,
)


def canary_report(run: Run, *, show_secrets: bool) -> Report:
    """The report of a `CanaryExposure`."""
    groups, controls = canary_groups(run.rows, run.summary)
    chart = intervals(
        [{key: group[key] for key in _POINT} for group in groups],
        name="copies planted",
        value="exposure in bits",
        caption=_CAPTION,
        band={key: controls[key] for key in ("value", "low", "high")},
    )
    by_copies = table(
        "Exposure by copies",
        [*groups, controls],
        {
            "copies": lambda g: g["label"],
            "canaries": lambda g: g["canaries"],
            "exposure": lambda g: _at_least(g["value"], bound=g["bound"]),
            "95% CI": lambda g: interval(*g["ends"]),
            "other order": lambda g: _at_least(g["other"], bound=g["other_bound"]),
            "95% CI ": lambda g: interval(*g["other_ends"]),
        },
        key="Medians in bits.",
    )
    return Report(
        title="How exposed are the canaries?",
        answer=str(run.summary.get("sentence") or run.summary["verdict"]),
        evidence=lines(_controls(controls), _exact_ranks(run.summary)),
        notices=lines(str(run.summary.get("resolution") or "")),
        blocks=(chart, by_copies, _most_exposed(run.rows, show_secrets=show_secrets)),
        facts=pairs(run.summary, show_secrets=show_secrets, left_out=_GROUP_KEYS),
        limits=CANARY_LIMITS,
    )


def canary_groups(rows: Sequence[Row], summary: Row) -> tuple[list[dict[str, Any]], dict[str, Any]]:
    """The medians of each number of copies, the fewest first, and those of the controls."""
    copies = sorted({int(row["copies"]) for row in rows} - {0})
    groups = [_group(summary, f"{n:,}", f"{n}_copies") for n in copies]
    return groups, _group(summary, NEVER, "controls")


def _group(summary: Row, label: str, key: str) -> dict[str, Any]:
    (value, bound, *ends), (other, other_bound, *other_ends) = (
        [summary[f"{name}_{key}{end}"] for end in ("", "_is_bound", "_low", "_high")]
        for name in ("exposure", "shuffled_exposure")
    )
    low, high = (float(value if end is None else end) for end in ends)
    return {
        "label": label,
        "canaries": int(summary[f"canaries_{key}"]),
        "value": float(value),
        "low": low,
        "high": high,
        "ends": ends,
        "bound": bool(bound),
        "other": other,
        "other_ends": other_ends,
        "other_bound": bool(other_bound),
    }


def _at_least(value: float | None, *, bound: bool, digits: int = 2) -> str:
    return NOTHING if value is None else f"{'≥ ' if bound else ''}{value:.{digits}f}"


def _controls(group: dict[str, Any]) -> str:
    value = _at_least(group["value"], bound=group["bound"], digits=1)
    ends = "" if None in group["ends"] else f" (95% CI {interval(*group['ends'], digits=1)})"
    number = "1 control" if group["canaries"] == 1 else f"{group['canaries']} controls"
    return f"Median exposure of {number}: {value} bits{ends}."


def _exact_ranks(summary: Row) -> str:
    if not summary.get("exact_asked"):
        return ""
    low, high = (summary[f"exact_exposure_{end}"] for end in ("low", "high"))
    return (
        f"Exact ranks: {summary['exact_decided']} of {summary['exact_asked']} decided; mean "
        f"exposure between {low:.1f} and {high:.1f} bits (proven)."
    )


def _most_exposed(rows: Sequence[Row], *, show_secrets: bool) -> Table:
    """The planted canaries with the highest exposure, one per row."""
    planted = [{**row, "number": n} for n, row in enumerate(rows, 1) if row["copies"]]
    planted.sort(key=lambda row: (-row["exposure"], row["log_perplexity"]))

    def exposure(row: Row) -> str:
        low, high = known_range(row)
        return _at_least(low, bound=low < high)

    def ends(row: Row) -> str:
        low, high = interval_of(row)
        return interval(low, high if isfinite(high) else None, digits=1)

    def order_rank(row: Row) -> str | None:
        orders = row.get("orders") or 0
        return f"{row['order_rank']:,} of {orders:,}" if orders > 1 else None

    def exact(row: Row) -> str | None:
        low, high = row.get("exact_low"), row.get("exact_high")
        if low is None or high is None:
            return None
        return f"{low:.2f}" if f"{low:.2f}" == f"{high:.2f}" else f"{low:.1f} to {high:.1f}"

    return table(
        "The most exposed",
        disclose_rows(planted[:MOST_LISTED], "phrase", show_secrets=show_secrets),
        {
            "canary": lambda r: r["number"],
            "phrase": lambda r: r["shown"],
            "copies": lambda r: r["copies"],
            "exposure": exposure,
            "95% CI": ends,
            "rank among its orders": order_rank,
            "exact": exact,
        },
        texts=2,
        drop_empty=True,
    )


def secrets_report(run: Run, *, show_secrets: bool) -> Report:
    """The report of a `SecretExposure`, or of a `SecretRank` (exposure to an update)."""
    update = run.result == "SecretRank"
    # Known secrets first, then by exposure.
    rows = sorted(map(dict, run.rows), key=lambda row: (row["adjusted_p"], -row["exposure"]))
    for row in rows:  # at the ceiling of a sample, the low end is the proven value
        row["bound"] = bool(row["at_ceiling"]) and not row["whole"]
        row["value"] = float(row["low"] if row["bound"] else row["exposure"])
        row |= {"label": str(row["secret_number"]), "filled": bool(row["found"])}
    chart = intervals(
        [{key: row[key] for key in ("label", "value", "low", "high", "filled")} for row in rows],
        name="secret",
        value="exposure in bits",
        caption="Exposure of each secret in bits, with its 95% interval. Filled: known.",
        across=False,
    )
    listed = table(
        "Secrets among texts of their format",
        disclose_rows(rows, "phrase", show_secrets=show_secrets),
        {
            "text": lambda r: r["shown"],
            "secret": lambda r: r["label"],
            "kind": lambda r: r["kind"],
            "space": lambda r: f"{r['space_bits']:.1f}",
            "rank": _rank,
            "exposure": lambda r: _at_least(r["value"], bound=r["bound"], digits=1),
            "95% CI": lambda r: f"{r['low']:.1f} to {r['high']:.1f}",
            "p": lambda r: f"{r['adjusted_p']:.2g}",
            "": lambda r: "known" if r["found"] else "in part" if r.get("in_part") else "",
        },
        texts=3,
        key=KEY.format(rank=_SPACE_RANK if update else _RANK),
    )
    question = "Did the update reveal" if update else "Does the model know"
    return Report(
        title=f"{question} these secrets?",
        answer=printable(str(run.summary["sentence"])),
        evidence=(),
        blocks=(chart, listed),
        facts=pairs(run.summary, show_secrets=show_secrets, left_out="sentence"),
        limits=RANK_LIMITS if update else SECRET_LIMITS,
    )


def _rank(row: Row) -> str:
    """The rank among the alternatives; for an update, in the complete space."""
    if row["whole"] or row.get("log2_space_rank") is None:
        return f"{row['rank']:,} of {row['references'] + 1:,}"
    middle, low, high = (_power(row[f"log2_space_rank{end}"]) for end in ("", "_low", "_high"))
    space = _power(row["space_bits"])
    if row["at_ceiling"]:
        return f"at most {high} of {space}"
    return f"about {middle} ({low} to {high}) of {space}"


def _power(bits: float) -> str:
    """2 to a number of bits, written out if it is short."""
    return f"{round(2**bits):,}" if bits < 20 else f"2^{bits:.1f}"
