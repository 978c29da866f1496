"""Searches for the phrases that an update promoted most: the paper's beams, and those of `diff`.

Zanella-Béguelin et al. (2020), arXiv:1912.07942, section 2.4 (beam, and the beam that starts with
|T| candidates and halves) and section 3.3 (group beam).

Differs from the paper: prefixes are read once if both models' states of all candidates fit into
`pair.HELD_BYTES`, else again from their last held beginning; the beam x vocabulary table of scores
is computed in slices. So memory stays bounded.
"""

from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor

from vestige import _validate
from vestige.audits.update.folding import fold
from vestige.audits.update.pair import Pair, PairState
from vestige.audits.update.phrases import Text, sort_key
from vestige.audits.update.search import search as seed_and_extend
from vestige.audits.update.settings import Settings
from vestige.models.largest import ROUNDED, largest_by

PAIRS_AND_OPENINGS = Settings(sampling=None, openings=100, pair_vocabulary=None, repaired=0)
"""The search without samples: the gains of all v x v pairs of tokens are computed."""


@dataclass(frozen=True, kw_only=True)
class Beams:
    """The paper's search, from the beginning of a text.

    Attributes:
        length: tokens per phrase.
        width: candidates kept; None starts with the whole vocabulary and halves.
        floor: the smallest width of the halving beam.
        groups: parts of the first tokens that are searched separately.
    """

    length: int = 5
    width: int | None = None
    floor: int = 100
    groups: int = 1

    def widths(self, vocab_size: int) -> list[int]:
        """Candidates kept after each token."""
        if self.width is None:
            return halving_widths(vocab_size, self.length, floor=self.floor)
        return [min(self.width, vocab_size)] + [self.width] * (self.length - 1)


Search = Settings | Beams


class Finding(NamedTuple):
    """A phrase, the number of its near-copies, and the group of the beam that found it."""

    phrase: Text
    copies: int
    group: int


class Beam(NamedTuple):
    """Candidates, best first: (k, t) ids, (k, t) gains of each token given its prefix, and (k,)
    their sums."""

    tokens: Tensor
    gains: Tensor
    score: Tensor


class Children(NamedTuple):
    """The best one-token extensions of some candidates, best first: (k,) the index of the extended
    candidate, the token added, its gain, and the parent's score plus the gain."""

    parent: Tensor
    token: Tensor
    gain: Tensor
    score: Tensor


def findings(pair: Pair, search: Search) -> list[Finding]:
    """All phrases of a search, best first, including repetitions of one token."""
    if isinstance(search, Settings):
        entries = seed_and_extend(pair, search).phrases
        return [Finding(*e, 0) for e in entries if len(e[0].phrase) >= search.min_tokens]
    widths = search.widths(pair.vocab_size)
    if search.groups == 1:
        beams = [beam_search(pair, widths)]
    else:
        beams = group_beam_search(pair, widths, groups=search.groups)
    phrases = [Finding(*entry, n) for n, beam in enumerate(beams) for entry in folded(beam)]
    return sorted(phrases, key=lambda finding: sort_key(finding.phrase))


def null_scores(pair: Pair, search: Search) -> list[float]:
    """Scores of all phrases of a null model, including those too short to report."""
    if isinstance(search, Settings):
        return seed_and_extend(pair, search).null_scores
    return [f.phrase.score for f in findings(pair, search) if not f.phrase.is_repetitive]


def halving_widths(vocab_size: int, length: int, *, floor: int = 1) -> list[int]:
    """|T|, |T|/2, |T|/4, ...: the paper's shrinking beam, never under `floor`.

    Example:
        >>> halving_widths(10_000, 5, floor=100)
        [10000, 5000, 2500, 1250, 625]
    """
    _validate.positive(length=length, floor=floor)
    return [max(floor, vocab_size >> step) for step in range(length)]


@torch.no_grad()
def beam_search(pair: Pair, widths: list[int]) -> Beam:
    """Candidates of len(widths) tokens; widths[i] of them are kept after token i + 1."""
    root = _root(pair)
    first = best_children(pair, root, torch.zeros(1, device=pair.device), widths[0])
    return _grow(pair, root, first, widths[1:])


@torch.no_grad()
def group_beam_search(pair: Pair, widths: list[int], *, groups: int) -> list[Beam]:
    """One beam for each of `groups` equal parts of the one-token candidates by score.

    Each group may grow to the given widths, so one strong beginning cannot crowd out the others.
    """
    root = _root(pair)
    first = best_children(pair, root, torch.zeros(1, device=pair.device), pair.vocab_size)
    parts = torch.arange(len(first.token), device=pair.device).chunk(min(groups, len(first.token)))
    starts = (Children(*(column[part] for column in first)) for part in parts)
    return [_grow(pair, root, start, widths[1:]) for start in starts]


def best_children(pair: Pair, state: PairState, score: Tensor, width: int) -> Children:
    """The `width` best one-token extensions of n candidates, given their states and (n,) scores.

    Exact; equal scores are in the order of candidates and tokens. Only cells above the width-th
    best score so far are compared again.
    """
    best = torch.empty(0, device=pair.device)
    cells = torch.empty(0, dtype=torch.int64, device=pair.device)
    threshold = score.new_tensor(-torch.inf)
    for rows in pair.slices(len(score)):
        row, token, gain = pair.gains_above(state[rows], threshold - score[rows])
        best = torch.cat([best, gain + score[rows][row]])
        cells = torch.cat([cells, (row + rows.start) * pair.vocab_size + token])
        if len(best) > 2 * width:
            order = largest_by(best, cells, width, alike=ROUNDED)
            best, cells = best[order], cells[order]
            threshold = best[-1]
    order = largest_by(best, cells, width, alike=ROUNDED)
    best, cells = best[order], cells[order]
    parent, token = cells // pair.vocab_size, cells % pair.vocab_size
    return Children(parent, token, best - score[parent], best)


def folded(beam: Beam) -> list[tuple[Text, int]]:
    """The distinct phrases of a beam, with the number of their near-copies."""
    rows = zip(*(column.tolist() for column in beam), strict=True)
    return fold(Text(tuple(t), tuple(gains), score=score) for t, gains, score in rows)


def _root(pair: Pair) -> PairState:
    """One empty prefix, at the beginning of a text."""
    return pair.start(torch.empty(1, 0, dtype=torch.int64, device=pair.device))


def _grow(pair: Pair, root: PairState, chosen: Children, widths: list[int]) -> Beam:
    """Extend the chosen first tokens by len(widths) more."""
    tokens, gains, state = chosen.token[:, None], chosen.gain[:, None], root
    for width in widths:
        state = state[chosen.parent].with_next(chosen.token).read_if_small()
        chosen = best_children(pair, state, chosen.score, width)
        tokens = torch.cat([tokens[chosen.parent], chosen.token[:, None]], 1)
        gains = torch.cat([gains[chosen.parent], chosen.gain[:, None]], 1)
    return Beam(tokens, gains, chosen.score)
