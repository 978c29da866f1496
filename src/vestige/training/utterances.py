"""Training and evaluation of intent-and-slot models.

Batches hold utterances of one length, so that nothing is padded and nothing has to be masked; at
equal work that is more than twice as fast as packed sequences.
"""

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from vestige.data.utterances import IGNORED, EncodedUtterances, Utterances
from vestige.errors import TrainingError
from vestige.models.white_box import IntentSlotNetwork
from vestige.training.config import TrainingConfig
from vestige.training.evaluate import Evaluation
from vestige.training.precision import autocast
from vestige.training.steps import StepFn, descend

ROWS = 512
"""Utterances that are read together where nothing is learnt."""


@dataclass(frozen=True)
class UtteranceBatch:
    """Utterances of one length.

    Attributes:
        inputs: int64 (b, t) words.
        tags: int64 (b, t).
        intents: int64 (b,).
    """

    inputs: Tensor
    tags: Tensor
    intents: Tensor

    @property
    def tokens(self) -> int:
        """Number of words."""
        return self.inputs.numel()


@dataclass(frozen=True)
class UtteranceBatches:
    """Utterances in batches of one length each, in another order every epoch.

    Attributes:
        data: the utterances.
        batch_size: largest number in a batch.
        device: where batches are put.

    Raises:
        TrainingError: there are none, or one has a label that the model lacks.
    """

    data: EncodedUtterances
    batch_size: int
    device: torch.device
    carries: ClassVar[bool] = False

    def __post_init__(self) -> None:
        if not len(self.data) or not self.data.known.all():
            lacking = int((~self.data.known).sum())
            raise TrainingError(
                f"{lacking} of {len(self.data)} utterances have an intent or tag that the model "
                "lacks"
                if len(self.data)
                else "There are no utterances to train on",
                remedy="Pass labelled utterances, and a model with their labels.",
            )

    def __len__(self) -> int:
        """Batches in an epoch."""
        _, counts = np.unique(self.data.lengths, return_counts=True)
        return int(np.ceil(counts / self.batch_size).sum())

    def epoch(self, seed: int, number: int, *, first: int = 0) -> Iterator[UtteranceBatch]:
        """The batches of an epoch, from batch `first` on.

        Args:
            seed: with the epoch's number it decides who stands with whom, and in what order.
            number: the epoch, from 0.
            first: batches already read, when a training is resumed.
        """
        generator = np.random.default_rng([seed, number])
        groups = of_one_length(
            self.data.lengths, self.batch_size, generator.permutation(len(self.data))
        )
        for index in generator.permutation(len(groups))[first:]:
            yield batch_of(self.data, groups[index], self.device)


@dataclass(frozen=True, kw_only=True)
class UtteranceScores:
    """How well a model understands u utterances.

    Attributes:
        perplexity: exp of the joint loss a word, 1 where every label is certain; of those
            utterances whose labels the model has, None where there are none.
        loss: mean of their joint losses, in nats an utterance; None likewise.
        intent_accuracy: share of right intents, in [0, 1].
        slot_f1: micro-averaged F1 of whole slots, as seqeval counts them.
        exact_match: share of utterances whose intent and tags are all right.
        utterances: u.
    """

    perplexity: float | None
    loss: float | None
    intent_accuracy: float
    slot_f1: float
    exact_match: float
    utterances: int


def evaluate_utterances(model: IntentSlotNetwork, utterances: Utterances) -> UtteranceScores:
    """Score a model on labelled utterances, in float32 and without dropout.

    A label that the model does not have counts as a wrong answer, and its utterance is left out
    of loss and perplexity.

    Raises:
        TrainingError: there are no utterances.
    """
    return score(model, utterances, model.encode(utterances))


def score(
    model: IntentSlotNetwork, utterances: Utterances, data: EncodedUtterances
) -> UtteranceScores:
    """`evaluate_utterances` of utterances that are encoded already."""
    from seqeval.metrics import f1_score

    if not len(data):
        raise TrainingError("There are no utterances to score", remedy="Give some.")
    answers = answer(model, data)
    begins = data.tags != IGNORED
    names = np.array(data.labels.tags, dtype=object)[answers.tags[begins]]
    expected = [list(utterance.tags) for utterance in utterances]
    ends = np.cumsum([len(tags) for tags in expected])
    given = [list(tags) for tags in np.split(names, ends[:-1])]
    intents = answers.intents == data.intents
    tags = np.array([one == other for one, other in zip(given, expected, strict=True)])
    known = data.known
    loss = float(answers.losses[known].sum())
    words = int(data.sums(begins)[known].sum())
    return UtteranceScores(
        perplexity=math.exp(min(loss / words, 700)) if words else None,
        loss=loss / int(known.sum()) if words else None,
        intent_accuracy=float(intents.mean()),
        slot_f1=float(f1_score(expected, given, zero_division=0)),
        exact_match=float((intents & tags).mean()),
        utterances=len(data),
    )


