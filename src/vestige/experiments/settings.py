"""What a table needs before it can be filled: texts, a vocabulary, trainings and rows."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from vestige.data.canaries import frequency_canaries
from vestige.data.canary import Canary
from vestige.data.corpus import Corpus
from vestige.data.manifest import plant
from vestige.data.vocabulary import WordVocabulary, word_counts
from vestige.experiments.snapshots import Training, kept_epoch, kept_precision
from vestige.experiments.texts import random_parts, read_text, vocabulary_of
from vestige.models.checkpoints import load_model
from vestige.models.lstm import LSTMConfig
from vestige.models.protocols import LanguageModel
from vestige.training.config import TrainingConfig
from vestige.training.presets import Shape, preset


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


def preset_setting(name: str, dataset: str, of: str, *, words: int | None = None) -> Setting:
    """A dataset learnt by one of the presets, with all that the preset says."""
    made = preset(of)
    return Setting(
        name=name,
        dataset=dataset,
        model="rnn" if isinstance(made.model, LSTMConfig) else "transformer",
        shape=made.model,
        training=made.training,
        vocabulary_size=made.vocabulary_size or 10_000,
        words=words,
    )


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
    """

    setting: Setting
    directory: Path
    original: Corpus
    extras: tuple[Corpus, ...]
    validation: Corpus
    vocabulary: WordVocabulary

    def training(
        self, name: str, corpus: Corpus, *, seed: int, start: str | None = None
    ) -> Training:
        """How the snapshot of a name comes to be, from fresh weights or from another snapshot."""
        return Training(
            directory=self.directory / name,
            corpus=corpus,
            vocabulary=self.vocabulary,
            config=replace(self.setting.training, seed=seed),
            start=self.setting.shape if start is None else self.directory / start,
            validation=self.validation,
        )

    def model(self, name: str) -> LanguageModel:
        """A trained snapshot."""
        return load_model(self.directory / name)

    def learnt(self, before: str, after: str) -> dict[str, Any]:
        """Columns that say how well two snapshots learnt, and in which number format."""
        names = {"before": before, "after": after}
        records = {role: kept_epoch(self.directory / name) for role, name in names.items()}
        return {
            "dataset": self.setting.dataset,
            "model": self.setting.model,
            **{f"perplexity_{role}": r.validation_perplexity for role, r in records.items()},
            **{f"accuracy_{role}": r.validation_accuracy for role, r in records.items()},
            **{f"epoch_{role}": r.epoch for role, r in records.items()},
            "precision": kept_precision(self.directory / after),
        }

    def planted(
        self, corpus: Corpus, canaries: Sequence[Canary], *, seed: int
    ) -> tuple[Corpus, tuple[Canary, ...]]:
        """A text with canaries in it, and the canaries with their ids."""
        text, manifest = plant(corpus, canaries, seed=seed, vocabulary=self.vocabulary)
        return text, manifest.canaries


@dataclass(frozen=True, kw_only=True)
class Plan:
    """How a table comes to be.

    Attributes:
        trainings: to be finished first.
        rows: what then fills the table.
    """

    trainings: tuple[Training, ...]
    rows: Callable[[], Iterable[Mapping[str, Any]]]


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


def chosen_canaries(
    material: Material,
    phrases: Mapping[str, str],
    controls: Mapping[str, str],
    *,
    copies: int,
) -> tuple[Canary, ...]:
    """Canaries and controls by pattern: the given phrases, or made ones where none is given."""
    if not phrases:
        corpus, vocabulary = material.original, material.vocabulary
        return frequency_canaries(corpus, vocabulary, copies=copies, seed=0)
    counts = word_counts(material.original, material.vocabulary)
    return tuple(
        Canary(phrase, pattern, tuple(counts[material.vocabulary.encode(phrase)].tolist()), number)
        for number, given in ((copies, phrases), (0, controls))
        for pattern, phrase in given.items()
    )
