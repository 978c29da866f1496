"""What a training learns from and is judged by: a text, or whatever else there is to learn.

The loop knows batches, a loss and a score that gets better as it falls; a lesson says what they
are.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Protocol

import torch

from vestige.data.encoded import EncodedCorpus
from vestige.models.protocols import LanguageModel
from vestige.training.batches import Batches, Windows
from vestige.training.checkpoint import corpus_hash
from vestige.training.config import TrainingConfig
from vestige.training.evaluate import Evaluation, evaluate, evaluate_documents
from vestige.training.sequences import Draw, SequenceBatches, Sequences
from vestige.training.steps import StepFn, plain_step


class TrainingTask(Protocol):
    """One training's material."""

    def batches(self, model: Any, config: TrainingConfig) -> Batches:
        """What the training reads."""
        ...

    def step(self, config: TrainingConfig, precision: torch.dtype) -> StepFn:
        """How a batch becomes a gradient where no defence says otherwise."""
        ...

    def judge(self, model: Any, config: TrainingConfig) -> Evaluation | None:
        """How well the model does on validation data; None where there is none."""
        ...

    def identity(self) -> Mapping[str, object]:
        """Hashes of all that is read."""
        ...


@dataclass(frozen=True)
class TextTask:
    """A text to predict.

    Attributes:
        data: the text.
        validation: text to be judged by, or None.
    """

    data: EncodedCorpus
    validation: EncodedCorpus | None

    def batches(self, model: LanguageModel, config: TrainingConfig) -> Batches:
        """What a training of this configuration reads."""
        return batches_of(self.data, model, config)

    def step(self, config: TrainingConfig, precision: torch.dtype) -> StepFn:
        """Mean cross-entropy."""
        return plain_step(max_grad_norm=config.max_grad_norm, precision=precision)

    def judge(self, model: LanguageModel, config: TrainingConfig) -> Evaluation | None:
        """What the model scores on the validation text, read as the training reads its own."""
        if self.validation is None:
            return None
        score = evaluate if config.batching == "stream" else evaluate_documents
        return score(
            model,
            self.validation,
            batch_size=config.batch_size,
            sequence_length=config.sequence_length,
        )

    def identity(self) -> dict[str, object]:
        """Hashes of both texts."""
        held = self.validation
        return {
            "data": corpus_hash(self.data),
            "validation data": None if held is None else corpus_hash(held),
        }


def batches_of(data: EncodedCorpus, model: LanguageModel, config: TrainingConfig) -> Batches:
    """What a training of this configuration reads, as its `batching` says."""
    if config.batching == "stream":
        return Windows(
            data.tokens,
            config.batch_size,
            config.sequence_length,
            model.carries_state,
            model.device,
        )
    sequences = Sequences.of(data, length=config.sequence_length)
    draw: Draw = config.batching
    return SequenceBatches(sequences, config.batch_size, draw, model.first_token, model.device)
