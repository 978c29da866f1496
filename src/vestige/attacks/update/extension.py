r"""Seeds grown to the right, token by token, in two models at once.

As in sequence search (Altschul et al. 1990, "Basic local alignment search tool"): a seed grows
while its score pays a toll for every token and for what still surprises the later model; the
segment of highest score is what counts. A weak joint parts what only the search has put together.

.. math:: S(t_0 \dots t_n) = \sum_{i=1}^n g_i + \lambda \log p'_i - \tau

with g_i the gain of t_i and p'_i its probability after the update, both given the seed's context
and t_0 ... t_{i-1}; tau the toll and lambda the price of surprise. The first token is context and
has no gain.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby

import torch
from torch import Tensor

from vestige.attacks.update.forward_tokens import Passes
from vestige.attacks.update.model_pair import ModelPair, PairState
from vestige.attacks.update.phrases import Growth, ScoredText
from vestige.models.largest import ROUNDED, largest

BLOCK = 256
"""Seeds grown side by side; both models' states of a block are held at once."""

GROWN = 12
"""Tokens that a seed grows by before it is given up, on average: measured, for the plan alone."""


@dataclass(frozen=True)
class Seed:
    """A token that an update promoted behind a context.

    Attributes:
        context: ids that both models read first.
        token: the id.
        gain: of the token.
        behind: gains of the context's last tokens, where a phrase may begin among them.
    """

    context: tuple[int, ...]
    token: int
    gain: float
    behind: tuple[float, ...] = ()


@dataclass(frozen=True)
class _Hypotheses:
    """Partial phrases of several seeds, sorted by seed and then by score, best first."""

    tokens: Tensor  # (r, t)
    gains: Tensor  # (r, t)
    score: Tensor  # (r,)
    owner: Tensor  # (r,) seed
    state: PairState


