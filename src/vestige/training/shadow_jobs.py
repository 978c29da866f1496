"""Shadow-model jobs of an audit of users, and everything that determines each.

Song and Shmatikov (2019), "Auditing Data Provenance in Text-Generation Models", KDD,
arXiv:1811.00513, section 3 and Algorithm 1: k models with the task of the target, each trained on a
random half of the users of a reference corpus; the other half are its non-members. Section 4.3
and appendix B.2: if the architecture of the target is unknown, GRUs of other sizes, momentum SGD.

Shadow i depends only on i and the seed of the plan, so a plan of more shadows begins with those of
a plan of fewer. Users are sampled by name, whatever the order of documents.

Differs from the paper: halves come in disjoint pairs (`draw_half`).
"""

import hashlib
import json
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field, replace
from functools import cached_property, partial
from pathlib import Path
from typing import Any, Literal

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from vestige.data.corpus import Corpus
from vestige.data.vocabulary import Vocabulary
from vestige.errors import DataError
from vestige.models.protocols import choose_device
from vestige.models.recurrent_network import GRUConfig
from vestige.models.seq2seq import Seq2SeqConfig
from vestige.training.config import TrainingConfig
from vestige.training.presets import Shape, preset_of
from vestige.training.steps import settled

Task = Literal["next-word", "translation", "dialogue"]
ShadowConfig = Shape | Seq2SeqConfig

FORMAT = 1
OTHER_SIZES = tuple(range(64, 353, 32))
"""Hidden and embedding sizes of the paper's ten shadows, appendix B.2."""
OTHER_DROPOUT = 0.5


@dataclass(frozen=True, kw_only=True)
class ShadowPlan:
    """The shadow models of an audit.

    Attributes:
        seed: of the halves, and through them of weights and order.
        count: the paper's k.
        task: of the target; models of the last two read a source first.
        models: configurations, used in turn; one if all shadows are equal.
        training: configuration of each. Its seed is not used. No text is held out, so the last
            weights count.
    """

    seed: int
    count: int = 10
    task: Task = "next-word"
    models: tuple[ShadowConfig, ...]
    training: TrainingConfig


def other_shapes(
    *, seed: int, task: Task = "next-word", training: TrainingConfig | None = None
) -> ShadowPlan:
    """The paper's ten shadows for a target of unknown architecture: GRUs of 64 to 352 units.

    Default `training`: as in the paper, 50 epochs of SGD with rate 0.01 and momentum 0.9; other
    settings are those of the task's preset.
    """
    shape: Callable[..., ShadowConfig] = partial(GRUConfig, layers=1)
    if task != "next-word":
        shape = partial(Seq2SeqConfig, cell="gru", attention=task == "translation")
    if training is None:
        default = preset_of(task).training
        training = replace(default, epochs=50, optimizer="sgd", learning_rate=0.01, momentum=0.9)
    models = tuple(
        shape(embedding_size=size, hidden_size=size, dropout_out=OTHER_DROPOUT)
        for size in OTHER_SIZES
    )
    return ShadowPlan(seed=seed, count=len(models), task=task, models=models, training=training)


