"""Training recipes, to repeat a training on other text: for null models and shadow models.

A null model repeats the training of an update on text without the information that the update may
have leaked: the same start, settings and number of tokens, another seed. A recipe comes from a
directory of `vestige train`, or from `trainer_state.json`, which transformers' `Trainer`, TRL,
Axolotl and LLaMA-Factory write. `training_args.bin` is a pickle, which can run code, and is never
read.
"""

from collections.abc import Callable
from copy import deepcopy
from dataclasses import dataclass, replace
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import Any, Protocol, Unpack

import numpy as np
import torch
from numpy.typing import NDArray
from pydantic import Field

from vestige.data.corpus import Corpus
from vestige.data.encoded import EncodedCorpus, encode, load_encoded
from vestige.data.files import Count, Measurements, read_json
from vestige.data.vocabulary import Vocabulary
from vestige.data.writing import lock_directory
from vestige.errors import DataError, TrainingError
from vestige.models.checkpoints import load_model
from vestige.models.folders import ADAPTER_CONFIG
from vestige.models.hugging_face import HuggingFaceLanguageModel
from vestige.models.protocols import LanguageModel
from vestige.training.checkpoint import start_of
from vestige.training.config import TrainingConfig
from vestige.training.directory import DATA, IDENTITY, MODEL
from vestige.training.loop import How, train
from vestige.training.presets import gentle
from vestige.training.steps import StepFn

STATE = "trainer_state.json"
LONGEST = 512
"""Maximum tokens of a text if neither files nor options give it."""
BY_HAND = "Train each null model with `vestige train --from`, on other text and with another seed."
_NO_PASS = 1e-6


class Defending(Protocol):
    """Defence as the maker of a training's step; None for a plain one."""

    def step(
        self, model: LanguageModel, data: EncodedCorpus, config: TrainingConfig
    ) -> StepFn | None: ...


def snapshot(
    place: Path,
    corpus: Corpus,
    *,
    start: Callable[[], LanguageModel] | LanguageModel,
    vocabulary: Vocabulary,
    base: LanguageModel | None = None,
    validation: Corpus | None = None,
    defence: Defending | None = None,
    **how: Unpack[How],
) -> LanguageModel:
    """Model trained on a corpus, on its device, in its own directory.

    An interrupted training resumes; a finished one is loaded. A lock excludes other processes.
    `start` builds the untrained model, or is the model to continue (it is copied). An adapter
    shares the weights of its `base`; None: they are read again.
    """
    model = deepcopy(start) if isinstance(start, LanguageModel) else start()
    with lock_directory(place):
        data = encode(corpus, vocabulary, place / DATA)
        encoded_validation = None if validation is None else encode(validation, vocabulary)
        step = None if defence is None else defence.step(model, data, how["config"])
        options: How = {**how, "directory": place, "step": step, "resume": True}
        train(model, data, validation=encoded_validation, **options)
    return load_model(place, base=base)


class _Identity(Measurements):
    """Schema of the parts of a training's identity that a repetition needs."""

    config: dict[str, Any]
    step: str
    start: str = Field(alias="model weights at the start")
    validation: Any = Field(alias="validation data")


