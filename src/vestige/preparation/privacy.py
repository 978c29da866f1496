"""The guarantee of a private training before the first step, after the last, and of several."""

from collections.abc import Iterable, Sequence
from dataclasses import replace
from pathlib import Path
from statistics import fmean, median
from textwrap import wrap
from typing import Any

from vestige.defences.methods.private import PrivacyPlan, PrivateDefence
from vestige.defences.registry import Defence
from vestige.monitor import Monitor
from vestige.preparation.lineage import Lineage, history_in
from vestige.preparation.texts import Texts
from vestige.privacy.accounting import Accountant, composed_epsilon
from vestige.privacy.ledger import LedgerEntry, ancestry, vocabulary_of
from vestige.privacy.statement import PrivacyStatement, noise_dominates, number, small
from vestige.training.config import TrainingConfig
from vestige.training.directory import log_lines

WIDTH = 100
"""Longest line of the log."""

ALMOST_NONE = 0.1
"""Share of clipped gradients below which clipping has almost no effect."""


def check_vocabulary(defence: Defence, lineage: Lineage, *, continued: bool) -> None:
    """Refuse a vocabulary that was learned from the text of a private training."""
    if not isinstance(defence, PrivateDefence) or defence.accept_private_vocabulary:
        return
    records = lineage.records
    source, shared = vocabulary_of(lineage.id, lineage.vocabulary, records, lineage.earlier_records)
    accept = "To accept it, and have ε leave it out, pass `accept_private_vocabulary`"
    if source == "own":
        raise ValueError(
            f"`defence` {defence.name} needs `vocabulary` or `from_` of a model that was trained "
            "on other text: a vocabulary that is learned from DATA shows rare words without "
            f"noise. {accept}"
        )
    if source == "read":
        name = "from_" if continued else "vocabulary"
        raise ValueError(
            f"`{name}` has a vocabulary of a text with {shared:,} of the "
            f"{len(records.training()):,} documents of this training. `defence` {defence.name} "
            f"needs a model that was trained on other text. {accept}"
        )


def entry_of(
    defence: Defence, plan: PrivacyPlan | None, config: TrainingConfig, lineage: Lineage
) -> LedgerEntry:
    """The entry of a training in its ledger before the first step; `plan` of a private defence."""
    common: dict[str, Any] = {
        "id": lineage.id,
        "defence": defence.name,
        "vocabulary": lineage.vocabulary,
    }
    if plan is None:
        return LedgerEntry(**common)
    void = tuple(dict.fromkeys((*lineage.void, *plan.defence.void)))
    length = config.sequence_length
    return LedgerEntry.of(plan.spent(plan.steps), **common, sequence_length=length, void=void)


def planned_statement(
    plan: PrivacyPlan, entry: LedgerEntry, texts: Texts, lineage: Lineage
) -> PrivacyStatement:
    """The guarantee of a private training by its ledger entry."""
    division = texts.division
    assert entry.sequence_length is not None
    assert division is not None
    users = division.summary()["held_out_users"]
    return PrivacyStatement(
        defence=plan.defence.name,
        planned=plan.spent(plan.steps),
        units=plan.units,
        sequence_length=entry.sequence_length,
        held_out=users if isinstance(users, int) and users else len(texts.validation),
        capped=division.most_per_user,
        limited=texts.limit,
        ancestry=ancestry(entry, lineage.records, lineage.earlier, lineage.earlier_records),
        void=entry.void,
    )


def announce(statement: PrivacyStatement, batch_size: int, monitor: Monitor) -> None:
    """Log the guarantee before the first step."""
    spent = statement.planned
    monitor.log(
        f"{statement.defence}: {statement.units:,} {spent.unit}s, noise multiplier "
        f"{spent.noise_multiplier:.3g}, clip {spent.max_grad_norm:g}, {spent.steps:,} steps"
    )
    log_all(monitor, statement.headlines(), prefix="Planned: ")
    if (warning := noise_dominates(spent, batch_size)) is not None:
        log_all(monitor, [warning])


def conclude(
    statement: PrivacyStatement, plan: PrivacyPlan, steps: int, run: Path, monitor: Monitor
) -> PrivacyStatement:
    """Log the guarantee after the last step; returns the statement with the number of steps."""
    finished = replace(statement, taken=plan.spent(steps))
    log_all(monitor, finished.headlines(), prefix="Privacy: ")
    monitor.log(f"Full statement: vestige report {run}")
    return finished


def clip_advice(log: Path) -> str | None:
    """Advice on a smaller clipping norm if `log.jsonl` shows that almost nothing was clipped."""
    lines = [line for _, line in log_lines(log) if line.get("clipped") is not None]
    if not lines or fmean(line["clipped"] for line in lines) > ALMOST_NONE:
        return None
    norm = median(line["median_norm"] for line in lines)
    return (
        f"Almost nothing was clipped. Use --clip {norm:.1g}, near the median norm: less noise, "
        "same privacy"
    )


def log_joint_guarantee(trainings: Sequence[Path], monitor: Monitor) -> None:
    """Log the joint guarantee of several private trainings on the same text."""
    entries = [history.ledger[-1] for out in trainings if (history := history_in(out)) is not None]
    mechanisms = [entry.mechanism for entry in entries if entry.mechanism is not None]
    delta = entries[0].delta if entries else None
    if delta is None or len(mechanisms) < len(trainings):
        return
    accountant: Accountant = "rdp" if entries[0].accountant == "rdp" else "pld"
    joint_epsilon = composed_epsilon(mechanisms, delta=delta, accountant=accountant)
    sentence = (
        f"Each ε is that of one model. All {len(trainings)} together have ε = "
        f"{number(joint_epsilon)} at δ = {small(delta)} for the records they share. Do not "
        "release models that you only measured, or state this ε."
    )
    log_all(monitor, [sentence])


def log_all(monitor: Monitor, sentences: Iterable[str], *, prefix: str = "") -> None:
    """Log each sentence on lines of its own, with a hanging indent."""
    for index, sentence in enumerate(sentences):
        start = "  " if index else prefix
        for line in wrap(start + sentence, WIDTH, subsequent_indent="  "):
            monitor.log(line)
