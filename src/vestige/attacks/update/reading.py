"""Texts of different lengths, read side by side and scored token by token."""

from collections.abc import Sequence
from dataclasses import dataclass

import torch

from vestige.attacks.update.model_pair import ModelPair

BLOCK = 256
"""Texts read side by side."""


@dataclass(frozen=True)
class Reading:
    """What two models say of one text; its first token is context.

    Attributes:
        gains: the gain of each token, 0 for the first.
        logs: the log-probability of each after the update, 0 for the first.
    """

    gains: tuple[float, ...]
    logs: tuple[float, ...]


def readings(pair: ModelPair, texts: Sequence[tuple[int, ...]]) -> list[Reading]:
    """What the two models say of texts, each entered at its first token.

    Args:
        pair: the two snapshots and the score of a token.
        texts: ids, at least one of each.
    """
    order = sorted(range(len(texts)), key=lambda i: -len(texts[i]))
    found: list[Reading] = [Reading((), ())] * len(texts)
    for first in range(0, len(order), BLOCK):
        block = order[first : first + BLOCK]
        for i, reading in zip(block, _read(pair, [texts[i] for i in block]), strict=True):
            found[i] = reading
    return found


def _read(pair: ModelPair, texts: Sequence[tuple[int, ...]]) -> list[Reading]:
    """Of texts in falling order of their lengths, so that those not yet ended come first."""
    device = pair.device
    state = pair.enter(torch.tensor([text[0] for text in texts], device=device))
    gains, logs = [[0.0] for _ in texts], [[0.0] for _ in texts]
    for place in range(1, len(texts[0])):
        going = sum(len(text) > place for text in texts)
        state = state[:going]
        token = torch.tensor([text[place] for text in texts[:going]], device=device)
        for rows in pair.slices(going):
            before, after = (
                pair.before.logits(state[rows].before),
                pair.after.logits(state[rows].after),
            )
            column = token[rows, None]
            log = after.log_softmax(1).gather(1, column)[:, 0]
            gain = pair.score.gain(before, after).gather(1, column)[:, 0]
            for i, one, other in zip(
                range(rows.start, going), gain.tolist(), log.tolist(), strict=False
            ):
                gains[i].append(one)
                logs[i].append(other)
        if place + 1 < len(texts[0]):
            rest = sum(len(text) > place + 1 for text in texts)
            state = pair.advance(state[:rest], token[:rest])
    return [Reading(tuple(gained), tuple(said)) for gained, said in zip(gains, logs, strict=True)]