@dataclass(frozen=True, kw_only=True)
class Recipe:
    """Training recipe of an update.

    Attributes:
        config: training configuration; a repetition has another seed.
        tokens: training tokens, with ends of documents.
        validation: validation tokens, 0 for none.
        start: hash of the initial weights; None if unknown.
        adapter: folder of its adapter; None if all weights were trained.
    """

    config: TrainingConfig
    tokens: int
    validation: int = 0
    start: str | None = None
    adapter: Path | None = None

    @classmethod
    def of(cls, directory: Path) -> "Recipe":
        """Recipe of a directory of `vestige train`.

        TrainingError if it is not that of a language model, or used a defence.
        """
        remedy = f"Pass a directory of `vestige train`. Otherwise: {BY_HAND}"
        file = directory / IDENTITY
        identity = read_json(file, _Identity, error=TrainingError, remedy=remedy, finite=False)
        try:
            config = TrainingConfig(**identity.config)
        except (ValueError, TypeError) as error:
            raise TrainingError(
                f"{directory} is not a repeatable training of a language model ({error})",
                remedy=remedy,
            ) from error
        if not identity.step.startswith("plain_step"):
            raise TrainingError(
                f"{directory} was trained with a defence; null models cannot repeat it",
                remedy=BY_HAND,
            )
        return cls(
            config=config,
            tokens=_tokens(directory, "training"),
            validation=_tokens(directory, "validation") if identity.validation is not None else 0,
            start=identity.start,
            adapter=adapter_in(directory / MODEL),
        )

    def seeded(self, seed: int) -> TrainingConfig:
        """Training configuration with another seed."""
        return replace(self.config, seed=seed)

    def started(self, before: LanguageModel, seed: int) -> LanguageModel:
        """Initial model of a repetition: the model before the update, or a fresh adapter on it.

        TrainingError if the update did not start from this model.
        """
        if self.adapter is None:
            if self.start not in (None, start_of(before)):
                raise TrainingError(
                    "AFTER did not start from the weights of BEFORE, so null models cannot "
                    "repeat its training",
                    remedy=f"Pass the model that --from named. {BY_HAND}",
                )
            return before
        from vestige.models.lora import adapter_like

        if not isinstance(before, HuggingFaceLanguageModel) or before.adapted:
            raise TrainingError(
                "AFTER is an adapter; BEFORE is not a whole Hugging Face model",
                remedy="Pass the base that it was trained on.",
            )
        with torch.random.fork_rng():
            torch.manual_seed(seed)
            return adapter_like(before, self.adapter)

    def repeat(
        self,
        place: Path,
        texts: Corpus,
        before: LanguageModel,
        *,
        seed: int,
        validation: Corpus | None = None,
        progress: Callable[[int, int], None],
    ) -> LanguageModel:
        """Repeat the training of the update on other text; see `snapshot`.

        The weights of `before` do not change; an adapter shares them. `progress` is called with
        (steps done, all steps).
        """
        start = partial(self.started, before, seed)
        return snapshot(
            place,
            texts,
            start=start if self.adapter else start(),
            base=before if self.adapter else None,
            vocabulary=before.vocabulary,
            config=self.seeded(seed),
            validation=validation,
            progress=lambda done, total, *_: progress(done, total),
        )


def _tokens(directory: Path, name: str) -> int:
    for place in (directory / DATA / name, directory / DATA):
        if (place / "encoded.json").is_file():
            return len(load_encoded(place).tokens)
    raise TrainingError(
        f"{directory} no longer has its encoded {name} text, so its size is unknown",
        remedy=BY_HAND,
    )


def adapter_in(folder: Path) -> Path | None:
    """The folder, if it holds an adapter."""
    return folder if (folder / ADAPTER_CONFIG).is_file() else None


def usual_config(model: LanguageModel, *, adapter: bool = False) -> TrainingConfig:
    """Default training of a model, or of an adapter on it, with separate documents."""
    length = min(LONGEST, model.longest or LONGEST)
    return replace(gentle(model, adapter=adapter), batching="documents", sequence_length=length)


# Trainings of other programs


class _Logged(Measurements):
    """A line of the trainer's log."""

    learning_rate: float | None = Field(default=None, ge=0, le=1e6)