@dataclass(frozen=True, kw_only=True)
class ShadowJob:
    """Job of one shadow model, with everything that determines it; pickled for other machines.

    Attributes:
        folder: of all shadows; each has its own folder in it.
        training: with its own seed, and the precision of the machine that planned it.
        reference: the documents of all users.
        members: users whose documents it learns, in alphabetical order.
        vocabulary: of the predicted texts.
        source_vocabulary: of the sources; None for next words.
        device: of its training; not part of its identity.
    """

    folder: Path
    task: Task
    model: ShadowConfig
    training: TrainingConfig
    reference: Corpus = field(repr=False)
    members: tuple[str, ...] = field(repr=False)
    vocabulary: Vocabulary = field(repr=False)
    source_vocabulary: Vocabulary | None = field(default=None, repr=False)
    device: str = "cpu"

    @property
    def others(self) -> tuple[str, ...]:
        """Non-members, in alphabetical order."""
        return tuple(sorted(set(self.reference.users or ()) - set(self.members)))

    def parts(self) -> tuple[Corpus, Corpus]:
        """The documents of the members and those of the others, in the reference's order."""
        names = pa.array(self.members, type=pa.large_string())
        inside = pc.is_in(self.reference.table["user"], value_set=names)
        table = self.reference.table
        return Corpus(table.filter(inside)), Corpus(table.filter(pc.invert(inside)))

    @cached_property
    def identity(self) -> dict[str, Any]:
        """Identity of a shadow and of its measurements; texts by hash."""
        inside, outside = self.parts()
        source = self.source_vocabulary
        return {
            "format": FORMAT,
            "task": self.task,
            "model": {"name": type(self.model).__name__, **asdict(self.model)},
            "training": asdict(self.training),
            "members": inside.fingerprint(),
            "others": outside.fingerprint(),
            "vocabulary": self.vocabulary.fingerprint(),
            "source vocabulary": None if source is None else source.fingerprint(),
        }

    @cached_property
    def digest(self) -> str:
        """16 hexadecimal digits that name its folder."""
        text = json.dumps(self.identity, sort_keys=True)
        return hashlib.sha256(text.encode()).hexdigest()[:16]

    @property
    def directory(self) -> Path:
        """Folder of the shadow."""
        return self.folder / self.digest

    @property
    def lock(self) -> Path:
        """Lock file of the process that trains it."""
        return self.folder / f".{self.digest}.lock"


def shadow_jobs(
    plan: ShadowPlan,
    reference: Corpus,
    vocabulary: Vocabulary,
    folder: Path,
    *,
    source_vocabulary: Vocabulary | None = None,
    device: str = "cpu",
) -> list[ShadowJob]:
    """The shadows of a plan, each on its own half, floor(users / 2), of the reference users.

    Args:
        plan: of the shadows.
        reference: documents with users, and with sources if the task has them; without users of
            the target's training.
        vocabulary: the target's.
        folder: of finished shadows and of new ones.
        source_vocabulary: the target's too; for translation and dialogue.
        device: "cpu", "cuda" or "auto".

    Raises:
        DataError: the reference lacks users or sources, or has fewer than two users.
    """
    columns = ["text", "user", *(["source"] if plan.task != "next-word" else [])]
    if lacking := set(columns) - set(reference.table.column_names):
        raise DataError(
            f"shadow models need a reference corpus with a column {sorted(lacking)[0]!r}; it has "
            f"{reference.table.column_names}",
            remedy="Pass that column. A corpus without users can be split into artificial ones.",
        )
    reference = Corpus(reference.table.select(columns))  # without labels
    names = sorted(set(reference.users or ()))
    if "" in names:
        raise DataError(
            "the reference corpus has documents without a user",
            remedy="Remove them, or add their users.",
        )
    if len(names) < 2:
        raise DataError(
            f"shadow models need a reference corpus of 2 users or more; it has {len(names)}",
            remedy="Pass documents of more users; an audit needs about twenty.",
        )
    chosen_device = choose_device(device)
    # The precision is decided here, not on the machine that trains a shadow.
    training = settled(plan.training, chosen_device)
    halves = [draw_half(names, seed=plan.seed, index=index) for index in range(plan.count)]
    return [
        ShadowJob(
            folder=Path(folder),
            task=plan.task,
            model=plan.models[index % len(plan.models)],
            training=replace(training, seed=seed),
            reference=reference,
            members=members,
            vocabulary=vocabulary,
            source_vocabulary=source_vocabulary,
            device=str(chosen_device),
        )
        for index, (members, seed) in enumerate(halves)
    ]


def draw_half(names: Sequence[str], *, seed: int, index: int) -> tuple[tuple[str, ...], int]:
    """Members of shadow `index` out of n users, and the seed of its training.

    Halves come in pairs: shadows 0 and 1 have disjoint members, as do 2 and 3. So each user is a
    non-member of equally many shadows. Names are in alphabetical order, the seed is below 2^31.

    Example:
        >>> [draw_half(["ann", "bob", "cy", "dee"], seed=0, index=i)[0] for i in (0, 1)]
        [('ann', 'cy'), ('bob', 'dee')]
    """
    ordered = sorted(names)
    order = np.random.default_rng([seed, index // 2]).permutation(len(ordered))
    half = len(ordered) // 2
    members = order[half:] if index % 2 else order[:half]
    rng = np.random.default_rng([seed, index, 1])
    return tuple(ordered[position] for position in sorted(members)), int(rng.integers(2**31))
