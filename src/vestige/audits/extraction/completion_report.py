"""Reports of canaries and secrets that a model completes from the text before them."""

from collections.abc import Sequence
from math import log, log2
from statistics import median_low
from typing import Any

from vestige.metrics.estimates import rate
from vestige.reports.blocks import table
from vestige.reports.charts import intervals
from vestige.reports.disclosure import disclose, printable
from vestige.reports.report import Report, lines
from vestige.reports.words import Row, pairs, percent
from vestige.results import Run

CONTROLS = {"control": "never planted", "shuffled": "in another order"}
_RATES = "(greedy|beam_best|beam_kept|control|shuffled)_.*"
_OTHER_ATTACKS = "by sampling or by its probability (vestige exposure)."
CANARY_LIMITS = (
    "A canary that is not completed can still leak: with a longer prefix, a wider beam, "
    f"{_OTHER_ATTACKS}",
    "Of canaries with the same beginning, greedy decoding completes at most one.",
    "Intervals are for canaries drawn like these, in this one model. Other seeds can differ.",
)
SECRET_LIMITS = (
    f"A secret that is not completed can still leak: after other words, {_OTHER_ATTACKS}",
    "A part that was not drawn uniformly from its format, such as a common name, can be completed "
    "by a model that never read the secret.",
)
MIN_LOG_PROB = -1000.0
"""Lowest natural log-probability on a chart."""


def canary_report(run: Run, *, show_secrets: bool) -> Report:
    """The report of a `Completion`; it shows phrases of completed canaries only."""
    summary = run.summary
    groups = _rate_groups(run.rows, summary["confidence"])
    prefix, canaries = int(summary["prefix"]), int(summary["greedy_trials"])
    tokens = "1 token" if prefix == 1 else f"{prefix} tokens"
    answer = "No canary was planted."
    if canaries:
        completed = int(summary["greedy_completed"])
        answer = f"Given {tokens}, greedy decoding completes {completed} of {canaries} canaries."
    controls = " and ".join(
        f"{int(summary[f'{kind}_completed'])} of {int(summary[f'{kind}_trials'])} {name}"
        for kind, name in CONTROLS.items()
        if summary[f"{kind}_trials"]
    )
    chart = intervals(
        groups,
        name="copies planted",
        value="share completed",
        domain=(0, 1),
        caption="Share of canaries that greedy decoding completes (disc, with its "
        f"{percent(summary['confidence'])} interval), and that are the best continuation of the "
        "beam (ring).",
    )
    by_copies = table(
        "Completed canaries by copies",
        groups,
        {
            "copies": lambda group: group["label"],
            "canaries": lambda group: group["canaries"],
            "greedy": lambda group: _share(group["value"]),
            "CI": lambda group: f"{100 * group['low']:.1f} to {100 * group['high']:.1f}%",
            "beam": lambda group: _share(group["other"]),
            "prefix needed": lambda group: group["prefix_needed"],
        },
        key="Shares of the canaries. Prefix: median in tokens.",
    )
    completed_canaries = table(
        "Completed canaries",
        [row for row in run.rows if row["kind"] == "canary" and row["greedy"]],
        canary=lambda row: str(row["canary"]),
        phrase=lambda row: disclose([row["phrase"]], show_secrets=show_secrets)[0],
        copies=lambda row: row["copies"],
        prefix_needed=lambda row: row["prefix_needed"],
        texts=2,
    )
    return Report(
        title="Does the model complete the canaries?",
        answer=answer,
        evidence=lines(controls and f"Controls: {controls}."),
        blocks=(chart, by_copies, completed_canaries),
        facts=pairs(summary, show_secrets=show_secrets, left_out=_RATES),
        limits=CANARY_LIMITS,
    )


def _rate_groups(rows: Sequence[Row], confidence: float) -> list[dict[str, Any]]:
    """The rates for each number of copies, fewest first, then for each kind of control."""
    planted = [row for row in rows if row["kind"] == "canary"]
    copies = sorted({int(row["copies"]) for row in planted})
    groups = {f"{n:,}": [row for row in planted if row["copies"] == n] for n in copies}
    for kind, name in CONTROLS.items():
        groups[name] = [row for row in rows if row["kind"] == kind]
    points = []
    for label, group in groups.items():
        if not (greedy := rate((row["greedy"] for row in group), confidence=confidence)):
            continue
        sizes = [len(row["tokens"]) for row in group]
        # If no prefix is enough, the length of the canary counts.
        needed = [
            size if row["prefix_needed"] is None else int(row["prefix_needed"])
            for row, size in zip(group, sizes, strict=True)
        ]
        points.append({
            "label": label, "canaries": len(group),
            "value": greedy.value, "low": greedy.low, "high": greedy.high,
            "other": sum(bool(row["beam_best"]) for row in group) / len(group),
            "prefix_needed": f"{median_low(needed)} of {median_low(sizes)}",
        })  # fmt: skip
    return points


def _share(value: float) -> str:
    return f"{100 * value:.1f}%".replace(".0%", "%")


def secrets_report(run: Run, *, show_secrets: bool) -> Report:
    """The report of a `SecretCompletion`: completed parts first, then by their probability."""
    rows = sorted(run.rows, key=lambda row: (not row["greedy"], -row["log_prob"]))
    points = []
    for number, row in enumerate(rows, 1):
        bits = -max(float(row["log_prob"]), MIN_LOG_PROB) / log(2)
        guess_bits = -log2(float(row["chance"]))
        points.append(
            {
                "label": f"{row['secret_number']}: {printable(str(row['kind']))}, {number}",
                "value": bits,
                "filled": bool(row["greedy"]),
                "low": min(bits, guess_bits),
                "high": max(bits, guess_bits),
            }
        )
    chart = intervals(
        points,
        name="secret and its part",
        value="bits",
        across=False,
        caption="Bits of each part under the model (filled: completed by greedy decoding). The "
        "line ends at the bits of a guess among all texts of its format.",
    )
    parts = table(
        "Parts of secrets, each completed from what precedes it",
        rows,
        {
            "up to the part": lambda row: disclose([row["phrase"]], show_secrets=show_secrets)[0],
            "secret": lambda row: str(row["secret_number"]),
            "kind": lambda row: row["kind"],
            "given": lambda row: row["given_tokens"],
            "part": lambda row: row["part_tokens"],
            "greedy": lambda row: "completed" if row["greedy"] else "",
            "beam": lambda row: "" if row["beam_place"] is None else row["beam_place"],
            "probability by guessing": lambda row: f"{row['chance']:.0e}",
        },
        texts=3,
        key="Given, part: tokens. Beam: position among the continuations of the beam search. "
        "Probability by guessing: upper bound for a part that was never read; 1 if its "
        "alternatives are only words of a list.",
    )
    return Report(
        title="Does the model complete these secrets?",
        answer=printable(str(run.summary["sentence"])),
        evidence=(),
        blocks=(chart, parts),
        facts=pairs(run.summary, show_secrets=show_secrets, left_out="sentence"),
        limits=SECRET_LIMITS,
    )
