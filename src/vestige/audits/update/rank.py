r"""`vestige diff --phrase`: the differential rank of a phrase among all of its length.

Zanella-Béguelin et al. (2020), arXiv:1912.07942, Definitions 1 and 2:

.. math:: DR(s) = |\{s' \in T^{|s|} : DS(s') > DS(s)\}|

Differs from the paper: it approximates the rank by a beam, which can miss phrases. Here a bounded
search computes it. A token's gain p' - p is at most 1, so a prefix with a score of at most DS(s) -
r and r tokens to go is dropped; if all other prefixes are extended, the count is the exact rank.
The continuations of prefixes beyond the budget are bounded: to pass DS(s) from a prefix that still
needs g, each of the r tokens must gain more than m = g - (r - 1). The positive gains at one
position sum to at most 1, so fewer than 1/m tokens do, and fewer than (1/m)^r continuations pass.
"""

from collections.abc import Callable
from math import log10
from typing import Any, NamedTuple

import torch
from torch import Tensor

from vestige.audits.update.pair import Pair, PairState, Tokens
from vestige.audits.update.scores import TokenScore
from vestige.models.largest import ROUNDED, TIE, largest_by
from vestige.models.protocols import LanguageModel, NextToken, length_limit
from vestige.results import Result

LARGEST = 300.0  # 10 to this power is still a float


class Bounds(NamedTuple):
    """Bounds of the number of phrases of the same length with a higher score."""

    lower: int
    upper: int
    prefixes: int  # that both models read


@torch.no_grad()
def rank_of_phrase(
    before: NextToken,
    after: NextToken,
    tokens: Tokens,
    *,
    budget: int = 20_000,
    delta: float = 0.1,
    progress: Callable[[int, int], None] = lambda *_: None,
) -> Result:
    """Score a phrase at the beginning of a text, and bound its rank among all of its length.

    Args:
        before, after: the two snapshots.
        tokens: the phrase.
        budget: prefixes of each length, from two tokens on, that are extended; each is read by both
            models. Ranks of one and two tokens are always exact.
        delta: floor of the smoothed score.
        progress: called with (prefixes read, most prefixes to read).
    """
    pair = Pair.of(before, after, TokenScore("differential"))
    rows = _profile(pair, tokens)
    bounds = rank_bounds(pair, tokens, budget=budget, progress=progress)

    def score(name: str) -> float:
        [gains] = pair.with_score(TokenScore(name, delta=delta)).token_gains([tokens], context=())
        return float(torch.tensor(gains, dtype=torch.float64).sum())

    summary = {
        "phrase": after.vocabulary.decode(tokens),
        "length": len(tokens),
        "score": score("differential"),
        "relative_score": score("relative"),
        "smoothed_score": score("smoothed"),
        **_with_logarithm("rank_lower", bounds.lower),
        **_with_logarithm("rank_upper", bounds.upper),
        "exact": bounds.lower == bounds.upper,
        "prefixes": bounds.prefixes,
    }
    return Result(kind="DifferentialRank", summary=summary, rows=tuple(rows))


def phrase_tokens(phrase: str, *models: LanguageModel) -> Tokens:
    """The token ids of a phrase.

    Raises:
        ValueError: it is empty, too long for a model, or has unknown words.
    """
    vocabulary, limit = models[0].vocabulary, length_limit(*models)
    tokens = tuple(vocabulary.encode(phrase))
    if not tokens:
        raise ValueError("`phrase` must hold at least one token, got none")
    if vocabulary.unk_id in tokens:
        unknown = [str(n) for n, token in enumerate(tokens, 1) if token == vocabulary.unk_id]
        raise ValueError(
            "`phrase` must hold only words of the models' vocabulary, got others at "
            f"{', '.join(unknown)} of its {len(tokens)} words"
        )
    if limit is not None and len(tokens) > limit:
        raise ValueError(
            f"`phrase` must have at most {limit} tokens, all that the models read at once, got "
            f"{len(tokens)}"
        )
    return tokens


def _profile(pair: Pair, tokens: Tokens) -> list[dict[str, Any]]:
    """One row per token: its probability given the ones before it, in both models (Figure 1)."""
    rows, total = list[dict[str, Any]](), 0.0
    state = pair.start(torch.empty(1, 0, dtype=torch.int64, device=pair.device))
    for position, token in enumerate(tokens):
        before, after = (
            float(texts.logits().log_softmax(1)[0, token].exp())
            for texts in (state.before, state.after)
        )
        total += after - before
        rows.append({
            "position": position,
            "piece": pair.vocabulary.piece(token),
            "token": token,
            "before": before,
            "after": after,
            "gain": after - before,
            "cumulative": total,
        })  # fmt: skip
        state = state.with_next(torch.tensor([token], device=pair.device))
    return rows


