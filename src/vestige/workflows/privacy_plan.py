"""What a training promises: before it, after it, and to its descendants."""

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from textwrap import wrap

from vestige.data.read_records import ReadRecords
from vestige.defences.composition import composed_epsilon
from vestige.defences.privacy_ancestry import ancestry, vocabulary_of
from vestige.defences.privacy_ledger import LedgerEntry
from vestige.defences.privacy_statement import PrivacyStatement, drowned, number, small
from vestige.defences.private import PrivacyPlan, PrivateDefence
from vestige.monitor import Monitor
from vestige.training.config import TrainingConfig
from vestige.training_runs import RUN
from vestige.workflows import privacy_files
from vestige.workflows.privacy_files import Lineage
from vestige.workflows.train import TrainingRequest
from vestige.workflows.training_data import Texts

WIDTH = 100
"""Columns of a long sentence."""


@dataclass(frozen=True, kw_only=True)
class Lineages:
    """Where a training comes from, and what it reads.

    Attributes:
        vocabulary: id of the training of whose text the vocabulary was made.
        read: what its ancestors and the maker of its vocabulary have read.
        void: what has voided its guarantee since it began.
    """

    id: str
    model: Lineage
    vocabulary: str
    own: ReadRecords
    read: Mapping[str, ReadRecords]
    void: tuple[str, ...] = ()

    @classmethod
    def of(cls, request: TrainingRequest, own: ReadRecords) -> "Lineages":
        """Those of a training that begins, or of one that goes on in its directory."""
        begun = privacy_files.begun(request.out)
        if begun is not None:
            *before, entry = begun.ledger
            return cls(
                id=entry.id,
                model=Lineage(tuple(before), begun.read),
                vocabulary=entry.vocabulary,
                own=own,
                read=begun.read,
                void=entry.void,
            )
        start, vocabulary = request.start, request.model.vocabulary
        new = privacy_files.new_id()
        model = Lineage() if start is None else privacy_files.lineage_of(start)
        words = model if vocabulary is None else privacy_files.lineage_of(vocabulary)
        made_of = words.vocabulary if words.ledger else new
        read = {**words.read, **model.read}
        return cls(id=new, model=model, vocabulary=made_of, own=own, read=read)

    @property
    def kept(self) -> dict[str, ReadRecords]:
        """The records that the training's directory keeps, by id."""
        named = {entry.id for entry in self.model.ledger} | {self.vocabulary}
        return {**{name: self.read[name] for name in named & self.read.keys()}, self.id: self.own}


def check_vocabulary(request: TrainingRequest, lineages: Lineages) -> None:
    """Refuse a vocabulary that was made of the text that is to be protected.

    Raises:
        ValueError: it was, the defence is private, and nobody accepted that.
    """
    defence, own = request.defence, lineages.own
    if not isinstance(defence, PrivateDefence):
        return
    made, count = vocabulary_of(lineages.id, lineages.vocabulary, own, lineages.read)
    if made not in ("own", "read") or defence.accept_private_vocabulary:
        return
    accept = "`accept_private_vocabulary` takes it all the same, and says what ε leaves out"
    if made == "own":
        raise ValueError(
            f"`defence` {defence.name} must come with `vocabulary` or `start` of a model whose "
            "vocabulary was made of other text, got none: one learnt from DATA is released "
            f"with the model, without noise, and shows words that were said once; {accept}"
        )
    named = "vocabulary" if request.start is None else "start"
    raise ValueError(
        f"`{named}` must name a model whose vocabulary was made of other text with `defence` "
        f"{defence.name}, got one made of a text with {count:,} of the "
        f"{len(own.learnt()):,} documents of this training; {accept}"
    )


