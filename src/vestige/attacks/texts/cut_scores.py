"""Scores of texts over their first tokens, so that texts of unlike length are compared alike.

A score over few tokens spreads more than one over many: among longer texts a short one would look
used too often. So a text and all that it is compared with are cut to one number of tokens, the
largest rung of a ladder that the text reaches, and who has fewer is left out. It is a function of
lengths alone, not of scores, and the same for texts that are audited, for the reference and for
texts known to have been used.

Where so few of the reference have as much that hardly any would be left to compare with, the rung
is the largest that enough of them reach.

With several texts of an author in the reference, each author weighs as one text: the p-value is
that of a text of another author (Lee, Barber and Willett 2023, "Distribution-free inference with
hierarchical data", section 3).
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple, cast

import numpy as np
from numpy.typing import ArrayLike, NDArray

Floats = NDArray[np.float64]
Whole = NDArray[np.int64]

STEP = 2 ** (1 / 8)
"""From rung to rung: a text loses 8 % of its tokens at most."""


def ladder(longest: int) -> Whole:
    """Numbers of tokens that texts are cut to, rising, up to `longest`.

    Example:
        >>> ladder(10).tolist()
        [1, 2, 3, 4, 5, 6, 7, 8, 9, 10]
        >>> ladder(200)[-4:].tolist()
        [152, 166, 181, 197]
    """
    steps = np.arange(int(np.log(longest) / np.log(STEP) + 1e-9) + 1)
    return np.unique(np.rint(STEP**steps)).astype(np.int64)


@dataclass(frozen=True, kw_only=True)
class CutScores:
    """Scores of n texts over their first tokens.

    Attributes:
        lengths: (n,) tokens of each, at least 1.
        rungs: (r,) numbers of tokens, rising from 1.
        scores: (n, r), high for used texts; NaN where a text has fewer tokens.
    """

    lengths: Whole
    rungs: Whole
    scores: Floats

    @classmethod
    def of(
        cls, score: Callable[[Whole, int], Floats], lengths: ArrayLike, rungs: ArrayLike
    ) -> "CutScores":
        """Ask for the scores of every rung.

        Args:
            score: of some texts (places) over so many first tokens, as many scores.
            lengths: (n,) tokens of each text.
            rungs: (r,) numbers of tokens.
        """
        tokens, cuts = np.asarray(lengths, dtype=np.int64), np.asarray(rungs, dtype=np.int64)
        scores = np.full((tokens.size, cuts.size), np.nan)
        for place, cut in enumerate(cuts.tolist()):
            long_enough = np.flatnonzero(tokens >= cut)
            if long_enough.size:
                scores[long_enough, place] = score(long_enough, cut)
        return cls(lengths=tokens, rungs=cuts, scores=scores)

    @classmethod
    def whole(cls, scores: ArrayLike) -> "CutScores":
        """Scores whose texts are compared as they are, of (n,)."""
        values = np.asarray(scores, dtype=np.float64)
        ones = np.ones(values.size, dtype=np.int64)
        return cls(lengths=ones, rungs=ones[:1], scores=values[:, None])

    def __len__(self) -> int:
        return len(self.lengths)

    def take(self, places: ArrayLike) -> "CutScores":
        """Some of the texts."""
        index = np.asarray(places, dtype=np.int64)
        return CutScores(lengths=self.lengths[index], rungs=self.rungs, scores=self.scores[index])

    def __add__(self, other: "CutScores") -> "CutScores":
        return CutScores(
            lengths=np.concatenate([self.lengths, other.lengths]),
            rungs=self.rungs,
            scores=np.concatenate([self.scores, other.scores]),
        )

    def cut_at(self, most: int) -> Whole:
        """(n,) the place of the rung that each text is compared at: `most` is the last one."""
        reached = np.searchsorted(self.rungs, self.lengths, side="right") - 1
        return cast("Whole", np.minimum(reached, most))

    def last_rung(self, fewest: int) -> int:
        """The place of the largest rung that at least so many of the texts reach."""
        longest = int(np.sort(self.lengths)[-fewest])
        return int(np.searchsorted(self.rungs, longest, side="right")) - 1


class Compared(NamedTuple):
    """Texts against a reference.

    Attributes:
        p_values: (n,).
        scores: (n,) over the tokens compared.
        tokens: (n,) compared.
        others: (n,) texts, or authors, of the reference with as many tokens.
    """

    p_values: Floats
    scores: Floats
    tokens: Whole
    others: Whole


def compare(
    texts: CutScores,
    reference: CutScores,
    *,
    most: int,
    authors: ArrayLike | None = None,
    among: bool = False,
) -> Compared:
    r"""Conformal p-values of texts against those of the reference with as many tokens.

    .. math:: p = \frac{1 + \sum_a \frac{1}{n_a} \#\{i \in a : c_i \ge s\}}{1 + A}

    for A authors a of n_a texts; where none are given, each text has its own.

    Args:
        texts: n of them.
        reference: m of them, of the same rungs.
        most: the place of the last rung to be compared at.
        authors: (m,) of the reference.
        among: the texts are the reference, and each is compared with the others of it; texts of
            its own author do not count.

    Returns:
        one of each for every text.

    Example:
        >>> never = CutScores.whole([0.0, 1.0, 2.0, 3.0])
        >>> compare(CutScores.whole([2.5, 0.0]), never, most=0).p_values.tolist()
        [0.4, 1.0]
        >>> compare(never, never, most=0, among=True).p_values.tolist()
        [1.0, 0.75, 0.5, 0.25]
    """
    cuts = texts.cut_at(most)
    owners = np.arange(len(reference)) if authors is None else np.asarray(authors)
    own = texts.scores[np.arange(len(texts)), cuts]
    p_values, others = np.empty(len(texts)), np.empty(len(texts), dtype=np.int64)
    for cut in np.unique(cuts).tolist():
        here = np.flatnonzero(cuts == cut)
        long_enough = np.flatnonzero(reference.lengths >= reference.rungs[cut])
        scores = reference.scores[long_enough, cut]
        _, groups, sizes = np.unique(owners[long_enough], return_inverse=True, return_counts=True)
        order = np.argsort(scores)
        above = np.append(np.cumsum((1 / sizes[groups])[order][::-1])[::-1], 0.0)
        reached = above[np.searchsorted(scores[order], own[here], side="left")]
        others[here] = sizes.size
        if among:
            reached -= _above_own(scores, groups, sizes)[np.searchsorted(long_enough, here)]
            others[here] -= 1
        p_values[here] = (1 + reached) / (1 + others[here])
    tokens = texts.rungs[cuts]
    return Compared(np.minimum(p_values, 1.0), own, tokens, others)


def _above_own(scores: Floats, groups: Whole, sizes: Whole) -> Floats:
    """(m,) the share of each text's own group that scores as high, itself counted."""
    _, ranks = np.unique(scores, return_inverse=True)
    keys = groups * (ranks.max() + 1) + ranks
    below = np.searchsorted(np.sort(keys), keys) - (np.cumsum(sizes) - sizes)[groups]
    return cast("Floats", 1 - below / sizes[groups])
