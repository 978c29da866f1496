r"""Exact rank of a sequence by likelihood, or proven bounds of it.

Carlini et al. (2019), "The Secret Sharer", section 4.1 defines the rank, and section 8 finds the
most probable sequences by a search that never enumerates the rest. Here that search is bounded on
both sides. A sequence is never more probable than its prefixes, so every prefix less probable than
the canary is dropped, and the count is the exact rank once all others are followed to their end. A
prefix of probability q that is not followed can hide at most

.. math:: \min(\lfloor q / p \rfloor, \; |A|^r)

sequences as probable as the canary's p, with r tokens to go, since theirs sum to at most q. So a
search within a budget proves bounds.

Differs from the paper, which searches for the most probable sequences from the top: a rank needs
all above a known threshold, in any order. The longest prefixes are read first, so that few states
are alive at a time.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from math import exp, floor, inf, log2, perm

import torch
from torch import Tensor

from vestige import _validate
from vestige.models.largest import ROUNDED, TIE, largest
from vestige.models.predictions import text_log_probs
from vestige.models.protocols import NextToken, State

_LARGEST = 700.0  # e^700 is still a float


@dataclass(frozen=True, kw_only=True)
class ExactRank:
    """The rank of one sequence by likelihood, or proven bounds of it; 1 is the most probable.

    Attributes:
        rank_low: the rank is no less.
        rank_high: it is no more.
        space: sequences that it is ranked among.
        prefixes: prefixes that the search read.
        complete: whether the search ended. Bounds that still differ are ties in float32.
    """

    rank_low: int
    rank_high: int
    space: int
    prefixes: int
    complete: bool

    @property
    def exposure_low(self) -> float:
        """Bits: log2 of the space less log2 of the largest rank."""
        return log2(self.space) - log2(self.rank_high)

    @property
    def exposure_high(self) -> float:
        """Bits: log2 of the space less log2 of the least rank."""
        return log2(self.space) - log2(self.rank_low)


@torch.no_grad()
def exact_rank(
    model: NextToken,
    tokens: Sequence[int],
    *,
    alphabet: Sequence[int] | None = None,
    distinct: bool = False,
    budget: int = 20_000,
    batch: int = 256,
    progress: Callable[[int, int], None] | None = None,
) -> ExactRank:
    """The rank of a sequence among all of its length, from the beginning of a text.

    Args:
        model: any model of next tokens.
        tokens: the n tokens of the sequence.
        alphabet: the tokens that the others consist of; None takes the whole vocabulary.
        distinct: the others have no token twice.
        budget: prefixes to read at most. A sequence of probability p needs n / p or fewer.
        batch: prefixes read at once.
        progress: called with (prefixes read, budget).

    Raises:
        ValueError: an argument is out of range, or the model rules the sequence out.

    Example:
        >>> from vestige.models.table import TableModel
        >>> model = TableModel([0.25, 0.75], [[0.6, 0.4], [0.9, 0.1]])
        >>> found = exact_rank(model, (0, 1))
        >>> found.rank_low, found.rank_high, found.space
        (3, 3, 4)
    """
    _validate.positive(budget=budget, batch=batch)
    search = _Search.of(model, tokens, alphabet, distinct)
    state: State = model.start(1)
    prefixes = torch.empty(1, 0, dtype=torch.int64, device=model.device)
    scores = torch.zeros(1, dtype=torch.float64, device=model.device)
    stack: list[_Open] = []
    read = likelier = tied = 0
    while True:
        read += len(scores)
        if prefixes.shape[1] + 1 == search.length:
            above, level = search.count(state, prefixes, scores)
            likelier, tied = likelier + above, tied + level
        else:
            stack += search.follow(state, prefixes, scores)
        if progress:
            progress(read, budget)
        if not stack or read >= budget:
            break
        state, prefixes, scores = search.take(stack, min(batch, budget - read))
    hidden = sum(search.bound(rest) for rest in stack)
    return ExactRank(
        rank_low=1 + likelier,
        rank_high=min(search.most, 1 + likelier + tied + hidden),
        space=search.space,
        prefixes=read,
        complete=not stack,
    )


@dataclass(frozen=True)
class _Open:
    """Prefixes that may hide sequences as likely, the likeliest first, not read yet."""

    state: State  # of k prefixes one token shorter
    shorter: Tensor  # (k, t) those, as places in the alphabet
    parent: Tensor  # (m,) which of them each prefix goes on from
    place: Tensor  # (m,) its last token, as a place in the alphabet
    score: Tensor  # (m,) its log-probability, falling


@dataclass(frozen=True, kw_only=True)
class _Search:
    """The sequence, its competitors, and the steps of the search."""

    model: NextToken
    own: Tensor  # (n,) the sequence as places in the alphabet; -1 for a token that is not in it
    score: float  # its log-probability
    alphabet: Tensor  # (a,) token ids
    distinct: bool  # competitors have no token twice
    space: int  # how many competitors there are, the sequence among them if it belongs there
    most: int  # the largest rank that it can have

    @classmethod
    def of(
        cls,
        model: NextToken,
        tokens: Sequence[int],
        alphabet: Sequence[int] | None,
        distinct: bool,
    ) -> "_Search":
        n, size = len(tokens), len(model.vocabulary)
        if not n:
            raise ValueError("tokens must hold at least one id, got none")
        own = torch.tensor([list(tokens)], dtype=torch.int64, device=model.device)
        score = float(text_log_probs(model, [tokens])[0])
        if score == -inf:
            raise ValueError(f"tokens must be possible for the model, got {n} of probability 0")
        ids = torch.tensor(sorted(set(range(size) if alphabet is None else alphabet)))
        if not len(ids) or int(ids[0]) < 0 or int(ids[-1]) >= model.vocab_size:
            raise ValueError(f"alphabet must hold ids below {model.vocab_size}, got others or none")
        places = torch.full((model.vocab_size,), -1, device=model.device)
        places[ids] = torch.arange(len(ids), device=model.device)
        space = perm(len(ids), n) if distinct else len(ids) ** n
        if not space:
            raise ValueError(f"alphabet must hold {n} different ids or more, got {len(ids)}")
        belongs = bool((places[own] >= 0).all()) and not (distinct and len(set(tokens)) < n)
        return cls(
            model=model,
            own=places[own[0]],
            score=score,
            alphabet=ids.to(model.device),
            distinct=distinct,
            space=space,
            most=space + (not belongs),
        )

    @property
    def length(self) -> int:
        return len(self.own)

    @property
    def margin(self) -> float:
        """Scores that differ by less are tied."""
        return TIE * self.length

    def follow(self, state: State, prefixes: Tensor, scores: Tensor) -> list[_Open]:
        """The prefixes one token longer that may hide sequences as likely."""
        values = self._next(state, prefixes, scores)
        parent, place = (values >= self.score - self.margin).nonzero(as_tuple=True)
        score = values[parent, place]
        order = largest(score, len(score), alike=ROUNDED)
        found = _Open(state, prefixes, parent[order], place[order], score[order])
        return [found] if len(score) else []

    def take(self, stack: list[_Open], number: int) -> tuple[State, Tensor, Tensor]:
        """Read the likeliest of the longest open prefixes; the others stay on the stack."""
        top = stack.pop()
        parent, place = top.parent[:number], top.place[:number]
        if len(top.score) > number:
            rest = (top.parent[number:], top.place[number:], top.score[number:])
            stack.append(_Open(top.state, top.shorter, *rest))
        state = self.model.advance(top.state[parent], self.alphabet[place])
        return state, torch.cat([top.shorter[parent], place[:, None]], 1), top.score[:number]

    def count(self, state: State, prefixes: Tensor, scores: Tensor) -> tuple[int, int]:
        """Whole sequences that are likelier than ours, and others tied with it."""
        values = self._next(state, prefixes, scores)
        itself = (prefixes == self.own[:-1]).all(1).nonzero()[:, 0]
        if len(itself) and self.own[-1] >= 0:
            values[itself, self.own[-1]] = -inf
        likelier = int((values > self.score + self.margin).sum())
        return likelier, int((values >= self.score - self.margin).sum()) - likelier

    def bound(self, rest: _Open) -> int:
        """Upper bound on likely sequences that begin with the open prefixes."""
        used = rest.shorter.shape[1] + 1
        left, free = self.length - used, len(self.alphabet)
        all_of_them = perm(free - used, left) if self.distinct else free**left
        log_ratio = rest.score - (self.score - self.margin)
        return sum(min(all_of_them, floor(exp(min(x, _LARGEST)))) for x in log_ratio.tolist())

    def _next(self, state: State, prefixes: Tensor, scores: Tensor) -> Tensor:
        """(k, a) float64 scores of the prefixes one token longer."""
        logits = self.model.logits(state)
        chances = logits[:, self.alphabet] - logits.logsumexp(1, keepdim=True)
        if self.distinct:
            chances.scatter_(1, prefixes, -inf)
        return scores[:, None] + chances
