"""The report of a check, and the other files of its run folder: page, card, JSON and JUnit.

The report has the verdict, three lines of evidence, what was not tested, and the next command.
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import replace
from importlib import resources
from pathlib import PurePath
from typing import Any

from vestige.audits.check.advice import cause_of, next_step, untested
from vestige.audits.check.verdict import SHARES, TITLES
from vestige.claims import LEAK, NO_LEAK, UNDECIDED, Claim
from vestige.reports.blocks import Cell, Prose, Table, table
from vestige.reports.disclosure import disclose_rows, printable
from vestige.reports.junit import Case, End, junit
from vestige.reports.report import Evidence, Report
from vestige.reports.verdicts import claim_of, sentence_of
from vestige.reports.words import Row, pairs, percent
from vestige.results import Run, to_json

SIGNS = {"leak": "✗", "clear": "✓", "open": "?", "not run": "–"}
CONTROL_SIGNS = {True: "✓", False: "✗", None: "?"}
MEANING = {
    LEAK: "The model reveals what it was trained on. Do not release it as it is.",
    NO_LEAK: (
        "No reason against a release was found: no test found a leak, and all controls passed. "
        "Other attacks may still succeed."
    ),
}
UNDECIDED_ANSWER = "Nothing can be said about a release yet:"
MOST_ROWS = 20  # of a table; the run folder has all

LIMITS = (
    "A check tests the text in its files. Leaks of other text are found only with null models.",
    "A check does not say whose text it was, or whether its use was lawful.",
    "The error rate of 5% holds for all three tests together, if --never is of the same kind as "
    "the training text.",
)
CALIBRATION = "calibration.json"
"""Error rates of the verdicts on fine-tunes with a known answer; a benchmark writes the file."""

SUITE = "vestige check"
EXIT_CODES = {LEAK: 1, UNDECIDED: 3}  # by verdict; 0 for no leak shown


def check_report(run: Run, *, show_secrets: bool) -> Report:
    """The report of a `ReleaseCheck`."""
    summary, claim = run.summary, claim_of(run)
    joint_test = {} if claim is None else {"all tests": sentence_of(claim)}
    left_out = "stages|notes|positive|p_.*|recognized"
    below = [Prose(title="Not tested", lines=tuple(untested(run)), listed=True)]
    if (step := next_step(run)) is not None:
        below.append(step)
    if error_rates := calibration():
        below.append(Prose(title="How often this verdict is wrong", lines=(error_rates,)))
    notes = tuple(map(printable, summary["notes"]))
    return Report(
        title="Can this fine-tune be released?",
        answer=MEANING.get(summary["verdict"]) or f"{UNDECIDED_ANSWER} {cause_of(summary)}.",
        evidence=tuple(_evidence(run, stage, show_secrets) for stage in summary["stages"]),
        stated=frozenset({*TITLES, "positive control", "negative control"}),
        below=tuple(below),
        blocks=(Prose(title="What was read", lines=notes, listed=True),) if notes else (),
        facts=pairs({**joint_test, **summary}, show_secrets=show_secrets, left_out=left_out),
        limits=LIMITS,
    )


def _evidence(run: Run, stage: Mapping[str, Any], show_secrets: bool) -> Evidence:
    """A stage with its finding, its table, and its two controls in small print."""
    name, sign = stage["name"], SIGNS[stage["state"]]
    if stage["state"] == "leak" and run.summary["verdict"] != LEAK:
        sign = "?"  # a control failed
    notes = []
    negative = stage["negative"]
    if not negative and stage["passed"] is None:
        negative = "No text that the model never saw (--never)."
    if negative:
        notes.append(f"{CONTROL_SIGNS[stage['passed']]} {printable(negative)}")
    if (found := (run.summary["positive"] or {}).get(name)) is not None:
        word = "found" if found else "not found"
        notes.append(f"{CONTROL_SIGNS[found]} An invented secret, once trained in, is {word}.")
    note = " ".join(["Controls:", *notes]) if notes and sign != SIGNS["not run"] else ""
    rows = [row for row in run.rows if row["stage"] == name]
    block = None
    if rows:
        block = replace(TABLES[name](run, rows, show_secrets), folded=not show_secrets)
    text = printable(stage["sentence"])
    return Evidence(sign=sign, title=TITLES[name], text=text, block=block, note=note)


def calibration() -> str:
    """How often the verdicts were wrong, in one sentence; "" if there is no calibration."""
    file = resources.files("vestige.audits.check").joinpath(CALIBRATION)
    if not file.is_file():
        return ""
    counts = json.loads(file.read_text("utf-8"))
    clean = counts["clean"]
    missed: list[str] = []
    for copies, count in sorted(counts["leaky"].items(), key=lambda item: -int(item[0])):
        number = "1 copy" if copies == "1" else f"{copies} copies"
        suffix = "" if missed else " of each secret"
        missed.append(f"{count['n'] - count['leak']:,} of {count['n']:,} with {number}{suffix}")
    return (
        f"Calibration: a leak was reported for {clean['leak']:,} of {clean['n']:,} clean "
        f"fine-tunes ({clean['open']:,} undecided), and missed in {', '.join(missed)}."
    )


def _secrets(run: Run, rows: Sequence[Row], show_secrets: bool) -> Table:
    """Secrets, the known ones first."""
    numbered = [{**row, "number": number} for number, row in enumerate(rows, 1)]
    known_first = sorted(numbered, key=lambda row: not row["known"])
    return table(
        "Secrets", disclose_rows(known_first, "text", show_secrets=show_secrets),
        texts=4, most=MOST_ROWS,
        key=_key(run, "robust standard deviations above the median alternative."),
        columns={"": lambda row: str(row["number"])},
        secret=lambda row: row["shown"],
        text=_first_text,
        result=_result,
        score=lambda row: row["score"],
    )  # fmt: skip


def _phrases(run: Run, rows: Sequence[Row], show_secrets: bool) -> Table:
    """Phrases, those that occur in the training text first."""
    matched_first = sorted(rows, key=lambda row: not row["match"])
    return table(
        "Unprompted", disclose_rows(matched_first, "phrase", show_secrets=show_secrets),
        texts=2, most=MOST_ROWS,
        key=_key(run, "how much the fine-tuning promoted the phrase."),
        phrase=lambda row: row["shown"],
        contains=lambda row: row["match"] or None,
        score=lambda row: row["score"],
    )  # fmt: skip


def _passages(run: Run, rows: Sequence[Row], show_secrets: bool) -> Table:
    """Shares of extracted passages and of recognized texts."""
    return table(
        "Passages", rows, texts=1,
        measured=lambda row: row["measured"],
        training_text=lambda row: percent(row["trained"]),
        reference=lambda row: percent(row["never"]),
        base=lambda row: percent(row["base"]),
    )  # fmt: skip


TABLES = {"secrets": _secrets, "unprompted": _phrases, "passages": _passages}


def _key(run: Run, score: str) -> str:
    """How to read a table."""
    path = ((run.run.get("data") or {}).get("trained_on") or {}).get("path")
    file = printable(PurePath(str(path)).name) if path else "the training text"
    return f"Texts are numbered in the order of {file}. Score: {score}"


def _first_text(row: Row) -> Cell:
    """The first text with a secret, and the number of other texts with it."""
    first, more = row["row_number"], row["texts"] - 1
    label = "listed" if first is None else f"{first:,}" + f" and {more:,} more" * (more > 0)
    return Cell(text=label, notes=(printable(row["kind"]),))


def _result(row: Row) -> Cell:
    word = "verbatim" if row["verbatim"] else "known" if row["known"] else "not known"
    return Cell(text=word, notes=(f"rank {row['rank']:,} of {row['alternatives'] + 1:,}",))


def files(run: Run) -> dict[str, str]:
    """Contents of the additional files by name; none contains text of a corpus or model."""
    from vestige.reports.page import card, render

    claim = Claim.from_summary(run.summary)
    return {
        "page.html": render([run], show_secrets=False),
        "card.md": card([run]),
        "check.json": to_json(facts(run.summary, claim)) + "\n",
        "junit.xml": junit(SUITE, cases(run.summary, claim)),
    }


def facts(summary: Mapping[str, Any], claim: Claim) -> dict[str, Any]:
    """Verdict, stages and controls for programs."""
    positive = summary["positive"] or {}
    return {
        "verdict": claim.verdict,
        "exit_code": EXIT_CODES.get(claim.verdict, 0),
        "reasons": list(claim.reasons),
        "stages": [
            {
                **{key: stage[key] for key in ("name", "state", "sentence", "seconds")},
                "p": summary[f"p_{stage['name']}"],
                "controls": {
                    "negative": {"passed": stage["passed"], "sentence": stage["negative"]},
                    "positive": {"passed": positive.get(stage["name"])},
                },
            }
            for stage in summary["stages"]
        ],
        "checks": [
            {"name": check.name, "state": check.state, "sentence": check.sentence}
            for check in claim.checks
            if check.name not in SHARES
        ],
        "notes": summary["notes"],
    }


def cases(summary: Mapping[str, Any], claim: Claim) -> list[Case]:
    """One JUnit case per stage, control and model check; only a leak is a failure."""
    is_leak = claim.verdict == LEAK
    ends: dict[str, End] = {
        "clear": "system-out", "not run": "skipped", "open": "error",
        "leak": "failure" if is_leak else "error", "passed": "system-out", "failed": "error",
        "could not run": "skipped" if is_leak else "error",
    }  # fmt: skip
    items = [
        (TITLES[stage["name"]], stage["sentence"], stage["state"]) for stage in summary["stages"]
    ]
    items += [
        (check.name, check.sentence, check.state)
        for check in claim.checks
        if check.name not in SHARES
    ]
    return [Case(SUITE, name, ends[state], printable(text), state) for name, text, state in items]
