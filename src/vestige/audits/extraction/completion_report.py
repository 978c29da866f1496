"""Reports of completed canaries and completed secrets."""

from collections.abc import Sequence
from math import log, log2
from statistics import median_low
from typing import Any

from vestige.metrics.rates import Rate, rate
from vestige.reports.blocks import Table, table
from vestige.reports.charts import Figure, intervals
from vestige.reports.disclosure import disclose, printable
from vestige.reports.report import Report, lines
from vestige.reports.words import Row, pairs, percent
from vestige.results import Run

NEVER, OTHER_ORDER = "never planted", "in another order"
_RATES = "(greedy|beam_best|beam_kept|control|shuffled)_.*"
CANARY_LIMITS = (
    "A canary that is not completed can still leak: with a longer prefix, a wider beam, by "
    "sampling or by its probability (vestige exposure).",
    "Of canaries with the same beginning, greedy decoding completes at most one.",
    "Intervals are for canaries drawn like these, in this one model. Other seeds can differ.",
)
SECRET_LIMITS = (
    "A secret that is not completed can still leak: after other words, by sampling or by its "
    "probability (vestige exposure).",
    "A part that was not drawn uniformly from its format, such as a common name, can be completed "
    "by a model that never read the secret.",
)
LEAST = -1000.0
"""Lowest natural log-probability on a chart."""


def canary_report(run: Run, *, show_secrets: bool) -> Report:
    """The report of a `Completion`; it shows no phrase but of completed canaries."""
    confidence = run.summary["confidence"]
    groups = canary_groups(run.rows, confidence=confidence)
    points = [
        {
            "label": group["label"],
            "value": group["greedy"].rate,
            "low": group["greedy"].interval.low,
            "high": group["greedy"].interval.high,
            "other": group["beam_best"].rate,
        }
        for group in groups
    ]
    chart = intervals(
        points,
        name="copies planted",
        value="share completed",
        domain=(0, 1),
        caption="Share of canaries that greedy decoding completes (disc, with its "
        f"{percent(confidence)} interval), and that are the best continuation of the beam (ring).",
    )
    return Report(
        kind="completion",
        title="Does the model complete the canaries?",
        answer=_completed(run.summary),
        evidence=lines(_controls(run.summary)),
        blocks=(
            *((chart,) if points else ()),
            _by_copies(groups),
            _completed_canaries(run.rows, show_secrets=show_secrets),
        ),
        facts=pairs(run.summary, show_secrets=show_secrets, left_out=_RATES),
        limits=CANARY_LIMITS,
    )


def _completed(summary: Row) -> str:
    """How many canaries are completed."""
    if not summary["greedy_trials"]:
        return "No canary was planted."
    prefix = int(summary["prefix"])
    given = "1 token" if prefix == 1 else f"{prefix} tokens"
    return (
        f"Given {given}, greedy decoding completes {int(summary['greedy_completed'])} of "
        f"{int(summary['greedy_trials'])} canaries."
    )


def _controls(summary: Row) -> str:
    named = [
        f"{int(summary[f'{key}_completed'])} of {int(summary[f'{key}_trials'])} {name}"
        for key, name in (("control", NEVER), ("shuffled", OTHER_ORDER))
        if summary[f"{key}_trials"]
    ]
    return f"Controls: {' and '.join(named)}." if named else ""


def canary_groups(rows: Sequence[Row], *, confidence: float) -> list[dict[str, Any]]:
    """The rates of each number of copies, fewest first, then of each kind of control."""
    planted = [row for row in rows if row["kind"] == "canary"]
    copies = sorted({int(row["copies"]) for row in planted})
    groups = [(f"{n:,}", [row for row in planted if row["copies"] == n]) for n in copies]
    for kind, name in (("control", NEVER), ("shuffled", OTHER_ORDER)):
        groups.append((name, [row for row in rows if row["kind"] == kind]))
    return [
        {
            "label": name,
            "rows": group,
            **{by: _rate(group, by, confidence) for by in ("greedy", "beam_best", "beam_kept")},
        }
        for name, group in groups
        if group
    ]


def _rate(group: Sequence[Row], by: str, confidence: float) -> Rate:
    found = rate([row[by] for row in group], confidence=confidence)
    if found is None:
        raise ValueError("a group must have rows")
    return found


