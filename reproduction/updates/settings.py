"""What the tables of updates are made from: texts, a vocabulary, snapshots, canaries."""

import itertools
import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Protocol, runtime_checkable

from reproduction.runner import Trial
from reproduction.texts import random_parts, read_text, vocabulary_of
from vestige.data.canaries.phrases import frequency_canaries
from vestige.data.canaries.texts import Canary, plant
from vestige.data.corpus import Corpus
from vestige.data.vocabulary import Vocabulary, WordVocabulary, word_counts
from vestige.defences.registry import Defence, NoDefence
from vestige.models.checkpoints import load_model
from vestige.models.protocols import LanguageModel, choose_device
from vestige.training.config import TrainingConfig
from vestige.training.history import EpochRecord, best_epoch
from vestige.training.new_models import new_model
from vestige.training.presets import Shape
from vestige.training.recipe import snapshot

UNDEFENDED = NoDefence()


@dataclass(frozen=True, kw_only=True)
class Setting:
    """A text and the model that learns it.

    Attributes:
        name: of its folder.
        dataset: a name that `read_text` knows.
        model: "rnn" or "transformer", the paper's words.
        shape: of the model.
        training: how it learns; each snapshot has a seed of its own.
        vocabulary_size: tokens.
        words: of the text before the update, drawn at random; None: all. The text to validate
            on then has at most a fifth as many.
    """

    name: str
    dataset: str
    model: str
    shape: Shape
    training: TrainingConfig
    vocabulary_size: int
    words: int | None = None


@runtime_checkable
class Start(Protocol):
    """Where the weights of a training come from, if not from a shape: another snapshot, mostly."""

    def started(self, vocabulary: Vocabulary, seed: int) -> LanguageModel:
        """The model that is trained."""


@dataclass(frozen=True, kw_only=True)
class Snapshot(Trial):
    """A language model that has learnt a corpus, from fresh weights or from another snapshot's.

    Attributes:
        corpus: what it learns.
        vocabulary: what the ids mean.
        config: how it learns; its seed draws fresh weights too.
        start: the shape of fresh weights, or the snapshot to continue.
        validation: decides which epoch is kept; None: the last is.
        defence: under which it learns.
    """

    outputs = ("model",)
    corpus: Corpus
    vocabulary: Vocabulary
    config: TrainingConfig
    start: Shape | Start
    validation: Corpus | None = None
    defence: Defence = UNDEFENDED

    def make(self) -> dict[str, object]:
        """Train, or go on; the epoch whose weights are kept, and in which number format."""
        snapshot(
            self.directory,
            self.corpus,
            start=self._started,
            vocabulary=self.vocabulary,
            config=self.config,
            validation=self.validation,
            defence=self.defence,
        )
        history = json.loads((self.directory / "history.json").read_text("utf-8"))
        records = [EpochRecord(**record) for record in history]
        kept = records[best_epoch(records) - 1]
        trained = json.loads((self.directory / "training.json").read_text("utf-8"))
        return {
            "perplexity": kept.validation_perplexity,
            "accuracy": kept.validation_accuracy,
            "epoch": kept.epoch,
            "precision": trained["precision"].removeprefix("torch."),
        }

    def model(self) -> LanguageModel:
        """The finished model."""
        return load_model(self.directory)

    def started(self, vocabulary: Vocabulary, seed: int) -> LanguageModel:
        """The finished model, to be continued."""
        return self.model()

    def _started(self) -> LanguageModel:
        seed = self.config.seed
        if isinstance(self.start, Start):
            return self.start.started(self.vocabulary, seed)
        return new_model(self.vocabulary, self.start, seed=seed).to(choose_device())


