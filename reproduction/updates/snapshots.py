"""Texts, vocabularies, snapshots and canaries of the update tables."""

import itertools
import json
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

import torch

from reproduction.papers import Row
from reproduction.stages import Call, Finished, Work, stage
from reproduction.texts import random_parts, read_text, vocabulary_of
from vestige.data.canaries.phrases import frequency_canaries
from vestige.data.canaries.texts import Canary, plant
from vestige.data.corpus import Corpus
from vestige.data.subwords import SubwordVocabulary
from vestige.data.vocabulary import Vocabulary, WordVocabulary, word_counts
from vestige.defences.registry import Defence, NoDefence
from vestige.models.checkpoints import load_model
from vestige.models.hugging_face import HuggingFaceLanguageModel
from vestige.models.lora import add_lora
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
        name: in captions.
        dataset: a name of `read_text`.
        model: "rnn" or "transformer", the paper's words.
        shape: of the model.
        training: its configuration; each snapshot has its own seed.
        vocabulary_size: tokens.
        words: of the text before the update, sampled; None: all. The validation text then has at
            most a fifth as many.
    """

    name: str
    dataset: str
    model: str
    shape: Shape
    training: TrainingConfig
    vocabulary_size: int
    words: int | None = None

    @property
    def amount(self) -> str:
        """How much text, for captions."""
        return "the whole text" if self.words is None else f"{self.words:,} words of the text"


@dataclass(frozen=True, kw_only=True)
class Planting:
    """Canaries of each pattern in one dataset, a model for each number of copies.

    Attributes:
        setting: the dataset and the model.
        copies: of each canary.
        phrases: canaries by pattern; empty: generated for the corpus.
        controls: never planted, by pattern; needed if `phrases` are given.
    """

    setting: Setting
    copies: tuple[int, ...]
    phrases: dict[str, str] = field(default_factory=dict)
    controls: dict[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class GPT2:
    """A GPT-2 of four layers with fresh weights; `width` is its hidden size."""

    width: int

    def new_model(self, vocabulary: Vocabulary, seed: int) -> LanguageModel:
        """The untrained model."""
        from transformers import GPT2Config, GPT2LMHeadModel

        assert isinstance(vocabulary, SubwordVocabulary)
        config = GPT2Config(
            vocab_size=len(vocabulary), n_positions=256, n_embd=self.width, n_layer=4, n_head=4,
            resid_pdrop=0.0, embd_pdrop=0.0, attn_pdrop=0.0,
            bos_token_id=vocabulary.eos_id, eos_token_id=vocabulary.eos_id,
        )  # fmt: skip
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(seed)
            return HuggingFaceLanguageModel(GPT2LMHeadModel(config), vocabulary)


@dataclass(frozen=True)
class Adapter:
    """A fresh LoRA adapter on some layers of a model, with its own seed."""

    rank: int
    layers: tuple[str, ...]
    seed: int

    def add_to(self, model: LanguageModel) -> LanguageModel:
        """The model with the adapter."""
        assert isinstance(model, HuggingFaceLanguageModel)
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(self.seed)
            return add_lora(model, rank=self.rank, alpha=2 * self.rank, target_modules=self.layers)


@stage(outputs=("model",))
def train(
    corpus: Corpus,
    vocabulary: Vocabulary,
    config: TrainingConfig,
    start: Shape | GPT2 | Finished,
    *,
    validation: Corpus | None = None,
    defence: Defence = UNDEFENDED,
    adapter: Adapter | None = None,
    folder: Path,
) -> Row:
    """Train a snapshot: a language model on a corpus, or an adapter of it.

    It starts from fresh weights with the seed of `config`, or from a finished snapshot. The
    validation text decides which epoch is saved; without it the last is. The result has perplexity
    and accuracy of that epoch, the epoch, and the number format.
    """

    def initial_model() -> LanguageModel:
        if isinstance(start, Finished):
            model = load_model(start.folder)
        elif isinstance(start, GPT2):
            model = start.new_model(vocabulary, config.seed)
        else:
            model = new_model(vocabulary, start, seed=config.seed).to(choose_device())
        return model if adapter is None else adapter.add_to(model)

    snapshot(
        folder,
        corpus,
        start=initial_model,
        vocabulary=vocabulary,
        config=config,
        validation=validation,
        defence=defence,
    )
    history = json.loads((folder / "history.json").read_text("utf-8"))
    records = [EpochRecord(**record) for record in history]
    best = records[best_epoch(records) - 1]
    training = json.loads((folder / "training.json").read_text("utf-8"))
    return {
        "perplexity": best.validation_perplexity,
        "accuracy": best.validation_accuracy,
        "epoch": best.epoch,
        "precision": training["precision"].removeprefix("torch."),
    }


def load_pair(before: Finished, after: Finished) -> tuple[LanguageModel, LanguageModel]:
    """The models before and after an update."""
    return load_model(before.folder), load_model(after.folder)


@dataclass(frozen=True, kw_only=True)
class Material:
    """A setting with its texts.

    Attributes:
        setting: what was read.
        original: the text before the update.
        extras: further text of the same kind, disjoint parts.
        validation: decides which epoch of a training is saved.
        vocabulary: of all snapshots.
        percents: rising; `extras[:i]` are percents[i] of the original's words.
    """

    setting: Setting
    original: Corpus
    extras: tuple[Corpus, ...]
    validation: Corpus
    vocabulary: WordVocabulary
    percents: tuple[int, ...]

    def snapshot(self, corpus: Corpus, *, seed: int, start: Call | None = None) -> Call:
        """The training of a snapshot, from fresh weights or from another snapshot."""
        return train(
            corpus,
            self.vocabulary,
            replace(self.setting.training, seed=seed),
            self.setting.shape if start is None else start,
            validation=self.validation,
        )

    def retrained(self, percent: int, corpus: Corpus) -> Call:
        """A training from fresh weights on a text that includes `percent` extra text."""
        return self.snapshot(corpus, seed=100 + percent)

    def continued(self, percent: int, corpus: Corpus, start: Call) -> Call:
        """A training that continues a snapshot on `percent` extra text."""
        return self.snapshot(corpus, seed=300 + percent, start=start)

    def extra(self, percent: int) -> tuple[Corpus, ...]:
        """The parts of the extra text of that size."""
        return self.extras[: self.percents.index(percent)]

    def quality(self, before: Finished, after: Finished) -> Row:
        """Columns on two snapshots: perplexity, accuracy, epoch and number format."""
        return {
            "dataset": self.setting.dataset,
            "model": self.setting.model,
            **{
                f"{name}_{role}": finished.value[name]
                for name in ("perplexity", "accuracy", "epoch")
                for role, finished in (("before", before), ("after", after))
            },
            "precision": after.value["precision"],
        }

    def planted(
        self, corpus: Corpus, canaries: Sequence[Canary], *, seed: int
    ) -> tuple[Corpus, tuple[Canary, ...]]:
        """A text with canaries in it, and the canaries with their ids."""
        text, manifest = plant(corpus, canaries, seed=seed, vocabulary=self.vocabulary)
        return text, manifest.canaries

    def with_copies(
        self, planting: Planting, copies: int, *, seed: int
    ) -> tuple[Corpus, tuple[Canary, ...]]:
        """The original text with `copies` of each canary, and all canaries with their ids."""
        counts = word_counts(self.original, self.vocabulary)
        canaries: Sequence[Canary] = [
            Canary(phrase, pattern, tuple(counts[self.vocabulary.encode(phrase)].tolist()), number)
            for number, phrases in ((copies, planting.phrases), (0, planting.controls))
            for pattern, phrase in phrases.items()
        ]
        if not planting.phrases:
            canaries = frequency_canaries(self.original, self.vocabulary, copies=copies, seed=0)
        return self.planted(self.original, canaries, seed=seed)


def prepare(
    setting: Setting,
    work: Work,
    *,
    percents: Sequence[int] = (),
    vocabulary_texts: Sequence[Corpus] = (),
) -> Material:
    """Read the texts of a setting, with extra texts in percent of its words.

    A larger extra text contains the smaller ones; the last extra part is for a second update and as
    large as the largest extra text. The vocabulary is that of the original text and of
    `vocabulary_texts`.
    """
    if percents and setting.words is None:
        raise ValueError(f"words must be given where text is added, got {setting}")
    text, validation = read_text(setting.dataset, work.data)
    original, extras, levels = text, [], sorted({0, *percents})
    if setting.words is not None:
        steps = [*(b - a for a, b in itertools.pairwise(levels)), levels[-1]]
        sizes = [round(setting.words * step / 100) for step in steps]
        original, *extras = random_parts(text, [setting.words, *sizes], seed=0)
        size = min(setting.words // 5, sum(len(text.split()) for text in validation))
        (validation,) = random_parts(validation, [size], seed=0)
    texts = Corpus.concatenate([original, *vocabulary_texts])
    return Material(
        setting=setting,
        original=original,
        extras=tuple(extras),
        validation=validation,
        vocabulary=vocabulary_of(texts, size=setting.vocabulary_size, name=setting.dataset),
        percents=tuple(levels),
    )
