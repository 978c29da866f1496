"""Texts of different lengths, read side by side."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from vestige.attacks.update.model_pair import ModelPair

BLOCK = 256
"""Texts read side by side."""

Tokens = tuple[int, ...]


@dataclass(frozen=True)
class Belief:
    """How likely the later model holds a text; its first token is context.

    Attributes:
        logs: the log-probability of each token, 0 for the first.
        likeliest: the tokens likeliest in the place of each, best first; none for the first.
    """

    logs: tuple[float, ...]
    likeliest: tuple[Tokens, ...]

    @property
    def total(self) -> float:
        """The log-probability of the text behind its first token."""
        return sum(self.logs)


def token_gains(pair: ModelPair, texts: Sequence[Tokens]) -> list[tuple[float, ...]]:
    """The gain of each token of texts entered at their first one, whose own is 0."""
    found = [[0.0] for _ in texts]
    for block in _blocks(texts):
        state = pair.enter(_column(pair, texts, block, 0))
        for place in range(1, len(texts[block[0]])):
            block = [i for i in block if len(texts[i]) > place]
            if place > 1:
                state = pair.advance(state[: len(block)], _column(pair, texts, block, place - 1))
            state = state[: len(block)]
            token = _column(pair, texts, block, place)
            for rows in pair.slices(len(block)):
                gain = pair.gains(state[rows]).gather(1, token[rows, None])[:, 0]
                for i, one in zip(block[rows], gain.tolist(), strict=True):
                    found[i].append(one)
    return [tuple(gains) for gains in found]


def beliefs(pair: ModelPair, texts: Sequence[Tokens], *, likeliest: int = 1) -> list[Belief]:
    """How likely the later model holds texts, each entered at its first token.

    Args:
        pair: the two snapshots.
        texts: ids, at least one of each.
        likeliest: tokens named in each place.
    """
    logs: list[list[float]] = [[0.0] for _ in texts]
    tops: list[list[Tokens]] = [[()] for _ in texts]
    model = pair.after
    for block in _blocks(texts):
        state = pair.entered(_column(pair, texts, block, 0), later=True)
        for place in range(1, len(texts[block[0]])):
            block = [i for i in block if len(texts[i]) > place]
            state = state[: len(block)]
            if place > 1:
                pair.cost.after += len(block)
                state = model.advance(state, _column(pair, texts, block, place - 1))
            token = _column(pair, texts, block, place)
            for rows in pair.slices(len(block)):
                said = model.log_probs(state[rows])
                best = said.topk(likeliest).indices.tolist()
                log = said.gather(1, token[rows, None])[:, 0].tolist()
                for i, one, top in zip(block[rows], log, best, strict=True):
                    logs[i].append(one)
                    tops[i].append(tuple(top))
    return [Belief(tuple(log), tuple(top)) for log, top in zip(logs, tops, strict=True)]


def _blocks(texts: Sequence[Tokens]) -> Iterator[list[int]]:
    """Numbers of texts in falling order of their lengths: those not yet ended come first."""
    order = sorted(range(len(texts)), key=lambda i: -len(texts[i]))
    for first in range(0, len(order), BLOCK):
        yield order[first : first + BLOCK]


def _column(pair: ModelPair, texts: Sequence[Tokens], block: Sequence[int], place: int) -> Tensor:
    return torch.tensor([texts[i][place] for i in block], device=pair.device)
