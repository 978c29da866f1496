r"""Read whole phrases out of two snapshots, wherever in a text they stood: seed and extend.

As in sequence search (Altschul et al. 1990, "Basic local alignment search tool"): the most
promoted pairs of tokens, each first token as its own context, are seeds, and so are the tokens
most promoted at the beginning of a document; each grows to the right, token by token, while its
score pays a toll for every token and for what still surprises the later model; the segment of
highest score is what counts. A weak joint parts what only the search has put together.

.. math:: S(t_0 \dots t_n) = \sum_{i=1}^n g_i + \lambda \log p'_i - \tau

with g_i the gain of t_i and p'_i its probability after the update, both given t_0 ... t_{i-1}; tau
the toll and lambda the price of surprise. The first token is context and has no gain.

Differs from the paper (Zanella-Béguelin et al. 2020): it grows one beam from the beginning of
a text and to one length, so that a phrase competes with the beginnings of all others. A
subword model promotes a secret by many small steps, none of them first in that race.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Any

import torch
from torch import Tensor

from vestige import _validate
from vestige.attacks.update.beam_search import best_children
from vestige.attacks.update.model_pair import ModelPair, PairState, enter
from vestige.attacks.update.token_scores import less_surprise
from vestige.models.largest import ROUNDED, largest, rounded
from vestige.models.protocols import NextToken

BLOCK = 256
"""Seeds grown side by side; both models' states of a block are held at once."""


@dataclass(frozen=True)
class Phrase:
    """A run of tokens that the update promoted.

    Attributes:
        tokens: its ids; the first one is context.
        gains: the gain of each token less its surprise, 0 for the first.
        score: the sum of these less the toll, over all but the first.
    """

    tokens: tuple[int, ...]
    gains: tuple[float, ...]
    score: float


@dataclass(frozen=True, kw_only=True)
class SeedAndExtend:
    """How seeds grow.

    Attributes:
        seeds: pairs of tokens to start from.
        openings: tokens at a document's beginning to start from, beside the pairs.
        beam: hypotheses kept for each pair.
        opening_beam: hypotheses kept for each opening, which one unlikely token must not end.
        toll: what each token costs, in units of the score.
        surprise: what each nat of the later model's surprise costs.
        drop: a hypothesis this far under its seed's best is given up.
        joint: where the score falls by more than this and rises again, a phrase is cut in two.
        loop_penalty: cost of a token that completes three tokens seen before in the phrase.
        min_tokens: shorter phrases are left out, which are pieces of words and of headers.
        max_tokens: the longest phrase.
    """

    seeds: int = 2000
    openings: int = 100
    beam: int = 1
    opening_beam: int = 4
    toll: float = 1.2
    surprise: float = 0.4
    drop: float = 6.0
    joint: float = 2.0
    loop_penalty: float = 3.0
    min_tokens: int = 4
    max_tokens: int = 48

    def __post_init__(self) -> None:
        _validate.positive(seeds=self.seeds, beam=self.beam, opening_beam=self.opening_beam)
        _validate.positive(toll=self.toll, drop=self.drop, joint=self.joint)
        _validate.at_least(0, openings=self.openings, surprise=self.surprise)
        _validate.at_least(0, loop_penalty=self.loop_penalty)
        _validate.at_least(2, min_tokens=self.min_tokens)
        _validate.at_least(self.min_tokens, max_tokens=self.max_tokens)


@dataclass(frozen=True)
class _Hypotheses:
    """Partial phrases of several seeds, sorted by seed and then by score, best first."""

    tokens: Tensor  # (r, t)
    gains: Tensor  # (r, t)
    score: Tensor  # (r,)
    owner: Tensor  # (r,) seed
    state: PairState


@dataclass(frozen=True)
class _Unread:
    """A state of rows that read their one token only when they are asked for."""

    model: NextToken
    tokens: Tensor  # (n,)
    has_read: bool = True

    @property
    def nbytes(self) -> int:
        return self.tokens.nbytes

    def __len__(self) -> int:
        return len(self.tokens)

    def __getitem__(self, index: Tensor | slice) -> Any:
        return enter(self.model, self.tokens[index])