class ForeignTraining(Measurements):
    """A training of another program, from `trainer_state.json`; 0 or None: unknown.

    Attributes:
        global_step: steps taken.
        epoch: passes over the data, fractional if the last was not finished.
        train_batch_size: texts per step; with gradient accumulation, per part of a step.
        num_input_tokens_seen: tokens of all epochs.
        log_history: learning rates.
    """

    global_step: Count
    epoch: float | None = Field(default=None, ge=0, le=1e6)
    train_batch_size: Count | None = None
    num_input_tokens_seen: Count | None = None
    log_history: list[_Logged] = Field(default_factory=list)

    @classmethod
    def of(cls, folder: Path) -> "ForeignTraining":
        """From the files of a model folder, or of its latest checkpoint."""
        file = _state_file(folder)
        if file is None:
            return cls(global_step=0)
        remedy = f"Move {file} elsewhere, and pass tokens, epochs and learning rate as options."
        return read_json(file, cls, error=TrainingError, remedy=remedy, finite=False)

    @property
    def settings(self) -> dict[str, Any]:
        """Settings of a `TrainingConfig`, by name; the learning rate is the highest."""
        settings = {
            "epochs": self._passes and max(1, round(self._passes)),
            "batch_size": self.train_batch_size,
            "learning_rate": max((own.learning_rate or 0.0 for own in self.log_history), default=0),
        }
        return {name: value for name, value in settings.items() if value}

    def tokens_of_text(self, *, epochs: int, batch_size: int, text_length: float) -> int | None:
        """Tokens of the training text: as recorded, or estimated from steps.

        `text_length` is the mean length of such a text, in tokens.
        """
        passes = self._passes or epochs
        if self.num_input_tokens_seen:
            return round(self.num_input_tokens_seen / passes)
        if not self.global_step:
            return None
        return round(self.global_step * batch_size / passes * text_length)

    @property
    def _passes(self) -> float | None:
        return self.epoch if self.epoch and self.epoch > _NO_PASS else None


def _state_file(folder: Path) -> Path | None:
    if (folder / STATE).is_file():
        return folder / STATE
    numbered = [
        (int(number), file)
        for file in folder.glob(f"checkpoint-*/{STATE}")
        if (number := file.parent.name.removeprefix("checkpoint-")).isdecimal()
    ]
    return max(numbered)[1] if numbered else None


# Texts of null models


def null_texts(
    corpus: Corpus,
    vocabulary: Vocabulary,
    sizes: list[int],
    *,
    seed: int,
    lengths: NDArray[np.int64] | None = None,
) -> list[Corpus]:
    """Disjoint random parts of a corpus with about `sizes` tokens, with ends of documents.

    `lengths` are the `text_lengths` of the corpus, if known. DataError if the corpus is too short.

    Example:
        >>> from vestige.data.vocabulary import WordVocabulary
        >>> corpus = Corpus.from_texts(["a b c"] * 6)
        >>> parts = null_texts(corpus, WordVocabulary.build(corpus), [8, 4, 0], seed=0)
        >>> [len(part) for part in parts]
        [2, 1, 0]
    """
    order = np.random.default_rng(seed).permutation(len(corpus))
    lengths = text_lengths(corpus, vocabulary) if lengths is None else lengths
    ends, position = [0], 0
    cumulative = np.concatenate([[0], np.cumsum(lengths[order])]) if len(corpus) else np.zeros(1)
    for size in sizes:
        # a part begins with a new document, and ends with the document that reaches its size
        target = cumulative[position] + size
        stop = int(np.searchsorted(cumulative, target)) if size else position
        if stop >= len(cumulative):
            raise DataError(
                f"the clean text has {int(cumulative[-1]):,} tokens; {len(sizes)} parts need "
                f"{sum(sizes):,}",
                remedy="Add text of the same kind, or train fewer null models.",
            )
        ends.append(stop)
        position = stop
    return [corpus.take(order[a:b]) for a, b in pairwise(ends)]


def text_lengths(corpus: Corpus, vocabulary: Vocabulary) -> NDArray[np.int64]:
    """(d,) tokens of each document, with its end."""
    return np.array(
        [len(ids) + 1 for texts in corpus.batches(1000) for ids in vocabulary.encode_batch(texts)],
        dtype=np.int64,
    )


def text_length(corpus: Corpus, vocabulary: Vocabulary, *, of: int = 1000) -> float:
    """Mean tokens of the first `of` documents, with their ends."""
    texts = list(corpus.take(range(min(of, len(corpus)))))
    encoded = vocabulary.encode_batch(texts)
    return 1 + sum(map(len, encoded)) / max(1, len(encoded))
