"""Reports of the conditions and changes of a release, and files for pipelines.

None contains text of a corpus or model.
"""

from collections.abc import Mapping, Sequence
from typing import Any

from vestige.audits.release.conditions import VERDICT
from vestige.reports.blocks import Cell, Table, table
from vestige.reports.disclosure import markdown_text, printable
from vestige.reports.junit import Case, End
from vestige.reports.quantities import QUANTITIES, Measured
from vestige.reports.report import MOST_EVIDENCE, Report, lines
from vestige.reports.verdicts import Verdict
from vestige.reports.words import NOTHING, Row
from vestige.results import Run

SUITE = "vestige report"
WORDS = {"above": "FAILED", "undecided": "UNDECIDED", "fine": "PASSED"}
STATES = {"above": "failed", "undecided": "undecided", "known": "accepted before", "fine": "passed"}
SIGNS = {"above": "❌", "undecided": "⚠️", "known": "➖", "fine": "✅"}
LIMITS = (
    "Limits are checked in addition to the verdicts: a leak fails below its limit, too, until it "
    "is accepted.",
    "A passed release is one in which these audits found no leak above the limits. Other attacks "
    "may still succeed.",
)
CHANGES = "What changed since the last release"
KEY = (
    "Runs are matched by directory name and kind. Less is better in every row. Better and worse "
    "mean that the whole 95% interval of the difference is on one side of 0; no change shown does "
    "not mean unchanged. The two runs are treated as independent. A number without an interval is "
    "exact for what was read and says nothing about another training."
)


def release_report(run: Run, *, show_secrets: bool) -> Report:
    """The report of a `Release`: does it pass, and all conditions."""
    failed = [row for row in run.rows if row["state"] == "above"]
    evidence = [
        printable(": ".join(filter(None, (
            row["run"], row["quantity"] if row["quantity"] != VERDICT else "", row["sentence"]
        ))))
        for row in (*failed, *(row for row in run.rows if row["state"] == "undecided"))
    ]  # fmt: skip
    if (more := len(evidence) - MOST_EVIDENCE + 1) > 1:
        evidence[-more:] = [f"{more} more conditions failed or are undecided."]
    conditions = table(
        "Conditions",
        run.rows,
        texts=4,
        run=lambda row: row["run"] or "all",
        condition=_condition,
        state=lambda row: STATES[row["state"]],
        finding=lambda row: row["sentence"],
    )
    return Report(
        title="Does this release pass?",
        verdict=Verdict(word=WORDS[run.summary["verdict"]], sentence=_answer(run.summary)),
        evidence=tuple(evidence),
        blocks=(conditions,),
        facts=(),
        limits=LIMITS,
    )


def _condition(row: Row) -> str:
    """A quantity with its limit."""
    limit = row["limit"]
    return str(row["quantity"]) if limit is None else f"{row['quantity']} <= {limit:g}"


def _answer(summary: Mapping[str, Any]) -> str:
    """The number of conditions in each state."""
    states = [check["state"] for check in summary["checks"]]
    counts = [f"{states.count(key)} {word}" for key, word in STATES.items() if key in states]
    number = f"{len(states)} condition{'s' * (len(states) != 1)}"
    absent = [printable(name) for name in summary["absent"]]
    note = f" The baseline also accepts {', '.join(absent)}: no such run is here." if absent else ""
    return f"Of {number}, {', '.join(counts)}.{note}"


def cases(rows: Sequence[Row], *, allow_undecided: bool) -> list[Case]:
    """JUnit cases: above is a failure; undecided is an error, or skipped if it is allowed."""
    ends: dict[str, End] = {"above": "failure"}
    ends["undecided"] = "skipped" if allow_undecided else "error"
    return [
        Case(
            row["run"] or SUITE, _condition(row), ends.get(row["state"], "system-out"),
            row["sentence"], row["state"],
        )
        for row in rows
    ]  # fmt: skip


def markdown(answer: str, rows: Sequence[Row]) -> str:
    """The answer, and a table with one row per condition."""
    lines = [f"**{markdown_text(answer)}**", ""]
    lines += ["| run | condition | state | finding |", "| --- | --- | --- | --- |"]
    for row in rows:
        state = f"{SIGNS[row['state']]} {STATES[row['state']]}"
        cells = (row["run"] or NOTHING, _condition(row), state, row["sentence"])
        lines.append(f"| {' | '.join(map(markdown_text, cells))} |")
    return "\n".join(lines) + "\n"


def changes_report(changes: Sequence[Row]) -> Report:
    """The report of the changes, for a terminal."""
    words = [row["verdict"] for row in changes]
    counts = [f"{words.count(word)} {word}" for word in dict.fromkeys(words)]
    return Report(
        title=CHANGES,
        evidence=(f"Of {len(words)} numbers: {', '.join(counts)}.",),
        blocks=(changes_table(changes),),
    )


def changes_table(changes: Sequence[Row]) -> Table:
    """One row per change."""
    return table(
        CHANGES,
        changes,
        texts=2,
        key=KEY,
        question=_question,
        change=lambda row: row["verdict"].replace("gone", "no longer measured"),
        then=lambda row: _amount(row, "then", unless="new"),
        now=lambda row: _amount(row, "now", unless="gone"),
        difference=_difference,
    )


def _question(row: Row) -> Cell:
    verdict_then, verdict_now = row["verdict_then"], row["verdict_now"]
    quantity = f"{row['run']}: {row['quantity']}" if row["quantity"] else row["run"]
    verdicts = (
        f"{verdict_then or NOTHING} then, {verdict_now or NOTHING} now"
        if verdict_then != verdict_now
        else ""
    )
    return Cell(text=row["question"], notes=lines(quantity, verdicts, row["why"]))


def _amount(row: Row, side: str, *, unless: str) -> str | Cell:
    if row["quantity"] is None or row["verdict"] == unless:
        return NOTHING
    measurement = Measured(row[side], row[f"{side}_low"], row[f"{side}_high"])
    unit = QUANTITIES[row["quantity"]].unit
    return Cell(text=measurement.amount(unit), notes=lines(measurement.interval))


def _difference(row: Row) -> str | Cell:
    value, low, high = row["difference"], row["low"], row["high"]
    if value is None:
        return NOTHING
    if low == high == value:
        ends = ""
    elif low is None:
        ends = "interval unknown" if high is None else f"at most {high:+.4g}"
    else:
        ends = f"{low:+.4g} " + ("or more" if high is None else f"to {high:+.4g}")
    return Cell(text=f"{value:+.4g}" if value else "0", notes=lines(ends))
