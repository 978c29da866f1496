r"""Differential score of a phrase, and its differential rank among all phrases of its length.

Zanella-Béguelin et al. (2020), arXiv:1912.07942, Definitions 1 and 2:

.. math:: DR(s) = |\{s' \in T^{|s|} : DS(s') > DS(s)\}|

Differs from the paper: it approximates the rank by a beam, which can only miss phrases. Here a
bounded search decides it. A token's gain p' - p is at most 1, so a prefix whose score is at
most DS(s) - r, with r tokens to go, is dropped for good; when all others are followed to
their end, the count is the exact rank. When they do not fit the budget, what is left out is
bounded: to pass DS(s) from a prefix that still needs g, each of the r tokens must gain more than
m = g - (r - 1); the positive gains at a step sum to at most 1, so fewer than 1/m tokens do, and
fewer than (1/m)^r continuations pass. These bounds are proven and may be far apart; what lies
between is estimated from samples (`sampled_rank`), which also raise the lower bound by what they
find.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from math import log10

import torch
from torch import Tensor

from vestige import _validate
from vestige.attacks.update.beam_search import Progress, beam_search, halving_widths
from vestige.attacks.update.model_pair import ModelPair
from vestige.attacks.update.prefixes import Prefixes
from vestige.attacks.update.sampled_rank import RankEstimate, Sampling, sampled_rank
from vestige.attacks.update.token_scores import token_score
from vestige.models.checkpoints import check_compatible
from vestige.models.largest import ROUNDED, largest_by
from vestige.models.protocols import NextToken
from vestige.results import Measurement

TIE = 1e-6
"""Scores of float32 that differ by less, a token, cannot be told apart; they widen the bounds."""

_LARGEST = 300.0  # 10^300 is still a float


@dataclass(frozen=True, kw_only=True)
class Position:
    """One token of the phrase, given all before it.

    Attributes:
        token: its id.
        piece: its text.
        before: its probability before the update.
        after: its probability after it.
    """

    token: int
    piece: str
    before: float
    after: float


@dataclass(frozen=True, kw_only=True)
class DifferentialRank(Measurement):
    """How exposed a phrase is by an update.

    Attributes:
        phrase: its text.
        positions: one for each token: the profile over known prefixes (the paper's Figure 1).
        score: differential score, in [-n, n].
        relative_score: relative differential score, at least -n.
        smoothed_score: sum of log((p' + delta) / (p + delta)), in nats.
        rank_lower: at least so many phrases of this length score higher; 0 is most exposed.
        rank_upper: at most so many do.
        beam_rank: rank among the phrases that the paper's halving beam finds; a lower bound.
        in_beam: whether that beam found the phrase itself.
        prefixes: prefixes that the bounded search read.
        estimate: of the rank, from samples, where the bounds do not decide it and one was asked
            for.
    """

    phrase: str
    positions: tuple[Position, ...]
    score: float
    relative_score: float
    smoothed_score: float
    rank_lower: int
    rank_upper: int
    beam_rank: int
    in_beam: bool
    prefixes: int
    estimate: RankEstimate | None = None

    @property
    def exact(self) -> bool:
        """Whether the rank is decided."""
        return self.rank_lower == self.rank_upper

    def summary(self) -> dict[str, object]:
        """One row of a results table."""
        found = self.estimate
        return {
            "phrase": self.phrase,
            "length": len(self.positions),
            "score": self.score,
            "relative_score": self.relative_score,
            "smoothed_score": self.smoothed_score,
            **_sized("rank_lower", self.rank_lower),
            **_sized("rank_upper", self.rank_upper),
            "exact": self.exact,
            **_sized("rank_estimate", self._clipped(found.value if found else None)),
            **_sized("rank_estimate_low", self._clipped(found.low if found else None)),
            **_sized("rank_estimate_high", self._clipped(found.high if found else None)),
            "samples": found.samples if found else 0,
            "hits": found.hits if found else None,
            "effective_runs": found.effective if found else None,
            "beam_rank": self.beam_rank,
            "in_beam": self.in_beam,
            "prefixes": self.prefixes,
        }

    def _clipped(self, estimated: int | None) -> int | None:
        """No estimate goes beyond what is proven."""
        if estimated is None:
            return None
        return min(max(estimated, self.rank_lower), self.rank_upper)

    def rows(self) -> Iterator[dict[str, object]]:
        """One row a token."""
        total = 0.0
        for number, position in enumerate(self.positions):
            gain = position.after - position.before
            total += gain
            yield {
                "position": number,
                "piece": position.piece,
                "token": position.token,
                "before": position.before,
                "after": position.after,
                "gain": gain,
                "cumulative": total,
            }


def _sized(name: str, number: int | None) -> dict[str, int | float | None]:
    """A whole number of any size as entries of a summary; None where no float holds it."""
    logarithm = log10(number) if number else None
    fits = number is not None and (logarithm or 0.0) < _LARGEST
    return {name: number if fits else None, f"log10_{name}": logarithm}


@torch.no_grad()
def differential_rank(
    before: NextToken,
    after: NextToken,
    *,
    tokens: tuple[int, ...],
    budget: int = 20_000,
    delta: float = 0.1,
    sampling: Sampling | None = None,
    progress: Progress | None = None,
) -> DifferentialRank:
    """Score a phrase, and bound its rank among all phrases of its length.

    Args:
        before: the model before the update.
        after: the model after it.
        tokens: the phrase, from the beginning of a text.
        budget: prefixes of each length, from two tokens on, that may be followed; each is read
            by both models and keeps their states. One-token prefixes are all followed, so
            ranks of one and two tokens are always exact.
        delta: floor of the smoothed score.
        sampling: how the rank is estimated where the bounds do not decide it; None: it is not.
        progress: told (prefixes read, prefixes to read at most).

    Raises:
        ValueError: the phrase is empty, an id is none of the vocabulary's, or budget < 1.
        IncompatibleModels: the vocabularies differ.
    """
    check_compatible(before, after)
    _validate.positive(budget=budget)
    if not tokens or not all(0 <= token < after.vocab_size for token in tokens):
        raise ValueError(f"tokens must be ids below {after.vocab_size}, got others or none")
    pair = ModelPair(before, after, token_score("differential"))
    phrase = torch.tensor(tokens, device=pair.device)
    score, relative, smoothed = _scores(pair, phrase, delta)
    bounds = _bounds(pair, tokens, budget, progress)
    estimate = None
    if sampling is not None and bounds.left_out:
        above = score + TIE * len(tokens)
        estimate = sampled_rank(pair, tokens, above=above, sampling=sampling, known=bounds.followed)
    beam = beam_search(pair, halving_widths(pair.vocab_size, len(tokens)))
    own = (beam.tokens == phrase).all(1)
    return DifferentialRank(
        phrase=after.vocabulary.decode(tokens),
        positions=tuple(
            Position(token=token, piece=after.vocabulary.piece(token), before=p, after=q)
            for token, (p, q) in zip(tokens, _profile(pair, phrase), strict=True)
        ),
        score=score,
        relative_score=relative,
        smoothed_score=smoothed,
        rank_lower=bounds.lower + (estimate.seen if estimate else 0),
        rank_upper=bounds.upper,
        beam_rank=int(((beam.score > score + TIE * len(tokens)) & ~own).sum()),
        in_beam=bool(own.any()),
        prefixes=bounds.prefixes,
        estimate=estimate,
    )


def _scores(pair: ModelPair, phrase: Tensor, delta: float) -> Iterator[float]:
    """The phrase's differential, relative and smoothed score."""
    for name in ("differential", "relative", "smoothed"):
        gains = pair.with_score(token_score(name, delta=delta)).token_gains(phrase[None])
        yield float(gains.sum(dtype=torch.float64))


def most_continuations(needed: Tensor, steps: int, vocab_size: int) -> int:
    """How many continuations of `steps` tokens can gain more than is needed, at most.

    Each token must gain more than m = needed - (steps - 1), and fewer than 1/m tokens can.

    Args:
        needed: (k,) gains still missing, one for each prefix that is continued.
        steps: tokens to go, at least 1.
        vocab_size: tokens there are.

    Returns:
        an upper bound of their number over all prefixes, a whole number of any size.

    Example:
        >>> most_continuations(torch.tensor([0.3, 1.0, -0.5]), 1, 100)
        103
    """
    each = needed.double() - (steps - 1)
    passing = torch.where(each > 0, (1 / each).ceil() - 1, float(vocab_size))
    passing = passing.clamp(0, vocab_size).long()
    tokens, prefixes = torch.unique(passing, return_counts=True)
    return sum(n * t**steps for t, n in zip(tokens.tolist(), prefixes.tolist(), strict=True))


def _profile(pair: ModelPair, tokens: Tensor) -> list[tuple[float, float]]:
    """Each token's probability before and after the update, given those before it."""
    profile = []
    state = pair.start(1)
    for token in tokens:
        asked = (pair.before.log_probs(state.before), pair.after.log_probs(state.after))
        before, after = (float(log_probs[0, token].exp()) for log_probs in asked)
        profile.append((before, after))
        state = pair.advance(state, token[None])
    return profile


@dataclass(frozen=True)
class _Frontier:
    """Prefixes that can still pass the phrase, and those left out.

    Attributes:
        tokens: (k, t) the prefixes followed.
        score: (k,) theirs.
        prefixes: the same, for both models to read.
        left_out: bound on the passing phrases under the prefixes not followed.
    """

    tokens: Tensor
    score: Tensor
    prefixes: Prefixes
    left_out: int


@dataclass(frozen=True, kw_only=True)
class _Bounds:
    """What the bounded search proved.

    Attributes:
        lower: at least so many phrases score higher.
        upper: at most so many do.
        left_out: of these, phrases under prefixes that were not followed.
        followed: (k, n - 1) prefixes whose phrases were counted one by one.
        prefixes: prefixes read.
    """

    lower: int
    upper: int
    left_out: int
    followed: Tensor
    prefixes: int


@torch.no_grad()
def rank_bounds(
    pair: ModelPair,
    tokens: tuple[int, ...],
    *,
    budget: int,
    progress: Progress | None = None,
) -> tuple[int, int, int]:
    """(lower, upper) bounds of the rank by differential score, and the prefixes read."""
    found = _bounds(pair, tokens, budget, progress)
    return found.lower, found.upper, found.prefixes


def _bounds(
    pair: ModelPair, tokens: tuple[int, ...], budget: int, progress: Progress | None
) -> _Bounds:
    n, read = len(tokens), 0
    own = torch.tensor(tokens, device=pair.device)
    score = float(pair.token_gains(own[None]).sum())
    frontier = _Frontier(
        own.new_empty(1, 0), torch.zeros(1, device=pair.device), Prefixes.start(pair), 0
    )
    for left in range(n - 1, 0, -1):
        width = pair.vocab_size if left == n - 1 else budget
        read += len(frontier.score)
        frontier = _follow(pair, frontier, score - TIE * n, left, width)
        if progress:
            progress(read, pair.vocab_size + budget * (n - 2))
    higher, tied = _count(pair, frontier, own, score)
    most = pair.vocab_size**n - 1
    return _Bounds(
        lower=higher,
        upper=min(most, higher + tied + frontier.left_out),
        left_out=frontier.left_out,
        followed=frontier.tokens,
        prefixes=read + len(frontier.score),
    )


def _follow(
    pair: ModelPair, frontier: _Frontier, target: float, left: int, width: int
) -> _Frontier:
    """The `width` best prefixes one token longer that can still pass, with `left` to go."""
    scores, cells = torch.empty(0, device=pair.device), frontier.tokens.new_empty(0)
    threshold = torch.tensor(target - left, device=pair.device)
    left_out = 0

    def bound(dropped: Tensor) -> int:
        return most_continuations(target - dropped, left, pair.vocab_size)

    for rows in pair.slices(len(frontier.score)):
        before = frontier.score[rows]
        row, token, gain = pair.gains_above(frontier.prefixes.read(rows), target - left - before)
        values = gain + before[row]
        kept = values > threshold
        left_out += bound(values[~kept])
        scores = torch.cat([scores, values[kept]])
        cells = torch.cat([cells, (row[kept] + rows.start) * pair.vocab_size + token[kept]])
        if len(scores) > 2 * width:
            scores, cells, dropped = _best(scores, cells, width)
            left_out += bound(dropped)
            threshold = scores[-1]
    scores, cells, dropped = _best(scores, cells, width)
    left_out += bound(dropped)
    parent, token = cells // pair.vocab_size, cells % pair.vocab_size
    return _Frontier(
        torch.cat([frontier.tokens[parent], token[:, None]], 1),
        scores,
        frontier.prefixes.extended(parent, token),
        frontier.left_out + left_out,
    )


def _best(scores: Tensor, cells: Tensor, width: int) -> tuple[Tensor, Tensor, Tensor]:
    """The `width` best scores, alike ones in the order of their cells; and the other scores."""
    order = largest_by(scores, cells, width, alike=ROUNDED)
    others = torch.ones_like(scores, dtype=torch.bool)
    others[order] = False
    return scores[order], cells[order], scores[others]


def _count(pair: ModelPair, frontier: _Frontier, own: Tensor, score: float) -> tuple[int, int]:
    """Phrases that begin with a followed prefix: how many pass the score, how many tie it.

    The phrase itself counts as neither.
    """
    higher = tied = 0
    margin = TIE * len(own)
    itself = (frontier.tokens == own[:-1]).all(1)
    for rows in pair.slices(len(frontier.score)):
        before = frontier.score[rows]
        row, token, gain = pair.gains_above(frontier.prefixes.read(rows), score - margin - before)
        others = ~(itself[rows][row] & (token == own[-1]))
        passing = int((gain + before[row] > score + margin)[others].sum())
        higher += passing
        tied += int(others.sum()) - passing
    return higher, tied
