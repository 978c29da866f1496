r"""Scores of texts or users of unlike length, compared over equally many tokens.

**By length.** A score over few tokens spreads more than one over many: among longer texts, a short
one would look used too often. So a text and all that it is compared with are cut to one number of
tokens, the largest of a ladder that the text reaches, and shorter ones are left out (`compare`).
The number depends on lengths alone, and the rule is the same for all lists. If so few reference
texts are as long that hardly any would remain, it is the largest that enough of them reach.

If an author has several reference texts, each author has the same weight: the p-value is that of a
text of another author (Lee, Barber and Willett 2023, "Distribution-free inference with hierarchical
data", section 3).

**By position.** Later tokens are easier to predict, so the mean of a short text is not comparable
with that of a long one. From each value the mean at its position is subtracted,

.. math:: r_{it} = x_{it} - \frac{\sum_j w_j x_{jt}}{\sum_j w_j},

over all texts j that reach position t, audited and reference alike, each independent unit with the
same weight (`above_position_mean`). The means do not depend on which text is on which side, so that
a permutation test of units is exact as before.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple, cast

import numpy as np
from numpy.typing import ArrayLike, NDArray

Floats = NDArray[np.float64]
Whole = NDArray[np.int64]

STEP = 2 ** (1 / 8)
"""Ratio of one number of tokens to the next: a text loses at most 8% of its tokens."""

FEWEST = 8
"""Independent units on each side from which on their means are compared."""


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
        scores: (n, r), high for members; NaN where a text has fewer tokens.
    """

    lengths: Whole
    rungs: Whole
    scores: Floats

    @classmethod
    def of(
        cls, score: Callable[[Whole, int], Floats], lengths: ArrayLike, rungs: ArrayLike
    ) -> "CutScores":
        """Compute the scores of every rung.

        Args:
            score: of some texts (positions) over so many first tokens.
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
        """Scores (n,) of texts that are compared as they are."""
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
        """(n,) position of the rung at which each text is compared: at most `most`."""
        reached = np.searchsorted(self.rungs, self.lengths, side="right") - 1
        return cast("Whole", np.minimum(reached, most))

    def last_rung(self, fewest: int) -> int:
        """Position of the largest rung that at least so many of the texts reach."""
        longest = int(np.sort(self.lengths)[-fewest])
        return int(np.searchsorted(self.rungs, longest, side="right")) - 1


class Compared(NamedTuple):
    """Texts against a reference, (n,) each.

    Attributes:
        p_values: conformal.
        scores: over the tokens compared.
        tokens: compared.
        others: reference texts, or authors, with as many tokens.
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

    for A authors a of n_a texts; without authors each text has its own.

    Args:
        texts: n of them.
        reference: m of them, with the same rungs.
        most: position of the last rung to be compared at.
        authors: (m,) of the reference.
        among: the texts are the reference, and each is compared with the others of it, except
            those of its own author.

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
    return Compared(np.minimum(p_values, 1.0), own, texts.rungs[cuts], others)


def _above_own(scores: Floats, groups: Whole, sizes: Whole) -> Floats:
    """(m,) the share of each text's own group that scores as high, itself counted."""
    _, ranks = np.unique(scores, return_inverse=True)
    keys = groups * (ranks.max() + 1) + ranks
    below = np.searchsorted(np.sort(keys), keys) - (np.cumsum(sizes) - sizes)[groups]
    return cast("Floats", 1 - below / sizes[groups])


def common_length(lengths: ArrayLike, units: ArrayLike, audited: int) -> int:
    """Positions that enough units of both sides reach.

    Args:
        lengths: (n,) values of each text, the audited texts first.
        units: (n,) the independent unit of each.
        audited: how many of the texts are audited; the rest are the reference.

    Example:
        >>> common_length([9] * 8 + [3] * 8, range(16), 8)
        3
    """
    sizes, owners = np.asarray(lengths, dtype=np.int64), np.asarray(units)
    reached = []
    for side in (slice(audited), slice(audited, None)):
        _, unit = np.unique(owners[side], return_inverse=True)
        longest = np.zeros(unit.max(initial=-1) + 1, dtype=np.int64)
        np.maximum.at(longest, unit, sizes[side])
        ordered = np.sort(longest)[::-1]
        reached.append(int(ordered[min(FEWEST, ordered.size) - 1]) if ordered.size else 0)
    return min(reached)


def above_position_mean(
    values: ArrayLike, lengths: ArrayLike, units: ArrayLike, *, cut: int
) -> Floats:
    """(n,) mean of each text's values less the means at their positions; NaN without a value.

    Args:
        values: (t,) of all texts, one text after the other.
        lengths: (n,) values of each text.
        units: (n,) the independent unit of each.
        cut: positions that are compared, as of `common_length`.

    Example:
        >>> above_position_mean([1, 5, 3], [2, 1], [0, 1], cut=2).tolist()
        [-0.5, 1.0]
    """
    own, sizes = np.asarray(values, dtype=np.float64), np.asarray(lengths, dtype=np.int64)
    _, unit = np.unique(np.asarray(units), return_inverse=True)
    weights = 1 / np.bincount(unit)[unit]
    text = np.repeat(np.arange(sizes.size), sizes)
    position = np.arange(own.size) - np.repeat(np.cumsum(sizes) - sizes, sizes)
    used = position < cut
    own, text, position = own[used], text[used], position[used]
    means = np.bincount(position, weights[text] * own) / np.bincount(position, weights[text])
    counts = np.bincount(text, minlength=sizes.size).astype(np.float64)
    counts[counts == 0] = np.nan
    found: Floats = np.bincount(text, own - means[position], minlength=sizes.size) / counts
    return found
