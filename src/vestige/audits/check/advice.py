"""What a check did not test, why it is undecided, and which command comes next."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from vestige.audits.check.verdict import TITLES
from vestige.claims import LEAK, NO_LEAK
from vestige.reports.report import command_line
from vestige.reports.words import listed
from vestige.results import Run

NULLS = 19
FILES = {"--trained-on": "trained_texts", "--never": "reference_texts"}
"""Options that every verdict but a leak needs, and the key of their number of texts."""

FILE_WORDS = {
    "--trained-on": "the training text",
    "--never": "text of the same kind that the model was not trained on",
}

REMEDIES: Mapping[str, tuple[str, str]] = {
    "--minutes": ("the time limit was reached", "Allow twice the time:"),
    "--sure": (
        "the model does not recognize the training text",
        "If --trained-on is the right file, confirm it with --sure. If not, pass the right file:",
    ),
    "--trained-on": (
        "the model may have been trained on another file",
        "Pass all text that the model was trained on:",
    ),
    "--never": (
        "a test could not decide (see ?)",
        "Pass more text of the same kind that the model was not trained on:",
    ),
}
"""By what is needed: why the check is undecided, and what to do."""

BOTH_WAYS = (
    "a test finds a leak in text that the model never saw (see ✗)",
    "Pass other text of the same kind that the model was not trained on:",
)
WEAK = ("a model predicts text too poorly, or both predict the same", "")
MISSED = ("an invented secret, trained in as a control, was not found", "Allow twice the time:")


class Step(NamedTuple):
    """The next step: why, in a sentence; the command; its duration in words."""

    why: str
    command: str
    time: str


def cause_of(summary: Mapping[str, Any]) -> str:
    """Why a check is undecided, as the end of a sentence."""
    return _undecided(summary)[0]


def next_step(run: Run) -> Step | None:
    """The next command to type; None if there is none."""
    summary, given = run.summary, run.run.get("arguments") or {}
    minutes = float(given.get("minutes") or 0)
    if summary["verdict"] == LEAK:
        words = ["vestige", "report", _folder(run), "--show-secrets"]
        why = "Remove from the training text what this command shows. Train and check again:"
        return Step(why, command_line(words, show_secrets=True), "a few seconds")
    if summary["verdict"] == NO_LEAK:
        if given.get("nulls"):
            return None
        found = next(one for one in summary["stages"] if one["name"] == "unprompted")
        time = f"{_duration(60 * minutes + NULLS * found['seconds'])} plus {NULLS} trainings"
        why = (
            f"Compare with {NULLS} null models (the base, trained on --never). This also finds "
            "leaks of text that is in no file:"
        )
        return Step(why, _again(run, {"--nulls": str(NULLS)}), time)
    _, why, needs = _undecided(summary)
    if not needs:
        return None
    values = dict.fromkeys(needs, "FILE")
    if "--minutes" in values:
        minutes *= 2
        values["--minutes"] = f"{minutes:g}"
    if "--sure" in values:
        values["--sure"] = ""
    return Step(why, _again(run, values), f"at most {_duration(60 * minutes)}")


def untested(run: Run) -> list[str]:
    """What the check left out, a sentence each."""
    summary, given = run.summary, run.run.get("arguments") or {}
    skipped = [TITLES[one["name"]] for one in summary["stages"] if one["state"] == "not run"]
    late = any(one["needs"] == "--minutes" for one in summary["stages"])
    if summary["positive"] is None and not late:
        skipped.append("control with an invented secret")
    found = []
    if late:
        found.append(
            "What the time limit left out, and the control with an invented secret (see --minutes)."
        )
    if skipped:
        names = ", ".join(skipped).lower()
        found.append(f"Skipped after the first finding: {names} (see --all).")
    if missing := [option for option, key in FILES.items() if not summary[key]]:
        found.append(f"Everything that needs {listed(missing)}.")
    if not given.get("nulls"):
        found.append("Leaks of text that is in no file; they need null models (see --nulls).")
    if not summary["listed"]:
        found.append("Secrets that occur once and have no known format (see --secrets).")
    return [*found, "Answers to a user's questions, and samples at other temperatures."]


def _undecided(summary: Mapping[str, Any]) -> tuple[str, str, Sequence[str]]:
    """Why a check is undecided, what to do, and the options that this takes; none if none helps."""
    of_models = (one for one in summary["claim"]["checks"] if one["name"] in ("alive", "different"))
    if any(one["state"] != "passed" for one in of_models):
        return (*WEAK, [])
    if missing := [option for option, key in FILES.items() if not summary[key]]:
        were = "was" if len(missing) == 1 else "were"
        why = f"Pass {listed([FILE_WORDS[option] for option in missing])}:"
        return f"{listed(missing)} {were} not given", why, missing
    if any(one["passed"] is False for one in summary["stages"]):
        return (*BOTH_WAYS, ["--never"])
    needs = next((one["needs"] for one in summary["stages"] if one["needs"]), "")
    if not needs and summary["positive"] is None and _all_clear(summary):
        needs = "--minutes"
    if not needs and not all((summary["positive"] or {"": True}).values()):
        return (*MISSED, ["--minutes"])
    needs = needs or "--never"
    return (*REMEDIES[needs], [needs])


def _all_clear(summary: Mapping[str, Any]) -> bool:
    """Whether only the control is missing: its training takes long."""
    return all(one["state"] == "clear" for one in summary["stages"])


def _folder(run: Run) -> str:
    """The run folder as it is typed."""
    if run.directory != Path():
        return str(run.folder or run.directory)
    words = [str(word) for word in run.run.get("command") or ()]
    return _value(words, "--out") or "OUT"


def _again(run: Run, values: Mapping[str, str]) -> str:
    """The same command with other values of some options ("" for a flag), in a new folder."""
    words = [str(word) for word in run.run.get("command") or ()] or _typed(run)
    out = Path(_value(words, "--out") or _folder(run))
    stem, _, number = out.name.rpartition("-")
    again = f"{stem}-{int(number) + 1}" if stem and number.isdecimal() else f"{out.name}-2"
    for option, value in {**values, "--out": str(out.with_name(again))}.items():
        words = [*_without(words, option), option, *([value] if value else [])]
    return command_line(words, show_secrets=False)


def _typed(run: Run) -> list[str]:
    """The command of a call in Python; what was passed as an object is left out."""
    given = run.run.get("arguments") or {}
    shown = {name: str(value) for name, value in given.items() if "<" not in str(value)}
    words = ["vestige", "check", shown.pop("model", "MODEL")]
    for name in ("base", "trained_on", "never", "secrets", "text", "minutes"):
        if name in shown:
            words += [f"--{name.replace('_', '-')}", shown[name].removesuffix(".0")]
    return words


def _value(words: Sequence[str], option: str) -> str:
    """The value of an option; "" without it."""
    for place, word in enumerate(words):
        if word == option and place + 1 < len(words):
            return words[place + 1]
        if word.startswith(f"{option}="):
            return word.partition("=")[2]
    return ""


def _without(words: Sequence[str], option: str) -> list[str]:
    """The words without an option and its value."""
    kept: list[str] = []
    skips = False
    for word in words:
        if skips and not word.startswith("--"):
            skips = False
            continue
        skips = word == option
        if not (skips or word.startswith(f"{option}=")):
            kept.append(word)
    return kept


def _duration(seconds: float) -> str:
    """A length of time, rounded up: "40 s", "5 min", "2 h 30 min"."""
    if seconds < 60:
        return f"{max(1, round(seconds))} s"
    whole = -int(-seconds // 60)
    hours = f"{whole // 60} h " if whole >= 60 else ""
    return f"{hours}{whole % 60} min" if whole % 60 or not hours else hours.strip()
