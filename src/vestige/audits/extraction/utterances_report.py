"""The report of unknown words: of one utterance, or of planted secrets with their controls.

Sentences quote no word of a secret.
"""

from collections.abc import Callable, Sequence
from math import ceil, exp

from vestige.claims import LEAK
from vestige.metrics.tests import rank_sum
from vestige.reports.blocks import Table, table
from vestige.reports.charts import Figure, intervals
from vestige.reports.disclosure import disclose, printable
from vestige.reports.report import Report, lines
from vestige.reports.words import Row, chance, decimal, pairs, percent, whole
from vestige.results import Run

_OF_A_GROUP = "(planted|controls|drawn)_(?!p_value).*"
_MARKS = {"exact": "", "sampled": "≈ ", "bounded": "≤ "}
_ABOUT = {"exact": "", "sampled": "about ", "bounded": "at most "}
_GROUPS = {"planted": "planted", "controls": "never planted", "drawn": "never, sampled now"}
_UNKNOWN = {"copies": None, "drawn": False}
"""Of secrets of which nobody knows how often they were planted, if at all."""

_EXPOSURE = (
    "Exposure is log2(all secrets) - log2(rank). Without a leak it is 1.44 bits on average. If "
    "there are too many secrets to try, a random sample gives an estimate of the rank (≈), or, if "
    "all of the sample have a higher loss, an upper bound (≤; 95% confidence)."
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
    "Other attacks may still succeed.",
    "One planted secret says nothing about how often others would be revealed, and one model "
    "nothing about other trainings of this kind.",
    "The p-value is exact for secrets drawn at random, whatever words a model prefers. It does not "
    "hold for secrets of your own choice.",
    "Planted secrets are random words. Real ones that are more probable from the start, such as "
    "dates, are guessed sooner.",
    "Secrets of one pattern share the model's guesses: at most one of them can be the best guess.",
    "Intervals are for secrets drawn like these, in this model. Other seeds can differ.",
    _EXPOSURE,
)
MOST = 100
"""Secrets that are listed one by one."""


def utterance_report(run: Run, *, show_secrets: bool) -> Report:
    """The report of an `Extraction`: secrets of one pattern, of unknown origin."""
    summary = run.summary
    common = {name: summary[name] for name in ("space_bits", "hamming_by_chance")}
    rows = [{**_UNKNOWN, **common, **row} for row in run.rows]
    known = [row for row in rows if row["truth"] is not None]
    if known:
        answer = _found(known)
        evidence = lines(_guessed(known, summary, effort=True), _by_chance(known))
    else:
        answer = (
            "These words fit the model best. That does not show that they are in its training "
            "text: every model prefers some words."
        )
        tried = summary["certainty_among"] == "all"
        among = f"all {whole(_space(rows[0]))} secrets" if tried else "the secrets that were tried"
        evidence = (
            f"Certainty {percent(summary['certainty'])}: share of the best guess in the weight "
            f"exp(-loss) of {among}.",
            "There is no rank without the truth. Pass --truth, or a manifest of planted secrets.",
        )
    best = (_guesses(rows[0], show_secrets=show_secrets),) if len(rows) == 1 else ()
    return Report(
        title="Which unknown words does the model reveal?",
        answer=answer,
        evidence=evidence,
        blocks=(*_exposures(rows), _secrets(rows, show_secrets=show_secrets), *best),
        limits=LIMITS,
    )


def planted_report(run: Run, *, show_secrets: bool) -> Report:
    """The report of a `SecretAudit`: planted secrets and their controls."""
    rows, summary = run.rows, run.summary
    planted = [row for row in rows if row["copies"]]
    guessed = _guessed(planted, summary, "planted_", effort=summary["verdict"] == LEAK)
    missing = ""
    if summary["p_value"] is None:
        missing = "There are no controls to compare with: pass more --controls."
    elif summary["p_least"] > summary["level"]:
        missing = "There are too few controls: pass more --controls, or plant longer secrets."
    strays, notice = summary["controls_p_value"], ""
    if strays is not None and strays <= summary["level"]:
        notice = (
            f"The manifest's controls rank higher than random ones (p = {chance(strays)}). They "
            "may share words with a planted secret or occur in the training text. This makes a "
            "leak harder to show, never easier."
        )
    return Report(
        title="Does the model reveal planted secrets?",
        answer=_found(planted),
        evidence=lines(guessed, missing),
        notices=lines(notice),
        blocks=(*_exposures(rows), _groups(summary), _secrets(rows, show_secrets=show_secrets)),
        facts=pairs(summary, show_secrets=show_secrets, left_out=_OF_A_GROUP),
        limits=AUDIT_LIMITS,
    )


