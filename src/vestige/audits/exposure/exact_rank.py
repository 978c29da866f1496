r"""Exact rank of a sequence by likelihood, or proven bounds of it.

Carlini et al. (2019), "The Secret Sharer", section 4.1 defines the rank, and section 8 finds the
most probable sequences by a search that never enumerates the others. Here that search has bounds on
both sides. A sequence is never more probable than its prefixes, so all prefixes less probable than
the canary are dropped. The rank is exact once all other prefixes are extended to their end. An
unread prefix of probability q has at most

.. math:: \min(\lfloor q / p \rfloor, \; |A|^r)

continuations by r tokens that are as probable as the canary's p, because their probabilities sum to
at most q. So a search with a budget proves bounds.

Differs from the paper, which searches for the most probable sequences from the top: a rank needs
all sequences above a known threshold, in any order. The longest prefixes are read first, so that
few model states exist at a time.
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

_MAX_EXPONENT = 700.0  # e^700 is still a float


@dataclass(frozen=True, kw_only=True)
class ExactRank:
    """The rank of one sequence by likelihood, or proven bounds of it; 1 is the most probable.

    Attributes:
        rank_low, rank_high: bounds of the rank.
        space: number of sequences in the ranking.
        prefixes: prefixes that the search read.
        complete: whether the search was complete; bounds that still differ are ties in float32.
    """

    rank_low: int
    rank_high: int
    space: int
    prefixes: int
    complete: bool

    @property
    def exposure_low(self) -> float:
        """log2(space) - log2(rank_high), in bits."""
        return log2(self.space) - log2(self.rank_high)

    @property
    def exposure_high(self) -> float:
        """log2(space) - log2(rank_low), in bits."""
        return log2(self.space) - log2(self.rank_low)


class _Unread(NamedTuple):
    """Prefixes of t + 1 tokens to read, in descending order of their log-probabilities."""

    state: State  # of the k parents
    parents: Tensor  # (k, t) tokens of the parents, as indices of the alphabet
    parent: Tensor  # (m,) the parent of each prefix
    token: Tensor  # (m,) the last token of each prefix, as an index of the alphabet
    score: Tensor  # (m,) the log-probability of each prefix


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
        alphabet: tokens of the other sequences; None for the complete vocabulary.
        distinct: no token occurs twice in the other sequences.
        budget: most prefixes to read. A sequence of probability p needs n / p or fewer.
        batch: prefixes read at once.
        progress: called with (prefixes read, budget).

    Raises:
        ValueError: an argument is out of range, or the model rules the sequence out.

    Example:
        >>> from vestige.models.table import TableModel
        >>> model = TableModel([0.25, 0.75], [[0.6, 0.4], [0.9, 0.1]])
        >>> rank = exact_rank(model, (0, 1))
        >>> rank.rank_low, rank.rank_high, rank.space
        (3, 3, 4)
    """
    _validate.positive(budget=budget, batch=batch)
    n, device = len(tokens), model.device
    if not n:
        raise ValueError("tokens must hold at least one id, got none")
    own_score = float(text_log_probs(model, [tokens])[0])
    if own_score == -inf:
        raise ValueError(f"tokens must be possible for the model, got {n} of probability 0")
    all_ids = range(len(model.vocabulary)) if alphabet is None else alphabet
    ids = torch.tensor(sorted(set(all_ids)), dtype=torch.int64)
    if not len(ids) or int(ids[0]) < 0 or int(ids[-1]) >= model.vocab_size:
        raise ValueError(f"alphabet must hold ids below {model.vocab_size}, got others or none")
    index_of = torch.full((model.vocab_size,), -1, device=device)
    index_of[ids] = torch.arange(len(ids), device=device)
    # Indices of the tokens in the alphabet; -1 for a token that is not in it.
    own = index_of[torch.tensor(list(tokens), dtype=torch.int64, device=device)]

    def sequences(length: int, used: int = 0) -> int:
        """Number of sequences of a length, after `used` other tokens."""
        return perm(len(ids) - used, length) if distinct else len(ids) ** length

    space = sequences(n)
    if not space:
        raise ValueError(f"alphabet must hold {n} different ids or more, got {len(ids)}")
    in_space = bool((own >= 0).all()) and not (distinct and len(set(tokens)) < n)
    ids, margin = ids.to(device), TIE * n  # scores that differ by less are tied

    def extended_scores(state: State, prefixes: Tensor, scores: Tensor) -> Tensor:
        """(k, a) float64 scores of the prefixes with one more token."""
        logits = model.logits(state)
        log_probs = logits[:, ids] - logits.logsumexp(1, keepdim=True)
        if distinct:
            log_probs.scatter_(1, prefixes, -inf)
        return scores[:, None] + log_probs

    state: State = model.start(1)
    prefixes = torch.empty(1, 0, dtype=torch.int64, device=device)
    scores = torch.zeros(1, dtype=torch.float64, device=device)
    stack: list[_Unread] = []
    read = above = tied = 0
    while True:
        read += len(scores)
        extended = extended_scores(state, prefixes, scores)
        if prefixes.shape[1] + 1 == n:
            own_prefix = (prefixes == own[:-1]).all(1).nonzero()[:, 0]
            if len(own_prefix) and own[-1] >= 0:
                extended[own_prefix, own[-1]] = -inf
            more_probable = int((extended > own_score + margin).sum())
            above += more_probable
            tied += int((extended >= own_score - margin).sum()) - more_probable
        else:
            parent, token = (extended >= own_score - margin).nonzero(as_tuple=True)
            if len(parent):
                score = extended[parent, token]
                order = largest(score, len(score), alike=ROUNDED)
                stack.append(_Unread(state, prefixes, parent[order], token[order], score[order]))
        if progress:
            progress(read, budget)
        if not stack or read >= budget:
            break
        state, parents, parent, token, score = stack.pop()  # of the longest prefixes
        size = min(batch, budget - read)
        if len(score) > size:
            stack.append(_Unread(state, parents, parent[size:], token[size:], score[size:]))
        parent, token, scores = parent[:size], token[:size], score[:size]
        state = model.advance(state[parent], ids[token])
        prefixes = torch.cat([parents[parent], token[:, None]], 1)

    hidden = 0  # sequences of unread prefixes, at most
    for unread in stack:
        used = unread.parents.shape[1] + 1
        most, excess = sequences(n - used, used), unread.score - (own_score - margin)
        hidden += sum(min(most, floor(exp(min(x, _MAX_EXPONENT)))) for x in excess.tolist())
    return ExactRank(
        rank_low=1 + above,
        rank_high=min(space + (not in_space), 1 + above + tied + hidden),
        space=space,
        prefixes=read,
        complete=not stack,
    )
