"""The report of what a callback measured during a training."""

from collections.abc import Mapping
from typing import Any

from vestige.reports.blocks import Table
from vestige.reports.report import Report, lines
from vestige.reports.words import NOTHING, Row, interval, pairs
from vestige.results import Run

NAMES: Mapping[str, str] = {
    "exposure": "median exposure of planted canaries",
    "completed": "planted canaries completed",
    "epsilon": "measured ε, at least",
    "loss_gap": "loss of the evaluation texts above that of the training texts",
    "auc": "AUC of training against evaluation texts",
}
"""What is measured, by its name among the limits."""

LIMITS = (
    "The measured ε is a lower bound: the training may reveal more. An AUC of 0.5 does not "
    "distinguish training texts, and 1 distinguishes all.",
    "The numbers are of this training alone. Repeat it with other seeds.",
)


def training_leakage_report(run: Run, *, show_secrets: bool) -> Report:
    """The report of a `TrainingLeakage`; no text is in it."""
    summary = run.summary
    measured = [name for name in NAMES if summary.get(name) is not None]
    last = Table(
        title="At the end of the training",
        columns=("measured", "value", "95% CI", "limit"),
        rows=tuple(
            (NAMES[name], _amount(summary, name), _interval(summary, name), _limit(summary, name))
            for name in measured
        ),
        key="A dash: no interval or limit.",
    )
    steps = Table(
        title="During the training",
        columns=("step", *(NAMES[name] for name in measured)),
        rows=tuple(
            (f"{row['step']:,}", *(_number(row.get(name)) for name in measured)) for row in run.rows
        ),
        key="By step of the optimizer.",
    )
    return Report(
        title="What does the training reveal?",
        evidence=lines(describe_training_leakage(summary)),
        blocks=(last, steps) if measured else (),
        facts=pairs(
            {name: summary.get(name) for name in ("steps", "seconds", "diverged")},
            show_secrets=show_secrets,
        ),
        limits=LIMITS,
    )


def describe_training_leakage(summary: Row) -> str:
    """The measurements at the end, in a sentence."""
    if summary.get("diverged") is not None:
        return (
            f"The training diverged at step {summary['diverged']:,}. Nothing was measured after it."
        )
    found = [
        f"{NAMES[name]} {_amount(summary, name)}" for name in NAMES if summary.get(name) is not None
    ]
    return f"After {summary['steps']:,} steps: {'; '.join(found)}."


def _amount(summary: Row, name: str) -> str:
    return f"{_number(summary[name])} {summary.get(f'{name}_unit') or ''}".strip()


def _interval(summary: Row, name: str) -> str:
    low, high = summary.get(f"{name}_low"), summary.get(f"{name}_high")
    if low == high or (low is None and high is None):
        return NOTHING
    return interval(low, high)


def _limit(summary: Row, name: str) -> str:
    return _number(summary.get(f"{name}_limit"))


def _number(value: Any) -> str:
    return NOTHING if value is None else f"{float(value):.4g}"
