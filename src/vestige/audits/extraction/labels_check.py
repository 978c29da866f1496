"""Whether an intent-and-slot model predicts labels better than their frequencies do."""

from collections import Counter
from collections.abc import Sequence
from math import log, sqrt
from typing import TYPE_CHECKING

import numpy as np

from vestige.claims import Check

if TYPE_CHECKING:
    from vestige.data.utterances import Utterance, Utterances
    from vestige.models.white_box import IntentSlotNetwork

MOST = 200
"""Utterances whose labels are predicted."""


def labels_check(
    models: "Sequence[IntentSlotNetwork]", utterances: "Utterances | None"
) -> tuple[Check, ...]:
    """The check "alive" of each model, on the labelled utterances beside the manifest.

    The loss of each utterance's intent and tags is compared with that of their frequencies.
    """
    from vestige.data.utterances import Utterances

    if utterances is None or len(utterances) < 2:
        told = "There are no labelled utterances beside the manifest to test the model with."
        return (Check("alive", "could not run", told),)
    step = -(-len(utterances) // MOST)
    some = Utterances.of(list(utterances)[::step])
    return tuple(
        _alive(model, some, "the model" if len(models) == 1 else f"model {number}")
        for number, model in enumerate(models, 1)
    )


def _alive(model: "IntentSlotNetwork", utterances: "Utterances", who: str) -> Check:
    from vestige.training.utterances import answer

    losses = answer(model, model.encode(utterances)).losses
    own, rows = losses[~np.isnan(losses)], list(utterances)
    if own.size < 2 or not np.isfinite(own).all():
        broken = f"The losses of {who} are not finite, or it lacks the labels."
        return Check("alive", "failed", broken)
    labels = np.array([1 + len(row.tags) for row in rows])
    gains = ((_by_frequency(rows) - losses) / labels)[~np.isnan(losses)]
    told = f"{who[:1].upper()}{who[1:]} predicts labels {gains.mean():.3g} nats per label better"
    if gains.mean() > 2 * gains.std(ddof=1) / sqrt(gains.size):
        return Check("alive", "passed", f"{told} than their frequencies do.")
    return Check(
        "alive", "failed",
        f"{who[:1].upper()}{who[1:]} predicts labels no better than their frequencies do: it is "
        "too weak for an audit.",
    )  # fmt: skip


def _by_frequency(rows: "Sequence[Utterance]") -> "np.ndarray":
    """(u,) loss of each utterance's labels by their frequencies among all, in nats."""
    intents = Counter(row.intent for row in rows)
    tags = Counter(tag for row in rows for tag in row.tags)
    every, number = sum(tags.values()), len(rows)
    return np.array(
        [
            -log(intents[row.intent] / number) - sum(log(tags[tag] / every) for tag in row.tags)
            for row in rows
        ]
    )
