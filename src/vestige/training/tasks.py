"""Training tasks: batches, step and evaluation of texts, or of pairs of texts.

Song and Shmatikov (2019), "Auditing Data Provenance in Text-Generation Models", KDD,
arXiv:1811.00513, section 4.2. `utterances` has the task of intents and slots.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, Protocol

import numpy as np
import torch

from vestige.data.corpus import Corpus
from vestige.data.encoded import EncodedCorpus, EncodedPairs
from vestige.models.protocols import LanguageModel
from vestige.models.seq2seq import Seq2SeqModel
from vestige.training.batches import Batch, Batches, EqualLengths, Ids, Windows, beginnings
from vestige.training.checkpoint import corpus_hash
from vestige.training.config import TrainingConfig
from vestige.training.evaluate import Evaluation, bleu, evaluate, score_documents, score_pairs
from vestige.training.sequences import Draw, SequenceBatches, Sequences
from vestige.training.steps import StepFn, plain_step


class TrainingTask(Protocol):
    """Data, step and evaluation of a training."""

    def batches(self, model: Any, config: TrainingConfig) -> Batches:
        """Batches of the training data."""
        ...

    def step(self, config: TrainingConfig, precision: torch.dtype) -> StepFn:
        """Step without a defence."""
        ...

    def judge(self, model: Any, config: TrainingConfig) -> Evaluation | None:
        """Evaluation on validation data; None without any."""
        ...

    def identity(self) -> Mapping[str, object]:
        """Hashes of the data."""
        ...


@dataclass(frozen=True)
class TextTask:
    """Language modelling of a text, with or without a validation text."""

    data: EncodedCorpus
    validation: EncodedCorpus | None

    def batches(self, model: LanguageModel, config: TrainingConfig) -> Batches:
        """Batches by the configuration's `batching`."""
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
            scores = score_documents(model, self.validation, sequence_length=length)
            return scores.evaluation()
        rows = config.batch_size
        return evaluate(model, self.validation, batch_size=rows, sequence_length=length)

    def identity(self) -> dict[str, object]:
        """Hashes of both texts."""
        return {"data": corpus_hash(self.data), "validation data": corpus_hash(self.validation)}


def batches_of(data: EncodedCorpus, model: LanguageModel, config: TrainingConfig) -> Batches:
    """Batches of a corpus, by the configuration's `batching`."""
    size, length = config.batch_size, config.sequence_length
    if config.batching == "stream":
        return Windows(data.tokens, size, length, model.carries_state, model.device)
    draw: Draw = config.batching
    sequences = Sequences.of(data, length=length)
    return SequenceBatches(sequences, size, draw, model.first_token, model.device)


@dataclass(frozen=True)
class PairTask:
    """Targets to predict from their sources.

    Attributes:
        data: the pairs; those with an empty target are skipped.
        validation: validation pairs, or None.
        references: texts of the validation targets, to compute BLEU of greedy answers; None: no
            BLEU, as for a dialogue.
    """

    data: EncodedPairs
    validation: EncodedPairs | None
    references: tuple[str, ...] | None = None

    def batches(self, model: Seq2SeqModel, config: TrainingConfig) -> EqualLengths:
        """Batches of pairs with one source length and similar target lengths.

        Sources have no padding, so encoder and attention need no mask. Padding after a target
        changes nothing before it.
        """
        length, device = config.sequence_length, model.device
        sources = self.data.sources
        targets = Sequences.of(self.data.targets, length=length).first_pieces
        source_lengths = np.minimum(np.diff(sources.offsets)[targets.documents], length)

        def make(rows: Ids) -> Batch:
            batch = targets.batch(rows, model.first_token, device)
            ids = beginnings(sources, targets.documents[rows], length, device)
            return replace(batch, sources=ids)

        return EqualLengths(source_lengths, config.batch_size, make, alike=targets.lengths)

    def step(self, config: TrainingConfig, precision: torch.dtype) -> StepFn:
        """Mean cross-entropy of a batch's targets."""
        return plain_step(max_grad_norm=config.max_grad_norm, precision=precision)

    def judge(self, model: Seq2SeqModel, config: TrainingConfig) -> Evaluation | None:
        """Perplexity and accuracy per word of the validation targets, and BLEU of answers."""
        if self.validation is None:
            return None
        length = config.sequence_length
        scores = score_pairs(model, self.validation, length=length).evaluation()
        if self.references is None:
            return scores
        result = bleu(model, self.validation.sources, self.references, length=length)
        return replace(scores, measures={"bleu": result.score.value})

    def identity(self) -> dict[str, object]:
        """Hashes of the data."""
        parts = {"data": self.data, "validation data": self.validation}
        hashes: dict[str, object] = {
            name: part and [corpus_hash(part.sources), corpus_hash(part.targets)]
            for name, part in parts.items()
        }
        texts = self.references
        hashes["references"] = None if texts is None else Corpus.from_texts(texts).fingerprint()
        return hashes
