"""Reports of unknown words: of one utterance, and of planted secrets with their controls."""

from collections.abc import Sequence
from math import exp
from statistics import fmean
from typing import Any

from vestige.audits.extraction import utterances_words as words
from vestige.metrics.extraction import share_interval
from vestige.metrics.rates import rate
from vestige.reports.blocks import Prose, Table, table
from vestige.reports.charts import Figure, intervals
from vestige.reports.disclosure import disclose, printable
from vestige.reports.report import Report, lines
from vestige.reports.words import NOTHING, Row, decimal, ends, pairs, percent, whole
from vestige.results import Run

_OF_A_GROUP = "(planted|controls|drawn)_(?!p_value).*"
_EXPOSURE = (
    "Exposure is log2(all secrets) - log2(rank). If no secret of a sample has as low a loss, the "
    "rank is an upper bound (≤) and the exposure a lower one (≥). Without a leak it is 1.44 bits "
    "on average."
)
LIMITS = (
    "Every model prefers some words. Without the truth, controls or a model that never saw the "
    "data, certainty proves nothing.",
    "An attacker with several guesses needs as many as the rank of the truth.",
    "The attacker knows weights, words, intent, tags and candidates. One who knows less learns "
    "less.",
    _EXPOSURE,
)
AUDIT_LIMITS = (
    "The p-value is exact for secrets drawn at random, whatever words a model prefers. It does not "
    "hold for secrets of your own choice.",
    "Planted secrets are random words. Real ones that are more probable from the start, such as "
    "dates, are guessed sooner.",
    "Intervals are for secrets drawn like these, in these models. Other seeds can differ.",
    _EXPOSURE,
)
LISTED = 100
"""Secrets that are listed one by one."""
MOST = 100
"""Largest number of points on the chart."""


def utterance_report(run: Run, *, show_secrets: bool) -> Report:
    """The report of an `Extraction`: secrets of one pattern."""
    rows, title = words.entries(run.rows, run.summary), "Which unknown words does the model reveal?"
    if not rows:
        return Report(
            kind="extraction", title=title, evidence=("Nothing was extracted.",), limits=LIMITS
        )
    best = (_guesses(rows[0], show_secrets=show_secrets),) if len(rows) == 1 else ()
    return Report(
        kind="extraction",
        title=title,
        evidence=lines(*words.of_extraction(rows, run.summary)),
        blocks=(
            *_ranks(rows), _trials(rows, show_secrets=show_secrets), *best, _method(run.summary),
        ),
        limits=LIMITS,
    )  # fmt: skip


def planted_report(run: Run, *, show_secrets: bool) -> Report:
    """The report of a `SecretAudit`: planted secrets and their controls."""
    rows, summary = words.entries(run.rows, run.summary), run.summary
    return Report(
        kind="extraction",
        title="Does the model reveal planted secrets?",
        evidence=lines(*words.of_audit(rows, summary)),
        notices=lines(words.stray_controls(summary)),
        blocks=(
            *_ranks(rows), _groups(rows), _trials(rows, show_secrets=show_secrets),
            _method(summary),
        ),
        facts=pairs(summary, show_secrets=show_secrets, left_out=_OF_A_GROUP),
        limits=(*words.doubts(summary), *AUDIT_LIMITS),
    )  # fmt: skip


def _method(summary: Row) -> Prose:
    return Prose(title="How it was measured", lines=(words.method(summary),))


def _ranks(rows: Sequence[Row]) -> tuple[Figure, ...]:
    """Exposure of each true secret, from its rank."""
    ranked = [row for row in rows if row["rank"] is not None and not row["drawn"]][:MOST]
    if not ranked:
        return ()
    points = []
    for number, row in enumerate(ranked, 1):
        told = filter(None, (printable(row["pattern"]), times_planted(row["copies"]), str(number)))
        bits, bounded = float(row["exposure"]), row["rank_known"] == "bounded"
        high = float(row["space_bits"]) if bounded else float(row["exposure_high"])
        points.append({
            "label": " · ".join(told), "value": bits, "low": float(row["exposure_low"]),
            "high": high, "filled": row["copies"] != 0, "bound": bounded,
        })  # fmt: skip
    return (
        intervals(
            points,
            name="",
            value="exposure in bits",
            across=False,
            domain=(0, max(float(row["space_bits"]) for row in ranked)),
            caption="Exposure of each true secret among all that fit the pattern; the axis ends at "
            "the most there is. Ring: never planted. Triangle: lower bound.",
        ),
    )


def _groups(rows: Sequence[Row]) -> Table:
    """A row for each pattern and number of copies, controls last."""
    groups: dict[tuple[Any, ...], list[Row]] = {}
    for row in rows:
        key = tuple(row[name] for name in ("model", "pattern", "space_bits", "copies", "drawn"))
        groups.setdefault(key, []).append(row)
    several = len({row["model"] for row in rows}) > 1
    return table(
        "Planted secrets and controls",
        list(groups.values()),
        {
            "model": lambda g: str(g[0]["model"]) if several else "",
            "pattern": lambda g: g[0]["pattern"],
            "planted": lambda g: (
                "never, sampled now" if g[0]["drawn"] else times_planted(g[0]["copies"])
            ),
            "secrets": lambda g: len(g),
            "extracted": _extracted,
            "95% CI": lambda g: _of_guesses(g, _extracted_ends),
            "words wrong": lambda g: _of_guesses(g, lambda g: percent(_wrong(g))),
            "95% CI ": lambda g: _of_guesses(g, _wrong_ends),
            "by chance": lambda g: percent(g[0]["hamming_by_chance"]),
            "median rank": lambda g: words.median_rank(_ranked(g)) if _ranked(g) else NOTHING,
            "exposure, bits": _mean_exposure,
            "95% CI  ": _mean_exposure_ends,
        },
        texts=3,
        drop_empty=True,
    )