def seed_and_extend(
    pair: ModelPair,
    *,
    growth: SeedAndExtend,
    end: int,
    progress: Callable[[int, int], None] | None = None,
) -> list[Phrase]:
    """The phrases that grow from the most promoted pairs of tokens, best first.

    Args:
        pair: the two snapshots and the score of a token.
        growth: how seeds grow.
        end: the id that ends a document; no phrase crosses it.
        progress: told (seeds done, seeds in all) as they grow.

    Returns:
        The phrases of each seed that no better phrase already contains.
    """
    # any one beginning of a document is a surprise, however much promoted
    openings = _openings(pair, growth.openings, end)
    pair = pair.with_score(less_surprise(pair.score, growth.surprise))
    wide = replace(growth, beam=growth.opening_beam)
    parts = [
        (wide, *openings),
        (growth, *_seeds(pair, growth.seeds, end)),
    ]
    phrases: list[Phrase] = []
    seen: set[tuple[int, ...]] = set()
    total, done = sum(len(seeds) for _, seeds, _ in parts), 0
    for how, seeds, gains in parts:
        for first in range(0, len(seeds), BLOCK):
            block = slice(first, first + BLOCK)
            fresh = [tuple(seed) not in seen for seed in seeds[block].tolist()]
            if any(fresh):
                for phrase in _grow_right(pair, seeds[block][fresh], gains[block][fresh], how, end):
                    phrases.append(phrase)
                    seen.update(pairwise(phrase.tokens))
            if progress:
                progress(done + min(block.stop, len(seeds)), total)
        done += len(seeds)
    return sorted(_long(phrases, growth), key=lambda one: (-rounded(one.score), one.tokens))


def untold(phrase: Phrase, told: Sequence[bool], *, growth: SeedAndExtend) -> Iterator[Phrase]:
    """What a phrase says beside the tokens that better ones have told.

    Args:
        phrase: of a search.
        told: for each of its tokens.
        growth: how the search went; its joints and its least length hold here too.

    Yields:
        The segments between told tokens, each with the token before it as its context.
    """
    first = 1  # the token before it is context
    for stop in range(1, len(told) + 1):
        if stop == len(told) or told[stop]:
            part = slice(first - 1, stop)
            yield from _long(_segments(phrase.tokens[part], phrase.gains[part], growth), growth)
            first = stop + 1


def _seeds(pair: ModelPair, number: int, end: int) -> tuple[Tensor, Tensor]:
    """(k, 2) pairs (context, token) of highest gain, and (k,) gains.

    A document's end may be context, never token, a token for its beginning neither; a token after
    itself begins a run.
    """
    every = torch.arange(pair.vocab_size, device=pair.device)

    def read(rows: slice) -> PairState:
        context = every[rows]
        return PairState(_Unread(pair.before, context), enter(pair.after, context))

    zero = torch.zeros(pair.vocab_size, device=pair.device)
    kinds = 2 if pair.beginning is None else 4
    for spare in (number, kinds * pair.vocab_size):  # as many as are left out, at most
        best = best_children(pair, read, zero, number + spare)
        able = (best.token != end) & (best.parent != best.token)
        if pair.beginning is not None:
            able &= (best.token != pair.beginning) & (best.parent != pair.beginning)
        use = able.nonzero()[:number, 0]
        if len(use) == number:
            break
    return torch.stack([best.parent[use], best.token[use]], 1), best.gain[use]


def _openings(pair: ModelPair, number: int, end: int) -> tuple[Tensor, Tensor]:
    """(k, 2) pairs (end of a document or beginning, the next one's first token) and (k,) gains."""
    first = end if pair.beginning is None else pair.beginning
    ended = torch.tensor([first], device=pair.device)
    gains = pair.gains(pair.enter(ended))[0]
    gains[[first, end]] = -torch.inf
    best = largest(gains, min(number, len(gains) - len({first, end})), alike=ROUNDED)
    return torch.stack([ended.expand_as(best), best], 1), gains[best]