@torch.no_grad()
def answer(model: IntentSlotNetwork, data: EncodedUtterances) -> "Predictions":
    """Predictions for utterances, and the losses of the right labels."""
    was_training = model.training
    model.eval()
    known = data.known
    intents = np.zeros(len(data), np.int64)
    tags = np.zeros(len(data.tokens), np.int64)
    losses = np.full(len(data), np.nan)
    for chosen in of_one_length(data.lengths, ROWS):
        batch = batch_of(data, chosen, model.device)
        found, tagged = model.predict(batch.inputs)
        intents[chosen] = found.cpu().numpy()
        places = data.offsets[chosen][:, None] + np.arange(batch.inputs.shape[1])
        tags[places] = tagged.cpu().numpy()
        right = batch_of(data, chosen[known[chosen]], model.device) if known[chosen].any() else None
        if right is not None:
            joint = model(right.inputs, right.intents, right.tags).joint
            losses[chosen[known[chosen]]] = joint.double().cpu().numpy()
    model.train(was_training)
    return Predictions(intents, tags, losses)


@dataclass(frozen=True)
class Predictions:
    """Predictions for u utterances of n words.

    Attributes:
        intents: int64 (u,).
        tags: int64 (n,), in the order of the utterances' words.
        losses: float64 (u,) joint losses in nats; NaN where the model lacks a label.
    """

    intents: NDArray[np.int64]
    tags: NDArray[np.int64]
    losses: NDArray[np.float64]


def of_one_length(
    lengths: NDArray[np.int64], size: int, order: NDArray[np.int64] | None = None
) -> list[NDArray[np.int64]]:
    """Utterances in groups of one length, at most `size` in each, short ones first."""
    order = np.arange(len(lengths)) if order is None else order
    order = order[np.argsort(lengths[order], kind="stable")]
    ends = np.flatnonzero(np.diff(lengths[order])) + 1
    return [
        group[begin : begin + size]
        for group in np.split(order, ends)
        for begin in range(0, len(group), size)
    ]


def batch_of(
    data: EncodedUtterances, chosen: NDArray[np.int64], device: torch.device
) -> UtteranceBatch:
    """Batch of utterances of one length."""
    tokens, tags, intents = (torch.from_numpy(part).to(device) for part in data.rows(chosen))
    return UtteranceBatch(tokens, tags, intents)


@dataclass(frozen=True)
class UtteranceTask:
    """Intents and tags of utterances, with their joint loss.

    Attributes:
        data: utterances as the model reads them.
        validation: utterances to be judged by, or None.
    """

    data: EncodedUtterances
    validation: Utterances | None

    def batches(self, model: IntentSlotNetwork, config: TrainingConfig) -> UtteranceBatches:
        """Batches of one length, in a new order every epoch."""
        return UtteranceBatches(self.data, config.batch_size, model.device)

    def step(self, config: TrainingConfig, precision: torch.dtype) -> StepFn:
        """The mean of the joint loss over a batch's utterances."""

        def utterance_step(model: Any, batch: Any, state: Any) -> tuple[Tensor, None]:
            with autocast(precision, batch.inputs.device):
                loss = model(batch.inputs, batch.intents, batch.tags).joint.mean()
            descend(model, loss, config.max_grad_norm)
            return loss.detach() / batch.inputs.shape[1], None

        return utterance_step

    def judge(self, model: IntentSlotNetwork, config: TrainingConfig) -> Evaluation | None:
        """Perplexity of the labels a word; accuracy is that of whole utterances."""
        if self.validation is None:
            return None
        scores = evaluate_utterances(model, self.validation)
        if scores.perplexity is None:
            raise TrainingError(
                "The model lacks the labels of all validation utterances",
                remedy="Pass validation data with the intents and tags of the training data.",
            )
        measures = {"intent_accuracy": scores.intent_accuracy, "slot_f1": scores.slot_f1}
        return Evaluation(
            perplexity=scores.perplexity,
            accuracy=scores.exact_match,
            tokens=scores.utterances,
            measures={**measures, "exact_match": scores.exact_match, "loss": scores.loss},
        )

    def identity(self) -> dict[str, object]:
        """Hashes of both parts."""
        held = self.validation
        return {
            "data": self.data.fingerprint(),
            "validation data": None if held is None else held.fingerprint(),
        }
