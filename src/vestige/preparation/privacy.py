"""The guarantee of a private training: before the first step, after the last, and together."""

from collections.abc import Iterable, Sequence
from dataclasses import replace
from pathlib import Path
from statistics import fmean, median
from textwrap import wrap
from typing import Any

from vestige.defences.methods.private import PrivacyPlan, PrivateDefence
from vestige.defences.registry import Defence
from vestige.monitor import Monitor
from vestige.preparation.lineage import Lineage, begun_in
from vestige.preparation.texts import Texts
from vestige.privacy.accounting import Accountant, composed_epsilon
from vestige.privacy.ledger import LedgerEntry, ancestry, vocabulary_of
from vestige.privacy.statement import PrivacyStatement, noise_dominates, number, small
from vestige.training.config import TrainingConfig
from vestige.training.directory import log_lines

WIDTH = 100
"""Columns of a long sentence in the log."""

HARDLY = 0.1
"""Share of gradients, or updates, below which clipping does nothing."""


def check_vocabulary(defence: Defence, lineage: Lineage, *, continued: bool) -> None:
    """Refuse a vocabulary that a private defence's text has, unless that was accepted.

    `continued`: the training continues a model.
    """
    if not isinstance(defence, PrivateDefence) or defence.accept_private_vocabulary:
        return
    own = lineage.own
    made, count = vocabulary_of(lineage.id, lineage.vocabulary, own, lineage.read)
    accept = "To accept it, and have ε leave it out, pass `accept_private_vocabulary`"
    if made == "own":
        raise ValueError(
            f"`defence` {defence.name} needs `vocabulary` or `from_` of a model that was trained "
            "on other text: a vocabulary that is learned from DATA shows rare words without "
            f"noise. {accept}"
        )
    if made == "read":
        name = "from_" if continued else "vocabulary"
        raise ValueError(
            f"`{name}` has a vocabulary of a text with {count:,} of the {len(own.training()):,} "
            f"documents of this training. `defence` {defence.name} needs a model that was trained "
            f"on other text. {accept}"
        )


def entry_of(
    defence: Defence, plan: PrivacyPlan | None, config: TrainingConfig, lineage: Lineage
) -> LedgerEntry:
    """The training's entry in its ledger, before the first step; plan: of a private defence."""
    named: dict[str, Any] = {
        "id": lineage.id,
        "defence": defence.name,
        "vocabulary": lineage.vocabulary,
    }
    if plan is None:
        return LedgerEntry(**named)
    void = tuple(dict.fromkeys((*lineage.void, *plan.defence.void)))
    length = config.sequence_length
    return LedgerEntry.of(plan.spent(plan.steps), **named, sequence_length=length, void=void)


def statement_of(
    plan: PrivacyPlan, entry: LedgerEntry, texts: Texts, lineage: Lineage
) -> PrivacyStatement:
    """The guarantee of a private training, in the terms of its ledger entry."""
    division = texts.division
    assert entry.sequence_length is not None
    assert division is not None
    users = division.summary()["held_out_users"]
    return PrivacyStatement(
        defence=plan.defence.name,
        planned=plan.spent(plan.steps),
        units=plan.units,
        sequence_length=entry.sequence_length,
        held_out=users if isinstance(users, int) and users else len(texts.held),
        capped=division.most_per_user,
        limited=texts.limit,
        ancestry=ancestry(entry, lineage.own, lineage.before, lineage.read),
        void=entry.void,
    )


def announce(statement: PrivacyStatement, batch_size: int, monitor: Monitor) -> None:
    """Show the guarantee before the first step."""
    spent = statement.planned
    monitor.log(
        f"{statement.defence}: {statement.units:,} {spent.unit}s, noise multiplier "
        f"{spent.noise_multiplier:.3g}, clip {spent.max_grad_norm:g}, {spent.steps:,} steps"
    )
    log_all(monitor, statement.headlines(), begin="Planned: ")
    if (warning := noise_dominates(spent, batch_size)) is not None:
        log_all(monitor, [warning])


def conclude(
    statement: PrivacyStatement, plan: PrivacyPlan, steps: int, run: Path, monitor: Monitor
) -> PrivacyStatement:
    """Show the guarantee after the last step; the statement with the steps that were taken."""
    done = replace(statement, taken=plan.spent(steps))
    log_all(monitor, done.headlines(), begin="Privacy: ")
    monitor.log(f"Full statement: vestige report {run}")
    return done


def clip_advice(log: Path) -> str | None:
    """A better clipping norm where hardly anything was clipped, by `log.jsonl`; else None."""
    known = [line for _, line in log_lines(log) if line.get("clipped") is not None]
    if not known or fmean(line["clipped"] for line in known) > HARDLY:
        return None
    norm = median(line["median_norm"] for line in known)
    return (
        f"Almost nothing was clipped. Use --clip {norm:.1g}, near the median norm: less noise, "
        "same privacy"
    )


def log_joint(trainings: Sequence[Path], monitor: Monitor) -> None:
    """Show the guarantee of several private trainings on one text together."""
    found = [own.ledger[-1] for one in trainings if (own := begun_in(one)) is not None]
    mechanisms = [entry.mechanism for entry in found if entry.mechanism is not None]
    delta = found[0].delta if found else None
    if delta is None or len(mechanisms) < len(trainings):
        return
    by: Accountant = "rdp" if found[0].accountant == "rdp" else "pld"
    together = composed_epsilon(mechanisms, delta=delta, accountant=by)
    sentence = (
        f"Each ε is that of one model. All {len(trainings)} together have ε = {number(together)} "
        f"at δ = {small(delta)} for the records they share. Do not release models that you only "
        "measured, or state this ε."
    )
    log_all(monitor, [sentence])


def log_all(monitor: Monitor, sentences: Iterable[str], *, begin: str = "") -> None:
    """Log sentences, each from a new line on, with a hanging indent."""
    for place, sentence in enumerate(sentences):
        first = "  " if place else begin
        for line in wrap(first + sentence, WIDTH, subsequent_indent="  "):
            monitor.log(line)