def expected(
    seeds: int, *, proposal: str, beam: int, context: int, alike: bool = False
) -> tuple[Passes, ...]:
    """What it costs to grow seeds; where their contexts are all alike, one is read."""
    blocks = -(-seeds // BLOCK)
    each = 1 if alike else seeds / max(blocks, 1)
    read = Passes(proposal=proposal, kind="prefill", rows=each, tokens=context, count=blocks,
                  grown=True)  # fmt: skip
    rows = beam * seeds / max(blocks, 1)
    grown = Passes(proposal=proposal, kind="decode", rows=rows, count=blocks * GROWN,
                   behind=context + GROWN / 2, asked=rows, grown=True)  # fmt: skip
    return read, grown


def grow(
    pair: ModelPair, seeds: Sequence[Seed], growth: Growth, *, end: int, beam: int = 1
) -> Iterator[tuple[Seed, ScoredText]]:
    """The best text that begins with each seed.

    Args:
        pair: the two snapshots and the score of a token.
        seeds: at most a block of them.
        growth: how they grow.
        end: the id that ends a document; no phrase crosses it.
        beam: hypotheses kept for each seed.

    Yields:
        (seed, what grew from it).
    """
    order = sorted(seeds, key=lambda seed: len(seed.context))  # what is read together is as long
    for length, group in groupby(order, key=lambda seed: len(seed.context)):
        alike = list(group)
        grown = _grown(pair, alike, growth, end, beam)
        for seed, (tokens, gains) in zip(alike, grown, strict=True):
            yield seed, ScoredText(tuple(tokens), tuple(gains), length - len(seed.behind))


def _grown(
    pair: ModelPair, seeds: Sequence[Seed], growth: Growth, end: int, beam: int
) -> list[tuple[list[int], list[float]]]:
    """Tokens and gains of the best hypothesis of each seed; all contexts are of one length."""
    contexts = torch.tensor([seed.context for seed in seeds], device=pair.device)
    different, place = torch.unique(contexts, dim=0, return_inverse=True)
    token = torch.tensor([seed.token for seed in seeds], device=pair.device)
    gain = torch.tensor([seed.gain for seed in seeds], device=pair.device)
    behind = torch.zeros(contexts.shape, device=pair.device)
    for row, seed in enumerate(seeds):
        if seed.behind:
            behind[row, -len(seed.behind) :] = torch.tensor(seed.behind)
    longest = growth.max_tokens + contexts.shape[1] - 1
    hypotheses = _Hypotheses(
        tokens=torch.cat([contexts, token[:, None]], 1),
        gains=torch.cat([behind, gain[:, None]], 1),
        score=gain - growth.toll,
        owner=torch.arange(len(seeds), device=pair.device),
        state=pair.advance(pair.read(different)[place], token),
    )
    best = list(zip(hypotheses.tokens, hypotheses.gains, strict=True))
    high = hypotheses.score.clone()
    while len(hypotheses.owner) and hypotheses.tokens.shape[1] < longest:
        hypotheses = _longer(pair, hypotheses, growth, end, beam, high)
        lead = _first_of_each(hypotheses.owner)
        lead = lead[hypotheses.score[lead] > high[hypotheses.owner[lead]]]
        owners = hypotheses.owner[lead]
        high[owners] = hypotheses.score[lead]
        for row, owner in zip(lead.tolist(), owners.tolist(), strict=True):
            best[owner] = (hypotheses.tokens[row], hypotheses.gains[row])
    return [(tokens.tolist(), gains.tolist()) for tokens, gains in best]


def _longer(
    pair: ModelPair, old: _Hypotheses, growth: Growth, end: int, beam: int, high: Tensor
) -> _Hypotheses:
    """Every hypothesis one token longer, the `beam` best of each seed."""
    gained, following = [], []
    for rows in pair.slices(len(old.owner)):
        gains = pair.gains(old.state[rows])
        # where nothing is promoted more, the document is over: so is the phrase
        over = gains[:, end] > gains.amax(1) - ROUNDED
        gains[:, end] = -torch.inf
        if pair.beginning is not None:
            gains[:, pair.beginning] = -torch.inf
        gains = _penalised(gains, old.tokens[rows], growth)
        best = largest(gains, beam, alike=ROUNDED)
        following.append(best)
        gained.append(gains.gather(1, best).masked_fill_(over[:, None], -torch.inf))
    gain, token = torch.cat(gained).flatten(), torch.cat(following).flatten()
    parent = torch.arange(len(old.owner), device=gain.device).repeat_interleave(beam)
    score = old.score[parent] + gain - growth.toll
    owner = old.owner[parent]

    order = largest(score, len(score), alike=ROUNDED)
    order = order[owner[order].argsort(stable=True)]
    place = torch.arange(len(order), device=gain.device) - torch.searchsorted(
        owner[order], owner[order]
    )
    kept = order[(place < beam) & (score[order] > high[owner[order]] - growth.drop)]
    parent, token = parent[kept], token[kept]
    return _Hypotheses(
        tokens=torch.cat([old.tokens[parent], token[:, None]], 1),
        gains=torch.cat([old.gains[parent], gain[kept, None]], 1),
        score=score[kept],
        owner=owner[kept],
        state=pair.advance(old.state[parent], token),
    )


def _penalised(gains: Tensor, tokens: Tensor, growth: Growth) -> Tensor:
    """Gains (r, v), less where a token would complete a trigram its phrase (r, t) has already."""
    if tokens.shape[1] >= 3:
        again = (tokens[:, :-2] == tokens[:, -2, None]) & (tokens[:, 1:-1] == tokens[:, -1, None])
        gains.scatter_add_(1, tokens[:, 2:], again * -float(growth.loop_penalty))
    return gains


def _first_of_each(owner: Tensor) -> Tensor:
    """Where each owner's rows begin in a sorted (r,) owner."""
    first = torch.ones_like(owner, dtype=torch.bool)
    first[1:] = owner[1:] != owner[:-1]
    return first.nonzero()[:, 0]
