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
from typing import NamedTuple

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


class _Open(NamedTuple):
    """Prefixes that may hide sequences as probable, the most probable first, not read yet."""

    state: State  # of k prefixes one token shorter
    shorter: Tensor  # (k, t) those, as places in the alphabet
    parent: Tensor  # (m,) which of them each prefix continues
    place: Tensor  # (m,) its last token, as a place in the alphabet
    score: Tensor  # (m,) its log-probability, falling


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
    n, device = len(tokens), model.device
    if not n:
        raise ValueError("tokens must hold at least one id, got none")
    given = torch.tensor(list(tokens), dtype=torch.int64, device=device)
    own_score = float(text_log_probs(model, [tokens])[0])
    if own_score == -inf:
        raise ValueError(f"tokens must be possible for the model, got {n} of probability 0")
    chosen = range(len(model.vocabulary)) if alphabet is None else alphabet
    ids = torch.tensor(sorted(set(chosen)), dtype=torch.int64)
    if not len(ids) or int(ids[0]) < 0 or int(ids[-1]) >= model.vocab_size:
        raise ValueError(f"alphabet must hold ids below {model.vocab_size}, got others or none")
    place_of = torch.full((model.vocab_size,), -1, device=device)
    place_of[ids] = torch.arange(len(ids), device=device)
    own = place_of[given]  # -1 for a token that is not in the alphabet

    def sequences(length: int, used: int = 0) -> int:
        return perm(len(ids) - used, length) if distinct else len(ids) ** length

    space = sequences(n)
    if not space:
        raise ValueError(f"alphabet must hold {n} different ids or more, got {len(ids)}")
    belongs = bool((own >= 0).all()) and not (distinct and len(set(tokens)) < n)
    ids, margin = ids.to(device), TIE * n  # scores that differ by less are tied

    def longer(state: State, prefixes: Tensor, scores: Tensor) -> Tensor:
        """(k, a) float64 scores of the prefixes one token longer."""
        logits = model.logits(state)
        log_probs = logits[:, ids] - logits.logsumexp(1, keepdim=True)
        if distinct:
            log_probs.scatter_(1, prefixes, -inf)
        return scores[:, None] + log_probs

    state: State = model.start(1)
    prefixes = torch.empty(1, 0, dtype=torch.int64, device=device)
    scores = torch.zeros(1, dtype=torch.float64, device=device)
    stack: list[_Open] = []
    read = above = level = 0
    while True:
        read += len(scores)
        values = longer(state, prefixes, scores)
        if prefixes.shape[1] + 1 == n:
            itself = (prefixes == own[:-1]).all(1).nonzero()[:, 0]
            if len(itself) and own[-1] >= 0:
                values[itself, own[-1]] = -inf
            likelier = int((values > own_score + margin).sum())
            above += likelier
            level += int((values >= own_score - margin).sum()) - likelier
        else:
            parent, place = (values >= own_score - margin).nonzero(as_tuple=True)
            if len(parent):
                score = values[parent, place]
                order = largest(score, len(score), alike=ROUNDED)
                stack.append(_Open(state, prefixes, parent[order], place[order], score[order]))
        if progress:
            progress(read, budget)
        if not stack or read >= budget:
            break
        state, shorter, parent, place, score = stack.pop()  # of the longest prefixes
        some = min(batch, budget - read)
        if len(score) > some:
            stack.append(_Open(state, shorter, parent[some:], place[some:], score[some:]))
        parent, place, scores = parent[:some], place[:some], score[:some]
        state = model.advance(state[parent], ids[place])
        prefixes = torch.cat([shorter[parent], place[:, None]], 1)

    hidden = 0
    for rest in stack:
        used = rest.shorter.shape[1] + 1
        most, ratios = sequences(n - used, used), rest.score - (own_score - margin)
        hidden += sum(min(most, floor(exp(min(x, _LARGEST)))) for x in ratios.tolist())
    return ExactRank(
        rank_low=1 + above,
        rank_high=min(space + (not belongs), 1 + above + level + hidden),
        space=space,
        prefixes=read,
        complete=not stack,
    )