def _found(secrets: Sequence[Row]) -> str:
    """Ranks of true secrets, among all and among those that were never planted."""
    number = len(secrets)
    kind = "true" if secrets[0]["copies"] is None else "planted"
    who = f"The {kind} secret" if number == 1 else f"The best of {whole(number)} {kind} secrets"
    ranked = _ranked(secrets)
    if not ranked:
        return f"{who} was not ranked{_among(secrets[0]) if len(secrets) == 1 else ''}."
    first = min(ranked, key=lambda row: (row["rank"] / _space(row), row["truth_loss"]))
    return f"{who} has rank {_rank(first)}{_among(first)}."


def _among(row: Row) -> str:
    before, asked = row.get("controls_before"), row.get("controls_asked")
    if not asked:
        return ""
    if not before:
        return f", better than all {whole(asked)} that were never planted"
    return f"; {whole(before)} of {whole(asked)} that were never planted rank as high"


def _guessed(secrets: Sequence[Row], summary: Row, name: str = "", *, effort: bool) -> str:
    """Whether the best guesses are right, and what a single secret costs an attacker."""
    by_chance = f"(random guesses: {percent(summary['hamming_by_chance'])})"
    if len(secrets) > 1:
        low, high = (summary[f"{name}accuracy_{end}"] for end in ("low", "high"))
        interval = "" if low is None else f" (95% CI {percent(low)} to {percent(high)})"
        return (
            f"{summary[f'{name}right']} of {len(secrets)} secrets are extracted whole{interval}; "
            f"{percent(summary[f'{name}hamming'])} of their words are wrong {by_chance}."
        )
    [row] = secrets
    right = "The best guess is right."
    if not row["right"]:
        wrong = percent(row["hamming"])
        right = f"The best guess is not right: {wrong} of its words are wrong {by_chance}."
    return f"{_effort(row)} {right}".strip() if effort else right


def _effort(row: Row) -> str:
    """The guesses that an attacker needs, as exactly as the rank is known."""
    known, half = row["rank_known"], _space(row) / 2
    if known is None:
        return ""
    rank = round(row["rank"]) if known == "sampled" else ceil(row["rank"])
    guesses = "1 guess" if rank == 1 else f"{whole(rank)} guesses"
    needs = f"An attacker needs {_ABOUT[known]}{guesses}"
    if rank < half:
        return f"{needs} instead of {whole(half)} on average."
    return "" if known == "bounded" else f"{needs}; the model does not help."


def _by_chance(known: Sequence[Row]) -> str:
    """What the rank of a single secret is worth without controls."""
    if len(known) != 1 or known[0]["rank"] is None:
        return ""
    [row] = known
    probability = (
        1 / (1 + row["compared_with"])  # before all of the sample, itself one of them
        if row["rank_known"] == "bounded"
        else rank_sum([float(row["rank"])], [_space(row)])
    )
    return (
        "A random secret that the model never saw ranks as high with probability "
        f"{chance(probability)}. This is one trial: for a verdict, plant secrets with controls."
    )


def _exposures(rows: Sequence[Row]) -> tuple[Figure, ...]:
    """Exposure of each true secret, from its rank."""
    ranked = [row for row in _ranked(rows) if not row["drawn"]][:MOST]
    points = []
    for number, row in enumerate(ranked, 1):
        named = filter(None, (printable(row["pattern"]), _copies(row["copies"]), str(number)))
        bounded = row["rank_known"] == "bounded"
        points.append({
            "label": " · ".join(named), "value": float(row["exposure"]),
            "low": float(row["exposure_low"]),
            "high": float(row["space_bits"] if bounded else row["exposure_high"]),
            "filled": row["copies"] != 0, "bound": bounded,
        })  # fmt: skip
    figure = intervals(
        points,
        name="",
        value="exposure in bits",
        across=False,
        domain=(0, max((float(row["space_bits"]) for row in ranked), default=0)),
        caption="Exposure of each true secret among all that fit the pattern; the axis ends at the "
        "most there is. Ring: never planted. Triangle: lower bound.",
    )
    return (figure,) if ranked else ()


