"""Training and evaluation of intent-and-slot models.

Parikh, Dupuy and Gupta (2022), "Canary Extraction in Natural Language Understanding Models",
section 6: accuracy of intents and F1 of slots.
"""

import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from vestige.data.utterances import IGNORED, EncodedUtterances, Utterances
from vestige.errors import TrainingError
from vestige.metrics.estimates import Interval, clopper_pearson, ratio_of_sums
from vestige.models.reading import evaluation_mode
from vestige.models.white_box import IntentSlotNetwork
from vestige.training.batches import EqualLengths, Ids, of_one_length
from vestige.training.config import TrainingConfig
from vestige.training.evaluate import Evaluation
from vestige.training.steps import StepFn, autocast, descend

ROWS = 512
"""Utterances read together in an evaluation."""


class UtteranceBatch(NamedTuple):
    """b utterances of t words: int64 inputs and tags (b, t), and intents (b,)."""

    inputs: Tensor
    tags: Tensor
    intents: Tensor

    @property
    def tokens(self) -> int:
        """Number of words."""
        return self.inputs.numel()


def batch_of(data: EncodedUtterances, chosen: Ids, device: torch.device) -> UtteranceBatch:
    """Batch of utterances of one length."""
    return UtteranceBatch(*(torch.from_numpy(part).to(device) for part in data.rows(chosen)))


@dataclass(frozen=True)
class UtteranceTask:
    """Intents and tags of utterances, with their joint loss, and optional validation utterances.

    `batches` raises TrainingError without utterances, or for labels that the model lacks.
    """

    data: EncodedUtterances
    validation: Utterances | None

    def batches(self, model: IntentSlotNetwork, config: TrainingConfig) -> EqualLengths:
        """Batches of one length, in a new order every epoch."""
        data = self.data
        if not len(data) or not data.known.all():
            lacking = int((~data.known).sum())
            raise TrainingError(
                f"{lacking} of {len(data)} utterances have an intent or tag that the model lacks"
                if len(data)
                else "There are no utterances to train on",
                remedy="Pass labelled utterances, and a model with their labels.",
            )
        device = model.device
        return EqualLengths(
            data.lengths, config.batch_size, lambda chosen: batch_of(data, chosen, device)
        )

    def step(self, config: TrainingConfig, precision: torch.dtype) -> StepFn:
        """The mean of the joint loss over a batch's utterances."""

        def utterance_step(model: Any, batch: Any, state: Any) -> tuple[Tensor, None]:
            with autocast(precision, batch.inputs.device):
                loss = model(batch.inputs, batch.intents, batch.tags).joint.mean()
            descend(model, loss, config.max_grad_norm)
            return loss.detach() / batch.inputs.shape[1], None

        return utterance_step

    def judge(self, model: IntentSlotNetwork, config: TrainingConfig) -> Evaluation | None:
        """Perplexity of the labels per word; accuracy is that of whole utterances."""
        if self.validation is None:
            return None
        scores = evaluate_utterances(model, self.validation)
        if scores.perplexity is None:
            raise TrainingError(
                "The model lacks the labels of all validation utterances",
                remedy="Pass validation data with the intents and tags of the training data.",
            )
        names = ("intent_accuracy", "slot_f1", "exact_match", "loss")
        return Evaluation(
            perplexity=scores.perplexity,
            accuracy=scores.exact_match,
            tokens=scores.utterances,
            measures={name: getattr(scores, name) for name in names},
        )

    def identity(self) -> dict[str, object]:
        """Hashes of both parts."""
        validation = self.validation
        return {
            "data": self.data.fingerprint(),
            "validation data": None if validation is None else validation.fingerprint(),
        }


class Predictions(NamedTuple):
    """Predictions for u utterances of n words.

    Attributes:
        intents: int64 (u,).
        tags: int64 (n,), in the order of the utterances' words.
        losses: float64 (u,) joint losses in nats; NaN if the model lacks a label.
    """

    intents: Ids
    tags: Ids
    losses: NDArray[np.float64]


@torch.no_grad()
def answer(model: IntentSlotNetwork, data: EncodedUtterances) -> Predictions:
    """Predictions for utterances, and losses of the true labels, without dropout."""
    known = data.known
    intents = np.zeros(len(data), np.int64)
    tags = np.zeros(len(data.tokens), np.int64)
    losses = np.full(len(data), np.nan)
    with evaluation_mode(model):
        for chosen in of_one_length(data.lengths, ROWS):
            batch = batch_of(data, chosen, model.device)
            predicted_intents, predicted_tags = model.predict(batch.inputs)
            intents[chosen] = predicted_intents.cpu().numpy()
            positions = data.offsets[chosen][:, None] + np.arange(batch.inputs.shape[1])
            tags[positions] = predicted_tags.cpu().numpy()
            if len(labelled := chosen[known[chosen]]):
                labelled_batch = batch_of(data, labelled, model.device)
                joint = model(
                    labelled_batch.inputs, labelled_batch.intents, labelled_batch.tags
                ).joint
                losses[labelled] = joint.double().cpu().numpy()
    return Predictions(intents, tags, losses)


