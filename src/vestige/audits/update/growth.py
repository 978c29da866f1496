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
    """A token that the update promoted after a context, which both models read first, and its gain;
    and gains of the last context tokens, if a phrase may begin among them."""

    context: Tokens
    token: int
    gain: float
    context_gains: tuple[float, ...] = ()

    @property
    def pair(self) -> tuple[int, int]:
        """The token before it and the token."""
        return self.context[-1], self.token


class _Hypotheses(NamedTuple):
    """Partial phrases (r, t) of seeds, by seed, then by falling score; gains of their tokens after
    the context; and what both models have read, which goes on to longer hypotheses."""

    tokens: Tensor
    gains: Tensor
    score: Tensor
    seed: Tensor
    state: PairState


def grow(
    pair: Pair, seeds: Sequence[Seed], settings: Settings, *, beam: int = 1
) -> Iterator[tuple[Seed, Text]]:
    """Each seed of a block with the best text that begins with it, from `beam` hypotheses each."""
    by_length = sorted(seeds, key=lambda seed: len(seed.context))  # texts read together are alike
    for length, group in groupby(by_length, key=lambda seed: len(seed.context)):
        block = list(group)
        for seed, (tokens, gains) in zip(block, _grown(pair, block, settings, beam), strict=True):
            first = length - len(seed.context_gains)
            before = (0.0,) * first + seed.context_gains
            yield seed, Text(tuple(tokens), (*before, *gains), first)


def _grown(
    pair: Pair, seeds: Sequence[Seed], settings: Settings, beam: int
) -> list[tuple[list[int], list[float]]]:
    """Each seed's best hypothesis, and gains after its context; all contexts have one length."""
    now = _beginnings(pair, seeds, settings)
    longest = settings.max_tokens + len(seeds[0].context) - 1
    best = list(zip(now.tokens, now.gains, strict=True))
    high = now.score.clone()
    while len(now.seed) and now.tokens.shape[1] < longest:
        now = _longer(pair, now, settings, beam, high)
        first = torch.ones_like(now.seed, dtype=torch.bool)
        first[1:] = now.seed[1:] != now.seed[:-1]
        rows = (first & (now.score > high[now.seed])).nonzero()[:, 0]
        high[now.seed[rows]] = now.score[rows]
        for row, seed in zip(rows.tolist(), now.seed[rows].tolist(), strict=True):
            best[seed] = now.tokens[row], now.gains[row]
    return [(tokens.tolist(), gains.tolist()) for tokens, gains in best]


def _beginnings(pair: Pair, seeds: Sequence[Seed], settings: Settings) -> _Hypotheses:
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
        state=pair.enter(distinct).read()[row].then(token).read(),
    )


def _longer(
    pair: Pair, old: _Hypotheses, settings: Settings, beam: int, high: Tensor
) -> _Hypotheses:
    """Hypotheses with one more token, the `beam` best of each seed."""
    end, beginning = pair.vocabulary.eos_id, pair.vocabulary.bos_id
    gain_parts, token_parts = [], []
    for rows in pair.slices(len(old.seed)):
        gains = pair.gains(old.state[rows])
        # if the end of the document gains most, the phrase is over too
        over = gains[:, end] > gains.amax(1) - ROUNDED
        gains[:, end] = -torch.inf
        if beginning is not None:
            gains[:, beginning] = -torch.inf
        _penalise_loops(gains, old.tokens[rows], settings.loop_penalty)
        best = largest(gains, beam, alike=ROUNDED)
        token_parts.append(best)
        gain_parts.append(gains.gather(1, best).masked_fill_(over[:, None], -torch.inf))
    gain, token = torch.cat(gain_parts).flatten(), torch.cat(token_parts).flatten()
    parent = torch.arange(len(old.seed), device=gain.device).repeat_interleave(beam)
    score, seed = old.score[parent] + gain - settings.token_penalty, old.seed[parent]

    order = largest(score, len(score), alike=ROUNDED)
    order = order[seed[order].argsort(stable=True)]
    place = torch.arange(len(order), device=gain.device)
    place -= torch.searchsorted(seed[order], seed[order])
    kept = order[(place < beam) & (score[order] > high[seed[order]] - settings.drop)]
    parent, token = parent[kept], token[kept]
    old.state.follow(parent, token)
    return _Hypotheses(
        tokens=torch.cat([old.tokens[parent], token[:, None]], 1),
        gains=torch.cat([old.gains[parent], gain[kept, None]], 1),
        score=score[kept],
        seed=seed[kept],
        state=old.state,
    )


def _penalise_loops(gains: Tensor, tokens: Tensor, penalty: float) -> None:
    """Lower the gains (r, v) of tokens that would repeat a trigram of their phrase (r, t)."""
    if tokens.shape[1] >= 3:
        again = (tokens[:, :-2] == tokens[:, -2, None]) & (tokens[:, 1:-1] == tokens[:, -1, None])
        gains.scatter_add_(1, tokens[:, 2:], again * -float(penalty))
