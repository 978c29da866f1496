"""Null models: the training of an update, repeated on clean text.

A null model is made as an update was, from text that has nothing of what the update may have
revealed: the same start and settings, as many tokens, another seed. `attacks.chance` says what a
number of them is good for.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from pydantic import Field

from vestige import _validate
from vestige.data.corpus import Corpus
from vestige.data.encoded import load_encoded
from vestige.data.files import Measurements, read_json
from vestige.data.vocabulary import Vocabulary
from vestige.errors import DataError, TrainingError
from vestige.models.folders import ADAPTER_CONFIG
from vestige.models.protocols import LanguageModel
from vestige.training.checkpoint import IDENTITY, MODEL, identity
from vestige.training.config import TrainingConfig

START = "model weights at the start"
BY_HAND = "Train each null model with `vestige train --from`, on other text and with another seed."


class _Identity(Measurements):
    """Schema of the parts of a training's identity that a null model needs."""

    config: dict[str, Any]
    step: str
    start: str = Field(alias="model weights at the start")
    validation: Any = Field(alias="validation data")


@dataclass(frozen=True, kw_only=True)
class Recipe:
    """Training recipe of an update.

    Attributes:
        config: its training; a null model has another seed.
        tokens: that it read, ends of documents counted.
        validation: tokens that chose its epoch, 0 for none.
        start: hash of the weights that it started from; None where nothing tells.
        adapter: folder of its adapter, None where all weights were trained.
    """

    config: TrainingConfig
    tokens: int
    validation: int = 0
    start: str | None = None
    adapter: Path | None = None

    @classmethod
    def of(cls, directory: Path) -> "Recipe":
        """Recipe of a directory of `vestige train`.

        Raises:
            TrainingError: it is none of a language model's, or a defence made its steps.
        """
        file = directory / IDENTITY
        remedy = f"Pass a directory of `vestige train`. Otherwise: {BY_HAND}"
        told = read_json(file, _Identity, error=TrainingError, remedy=remedy, finite=False)
        try:
            config = TrainingConfig(**told.config)
        except (ValueError, TypeError) as error:
            raise TrainingError(
                f"{directory} is not a repeatable training of a language model ({error})",
                remedy=remedy,
            ) from error
        if not told.step.startswith("plain_step"):
            raise TrainingError(
                f"{directory} was trained with a defence; null models cannot repeat it",
                remedy=BY_HAND,
            )
        return cls(
            config=config,
            tokens=_tokens(directory, "training"),
            validation=_tokens(directory, "validation") if told.validation is not None else 0,
            start=told.start,
            adapter=adapter_in(directory / MODEL),
        )

    def seeded(self, seed: int) -> TrainingConfig:
        """Training configuration with another seed."""
        return replace(self.config, seed=seed)

    def started(self, before: LanguageModel, seed: int) -> LanguageModel:
        """Initial model of a null training: the model before the update, or a fresh adapter.

        Raises:
            TrainingError: the update did not start from this model.
        """
        if self.adapter is None:
            if self.start not in (None, identity(before, {})[START]):
                raise TrainingError(
                    "AFTER did not start from the weights of BEFORE, so null models cannot "
                    "repeat its training",
                    remedy=f"Pass the model that --from named. {BY_HAND}",
                )
            return before
        return _adapted(before, self.adapter, seed)

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
        """Train the model before the update as the update was, on other text.

        Args:
            place: folder of the training: an unfinished one resumes, a finished one is loaded.
            texts: to train on.
            before: its weights are left as they are, and an adapter shares them.
            seed: of the training and of a fresh adapter.
            validation: decides which epoch is kept.
            progress: called with (steps done, all steps).

        Raises:
            TrainingError: the update did not start from this model.
        """
        from vestige.training.snapshot import snapshot

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


def null_texts(
    corpus: Corpus,
    vocabulary: Vocabulary,
    sizes: list[int],
    *,
    seed: int,
    lengths: NDArray[np.int64] | None = None,
) -> list[Corpus]:
    """Disjoint random parts of a corpus, of about so many tokens each.

    Args:
        corpus: clean text.
        vocabulary: for counting tokens.
        sizes: tokens of each part, ends of documents counted; 0 for none.
        seed: decides which documents.
        lengths: `text_lengths` of the corpus, if they are known.

    Raises:
        DataError: the corpus has fewer tokens than asked for.

    Example:
        >>> from vestige.data.vocabulary import WordVocabulary
        >>> corpus = Corpus.from_texts(["a b c"] * 6)
        >>> parts = null_texts(corpus, WordVocabulary.build(corpus), [8, 4, 0], seed=0)
        >>> [len(part) for part in parts]
        [2, 1, 0]
    """
    _validate.at_least(0, sizes=min(sizes, default=0))
    order = np.random.default_rng(seed).permutation(len(corpus))
    lengths = text_lengths(corpus, vocabulary) if lengths is None else lengths
    ends, done = [0], 0
    reached = np.concatenate([[0], np.cumsum(lengths[order])]) if len(corpus) else np.zeros(1)
    for size in sizes:
        # each part begins with a new document, and ends with the one that fills it
        stop = done if not size else int(np.searchsorted(reached, reached[done] + size))
        if stop >= len(reached):
            raise DataError(
                f"the clean text has {int(reached[-1]):,} tokens; {len(sizes)} parts need "
                f"{sum(sizes):,}",
                remedy="Add text of the same kind, or train fewer null models.",
            )
        ends.append(stop)
        done = stop
    return [corpus.take(order[a:b]) for a, b in pairwise(ends)]


def text_lengths(corpus: Corpus, vocabulary: Vocabulary) -> NDArray[np.int64]:
    """(d,) tokens of each document, its end counted."""
    return np.array(
        [len(ids) + 1 for texts in corpus.batches(1000) for ids in vocabulary.encode_batch(texts)],
        dtype=np.int64,
    )


def text_length(corpus: Corpus, vocabulary: Vocabulary, *, of: int = 1000) -> float:
    """Tokens of a document on average, its end counted, of the first so many."""
    texts = list(corpus.take(range(min(of, len(corpus)))))
    encoded = vocabulary.encode_batch(texts)
    return 1 + sum(map(len, encoded)) / max(1, len(encoded))


def _tokens(directory: Path, name: str) -> int:
    for place in (directory / "data" / name, directory / "data"):
        if (place / "encoded.json").is_file():
            return len(load_encoded(place).tokens)
    raise TrainingError(
        f"{directory} no longer has its encoded {name} text, so its size is unknown",
        remedy=BY_HAND,
    )


def adapter_in(folder: Path) -> Path | None:
    """The folder, if it holds an adapter."""
    return folder if (folder / ADAPTER_CONFIG).is_file() else None


def _adapted(before: LanguageModel, adapter: Path, seed: int) -> LanguageModel:
    import torch

    from vestige.models.hugging_face import HuggingFaceLanguageModel
    from vestige.models.lora import adapter_like

    if not isinstance(before, HuggingFaceLanguageModel) or before.adapted:
        raise TrainingError(
            "AFTER is an adapter; BEFORE is not a whole Hugging Face model",
            remedy="Pass the base that it was trained on.",
        )
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        return adapter_like(before, adapter)
