r"""Seeds grown to the right, token by token, in two models at once.

As in sequence search (Altschul et al. 1990, "Basic local alignment search tool"), a seed grows
while its score pays a penalty for every token:

.. math:: S(t_0 \dots t_n) = \sum_{i=1}^n g_i + \lambda \log p'_i - \tau

with g_i the gain of t_i and p'_i its probability after the update, given all tokens before it; tau
is the token penalty and lambda the cost of surprise. The first token is context.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import NamedTuple

import torch
from torch import Tensor

from vestige.audits.update.pair import Pair, PairState, Tokens
from vestige.audits.update.phrases import Text
from vestige.audits.update.settings import Settings
from vestige.models.largest import ROUNDED, largest


@dataclass(frozen=True)
class Seed:
    """A token that the update promoted after a context, and its gain.

    Attributes:
        context: tokens that both models read first.
        token: the promoted token.
        gain: of that token.
        context_gains: of the last context tokens, if a phrase may begin among them.
    """

    context: Tokens
    token: int
    gain: float
    context_gains: tuple[float, ...] = ()

    @property
    def pair(self) -> tuple[int, int]:
        """The last context token and the token."""
        return self.context[-1], self.token


class _Hypotheses(NamedTuple):
    """Partial phrases, ordered by seed, then by falling score."""

    tokens: Tensor  # (r, t) with their contexts
    gains: Tensor  # (r, g) of the tokens after the contexts
    score: Tensor  # (r,)
    seed: Tensor  # (r,) index of the seed
    state: PairState  # of both models; longer hypotheses reuse it


def grow(
    pair: Pair, seeds: Sequence[Seed], settings: Settings, *, beam: int = 1
) -> Iterator[tuple[Seed, Text]]:
    """Each seed with the best text that begins with it, from `beam` hypotheses per seed."""
    by_length = sorted(seeds, key=lambda seed: len(seed.context))
    for length, group in groupby(by_length, key=lambda seed: len(seed.context)):
        block = list(group)
        for seed, (tokens, gains) in zip(block, _grown(pair, block, settings, beam), strict=True):
            first = length - len(seed.context_gains)
            context_gains = (0.0,) * first + seed.context_gains
            yield seed, Text(tuple(tokens), (*context_gains, *gains), first)


def _grown(
    pair: Pair, seeds: Sequence[Seed], settings: Settings, beam: int
) -> list[tuple[list[int], list[float]]]:
    """The best hypothesis of each seed, and gains after its context; contexts are equally long."""
    current = _from_seeds(pair, seeds, settings)
    longest = settings.max_tokens + len(seeds[0].context) - 1
    best = list(zip(current.tokens, current.gains, strict=True))
    best_score = current.score.clone()
    while len(current.seed) and current.tokens.shape[1] < longest:
        current = _extended(pair, current, settings, beam, best_score)
        seed = current.seed
        is_first = torch.ones_like(seed, dtype=torch.bool)  # the best hypothesis of its seed
        is_first[1:] = seed[1:] != seed[:-1]
        improved = (is_first & (current.score > best_score[seed])).nonzero()[:, 0]
        best_score[seed[improved]] = current.score[improved]
        for row, index in zip(improved.tolist(), seed[improved].tolist(), strict=True):
            best[index] = current.tokens[row], current.gains[row]
    return [(tokens.tolist(), gains.tolist()) for tokens, gains in best]


def _from_seeds(pair: Pair, seeds: Sequence[Seed], settings: Settings) -> _Hypotheses:
    device = pair.device
    contexts = torch.tensor([seed.context for seed in seeds], device=device)
    distinct, row = torch.unique(contexts, dim=0, return_inverse=True)
    token = torch.tensor([seed.token for seed in seeds], device=device)
    gain = torch.tensor([seed.gain for seed in seeds], device=device)
    return _Hypotheses(
        tokens=torch.cat([contexts, token[:, None]], 1),
        gains=gain[:, None],
        score=gain - settings.token_penalty,
        seed=torch.arange(len(seeds), device=device),
        state=pair.start_anywhere(distinct).read()[row].with_next(token).read(),
    )


def _extended(
    pair: Pair, old: _Hypotheses, settings: Settings, beam: int, best_score: Tensor
) -> _Hypotheses:
    """Hypotheses with one more token, the `beam` best of each seed."""
    end, beginning = pair.vocabulary.eos_id, pair.vocabulary.bos_id
    gain_parts, token_parts = [], []
    for rows in pair.slices(len(old.seed)):
        gains = pair.gains(old.state[rows])
        # a phrase ends where the end of the document gains most
        ended = gains[:, end] > gains.amax(1) - ROUNDED
        gains[:, end] = -torch.inf
        if beginning is not None:
            gains[:, beginning] = -torch.inf
        _penalise_loops(gains, old.tokens[rows], settings.loop_penalty)
        best = largest(gains, beam, alike=ROUNDED)
        token_parts.append(best)
        gain_parts.append(gains.gather(1, best).masked_fill_(ended[:, None], -torch.inf))
    gain, token = torch.cat(gain_parts).flatten(), torch.cat(token_parts).flatten()
    parent = torch.arange(len(old.seed), device=gain.device).repeat_interleave(beam)
    score, seed = old.score[parent] + gain - settings.token_penalty, old.seed[parent]

    order = largest(score, len(score), alike=ROUNDED)
    order = order[seed[order].argsort(stable=True)]
    rank = torch.arange(len(order), device=gain.device)  # among hypotheses of the same seed
    rank -= torch.searchsorted(seed[order], seed[order])
    chosen = order[(rank < beam) & (score[order] > best_score[seed[order]] - settings.drop)]
    parent, token = parent[chosen], token[chosen]
    old.state.follow(parent, token)
    return _Hypotheses(
        tokens=torch.cat([old.tokens[parent], token[:, None]], 1),
        gains=torch.cat([old.gains[parent], gain[chosen, None]], 1),
        score=score[chosen],
        seed=seed[chosen],
        state=old.state,
    )


def _penalise_loops(gains: Tensor, tokens: Tensor, penalty: float) -> None:
    """Lower the gains (r, v) of tokens that would repeat a trigram of their phrase (r, t)."""
    if tokens.shape[1] >= 3:
        repeated = tokens[:, :-2] == tokens[:, -2, None]
        repeated &= tokens[:, 1:-1] == tokens[:, -1, None]
        gains.scatter_add_(1, tokens[:, 2:], repeated * -float(penalty))
