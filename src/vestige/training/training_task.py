"""Training tasks: data, step and evaluation of a training.

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
    """Data, step and evaluation of a training."""

    def batches(self, model: Any, config: TrainingConfig) -> Batches:
        """Batches of the training data."""
        ...

    def step(self, config: TrainingConfig, precision: torch.dtype) -> StepFn:
        """Undefended step."""
        ...

    def judge(self, model: Any, config: TrainingConfig) -> Evaluation | None:
        """Evaluation on validation data; None without any."""
        ...

    def identity(self) -> Mapping[str, object]:
        """Hashes of the data."""
        ...


@dataclass(frozen=True)
class TextTask:
    """Language modelling of a text.

    Attributes:
        data: the text.
        validation: text to be judged by, or None.
    """

    data: EncodedCorpus
    validation: EncodedCorpus | None

    def batches(self, model: LanguageModel, config: TrainingConfig) -> Batches:
        """Batches of the training data."""
        return batches_of(self.data, model, config)

    def step(self, config: TrainingConfig, precision: torch.dtype) -> StepFn:
        """Mean cross-entropy."""
        return plain_step(max_grad_norm=config.max_grad_norm, precision=precision)

    def judge(self, model: LanguageModel, config: TrainingConfig) -> Evaluation | None:
        """Scores on the validation text, in the order of training."""
        if self.validation is None:
            return None
        length = config.sequence_length
        if config.batching != "stream":
            return evaluate_documents(model, self.validation, sequence_length=length)
        rows = config.batch_size
        return evaluate(model, self.validation, batch_size=rows, sequence_length=length)

    def identity(self) -> dict[str, object]:
        """Hashes of both texts."""
        held = self.validation
        return {
            "data": corpus_hash(self.data),
            "validation data": None if held is None else corpus_hash(held),
        }


def batches_of(data: EncodedCorpus, model: LanguageModel, config: TrainingConfig) -> Batches:
    """Batches of a corpus, by the configuration's `batching`."""
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
