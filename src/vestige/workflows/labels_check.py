"""Whether an intent-and-slot model labels utterances better than their most frequent labels."""

from collections import Counter
from collections.abc import Sequence
from math import sqrt
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from vestige.claims import Check

if TYPE_CHECKING:
    from vestige.data.utterances import Utterances
    from vestige.models.white_box import IntentSlotNetwork

Floats = NDArray[np.float64]

MOST = 200
"""Utterances that are labelled."""


def labels_check(
    models: "Sequence[IntentSlotNetwork]", utterances: "Utterances | None"
) -> tuple[Check, ...]:
    """The check "alive" of each model, on labelled utterances beside the manifest.

    Of each utterance the share of right labels, intent and tags alike, is compared with the share
    that the most frequent intent and tag have.
    """
    if utterances is None or len(utterances) < 2:
        told = "There are no labelled utterances beside the manifest to test the model with."
        return (Check("alive", "could not run", told),)
    from vestige.data.utterances import Utterances

    step = -(-len(utterances) // MOST)
    some = Utterances.of(list(utterances)[::step])
    frequent = _frequent(some)
    return tuple(
        _alive(model, some, frequent, "the model" if len(models) == 1 else f"model {number}")
        for number, model in enumerate(models, 1)
    )


def _frequent(utterances: "Utterances") -> Floats:
    """(u,) shares of right labels that the most frequent intent and tag give."""
    intent = Counter(one.intent for one in utterances).most_common(1)[0][0]
    tag = Counter(tag for one in utterances for tag in one.tags).most_common(1)[0][0]
    return np.array(
        [((one.intent == intent) + one.tags.count(tag)) / (1 + len(one.tags)) for one in utterances]
    )


def _alive(
    model: "IntentSlotNetwork", utterances: "Utterances", frequent: Floats, who: str
) -> Check:
    right = _right(model, utterances)
    gain = right - frequent
    told = (
        f"{who[:1].upper()}{who[1:]} gives {right.mean():.0%} of the labels of {len(gain)} "
        f"utterances right, the most frequent labels {frequent.mean():.0%}"
    )
    if gain.mean() > 2 * gain.std(ddof=1) / sqrt(gain.size):
        return Check("alive", "passed", f"{told}.")
    return Check("alive", "failed", f"{told}: it is too weak for an audit.")


def _right(model: "IntentSlotNetwork", utterances: "Utterances") -> Floats:
    """(u,) the share of right labels of each utterance."""
    from vestige.data.encoded_utterances import IGNORED
    from vestige.training.utterances import answer

    data = model.encode(utterances)
    answers = answer(model, data)
    tags = answers.tags == data.tags
    begins = data.tags != IGNORED
    right = data.sums(begins & tags) + (answers.intents == data.intents)
    return np.asarray(right / (1 + data.sums(begins)), dtype=np.float64)
