"""Perplexity and next-word accuracy of a language model."""

import math
from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn.functional import cross_entropy

from vestige import _validate
from vestige.data.encoded import EncodedCorpus
from vestige.errors import TrainingError
from vestige.models.protocols import LanguageModel
from vestige.training.batches import IGNORED, every_token
from vestige.training.sequences import Sequences


@dataclass(frozen=True, kw_only=True)
class Evaluation:
    """Perplexity and accuracy on a text.

    Attributes:
        perplexity: exp of the mean negative log-probability, at least 1; inf past float range.
        accuracy: share of tokens that were the model's first choice, in [0, 1].
        tokens: predicted tokens, n - 1 for a text of n.
        measures: further measures, by name.
    """

    perplexity: float
    accuracy: float
    tokens: int
    measures: Mapping[str, float | None] = field(default_factory=dict)


@torch.no_grad()
def evaluate(
    model: LanguageModel, data: EncodedCorpus, *, batch_size: int = 20, sequence_length: int = 35
) -> Evaluation:
    r"""Score every token of a text but the first, in float32.

    .. math:: \mathrm{perplexity} = \exp\left(-\frac{1}{n-1}\sum_{i=2}^{n}\ln p(s_i|c_i)\right)

    The context c_i of a model that carries a state begins at its row (the stream is read in
    `batch_size` rows); that of any other model begins at its window.

    Raises:
        TrainingError: there is nothing to predict.
    """
    _validate.at_least(1, batch_size=batch_size, sequence_length=sequence_length)
    if len(data.tokens) < 2:
        raise TrainingError(
            f"A text of {len(data.tokens)} tokens is too short to evaluate on",
            remedy="Evaluate on more text.",
        )
    was_training = model.training
    model.eval()
    batches = every_token(
        data.tokens, batch_size=batch_size, sequence_length=sequence_length, device=model.device
    )
    loss = torch.zeros((), dtype=torch.float64, device=model.device)
    right = torch.zeros((), dtype=torch.int64, device=model.device)
    state = None
    for batch in batches:
        logits, carried = model(batch.inputs, state)
        state = carried if model.carries_state else None
        logits, targets = logits.flatten(0, 1).float(), batch.targets.flatten()
        loss += cross_entropy(logits, targets, ignore_index=IGNORED, reduction="sum")
        right += (logits.argmax(1) == targets).sum()
    model.train(was_training)
    return _evaluation(loss.item(), int(right.item()), len(data.tokens) - 1)


@dataclass(frozen=True, kw_only=True)
class DocumentScores:
    """Scores of d documents, each read by itself.

    Attributes:
        loss: float64 (d,) summed negative log-probability, in nats.
        right: int64 (d,) tokens that were the model's first choice.
        tokens: int64 (d,) predicted tokens, the end of the text counted; 0 for an empty document.
    """

    loss: NDArray[np.float64]
    right: NDArray[np.int64]
    tokens: NDArray[np.int64]

    def evaluation(self) -> Evaluation:
        """Perplexity and accuracy over all tokens of all documents.

        Raises:
            TrainingError: there is none.
        """
        tokens = int(self.tokens.sum())
        if not tokens:
            raise TrainingError(
                "There are no tokens to evaluate on", remedy="Evaluate on more text."
            )
        return _evaluation(float(self.loss.sum()), int(self.right.sum()), tokens)


def evaluate_documents(
    model: LanguageModel, data: EncodedCorpus, *, batch_size: int = 64, sequence_length: int = 64
) -> Evaluation:
    """Perplexity and accuracy over all tokens of documents, each read by itself.

    Raises:
        TrainingError: there is nothing to predict.
    """
    scores = score_documents(model, data, batch_size=batch_size, sequence_length=sequence_length)
    return scores.evaluation()


@torch.no_grad()
def score_documents(
    model: LanguageModel, data: EncodedCorpus, *, batch_size: int = 64, sequence_length: int = 64
) -> DocumentScores:
    """Score every token of every document in float32, each document by itself.

    Args:
        model: anything that was trained on documents, or on a stream of them.
        data: the documents.
        batch_size: pieces read together; they are sorted by length, so that little is padding.
        sequence_length: tokens of a piece: longer documents are read in several, each from the
            beginning of a text.

    Raises:
        TrainingError: no document has a word in it.
    """
    sequences = Sequences.of(data, length=sequence_length)
    loss, right = np.zeros(len(data)), np.zeros(len(data), np.int64)
    order = np.argsort(sequences.lengths, kind="stable")
    was_training = model.training
    model.eval()
    for begin in range(0, len(order), batch_size):
        chosen = order[begin : begin + batch_size]
        batch = sequences.batch(chosen, model.first_token, model.device)
        losses, hits = score_rows(model(batch.inputs, None)[0], batch.targets)
        np.add.at(loss, sequences.documents[chosen], losses)
        np.add.at(right, sequences.documents[chosen], hits)
    model.train(was_training)
    tokens = np.zeros(len(data), np.int64)
    np.add.at(tokens, sequences.documents, sequences.lengths)
    return DocumentScores(loss=loss, right=right, tokens=tokens)


def score_rows(logits: Tensor, targets: Tensor) -> tuple[NDArray[np.float64], NDArray[np.int64]]:
    """Summed negative log-probability in nats, and right first choices, of each row.

    Args:
        logits: (b, t, v).
        targets: (b, t); IGNORED ones count for nothing.

    Returns:
        two (b,) arrays.
    """
    logits = logits.float()
    losses = cross_entropy(
        logits.flatten(0, 1), targets.flatten(), ignore_index=IGNORED, reduction="none"
    )
    hits = (logits.argmax(2) == targets).sum(1)
    return losses.view(targets.shape).double().sum(1).cpu().numpy(), hits.cpu().numpy()


def _evaluation(loss: float, right: int, tokens: int) -> Evaluation:
    mean = loss / tokens
    perplexity = math.exp(mean) if mean < 700 else mean + math.inf  # NaN stays NaN
    return Evaluation(perplexity=perplexity, accuracy=right / tokens, tokens=tokens)