def _by_copies(groups: Sequence[Row]) -> Table:
    def ends(found: Rate) -> str:
        low, high = found.interval
        return f"{100 * low:.1f} to {100 * high:.1f}%"

    return table(
        "Completed canaries by copies",
        groups,
        {
            "copies": lambda g: g["label"],
            "canaries": lambda g: len(g["rows"]),
            "greedy": lambda g: _share(g["greedy"].rate),
            "CI": lambda g: ends(g["greedy"]),
            "beam": lambda g: _share(g["beam_best"].rate),
            "CI ": lambda g: ends(g["beam_best"]),
            "kept": lambda g: _share(g["beam_kept"].rate),
            "prefix needed": lambda g: _needed_prefix(g["rows"]),
        },
        key="Shares of the canaries. Kept: anywhere in the beam. Prefix: median in tokens.",
    )


def _share(value: float) -> str:
    return f"{100 * value:.1f}%".replace(".0%", "%")


def _needed_prefix(group: Sequence[Row]) -> str:
    """The median prefix; a canary that only its whole text completes counts with its length."""
    sizes = [len(row["tokens"]) for row in group]
    given = [row["prefix_needed"] for row in group]
    needed = [size if n is None else int(n) for n, size in zip(given, sizes, strict=True)]
    return f"{median_low(needed)} of {median_low(sizes)}"


def _completed_canaries(rows: Sequence[Row], *, show_secrets: bool) -> Table:
    done = [row for row in rows if row["kind"] == "canary" and row["greedy"]]
    phrases = disclose([row["phrase"] for row in done], show_secrets=show_secrets)
    entries = [{**row, "shown": phrase} for row, phrase in zip(done, phrases, strict=True)]
    return table(
        "Completed canaries",
        entries,
        canary=lambda r: str(r["canary"]),
        phrase=lambda r: r["shown"],
        copies=lambda r: r["copies"],
        prefix_needed=lambda r: r["prefix_needed"],
        texts=2,
    )


def secrets_report(run: Run, *, show_secrets: bool) -> Report:
    """The report of a `SecretCompletion`."""
    # Completed parts first, then by their probability.
    rows = sorted(run.rows, key=lambda row: (not row["greedy"], -row["log_prob"]))
    texts = disclose([row["phrase"] for row in rows], show_secrets=show_secrets)
    parts = table(
        "Parts of secrets, each completed from what precedes it",
        [{**row, "shown": text} for row, text in zip(rows, texts, strict=True)],
        {
            "up to the part": lambda r: r["shown"],
            "secret": lambda r: str(r["secret_number"]),
            "kind": lambda r: r["kind"],
            "given": lambda r: r["given_tokens"],
            "part": lambda r: r["part_tokens"],
            "greedy": lambda r: "completed" if r["greedy"] else "",
            "beam": lambda r: "" if r["beam_place"] is None else r["beam_place"],
            "probability by guessing": lambda r: f"{r['chance']:.0e}",
        },
        texts=3,
        key="Given, part: tokens. Beam: position among the continuations that were kept. "
        "Probability by guessing: upper bound for a part that was never read; 1 if its "
        "alternatives are only words of a list.",
    )
    return Report(
        kind="completed-secrets",
        title="Does the model complete these secrets?",
        answer=printable(str(run.summary["sentence"])),
        evidence=(),
        blocks=(_bits(rows), parts),
        facts=pairs(run.summary, show_secrets=show_secrets, left_out="sentence"),
        limits=SECRET_LIMITS,
    )


def _bits(rows: Sequence[Row]) -> Figure:
    """Bits of each part under the model, up to the bits of a guess."""
    points = []
    for number, row in enumerate(rows, 1):
        own, guess = -max(float(row["log_prob"]), LEAST) / log(2), -log2(float(row["chance"]))
        label = f"{row['secret_number']}: {printable(str(row['kind']))}, {number}"
        ends = {"low": min(own, guess), "high": max(own, guess)}
        points.append({"label": label, "value": own, **ends, "filled": bool(row["greedy"])})
    return intervals(
        points,
        name="secret and its part",
        value="bits",
        across=False,
        caption="Bits of each part under the model (filled: completed by greedy decoding). The "
        "line ends at the bits of a guess among all texts of its format.",
    )