def _groups(summary: Row) -> Table:
    """Planted secrets, the manifest's controls, and those that were sampled now."""

    def rank(group: str) -> str | None:
        known = summary.get(f"{group}_median_rank_known")
        return None if known is None else _MARKS[known] + whole(summary[f"{group}_median_rank"])

    def bits(group: str) -> str | None:
        shown = _mean(summary, f"{group}_exposure", decimal)
        return f"≥ {shown}" if shown and summary[f"{group}_bounded"] else shown

    return table(
        "Planted secrets and controls",
        [group for group in _GROUPS if summary[group]],
        {
            "": lambda g: _GROUPS[g],
            "secrets": lambda g: summary[g],
            "extracted": lambda g: summary.get(f"{g}_right"),
            "words wrong": lambda g: _mean(summary, f"{g}_hamming", percent),
            "median rank": rank,
            "exposure, bits": bits,
        },
        drop_empty=True,
        key="95% intervals in brackets, where there is one.",
    )


def _secrets(rows: Sequence[Row], *, show_secrets: bool) -> Table:
    """A row for each of the first secrets."""
    return table(
        "Secret by secret",
        [row for row in rows if not row["drawn"]],
        {
            "pattern": lambda r: r["pattern"],
            "planted": lambda r: _copies(r["copies"]),
            "guess": lambda r: disclose([r["guess"]], show_secrets=show_secrets)[0],
            "loss": lambda r: f"{r['loss']:.4g}",
            "certainty": lambda r: percent(r["certainty"]),
            "right": lambda r: r["right"],
            "words wrong": lambda r: None if r["hamming"] is None else percent(r["hamming"]),
            "rank of the truth": lambda r: None if r["rank"] is None else _rank(r),
            "exposure, bits": _exposure,
        },
        texts=3,
        most=MOST,
        drop_empty=True,
        key="95% intervals in brackets, where ranks are estimated.",
    )


def _guesses(row: Row, *, show_secrets: bool) -> Table:
    """The best guesses of one trial with their losses, best first."""

    def share(guess: tuple[str, float]) -> str:
        return percent(row["certainty"] * exp(row["losses"][0] - guess[1]))

    return table(
        "The best guesses",
        list(zip(row["guesses"], row["losses"], strict=True)),
        {
            "guess": lambda g: disclose([g[0]], show_secrets=show_secrets)[0],
            "loss": lambda g: f"{g[1]:.4g}",
            "share of the weight": share,
            "right": lambda g: None if row["truth"] is None else g[0] == row["truth"],
        },
        drop_empty=True,
        key="Weight: exp(-loss) among all that were tried. The first share is the certainty.",
    )


def _mean(row: Row, name: str, show: Callable[[float], str]) -> str | None:
    """A mean with its interval if it has one."""
    value, low, high = (row.get(f"{name}{end}") for end in ("", "_low", "_high"))
    if value is None or low is None or high is None or low == high:
        return None if value is None else show(value)
    return f"{show(value)} ({show(low)} to {show(high)})"


def _copies(copies: int | None) -> str:
    """How often a secret was planted; "" if it is not known."""
    if copies is None:
        return ""
    return "never" if copies == 0 else "once" if copies == 1 else f"{copies:,} ×"


def _ranked(rows: Sequence[Row]) -> list[Row]:
    return [row for row in rows if row["rank"] is not None]


def _rank(row: Row) -> str:
    """The rank among all secrets: counted, estimated (≈) or an upper bound (≤)."""
    known, rank = row["rank_known"], float(row["rank"])
    rounded = {"exact": rank, "sampled": round(rank), "bounded": ceil(rank)}[known]
    shown = f"{_MARKS[known]}{whole(rounded)} of {whole(_space(row))}"
    if known != "sampled":
        return shown
    low, high = (whole(round(row[f"rank_{end}"])) for end in ("low", "high"))
    return f"{shown} (95% CI {low} to {high})"


def _exposure(row: Row) -> str | None:
    shown = _mean(row, "exposure", decimal)
    return f"≥ {decimal(row['exposure'])}" if row["rank_known"] == "bounded" else shown


def _space(row: Row) -> int:
    """The number of secrets; rounding changes only digits that no text shows."""
    return max(round(2 ** float(row["space_bits"])), round(float(row["rank"] or 1)))
