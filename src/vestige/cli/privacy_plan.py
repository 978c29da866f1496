"""What a training of `vestige train` promises: before it, after it, and to its descendants."""

import math
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from vestige.cli import privacy_files
from vestige.cli.defence_plan import AskedDefence, PlannedDefence
from vestige.cli.privacy_files import Lineage
from vestige.cli.terminal import say, say_all
from vestige.cli.training_directory import RUN
from vestige.cli.training_plan import Wanted

if TYPE_CHECKING:
    from vestige.cli.train_text import Texts
    from vestige.data.read_records import ReadRecords
    from vestige.defences.privacy_ledger import LedgerEntry
    from vestige.defences.privacy_statement import PrivacyStatement
    from vestige.training.config import TrainingConfig


@dataclass(frozen=True, kw_only=True)
class Lineages:
    """Where a training comes from, and what it reads.

    Attributes:
        id: of the training.
        model: the one that it goes on from.
        vocabulary: id of the training of whose text the vocabulary was made.
        own: what this training reads.
        read: what its ancestors and the maker of its vocabulary have read.
        void: what has voided its guarantee since it began.
    """

    id: str
    model: Lineage
    vocabulary: str
    own: "ReadRecords"
    read: "Mapping[str, ReadRecords]"
    void: tuple[str, ...] = ()

    @classmethod
    def of(
        cls, own: "ReadRecords", out: Path, *, start: str | None, vocabulary: Path | None = None
    ) -> "Lineages":
        """Those of a training that begins, or of one in `out` that goes on.

        Args:
            own: what it reads.
            out: its directory.
            start: the model that it goes on from.
            vocabulary: the model whose vocabulary it takes; None with a start, or where it makes
                one of its text.
        """
        begun = privacy_files.begun(out)
        if begun is not None:
            *before, entry = begun.ledger
            model = Lineage(tuple(before), begun.read)
            return cls(
                id=entry.id,
                model=model,
                vocabulary=entry.vocabulary,
                own=own,
                read=begun.read,
                void=entry.void,
            )
        new = privacy_files.new_id()
        model = Lineage() if start is None else privacy_files.lineage_of(start)
        words = model if vocabulary is None else privacy_files.lineage_of(vocabulary)
        made_of = words.vocabulary if words.ledger else new
        read = {**words.read, **model.read}
        return cls(id=new, model=model, vocabulary=made_of, own=own, read=read)

    @property
    def kept(self) -> "dict[str, ReadRecords]":
        """The records that the training's directory keeps, by id."""
        named = {entry.id for entry in self.model.ledger} | {self.vocabulary}
        return {**{name: self.read[name] for name in named & self.read.keys()}, self.id: self.own}

    def check_vocabulary(self, asked: AskedDefence, wanted: Wanted) -> None:
        """Refuse a vocabulary that was made of the text that is to be protected.

        Raises:
            ValueError: it was, and nobody accepted that.
        """
        from vestige.defences.privacy_ancestry import vocabulary_of

        made, count = vocabulary_of(self.id, self.vocabulary, self.own, self.read)
        if made not in ("own", "read") or asked.accept_private_vocabulary:
            return
        accept = "--accept-private-vocabulary takes it all the same, and says what ε leaves out"
        if made == "own":
            raise ValueError(
                f"--defence {asked.name} must come with --vocabulary or --from of a model whose "
                "vocabulary was made of other text, got none: one learnt from DATA is released "
                f"with the model, without noise, and shows words that were said once; {accept}"
            )
        option = "--vocabulary" if wanted.start is None else "--from"
        raise ValueError(
            f"{option} must name a model whose vocabulary was made of other text with --defence "
            f"{asked.name}, got one made of a text with {count:,} of the "
            f"{len(self.own.learnt()):,} documents of this training; {accept}"
        )


@contextmanager
def undefended(
    own: "ReadRecords", out: Path, *, start: str | None, vocabulary: Path | None = None
) -> Iterator[None]:
    """A training without a defence goes on within; its descendants know of it.

    Args:
        own: see `Lineages.of`, as of the others.
    """
    from vestige.defences.privacy_ledger import LedgerEntry

    lineages = Lineages.of(own, out, start=start, vocabulary=vocabulary)
    entry = LedgerEntry(id=lineages.id, defence="none", vocabulary=lineages.vocabulary)
    with privacy_files.registered(out, entry, lineages.model, lineages.kept):
        yield


def entry_of(
    planned: PlannedDefence, asked: AskedDefence, config: "TrainingConfig", lineages: Lineages
) -> "LedgerEntry":
    """The training as its ledger has it, before its first step."""
    from vestige.defences.privacy_ledger import LedgerEntry

    spent = planned.spent(planned.steps)
    entry = LedgerEntry(id=lineages.id, defence=asked.name, vocabulary=lineages.vocabulary)
    if spent is None:
        return entry
    return replace(
        entry,
        unit=spent.unit,
        sequence_length=config.sequence_length,
        noise_multiplier=spent.noise_multiplier,
        sample_rate=spent.sample_rate,
        steps_planned=spent.steps,
        max_grad_norm=spent.max_grad_norm,
        accountant=spent.accountant,
        epsilon=spent.epsilon if math.isfinite(spent.epsilon) else None,
        delta=spent.delta,
        void=tuple(dict.fromkeys((*lineages.void, *asked.void))),
    )


def statement_of(
    planned: PlannedDefence, entry: "LedgerEntry", texts: "Texts", lineages: Lineages
) -> "PrivacyStatement | None":
    """What the training will promise; None where it has no defence with a guarantee."""
    from vestige.defences.privacy_ancestry import ancestry
    from vestige.defences.privacy_statement import PrivacyStatement

    spent = planned.spent(planned.steps)
    if spent is None:
        return None
    assert entry.sequence_length is not None
    users = texts.division.summary()["held_out_users"]
    return PrivacyStatement(
        defence=planned.defence.name,
        planned=spent,
        units=planned.units,
        sequence_length=entry.sequence_length,
        held_out=users if isinstance(users, int) and users else len(texts.held),
        capped=texts.division.most_per_user,
        limited=texts.limit,
        ancestry=ancestry(entry, lineages.own, lineages.model.ledger, lineages.read),
        void=entry.void,
    )


def announce(statement: "PrivacyStatement", batch_size: int) -> None:
    """Say what a training will promise, before its first step."""
    from vestige.defences.privacy_statement import drowned

    spent = statement.planned
    say(
        f"{statement.defence}: {statement.units:,} {spent.unit}s, noise multiplier "
        f"{spent.noise_multiplier:.3g}, clip {spent.max_grad_norm:g}, {spent.steps:,} steps"
    )
    say_all(statement.headlines(), begin="Will promise: ")
    warning = drowned(spent, batch_size)
    if warning is not None:
        say_all([warning])


def conclude(
    statement: "PrivacyStatement", planned: PlannedDefence, steps: int, out: Path
) -> "PrivacyStatement":
    """The statement after the last step, which is said."""
    done = replace(statement, taken=planned.spent(steps))
    say_all(done.headlines(), begin="Privacy: ")
    say(f"All of it stands on the page of: vestige report {out / RUN}")
    return done
