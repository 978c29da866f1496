"""The report of a release: whether it passes, the conditions that failed, and all conditions."""

from collections.abc import Mapping
from typing import Any

from vestige.audits.release.checks import VERDICT
from vestige.reports.blocks import table
from vestige.reports.disclosure import printable
from vestige.reports.report import MOST_EVIDENCE, Report
from vestige.reports.verdicts import Verdict
from vestige.results import Run

WORDS = {"above": "FAILED", "undecided": "UNDECIDED", "fine": "PASSED"}
STATES = {"above": "failed", "undecided": "undecided", "known": "accepted before", "fine": "passed"}

LIMITS = (
    "Limits are checked in addition to the verdicts: a leak fails below its limit, too, until it "
    "is accepted.",
    "A passed release is one in which these audits found no leak above the limits. Other attacks "
    "may still succeed.",
)


def release_report(run: Run, *, show_secrets: bool) -> Report:
    """The report of a `Release`; it contains no text of a corpus or model."""
    summary = run.summary
    verdict = str(summary["verdict"])
    open_ = [row for row in run.rows if row["state"] in ("above", "undecided")]
    open_.sort(key=lambda row: row["state"] != "above")
    return Report(
        kind="release",
        title="Does this release pass?",
        verdict=Verdict(word=WORDS[verdict], sentence=answer(summary)),
        evidence=_evidence([_line(row) for row in open_]),
        blocks=(
            table(
                "Conditions",
                run.rows,
                texts=4,
                run=lambda row: row["run"] or "all",
                condition=_condition,
                state=lambda row: STATES[row["state"]],
                finding=lambda row: row["sentence"],
            ),
        ),
        facts=(),
        limits=LIMITS,
    )


def answer(summary: Mapping[str, Any]) -> str:
    """How many conditions failed, are undecided, were accepted before and passed."""
    states = [check["state"] for check in summary["checks"]]
    counts = [f"{states.count(one)} {word}" for one, word in STATES.items() if one in states]
    number = f"{len(states)} condition{'s' * (len(states) != 1)}"
    absent = [printable(name) for name in summary["absent"]]
    more = f" The baseline also accepts {', '.join(absent)}: no such run is here." if absent else ""
    return f"Of {number}, {', '.join(counts)}.{more}"


def _evidence(lines: list[str]) -> tuple[str, ...]:
    """The first lines, and how many more there are."""
    if len(lines) <= MOST_EVIDENCE:
        return tuple(lines)
    shown = lines[: MOST_EVIDENCE - 1]
    return (*shown, f"{len(lines) - len(shown)} more conditions failed or are undecided.")


def _line(row: Mapping[str, Any]) -> str:
    quantity = "" if row["quantity"] == VERDICT else row["quantity"]
    parts = (row["run"], quantity, row["sentence"])
    return printable(": ".join(filter(None, parts)))


def _condition(row: Mapping[str, Any]) -> str:
    limit = row["limit"]
    return str(row["quantity"]) if limit is None else f"{row['quantity']} at most {limit:g}"