def entry_of(
    request: TrainingRequest,
    plan: PrivacyPlan | None,
    config: TrainingConfig,
    lineages: Lineages,
) -> LedgerEntry:
    """The training as its ledger has it, before its first step."""
    entry = LedgerEntry(
        id=lineages.id, defence=request.defence.name, vocabulary=lineages.vocabulary
    )
    if plan is None:
        return entry
    spent = plan.spent(plan.steps)
    return replace(
        entry,
        unit=spent.unit,
        sequence_length=config.sequence_length,
        noise_multiplier=spent.noise_multiplier,
        sample_rate=spent.sample_rate,
        steps_planned=spent.steps,
        bands=getattr(plan.defence, "bands", 1),
        max_grad_norm=spent.max_grad_norm,
        accountant=spent.accountant,
        epsilon=spent.epsilon if math.isfinite(spent.epsilon) else None,
        delta=spent.delta,
        void=tuple(dict.fromkeys((*lineages.void, *plan.defence.void))),
        noise_decay=spent.noise_decay,
    )


def statement_of(
    request: TrainingRequest,
    plan: PrivacyPlan,
    entry: LedgerEntry,
    texts: Texts,
    lineages: Lineages,
) -> PrivacyStatement:
    """What a private training will promise, in the terms of its ledger's entry."""
    assert entry.sequence_length is not None
    users = texts.division.summary()["held_out_users"]
    return PrivacyStatement(
        defence=plan.defence.name,
        planned=plan.spent(plan.steps),
        units=plan.units,
        sequence_length=entry.sequence_length,
        held_out=users if isinstance(users, int) and users else len(texts.held),
        capped=texts.division.most_per_user,
        limited=request.limit,
        ancestry=ancestry(entry, lineages.own, lineages.model.ledger, lineages.read),
        void=entry.void,
        bands=entry.bands,
        clip_quantile=getattr(plan.defence, "clip_quantile", None),
    )


def announce(statement: PrivacyStatement, batch_size: int, monitor: Monitor) -> None:
    """Tell what a training will promise, before its first step."""
    spent = statement.planned
    last = spent.noise_decay * spent.noise_multiplier
    falls = "" if spent.noise_decay == 1 else f" falling to {last:.3g}"
    monitor.log(
        f"{statement.defence}: {statement.units:,} {spent.unit}s, noise multiplier "
        f"{spent.noise_multiplier:.3g}{falls}, clip {spent.max_grad_norm:g}, {spent.steps:,} "
        + ("steps" if statement.bands == 1 else f"turns of each of {statement.bands} groups")
    )
    log_all(monitor, statement.headlines(), begin="Will promise: ")
    warning = drowned(spent, batch_size)
    if warning is not None:
        log_all(monitor, [warning])


def conclude(
    request: TrainingRequest, statement: PrivacyStatement, plan: PrivacyPlan, steps: int
) -> PrivacyStatement:
    """The statement after the last step, which is told."""
    done = replace(statement, taken=plan.spent(steps))
    log_all(request.monitor, done.headlines(), begin="Privacy: ")
    run = request.out / RUN
    request.monitor.log(f"All of it stands on the page of: vestige report {run}")
    return done


def log_joint(trainings: Sequence[Path], monitor: Monitor) -> None:
    """Tell what private trainings of one text promise together, since each tells more of it."""
    found = [own.ledger[-1] for one in trainings if (own := privacy_files.begun(one)) is not None]
    mechanisms = [entry.mechanism for entry in found if entry.mechanism is not None]
    delta, accountant = (found[0].delta, found[0].accountant) if found else (None, None)
    if delta is None or accountant is None or len(mechanisms) < len(trainings):
        return
    together = composed_epsilon(mechanisms, delta=delta, accountant=accountant)
    sentence = (
        f"Each ε is that of one model. All {len(trainings)} together have ε = "
        f"{number(together)} at δ = {small(delta)} for what they read: release none that was "
        "only measured, or state this one."
    )
    log_all(monitor, [sentence])


def log_all(monitor: Monitor, sentences: Iterable[str], *, begin: str = "") -> None:
    """Tell sentences, each from a new line on and set in where it takes several."""
    for place, sentence in enumerate(sentences):
        first = "  " if place else begin
        for line in wrap(first + sentence, WIDTH, subsequent_indent="  "):
            monitor.log(line)