@dataclass(frozen=True, kw_only=True)
class Material:
    """A setting, read.

    Attributes:
        setting: what was read.
        directory: where its snapshots lie.
        original: the text before the update.
        extras: further text of the same kind, disjoint parts.
        validation: decides which epoch of a training is kept.
        vocabulary: of all snapshots.
        percents: rising; `extras[:i]` are percents[i] of the original's words.
    """

    setting: Setting
    directory: Path
    original: Corpus
    extras: tuple[Corpus, ...]
    validation: Corpus
    vocabulary: WordVocabulary
    percents: tuple[int, ...] = ()

    def snapshot(
        self, name: str, corpus: Corpus, *, seed: int, start: Snapshot | None = None
    ) -> Snapshot:
        """The snapshot of a name, from fresh weights or from another snapshot."""
        return Snapshot(
            directory=self.directory / name,
            corpus=corpus,
            vocabulary=self.vocabulary,
            config=replace(self.setting.training, seed=seed),
            start=self.setting.shape if start is None else start,
            validation=self.validation,
        )

    def retrained(self, percent: int, corpus: Corpus) -> Snapshot:
        """Fresh weights that learn a text with so much extra text in it."""
        return self.snapshot(f"retrained-{percent}", corpus, seed=100 + percent)

    def continued(self, percent: int, corpus: Corpus, start: Snapshot) -> Snapshot:
        """A snapshot that goes on with so much extra text."""
        return self.snapshot(f"continued-{percent}", corpus, seed=300 + percent, start=start)

    def extra(self, percent: int) -> tuple[Corpus, ...]:
        """The parts of the extra text of that size."""
        return self.extras[: self.percents.index(percent)]

    def learnt(self, before: Snapshot, after: Snapshot) -> dict[str, Any]:
        """Columns that say how well two snapshots learnt, and in which number format."""
        results = {"before": before.result(), "after": after.result()}
        return {
            "dataset": self.setting.dataset,
            "model": self.setting.model,
            **{
                f"{name}_{role}": result[name]
                for name in ("perplexity", "accuracy", "epoch")
                for role, result in results.items()
            },
            "precision": results["after"]["precision"],
        }

    def planted(
        self, corpus: Corpus, canaries: Sequence[Canary], *, seed: int
    ) -> tuple[Corpus, tuple[Canary, ...]]:
        """A text with canaries in it, and the canaries with their ids."""
        text, manifest = plant(corpus, canaries, seed=seed, vocabulary=self.vocabulary)
        return text, manifest.canaries

    def canaries(
        self, phrases: Mapping[str, str], controls: Mapping[str, str], *, copies: int
    ) -> tuple[Canary, ...]:
        """Canaries and controls by pattern: given phrases, or made ones where none is given."""
        if not phrases:
            return frequency_canaries(self.original, self.vocabulary, copies=copies, seed=0)
        counts = word_counts(self.original, self.vocabulary)
        return tuple(
            Canary(phrase, pattern, tuple(counts[self.vocabulary.encode(phrase)].tolist()), number)
            for number, given in ((copies, phrases), (0, controls))
            for pattern, phrase in given.items()
        )


def prepare(
    setting: Setting,
    directory: Path,
    data: Path | None,
    *,
    extra_words: Sequence[int] = (),
    read_too: Sequence[Corpus] = (),
) -> Material:
    """Read what a setting needs.

    Args:
        setting: what to read.
        directory: where the setting's own folder is to be.
        data: the folder of corpora.
        extra_words: sizes of the extra texts.
        read_too: texts whose words the vocabulary shall know as well as the original's.
    """
    text, validation = read_text(setting.dataset, data)
    original, extras = text, []
    if setting.words is not None:
        original, *extras = random_parts(text, [setting.words, *extra_words], seed=0)
        held_out = min(setting.words // 5, sum(len(text.split()) for text in validation))
        (validation,) = random_parts(validation, [held_out], seed=0)
    known = Corpus.concatenate([original, *read_too])
    return Material(
        setting=setting,
        directory=directory / setting.name,
        original=original,
        extras=tuple(extras),
        validation=validation,
        vocabulary=vocabulary_of(setting.dataset, known, size=setting.vocabulary_size),
    )


def extended(
    setting: Setting,
    directory: Path,
    data: Path | None,
    percents: Iterable[int],
    *,
    read_too: tuple[Corpus, ...] = (),
) -> Material:
    """A setting with extra texts, each holding the smaller ones, and as large a text for later.

    Returns:
        Material with `percents`; its last extra part is for later and as large as the largest
        extra text.

    Raises:
        ValueError: the setting takes all of its text.
    """
    if setting.words is None:
        raise ValueError(f"words must be given where text is added, got {setting}")
    levels = sorted({0, *percents})
    steps = [b - a for a, b in itertools.pairwise(levels)]
    sizes = [round(setting.words * step / 100) for step in (*steps, levels[-1])]
    material = prepare(setting, directory, data, extra_words=sizes, read_too=read_too)
    return replace(material, percents=tuple(levels))