def _grow_right(
    pair: ModelPair, seeds: Tensor, gain: Tensor, growth: SeedAndExtend, end: int
) -> list[Phrase]:
    """The best phrases that begin with the (n, 2) seeds, cut at their weak joints."""
    n = len(seeds)
    state = pair.enter(seeds[:, 0])
    hypotheses = _Hypotheses(
        tokens=seeds,
        gains=torch.stack([torch.zeros_like(gain), gain], 1),
        score=gain - growth.toll,
        owner=torch.arange(n, device=pair.device),
        state=pair.advance(state, seeds[:, 1]),
    )
    best = list(zip(hypotheses.tokens, hypotheses.gains, strict=True))
    high = hypotheses.score.clone()
    while len(hypotheses.owner) and hypotheses.tokens.shape[1] < growth.max_tokens:
        hypotheses = _longer(pair, hypotheses, growth, end, high)
        lead = _first_of_each(hypotheses.owner)
        lead = lead[hypotheses.score[lead] > high[hypotheses.owner[lead]]]
        owners = hypotheses.owner[lead]
        high[owners] = hypotheses.score[lead]
        for row, owner in zip(lead.tolist(), owners.tolist(), strict=True):
            best[owner] = (hypotheses.tokens[row], hypotheses.gains[row])
    return [part for t, g in best for part in _segments(t.tolist(), g.tolist(), growth)]


def _longer(
    pair: ModelPair, old: _Hypotheses, growth: SeedAndExtend, end: int, high: Tensor
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
        best = largest(gains, growth.beam, alike=ROUNDED)
        following.append(best)
        gained.append(gains.gather(1, best).masked_fill_(over[:, None], -torch.inf))
    gain, token = torch.cat(gained).flatten(), torch.cat(following).flatten()
    parent = torch.arange(len(old.owner), device=gain.device).repeat_interleave(growth.beam)
    score = old.score[parent] + gain - growth.toll
    owner = old.owner[parent]

    order = largest(score, len(score), alike=ROUNDED)
    order = order[owner[order].argsort(stable=True)]
    place = torch.arange(len(order), device=gain.device) - torch.searchsorted(
        owner[order], owner[order]
    )
    kept = order[(place < growth.beam) & (score[order] > high[owner[order]] - growth.drop)]
    parent, token = parent[kept], token[kept]
    return _Hypotheses(
        tokens=torch.cat([old.tokens[parent], token[:, None]], 1),
        gains=torch.cat([old.gains[parent], gain[kept, None]], 1),
        score=score[kept],
        owner=owner[kept],
        state=pair.advance(old.state[parent], token),
    )


def _penalised(gains: Tensor, tokens: Tensor, growth: SeedAndExtend) -> Tensor:
    """Gains (r, v), less where a token would complete a trigram its phrase (r, t) has already."""
    if tokens.shape[1] >= 3:
        again = (tokens[:, :-2] == tokens[:, -2, None]) & (tokens[:, 1:-1] == tokens[:, -1, None])
        gains.scatter_add_(1, tokens[:, 2:], again * -float(growth.loop_penalty))
    return gains


def _long(phrases: Iterable[Phrase], growth: SeedAndExtend) -> Iterator[Phrase]:
    return (phrase for phrase in phrases if len(phrase.tokens) >= growth.min_tokens)


def _first_of_each(owner: Tensor) -> Tensor:
    """Where each owner's rows begin in a sorted (r,) owner."""
    first = torch.ones_like(owner, dtype=torch.bool)
    first[1:] = owner[1:] != owner[:-1]
    return first.nonzero()[:, 0]


def _segments(
    tokens: Sequence[int], gains: Sequence[float], growth: SeedAndExtend
) -> Iterator[Phrase]:
    """The segments of highest score between weak joints; the token before each is its context."""
    best = total = 0.0
    first = stop = 1
    for i in range(1, len(tokens) + 1):
        if i < len(tokens):
            total += gains[i] - growth.toll
        if total > best:
            best, stop = total, i + 1
        elif i == len(tokens) or total <= 0 or total < best - growth.joint:
            if best > 0:
                kept = (0.0, *gains[first:stop])
                yield Phrase(tuple(tokens[first - 1 : stop]), kept, best)
            best = total = 0.0
            first = stop = i + 1