def _ranked(group: Sequence[Row]) -> list[Row]:
    return [row for row in group if row["rank"] is not None]


def _of_guesses(group: Sequence[Row], cell: Any) -> str:
    """A cell about guesses; secrets that were sampled now were not guessed."""
    return NOTHING if group[0]["drawn"] else str(cell(group))


def _extracted(group: Sequence[Row]) -> str:
    return _of_guesses(group, lambda g: f"{sum(bool(r['right']) for r in g)} of {len(g)}")


def _extracted_ends(group: Sequence[Row]) -> str:
    found = rate(bool(row["right"]) for row in group)
    assert found is not None
    return f"{100 * found.interval.low:.0f} to {100 * found.interval.high:.0f}%"


def _wrong(group: Sequence[Row]) -> float:
    return fmean(float(row["hamming"]) for row in group)


def _wrong_ends(group: Sequence[Row]) -> str:
    spread = share_interval([float(row["hamming"]) for row in group])
    return NOTHING if spread is None else f"{100 * spread.low:.0f} to {100 * spread.high:.0f}%"


def _mean_exposure(group: Sequence[Row]) -> str:
    ranked = _ranked(group)
    return _at_least(ranked) + decimal(fmean(r["exposure"] for r in ranked)) if ranked else NOTHING


def _mean_exposure_ends(group: Sequence[Row]) -> str:
    ranked = _ranked(group)
    if not ranked:
        return NOTHING
    mean = share_interval([row["exposure"] for row in ranked], ceiling=group[0]["space_bits"])
    return _exposure_ends(ranked[0]) if mean is None else ends(mean.low, mean.high)


def _trials(rows: Sequence[Row], *, show_secrets: bool) -> Table:
    """A row for each of the first secrets."""
    asked = [row for row in rows if not row["drawn"]]
    left = len(asked) - LISTED
    several = len({row["model"] for row in rows}) > 1

    def known(row: Row, cell: Any) -> str | None:
        return None if row["truth"] is None else str(cell)

    def ranked(cell: Any) -> Any:
        return lambda row: known(row, NOTHING) if row["rank"] is None else cell(row)

    return table(
        "Secret by secret" + (f", the first {LISTED} ({left} more)" if left > 0 else ""),
        asked[:LISTED],
        {
            "model": lambda r: str(r["model"]) if several else "",
            "pattern": lambda r: r["pattern"],
            "planted": lambda r: times_planted(r["copies"]),
            "guess": lambda r: _shown(r["guess"], show_secrets),
            "loss": lambda r: f"{r['loss']:.4g}",
            "certainty": lambda r: percent(r["certainty"]),
            "right": lambda r: known(r, "yes" if r["right"] else "no"),
            "words wrong": lambda r: known(r, percent(r["hamming"])),
            "rank of the truth": ranked(
                lambda r: f"{words.rank_of(r)} of {whole(round(2 ** r['space_bits']))}"
            ),
            "exposure, bits": ranked(lambda r: _at_least([r]) + decimal(r["exposure"])),
            "95% CI": ranked(_exposure_ends),
        },
        texts=4,
        drop_empty=True,
    )


def _guesses(row: Row, *, show_secrets: bool) -> Table:
    """The best guesses of one trial with their losses, best first."""
    guesses = zip(row["guesses"], row["losses"], guess_shares(row), strict=True)
    return table(
        "The best guesses",
        list(guesses),
        {
            "guess": lambda g: _shown(g[0], show_secrets),
            "loss": lambda g: f"{g[1]:.4g}",
            "share of the weight": lambda g: percent(g[2]),
            "right": lambda g: (
                None if row["truth"] is None else "yes" if g[0] == row["truth"] else "no"
            ),
        },
        drop_empty=True,
        key="Weight: exp(-loss) among all that were tried. The first share is the certainty.",
    )


def guess_shares(row: Row) -> list[float]:
    """Each guess's share of the weight exp(-loss); the first is the certainty."""
    return [row["certainty"] * exp(row["losses"][0] - loss) for loss in row["losses"]]


def times_planted(copies: int | None) -> str:
    """How often a secret was planted; "" if it is not known."""
    if copies is None:
        return ""
    return "never" if copies == 0 else "once" if copies == 1 else f"{copies:,} ×"


def _shown(text: str, show_secrets: bool) -> str:
    return disclose([text], show_secrets=show_secrets)[0]


def _at_least(rows: Sequence[Row]) -> str:
    return "≥ " if any(row["rank_known"] == "bounded" for row in rows) else ""


def _exposure_ends(row: Row) -> str:
    if row["rank_known"] == "exact":
        return "exact"
    if row["rank_known"] == "bounded":
        return f"from {decimal(row['exposure_low'])}"
    return ends(row["exposure_low"], row["exposure_high"])