@dataclass(frozen=True, kw_only=True)
class UtteranceScores:
    """Scores of a model on u utterances.

    Attributes:
        perplexity: exp of the joint loss per word, 1 if every label is certain; over utterances
            whose labels the model has; None if there are none.
        loss: mean joint loss of these utterances, in nats; None if there are none.
        intent_accuracy: share of correct intents, in [0, 1].
        slot_f1: micro-averaged F1 of whole slots, as in seqeval.
        exact_match: share of utterances with correct intent and tags.
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

    A label that the model lacks counts as wrong, and its utterance is excluded from loss and
    perplexity.

    Raises:
        TrainingError: there are no utterances.
    """
    return _scored(model, utterances)[0]


def score_with_intervals(
    model: IntentSlotNetwork, utterances: Utterances
) -> dict[str, float | None]:
    """Scores of `evaluate_utterances` by name, with 95 % intervals.

    Clopper-Pearson intervals over utterances; for slots that of a ratio of sums over utterances,
    None without slots or variation between utterances.
    """
    scores, answers = _scored(model, utterances)
    n = scores.utterances
    intervals = {
        "intent_accuracy": clopper_pearson(round(scores.intent_accuracy * n), n),
        "slot_f1": slot_f1_interval([utterance.tags for utterance in utterances], answers),
        "exact_match": clopper_pearson(round(scores.exact_match * n), n),
    }
    row: dict[str, float | None] = asdict(scores)
    for name, interval in intervals.items():
        row[f"{name}_low"], row[f"{name}_high"] = interval or (None, None)
    return row


def _scored(
    model: IntentSlotNetwork, utterances: Utterances
) -> tuple[UtteranceScores, list[list[str]]]:
    """Scores, and the predicted tags of each utterance."""
    from seqeval.metrics import f1_score

    data = model.encode(utterances)
    if not len(data):
        raise TrainingError("There are no utterances to score", remedy="Give some.")
    answers = answer(model, data)
    begins = data.tags != IGNORED
    names = np.array(data.labels.tags, dtype=object)[answers.tags[begins]]
    expected = [list(utterance.tags) for utterance in utterances]
    ends = np.cumsum([len(tags) for tags in expected])
    predicted = [list(tags) for tags in np.split(names, ends[:-1])]
    intents = answers.intents == data.intents
    tags = np.array(
        [
            predicted_tags == expected_tags
            for predicted_tags, expected_tags in zip(predicted, expected, strict=True)
        ]
    )
    known = data.known
    loss = float(answers.losses[known].sum())
    words = int(data.sums(begins)[known].sum())
    scores = UtteranceScores(
        perplexity=math.exp(min(loss / words, 700)) if words else None,
        loss=loss / int(known.sum()) if words else None,
        intent_accuracy=float(intents.mean()),
        slot_f1=float(f1_score(expected, predicted, zero_division=0)),
        exact_match=float((intents & tags).mean()),
        utterances=len(data),
    )
    return scores, predicted


def slot_f1_interval(
    expected: Sequence[Sequence[str]], predicted: Sequence[Sequence[str]]
) -> Interval | None:
    """The 95 % interval of the micro-averaged F1 of whole slots, within [0, 1].

    None without slots or variation between utterances.

    Example:
        >>> truth = [["B-city", "O"], ["O", "B-city"], ["B-city", "B-time"]]
        >>> [round(end, 2) for end in slot_f1_interval(truth, [truth[0], ["O", "O"], truth[2]])]
        [0.05, 1.0]
    """
    from seqeval.metrics.sequence_labeling import get_entities

    doubled_matches, slot_counts = [], []
    for truth, answer in zip(expected, predicted, strict=True):
        slots, predicted_slots = set(get_entities(list(truth))), set(get_entities(list(answer)))
        doubled_matches.append(2 * len(slots & predicted_slots))
        slot_counts.append(len(slots) + len(predicted_slots))
    if not sum(slot_counts):
        return None
    score = ratio_of_sums(doubled_matches, slot_counts)
    return None if score.low == score.high else score.within(0.0, 1.0).interval
