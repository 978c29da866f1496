"""The conditions of a release and what changed, for readers and for pipelines.

Neither contains text of a corpus or model.
"""

from collections.abc import Mapping, Sequence
from typing import Any

from vestige.audits.release.baseline import VERDICT
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
    """The report of a `Release`: whether it passes, and all conditions."""
    summary = run.summary
    open_ = [row for row in run.rows if row["state"] in ("above", "undecided")]
    open_.sort(key=lambda row: row["state"] != "above")
    evidence = [_line(row) for row in open_]
    if len(evidence) > MOST_EVIDENCE:
        more = len(evidence) - MOST_EVIDENCE + 1
        evidence[-more:] = [f"{more} more conditions failed or are undecided."]
    conditions = table(
        "Conditions",
        run.rows,
        texts=4,
        run=lambda row: row["run"] or "all",
        condition=condition,
        state=lambda row: STATES[row["state"]],
        finding=lambda row: row["sentence"],
    )
    return Report(
        title="Does this release pass?",
        verdict=Verdict(word=WORDS[summary["verdict"]], sentence=_answer(summary)),
        evidence=tuple(evidence),
        blocks=(conditions,),
        facts=(),
        limits=LIMITS,
    )


def condition(row: Row) -> str:
    """A quantity with its limit."""
    limit = row["limit"]
    return row["quantity"] if limit is None else f"{row['quantity']} <= {limit:g}"


def _answer(summary: Mapping[str, Any]) -> str:
    """How many conditions failed, are undecided, were accepted before and passed."""
    states = [check["state"] for check in summary["checks"]]
    counts = [f"{states.count(one)} {word}" for one, word in STATES.items() if one in states]
    number = f"{len(states)} condition{'s' * (len(states) != 1)}"
    absent = [printable(name) for name in summary["absent"]]
    more = f" The baseline also accepts {', '.join(absent)}: no such run is here." if absent else ""
    return f"Of {number}, {', '.join(counts)}.{more}"


def _line(row: Row) -> str:
    quantity = "" if row["quantity"] == VERDICT else row["quantity"]
    return printable(": ".join(filter(None, (row["run"], quantity, row["sentence"]))))


def cases(rows: Sequence[Row], *, allow_undecided: bool) -> list[Case]:
    """For JUnit: above is a failure; undecided is an error, or skipped if that is allowed."""
    ends: dict[str, End] = {
        "above": "failure",
        "undecided": "skipped" if allow_undecided else "error",
    }
    return [
        Case(row["run"] or SUITE, condition(row), end, row["sentence"], row["state"])
        for row in rows
        for end in [ends.get(row["state"], "system-out")]
    ]


def markdown(answer: str, rows: Sequence[Row]) -> str:
    """The verdict, and a table with one row per condition."""
    found = [f"**{markdown_text(answer)}**", ""]
    found += ["| run | condition | state | finding |", "| --- | --- | --- | --- |"]
    for row in rows:
        state = f"{SIGNS[row['state']]} {STATES[row['state']]}"
        cells = (row["run"] or NOTHING, condition(row), state, row["sentence"])
        found.append(f"| {' | '.join(map(markdown_text, cells))} |")
    return "\n".join(found) + "\n"


def changes_report(changes: Sequence[Row]) -> Report:
    """The changes for a terminal."""
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
        then=lambda row: NOTHING if row["verdict"] == "new" else _amount(row, "then"),
        now=lambda row: NOTHING if row["verdict"] == "gone" else _amount(row, "now"),
        difference=_difference,
    )


def _question(row: Row) -> Cell:
    then, now = row["verdict_then"], row["verdict_now"]
    quantity = f"{row['run']}: {row['quantity']}" if row["quantity"] else row["run"]
    words = f"{then or NOTHING} then, {now or NOTHING} now" if then != now else ""
    return Cell(text=row["question"], notes=lines(quantity, words, row["why"]))


def _amount(row: Row, side: str) -> str | Cell:
    if row["quantity"] is None:
        return NOTHING
    found = Measured(row[side], row[f"{side}_low"], row[f"{side}_high"])
    unit = QUANTITIES[row["quantity"]].unit
    return Cell(text=found.amount(unit), notes=lines(found.interval))


def _difference(row: Row) -> str | Cell:
    value, low, high = row["difference"], row["low"], row["high"]
    if value is None:
        return NOTHING
    if low == high == value:
        ends = ""
    elif low is None and high is None:
        ends = "interval unknown"
    elif low is None:
        ends = f"at most {high:+.4g}"
    else:
        ends = f"{low:+.4g} " + ("or more" if high is None else f"to {high:+.4g}")
    return Cell(text=f"{value:+.4g}" if value else "0", notes=lines(ends))
