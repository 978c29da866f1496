"""Training and evaluation of sequence-to-sequence models.

Song and Shmatikov (2019), "Auditing Data Provenance in Text-Generation Models", KDD,
arXiv:1811.00513, section 4.2: word accuracy and perplexity over all tokens of all targets.

A batch holds sources of one length and targets of about one: no source is padded, so that nothing
has to be masked in encoder or attention, and what little padding stands behind a target changes
nothing before it.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import Any, ClassVar

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from vestige import _validate
from vestige.data.corpus import Corpus
from vestige.data.encoded import EncodedPairs
from vestige.models.seq2seq import Seq2SeqModel
from vestige.training.batches import Batch
from vestige.training.checkpoint import corpus_hash
from vestige.training.config import TrainingConfig
from vestige.training.evaluate import Evaluation, score_pairs
from vestige.training.precision import autocast
from vestige.training.sequences import Sequences
from vestige.training.steps import StepFn, descend, read
from vestige.training.translations import bleu
from vestige.training.utterances import of_one_length


@dataclass(frozen=True)
class PairBatch:
    """Pairs whose sources have one length.

    Attributes:
        sources: int64 (b, s).
        answers: the targets, padded on the right.
    """

    sources: Tensor
    answers: Batch

    @property
    def tokens(self) -> int:
        """Targets that count."""
        return self.answers.tokens


@dataclass(frozen=True)
class PairBatches:
    """Pairs in batches of one source length each, in another order every epoch.

    Attributes:
        pairs: to read; a pair without a word in its target is left out.
        batch_size: largest number in a batch.
        length: tokens that are read of a source and of a target at most.
        first: the token that is read before a target's first.
        device: where batches are put.

    Raises:
        TrainingError: no target has a word in it.
    """

    pairs: EncodedPairs
    batch_size: int
    length: int
    first: int
    device: torch.device
    carries: ClassVar[bool] = False

    def __post_init__(self) -> None:
        _validate.at_least(1, batch_size=self.batch_size, length=self.length)
        _ = self.targets

    @cached_property
    def targets(self) -> Sequences:
        """First pieces of all targets that have a word."""
        data = self.pairs.targets
        pieces = Sequences.of(data, length=self.length)
        begins = pieces.starts == data.offsets[pieces.documents]
        parts = (pieces.starts, pieces.lengths, pieces.documents)
        return Sequences(data, *(part[begins] for part in parts))

    @cached_property
    def source_lengths(self) -> NDArray[np.int64]:
        """(n,) tokens read of each source."""
        lengths = np.diff(self.pairs.sources.offsets)[self.targets.documents]
        return np.minimum(lengths, self.length)

    def __len__(self) -> int:
        """Batches in an epoch."""
        _, counts = np.unique(self.source_lengths, return_counts=True)
        return int(np.ceil(counts / self.batch_size).sum())

    def epoch(self, seed: int, number: int, *, first: int = 0) -> Iterator[PairBatch]:
        """The batches of an epoch, from batch `first` on.

        Args:
            seed: with the epoch's number it decides who stands with whom, and in what order.
            number: the epoch, from 0.
            first: batches already read, when a training is resumed.
        """
        generator = np.random.default_rng([seed, number])
        groups = self.groups(generator.permutation(len(self.targets)))
        for index in generator.permutation(len(groups))[first:]:
            yield self.batch(groups[index])

    def groups(self, order: NDArray[np.int64] | None = None) -> list[NDArray[np.int64]]:
        """Groups of places among `targets`, of one source length and similar target lengths."""
        order = np.arange(len(self.targets)) if order is None else order
        order = order[np.argsort(self.targets.lengths[order], kind="stable")]
        return of_one_length(self.source_lengths, self.batch_size, order)

    def batch(self, chosen: NDArray[np.int64]) -> PairBatch:
        """Batch of pairs, given as places among `targets`, whose sources have one length."""
        data, documents = self.pairs.sources, self.targets.documents[chosen]
        places = data.offsets[documents][:, None] + np.arange(self.source_lengths[chosen[0]])
        sources = torch.from_numpy(data.tokens[places].astype(np.int64))
        return PairBatch(
            sources.to(self.device, non_blocking=True),
            self.targets.batch(chosen, self.first, self.device),
        )


def pair_step(
    *, max_grad_norm: float | None = None, precision: torch.dtype = torch.float32
) -> StepFn:
    """The step of an undefended training of pairs: mean cross-entropy over a batch's targets.

    Args:
        max_grad_norm: the L2 norm that the gradient is cut to; None leaves it.
        precision: of the forward pass; parameters and gradients stay what they are.
    """

    def step(model: Any, batch: Any, state: Any) -> tuple[Tensor, None]:
        with autocast(precision, batch.sources.device):
            loss = read(model.reading(batch.sources), batch.answers).loss
        descend(model, loss, max_grad_norm)
        return loss.detach(), None

    return step


@dataclass(frozen=True)
class PairTask:
    """Targets to predict from their sources.

    Attributes:
        data: the pairs.
        validation: pairs to be judged by, or None.
        references: the texts of the validation's targets, where greedy answers are scored
            with BLEU; None where not, as in a dialogue.
    """

    data: EncodedPairs
    validation: EncodedPairs | None
    references: tuple[str, ...] | None = None

    def batches(self, model: Seq2SeqModel, config: TrainingConfig) -> PairBatches:
        """Batches of one source length, in a new order every epoch."""
        return PairBatches(
            self.data, config.batch_size, config.sequence_length, model.first_token, model.device
        )

    def step(self, config: TrainingConfig, precision: torch.dtype) -> StepFn:
        """Mean cross-entropy."""
        return pair_step(max_grad_norm=config.max_grad_norm, precision=precision)

    def judge(self, model: Seq2SeqModel, config: TrainingConfig) -> Evaluation | None:
        """Perplexity and accuracy a word of the validation's targets, and BLEU where asked."""
        if self.validation is None:
            return None
        scores = score_pairs(model, self.validation, length=config.sequence_length).evaluation()
        if self.references is None:
            return scores
        found = bleu(model, self.validation.sources, self.references, length=config.sequence_length)
        return Evaluation(
            perplexity=scores.perplexity,
            accuracy=scores.accuracy,
            tokens=scores.tokens,
            measures={"bleu": found.score.value},
        )

    def identity(self) -> dict[str, object]:
        """Hashes of the data."""
        parts = {"data": self.data, "validation data": self.validation}
        hashes: dict[str, object] = {
            name: None if part is None else [corpus_hash(part.sources), corpus_hash(part.targets)]
            for name, part in parts.items()
        }
        texts = self.references
        hashes["references"] = None if texts is None else Corpus.from_texts(texts).fingerprint()
        return hashes
