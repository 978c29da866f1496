"""Advice in the report of a check: what was not tested, why it is undecided, the next command."""

from collections.abc import Mapping, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any

from vestige.audits.check.verdict import TITLES
from vestige.claims import LEAK, NO_LEAK
from vestige.reports.blocks import Prose
from vestige.reports.report import command_line
from vestige.reports.words import listed
from vestige.results import Run

NULLS = 19

FILES = {
    "--trained-on": ("trained_texts", "the training text"),
    "--never": (
        "reference_texts", "text of the same kind that the model was not trained on"
    ),
}  # fmt: skip
"""Options that any verdict except a leak needs: the key of their text count, and a description."""

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
"""By the option that is needed: why the check is undecided, and what to do."""

FAILED_CONTROL = (
    "a test finds a leak in text that the model never saw (see ✗)",
    "Pass other text of the same kind that the model was not trained on:",
)
WEAK_MODEL = "a model predicts text too poorly, or both predict the same"
MISSED_CONTROL = "an invented secret, trained in as a control, was not found"


def cause_of(summary: Mapping[str, Any]) -> str:
    """Why a check is undecided, as the end of a sentence."""
    return _undecided(summary)[0]


def next_step(run: Run) -> Prose | None:
    """The next command, its reason and its duration; None if no command helps."""
    summary, arguments = run.summary, run.run.get("arguments") or {}
    minutes = float(arguments.get("minutes") or 0)
    if summary["verdict"] == LEAK:
        words = ["vestige", "report", _folder(run), "--show-secrets"]
        why = "Remove from the training text what this command shows. Train and check again:"
        return _next("a few seconds", why, command_line(words, show_secrets=True))
    if summary["verdict"] == NO_LEAK:
        if arguments.get("nulls"):
            return None
        search = next(stage for stage in summary["stages"] if stage["name"] == "unprompted")
        time = f"{_duration(60 * minutes + NULLS * search['seconds'])} plus {NULLS} trainings"
        why = (
            f"Compare with {NULLS} null models (the base, trained on --never). This also finds "
            "leaks of text that is in no file:"
        )
        return _next(time, why, _repeated_command(run, nulls=NULLS))
    _, why, needs = _undecided(summary)
    if not needs:
        return None
    minutes *= 2 if "--minutes" in needs else 1
    values = {"--minutes": minutes, "--sure": True}
    options = {
        option.removeprefix("--").replace("-", "_"): values.get(option, "FILE") for option in needs
    }
    return _next(f"at most {_duration(60 * minutes)}", why, _repeated_command(run, **options))


def _next(time: str, why: str, command: str) -> Prose:
    return Prose(title=f"Next ({time})", lines=(why,), command=command)


def untested(run: Run) -> list[str]:
    """What the check did not test, one sentence each."""
    summary, arguments = run.summary, run.run.get("arguments") or {}
    stages = summary["stages"]
    skipped = [TITLES[stage["name"]] for stage in stages if stage["state"] == "not run"]
    sentences = []
    if any(stage["needs"] == "--minutes" for stage in stages):
        sentences.append(
            "What the time limit left out, and the control with an invented secret (see --minutes)."
        )
    elif summary["positive"] is None:
        skipped.append("control with an invented secret")
    if skipped:
        names = ", ".join(skipped).lower()
        sentences.append(f"Skipped after the first finding: {names} (see --all).")
    if missing := _missing(summary):
        sentences.append(f"Everything that needs {listed(missing)}.")
    if not arguments.get("nulls"):
        sentences.append("Leaks of text that is in no file; they need null models (see --nulls).")
    if not summary["listed"]:
        sentences.append("Secrets that occur once and have no known format (see --secrets).")
    return [*sentences, "Answers to a user's questions, and samples at other temperatures."]


def _missing(summary: Mapping[str, Any]) -> list[str]:
    return [option for option, (key, _) in FILES.items() if not summary[key]]


def _undecided(summary: Mapping[str, Any]) -> tuple[str, str, Sequence[str]]:
    """Why a check is undecided, what to do, and the options for it; no options if none helps."""
    checks = summary["claim"]["checks"]
    model_checks = [check for check in checks if check["name"] in ("alive", "different")]
    if any(check["state"] != "passed" for check in model_checks):
        return WEAK_MODEL, "", []
    if missing := _missing(summary):
        verb = "was" if len(missing) == 1 else "were"
        advice = f"Pass {listed([FILES[option][1] for option in missing])}:"
        return f"{listed(missing)} {verb} not given", advice, missing
    stages, positive = summary["stages"], summary["positive"]
    if any(stage["passed"] is False for stage in stages):
        return (*FAILED_CONTROL, ["--never"])
    needs = next((stage["needs"] for stage in stages if stage["needs"]), "")
    if not needs and positive is None and all(stage["state"] == "clear" for stage in stages):
        needs = "--minutes"  # the time limit left out the positive control only
    if not needs and positive is not None and not all(positive.values()):
        return MISSED_CONTROL, REMEDIES["--minutes"][1], ["--minutes"]
    needs = needs or "--never"
    return (*REMEDIES[needs], [needs])


def _folder(run: Run) -> str:
    """The run folder as the user would type it."""
    if run.directory != Path():
        return str(run.folder or run.directory)
    words = [part for word in run.run.get("command") or () for part in str(word).split("=", 1)]
    default = "check" if words else "OUT"  # on the command line; in Python
    return dict(pairwise(words)).get("--out", default)


def _repeated_command(run: Run, **values: Any) -> str:
    """The same command with other values of some options, and another run folder.

    Objects are recorded as <Class> and left out.
    """
    arguments = {"model": "MODEL", **(run.run.get("arguments") or {}), **values}
    if arguments.get("fail_on") == "leak":  # the default
        del arguments["fail_on"]
    words = ["vestige", "check"]
    for name, value in arguments.items():
        text = f"{value:.12g}" if isinstance(value, float) else str(value)
        if name == "model":
            words.append("MODEL" if "<" in text else text)
        elif isinstance(value, str | float | int) and value is not False and "<" not in text:
            words += [f"--{name.replace('_', '-')}", *([] if value is True else [text])]
    out = Path(_folder(run))
    stem, _, number = out.name.rpartition("-")
    name = f"{stem}-{int(number) + 1}" if stem and number.isdecimal() else f"{out.name}-2"
    return command_line([*words, "--out", str(out.with_name(name))], show_secrets=False)


def _duration(seconds: float) -> str:
    """A duration, rounded up: "40 s", "5 min", "2 h 30 min"."""
    if seconds < 60:
        return f"{max(1, round(seconds))} s"
    hours, minutes = divmod(-int(-seconds // 60), 60)
    parts = [f"{hours} h"] * bool(hours) + [f"{minutes} min"] * bool(minutes)
    return " ".join(parts)
