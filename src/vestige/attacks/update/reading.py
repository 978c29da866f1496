"""Texts of different lengths, read side by side."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from vestige.attacks.update.model_pair import ModelPair, PairState

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
    found: dict[int, tuple[float, ...]] = {}
    for block in _blocks(texts):
        state = pair.enter(_column(pair, texts, block, 0))
        behind = gains_behind(pair, state, [texts[i][1:] for i in block])
        found |= {i: (0.0, *gains) for i, gains in zip(block, behind, strict=True)}
    return [found[i] for i in range(len(texts))]


def gains_behind(pair: ModelPair, state: PairState, texts: Sequence[Tokens]) -> list[list[float]]:
    """Gains of the tokens of n texts, each behind what its row has read; read side by side."""
    found: list[list[float]] = [[] for _ in texts]
    rows = sorted(range(len(texts)), key=lambda i: -len(texts[i]))
    state = state[torch.tensor(rows, device=pair.device)]
    for place in range(max(map(len, texts), default=0)):
        rows = [i for i in rows if len(texts[i]) > place]
        if place:
            read = torch.tensor([texts[i][place - 1] for i in rows], device=pair.device)
            state = pair.advance(state[: len(rows)], read)
        state = state[: len(rows)]
        token = torch.tensor([texts[i][place] for i in rows], device=pair.device)
        for part in pair.slices(len(rows)):
            gain = pair.gains(state[part]).gather(1, token[part, None])[:, 0]
            for i, one in zip(rows[part], gain.tolist(), strict=True):
                found[i].append(one)
    return found


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
