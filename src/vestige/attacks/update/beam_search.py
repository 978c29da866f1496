"""Beam search for the phrases that an update promoted most: the paper's search.

Zanella-Béguelin et al. (2020), arXiv:1912.07942, section 2.4 (beam, and the beam that
starts with |T| candidates and halves) and section 3.3 (group beam).

Differs from the paper: prefixes are read once where both models' states of all candidates fit
(`prefixes.HELD_BYTES`), and again from their last held beginning where they do not; the beam x
vocabulary table of scores is seen in slices. So memory stays bounded.
"""

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from vestige import _validate
from vestige.attacks.update.model_pair import ModelPair, PairState
from vestige.attacks.update.prefixes import Prefixes
from vestige.models.largest import ROUNDED, largest_by

Progress = Callable[[int, int], None]
"""Called with (rows done, rows in all)."""


@dataclass(frozen=True)
class Beam:
    """Candidates, best first.

    Attributes:
        tokens: (k, t) ids.
        gains: (k, t) score of each token after those before it.
        score: (k,) their sums.
    """

    tokens: Tensor
    gains: Tensor
    score: Tensor


@dataclass(frozen=True)
class Children:
    """The best one-token extensions of some candidates, best first.

    Attributes:
        parent: (k,) row that each extends.
        token: (k,) the token added.
        gain: (k,) its gain.
        score: (k,) the parent's score plus the gain.
    """

    parent: Tensor
    token: Tensor
    gain: Tensor
    score: Tensor


def halving_widths(vocab_size: int, length: int, *, floor: int = 1) -> list[int]:
    """|T|, |T|/2, |T|/4, ...: the paper's shrinking beam, never under `floor`.

    Example:
        >>> halving_widths(10_000, 5, floor=100)
        [10000, 5000, 2500, 1250, 625]
    """
    _validate.positive(length=length, floor=floor)
    return [max(floor, vocab_size >> step) for step in range(length)]


def beam_search(pair: ModelPair, widths: list[int], *, progress: Progress | None = None) -> Beam:
    """Candidates of len(widths) tokens; widths[i] of them are kept after token i + 1."""
    return _grow(pair, _first(pair, widths[0]), widths[1:], progress)


def group_beam_search(
    pair: ModelPair, widths: list[int], *, groups: int, progress: Progress | None = None
) -> list[Beam]:
    """One beam for each of `groups` equal parts of the one-token candidates by score.

    Each group may grow to the widths given, so one strong beginning cannot crowd out
    the others.
    """
    _validate.positive(groups=groups)
    first = _first(pair, pair.vocab_size)
    beams = []
    candidates = torch.arange(len(first.token), device=pair.device)
    for part in candidates.chunk(min(groups, len(candidates))):
        chosen = Children(
            *(getattr(first, name)[part] for name in ("parent", "token", "gain", "score"))
        )
        beams.append(_grow(pair, chosen, widths[1:], progress))
    return beams


def best_children(
    pair: ModelPair,
    read: Callable[[slice], PairState],
    score: Tensor,
    width: int,
    *,
    progress: Callable[[int], None] | None = None,
) -> Children:
    """The `width` best one-token extensions of n candidates.

    Exact, alike scores in the order of their candidates and tokens: only cells that beat the
    width-th best so far are looked at again.

    Args:
        pair: the two snapshots.
        read: what a slice of the candidates has read.
        score: (n,) the candidates' scores.
        width: how many extensions to keep.
        progress: told the rows done.
    """
    # cells of the pool: score, row * v + token
    pool = torch.empty(0, device=pair.device), torch.empty(0, dtype=torch.int64, device=pair.device)
    threshold = torch.tensor(-torch.inf, device=pair.device)
    for rows in pair.slices(len(score)):
        row, token, gain = pair.gains_above(read(rows), threshold - score[rows])
        cell = (row + rows.start) * pair.vocab_size + token
        total = gain + score[rows][row]
        pool = torch.cat([pool[0], total]), torch.cat([pool[1], cell])
        if len(pool[0]) > 2 * width:
            pool, threshold = _prune(pool, width)
        if progress:
            progress(rows.stop)
    (best, cell), _ = _prune(pool, width)
    parent, token = cell // pair.vocab_size, cell % pair.vocab_size
    return Children(parent, token, best - score[parent], best)


def _prune(pool: tuple[Tensor, Tensor], width: int) -> tuple[tuple[Tensor, Tensor], Tensor]:
    """The pool's `width` best cells in order, alike ones by their place, and the last's score."""
    order = largest_by(*pool, width, alike=ROUNDED)
    best = pool[0][order]
    return (best, pool[1][order]), best[-1]


def _first(pair: ModelPair, width: int) -> Children:
    root = Prefixes.start(pair)
    return best_children(pair, root.read, torch.zeros(1, device=pair.device), width)


def _grow(
    pair: ModelPair,
    chosen: Children,
    widths: list[int],
    progress: Progress | None,
) -> Beam:
    """Extend the chosen first tokens by len(widths) more."""
    tokens, gains = chosen.token[:, None], chosen.gain[:, None]
    widest = [len(chosen.token), *widths[:-1]]  # rows read at each step, at most
    done, total = 0, sum(widest)
    prefixes = Prefixes.start(pair)
    for width in widths:
        prefixes = prefixes.extended(chosen.parent, chosen.token)
        report = (lambda rows, before=done: progress(before + rows, total)) if progress else None
        done += len(chosen.token)
        chosen = best_children(pair, prefixes.read, chosen.score, width, progress=report)
        tokens = torch.cat([tokens[chosen.parent], chosen.token[:, None]], 1)
        gains = torch.cat([gains[chosen.parent], chosen.gain[:, None]], 1)
    return Beam(tokens, gains, chosen.score)
