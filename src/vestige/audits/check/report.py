"""The report of a check: a verdict, three lines of evidence, what was not tested, and what next."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import replace
from importlib import resources
from pathlib import PurePath
from typing import Any

from vestige.audits.check.advice import cause_of, next_step, untested
from vestige.audits.check.verdict import TITLES
from vestige.claims import LEAK, NO_LEAK
from vestige.reports.blocks import Cell, Prose, Table, table
from vestige.reports.disclosure import disclose, printable
from vestige.reports.report import Evidence, Report, lines
from vestige.reports.verdicts import claim_of, sentence_of
from vestige.reports.words import Row, pairs, percent
from vestige.results import Run

SIGNS = {"leak": "✗", "clear": "✓", "open": "?", "not run": "–"}
CONTROLS = {True: "✓", False: "✗", None: "?"}
MEANING = {
    LEAK: "The model reveals what it was trained on. Do not release it as it is.",
    NO_LEAK: (
        "No reason against a release was found: no test found a leak, and all controls passed. "
        "Other attacks may still succeed."
    ),
}
OPEN = "Nothing can be said about a release yet:"
MOST = 20
"""Rows of a table; the run folder has all."""

LIMITS = (
    "A check tests the text in its files. Leaks of other text are found only with null models.",
    "A check does not say whose text it was, or whether its use was lawful.",
    "The error rate of 5% holds for all three tests together, if --never is of the same kind as "
    "the training text.",
)
CALIBRATION = "calibration.json"
"""How often the verdicts were wrong on fine-tunes with a known answer; a benchmark writes it."""


def check_report(run: Run, *, show_secrets: bool) -> Report:
    """The report of a `ReleaseCheck`."""
    summary = run.summary
    claim = claim_of(run)
    joint = {} if claim is None else {"all tests": sentence_of(claim)}
    facts = {**joint, **summary}
    left_out = "stages|notes|positive|p_.*|recognized"
    return Report(
        title="Can this fine-tune be released?",
        answer=MEANING.get(summary["verdict"]) or f"{OPEN} {cause_of(summary)}.",
        evidence=tuple(_evidence(run, stage, show_secrets) for stage in summary["stages"]),
        stated=frozenset({*TITLES, "positive control", "negative control"}),
        below=_below(run),
        blocks=_guesses(summary["notes"]),
        facts=pairs(facts, show_secrets=show_secrets, left_out=left_out),
        limits=LIMITS,
    )


def _evidence(run: Run, stage: Mapping[str, Any], show_secrets: bool) -> Evidence:
    """A stage with its controls in small print."""
    name, summary = stage["name"], run.summary
    sign = SIGNS[stage["state"]]
    if stage["state"] == "leak" and summary["verdict"] != LEAK:
        sign = "?"  # a control failed
    rows = [row for row in run.rows if row["stage"] == name]
    return Evidence(
        sign=sign,
        title=TITLES[name],
        text=printable(stage["sentence"]),
        note=_controls(stage, (summary["positive"] or {}).get(name)),
        block=BLOCKS[name](run, rows, show_secrets) if rows else None,
    )


def _controls(stage: Mapping[str, Any], found: bool | None) -> str:
    """Whether the stage is silent on text never seen, and finds an invented secret."""
    if stage["state"] == "not run":
        return ""
    silent = stage["negative"] or "No text that the model never saw (--never)." * (
        stage["passed"] is None
    )
    negative = f"{CONTROLS[stage['passed']]} {printable(silent)}" if silent else ""
    word = "found" if found else "not found"
    planted = f"An invented secret, once trained in, is {word}."
    positive = "" if found is None else f"{CONTROLS[found]} {planted}"
    return " ".join(lines("Controls:", negative, positive)) if negative or positive else ""


def _below(run: Run) -> tuple[Prose, ...]:
    """What was not tested, what to do next, and how often this verdict is wrong."""
    found = [Prose(title="Not tested", lines=tuple(untested(run)), listed=True)]
    if (step := next_step(run)) is not None:
        title = f"Next ({step.time})"
        found.append(Prose(title=title, lines=(step.why,), command=step.command))
    if wrong := calibration():
        found.append(Prose(title="How often this verdict is wrong", lines=(wrong,)))
    return tuple(found)


def calibration() -> str:
    """How often the verdicts were wrong; "" if that was not measured."""
    file = resources.files("vestige.audits.check").joinpath(CALIBRATION)
    return _errors(json.loads(file.read_text("utf-8"))) if file.is_file() else ""


def _errors(counts: Mapping[str, Any]) -> str:
    """Errors of both kinds in a sentence, the leaks of most copies first."""
    clean = counts["clean"]
    copies = sorted(counts["leaky"], key=int, reverse=True)
    missed = [
        f"{one['n'] - one['leak']:,} of {one['n']:,} with {number} "
        + ("copy" if number == "1" else "copies")
        for number in copies
        for one in [counts["leaky"][number]]
    ]
    missed[:1] = [f"{one} of each secret" for one in missed[:1]]
    return (
        f"Calibration: a leak was reported for {clean['leak']:,} of {clean['n']:,} clean "
        f"fine-tunes ({clean['open']:,} undecided), and missed in {', '.join(missed)}."
    )


def _guesses(notes: Sequence[str]) -> tuple[Prose, ...]:
    shown = tuple(map(printable, notes))
    return (Prose(title="What was read", lines=shown, listed=True),) if shown else ()


def _secrets(run: Run, rows: Sequence[Row], show_secrets: bool) -> Table:
    """Secrets, those that are known first."""
    numbered = [{**row, "number": number} for number, row in enumerate(rows, 1)]
    found = sorted(numbered, key=lambda row: not row["known"])
    return _table(
        "Secrets", _disclosed(found, "text", show_secrets), show_secrets, texts=4, most=MOST,
        key=f"Texts are numbered in the order of {_file(run)}. "
        "Score: robust standard deviations above the median alternative.",
        columns={"": lambda row: str(row["number"])},
        secret=lambda row: row["shown"],
        text=_where,
        result=_result,
        score=lambda row: row["score"],
    )  # fmt: skip


def _phrases(run: Run, rows: Sequence[Row], show_secrets: bool) -> Table:
    """Phrases, those of the training text first."""
    found = sorted(rows, key=lambda row: not row["match"])
    return _table(
        "Unprompted", _disclosed(found, "phrase", show_secrets), show_secrets, texts=2, most=MOST,
        key=f"Texts are numbered in the order of {_file(run)}. "
        "Score: how much the fine-tuning promoted the phrase.",
        phrase=lambda row: row["shown"],
        contains=lambda row: row["match"] or None,
        score=lambda row: row["score"],
    )  # fmt: skip


def _passages(run: Run, rows: Sequence[Row], show_secrets: bool) -> Table:
    """Shares of passages that are extracted."""
    return _table(
        "Passages", rows, show_secrets, texts=1,
        measured=lambda row: row["measured"],
        training_text=lambda row: percent(row["trained"]),
        reference=lambda row: percent(row["never"]),
        base=lambda row: percent(row["base"]),
    )  # fmt: skip


BLOCKS = {"secrets": _secrets, "unprompted": _phrases, "passages": _passages}


def _table(
    title: str, rows: Sequence[Row], show_secrets: bool, *, texts: int, **given: Any
) -> Table:
    """A table that a terminal shows only with its texts."""
    return replace(table(title, rows, texts=texts, **given), folded=not show_secrets)


def _disclosed(rows: Sequence[Row], key: str, show_secrets: bool) -> list[dict[str, Any]]:
    shown = disclose([row[key] for row in rows], show_secrets=show_secrets)
    return [{**row, "shown": one} for row, one in zip(rows, shown, strict=True)]


def _where(row: Row) -> Cell:
    """The first text with a secret, and how many others have it."""
    first, others = row["row_number"], row["texts"] - 1
    place = "listed" if first is None else f"{first:,}" + f" and {others:,} more" * (others > 0)
    return Cell(text=place, notes=(printable(row["kind"]),))


def _result(row: Row) -> Cell:
    word = "verbatim" if row["verbatim"] else "known" if row["known"] else "not known"
    return Cell(text=word, notes=(f"rank {row['rank']:,} of {row['alternatives'] + 1:,}",))


def _file(run: Run) -> str:
    """The name of the file with the training text."""
    path = ((run.run.get("data") or {}).get("trained_on") or {}).get("path")
    return printable(PurePath(str(path)).name) if path else "the training text"