def _with_logarithm(name: str, number: int) -> dict[str, int | float | None]:
    """Entries of a summary for an integer, None if it is too large, and its logarithm."""
    logarithm = log10(number) if number else None
    return {name: number if (logarithm or 0.0) < LARGEST else None, f"log10_{name}": logarithm}


class _Frontier(NamedTuple):
    """Prefixes that can still pass the phrase."""

    tokens: Tensor  # (k, t)
    score: Tensor  # (k,)
    state: PairState  # lazy if it would not fit into memory
    dropped: int = 0  # upper bound of the passing phrases with other prefixes


@torch.no_grad()
def rank_bounds(
    pair: Pair,
    tokens: Tokens,
    *,
    budget: int,
    progress: Callable[[int, int], None] = lambda *_: None,
) -> Bounds:
    """Bounds of the rank by the pair's score, which must be the differential one."""
    n, phrase = len(tokens), torch.tensor(tokens, device=pair.device)
    [gains] = pair.token_gains([tokens], context=())
    score = float(torch.tensor(gains).sum())
    state = pair.start(phrase.new_empty(1, 0))
    frontier = _Frontier(phrase.new_empty(1, 0), torch.zeros(1, device=pair.device), state)
    prefixes = 0
    for remaining in range(n - 1, 0, -1):
        width = pair.vocab_size if remaining == n - 1 else budget
        prefixes += len(frontier.score)
        frontier = _extended(pair, frontier, score - TIE * n, remaining, width)
        progress(prefixes, pair.vocab_size + budget * (n - 2))
    higher, tied = _count(pair, frontier, phrase, score)
    upper = min(pair.vocab_size**n - 1, higher + tied + frontier.dropped)
    return Bounds(higher, upper, prefixes + len(frontier.score))


def most_continuations(needed: Tensor, remaining: int, vocab_size: int) -> int:
    """Most continuations of `remaining` tokens that can gain more than (k,) prefixes need.

    Example:
        >>> most_continuations(torch.tensor([0.3, 1.0, -0.5]), 1, 100)
        103
    """
    per_token = needed.double() - (remaining - 1)
    passing = torch.where(per_token > 0, (1 / per_token).ceil() - 1, float(vocab_size))
    passing = passing.clamp(0, vocab_size).long()
    tokens, prefixes = torch.unique(passing, return_counts=True)
    return sum(n * t**remaining for t, n in zip(tokens.tolist(), prefixes.tolist(), strict=True))


def _extended(pair: Pair, old: _Frontier, target: float, remaining: int, width: int) -> _Frontier:
    """The `width` best prefixes with one more token that can pass with `remaining` tokens."""
    scores, cells = torch.empty(0, device=pair.device), old.tokens.new_empty(0)
    threshold, dropped = torch.tensor(target - remaining, device=pair.device), old.dropped

    def drop(values: Tensor) -> None:
        nonlocal dropped
        dropped += most_continuations(target - values, remaining, pair.vocab_size)

    def prune() -> None:
        nonlocal scores, cells
        best = largest_by(scores, cells, width, alike=ROUNDED)
        others = torch.ones_like(scores, dtype=torch.bool)
        others[best] = False
        drop(scores[others])
        scores, cells = scores[best], cells[best]

    for rows in pair.slices(len(old.score)):
        before = old.score[rows]
        row, token, gain = pair.gains_above(old.state[rows], target - remaining - before)
        values = gain + before[row]
        above = values > threshold
        drop(values[~above])
        scores = torch.cat([scores, values[above]])
        cells = torch.cat([cells, (row[above] + rows.start) * pair.vocab_size + token[above]])
        if len(scores) > 2 * width:
            prune()
            threshold = scores[-1]
    prune()
    parent, token = cells // pair.vocab_size, cells % pair.vocab_size
    tokens = torch.cat([old.tokens[parent], token[:, None]], 1)
    state = old.state[parent].with_next(token).read_if_small()
    return _Frontier(tokens, scores, state, dropped)


def _count(pair: Pair, frontier: _Frontier, phrase: Tensor, score: float) -> tuple[int, int]:
    """Other phrases with a prefix of the frontier: those above the score, and those that tie."""
    higher = tied = 0
    margin = TIE * len(phrase)
    is_prefix = (frontier.tokens == phrase[:-1]).all(1)
    for rows in pair.slices(len(frontier.score)):
        before = frontier.score[rows]
        row, token, gain = pair.gains_above(frontier.state[rows], score - margin - before)
        others = ~(is_prefix[rows][row] & (token == phrase[-1]))
        passing = int((gain + before[row] > score + margin)[others].sum())
        higher += passing
        tied += int(others.sum()) - passing
    return higher, tied
