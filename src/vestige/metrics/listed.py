r"""Listed texts or users against a reference: scores of equal length, and how many were used.

**Equal length.** A score over few tokens spreads more than one over many: among longer texts, a
short one would look used too often. So a text and all that it is compared with are cut to one
number of tokens, the largest of a ladder that the text reaches, and shorter ones are left out
(`compare`). The number depends on lengths alone, and the rule is the same for all lists. If few
reference texts are as long, it is the largest that enough of them reach. Each author of reference
texts has the same weight: the p-value is that of a text of another author (Lee, Barber and Willett
2023, "Distribution-free inference with hierarchical data", section 3).

**Share used** (`share_used`). How many of n listed texts were used, u, is bounded by how many score
above a threshold t, the k-th largest of m scores of texts that were never used. Of the n - u
others, exchangeable with those,

.. math:: X_0 \sim \mathrm{BetaBinomial}(n - u, k, m + 1 - k)

lie above t, whatever the distribution of scores (Wilks 1941, "Determination of Sample Sizes for
Setting Tolerance Limits"). So a of n above t refute every u for which X_0 can hardly be a - u: a
**lower bound**. An **upper bound** needs h texts that are known to have been used, as the listed
ones would have been. If u of the listed were used, at most a - X_0 of these u lie above t, compared
with c of the h: Fisher's exact test (1935) says whether two samples of one kind can differ so. Each
bound is the best of a few thresholds, fixed in advance as shares of the reference, which share its
error (Bonferroni).
"""

from bisect import bisect_left
from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple, cast

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy import stats

from vestige.metrics.estimates import Floats, finite_scores

Whole = NDArray[np.int64]

STEP = 2 ** (1 / 8)
"""Ratio of one number of tokens to the next: a text loses at most 8% of its tokens."""

SHARES = (0.01, 0.05, 0.25)
"""Of the reference above each threshold: few for scores that tell well, many for others."""


def ladder(longest: int) -> Whole:
    """Numbers of tokens that texts are cut to, rising, up to `longest`: ..., 152, 166, 181, 197."""
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
        """Scores of every rung; `score` is of some texts (positions) over so many first tokens."""
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
    """Texts against a reference, (n,) each: `others` are reference texts, or authors, as long."""

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


@dataclass(frozen=True, kw_only=True)
class ShareUsed:
    """How many of the listed texts were used; `at_most` is None without texts known to be used."""

    listed: int
    at_least: int
    at_most: int | None

    @property
    def consistent(self) -> bool:
        """Whether both bounds can be true; else used texts are unlike those known to be used."""
        return self.at_most is None or self.at_least <= self.at_most


def share_used(
    listed: ArrayLike,
    reference: ArrayLike,
    used: ArrayLike | None = None,
    *,
    confidence: float = 0.95,
) -> ShareUsed:
    """How many of some texts were used, at least and at most.

    Args:
        listed: (n,) scores, high for used texts.
        reference: (m,) scores of texts that were never used, else like those listed that were not.
        used: (h,) scores of texts that were used, like those listed that were.
        confidence: how often each of the two bounds holds, at least; in (0, 1).

    Raises:
        ValueError: scores are none or not finite, or the confidence is out of range.
    """
    asked, never = finite_scores(listed, "listed"), np.sort(finite_scores(reference, "reference"))
    known = None if used is None else finite_scores(used, "used")
    places = sorted({max(1, round(share * (never.size + 1))) for share in SHARES})
    places = [place for place in places if place <= never.size]
    error = (1 - confidence) / len(places)
    lower, upper = 0, asked.size
    for place in places:
        threshold, others = never[-place], _Others(place, never.size)
        # What equals the threshold counts for neither bound.
        above = int((asked > threshold).sum())
        lower = max(lower, _at_least(above, asked.size, others, error))
        if known is not None:
            reached, hits = int((asked >= threshold).sum()), int((known > threshold).sum())
            found = _at_most(reached, asked.size, (hits, known.size), others, error)
            upper = min(upper, found)
    return ShareUsed(listed=asked.size, at_least=lower, at_most=None if known is None else upper)


@dataclass(frozen=True)
class _Others:
    """How many of n texts lie above the `place`-th largest of `never`, all of one kind.

    At least x do if and only if fewer than `place` of the others are among the x + place - 1
    largest of all, a hypergeometric number: a cumulative sum, and not one of n terms for each x.
    """

    place: int
    never: int

    def reach(self, x: int, n: int) -> float:
        """Chance that at least x of n do."""
        if x <= 0:
            return 1.0
        drawn = x + self.place - 1
        return float(stats.hypergeom.cdf(self.place - 1, n + self.never, self.never, drawn))

    def surely(self, n: int, error: float) -> int:
        """The number that is reached but for a chance of at most `error`."""
        return bisect_left(range(n), True, key=lambda x: self.reach(x + 1, n) <= 1 - error)


def _at_least(above: int, listed: int, others: _Others, error: float) -> int:
    """The fewest used texts with which so many above the threshold are no wonder."""
    return bisect_left(
        range(above), True, key=lambda used: others.reach(above - used, listed - used) > error
    )


def _at_most(above: int, listed: int, known: tuple[int, int], others: _Others, error: float) -> int:
    """The most used texts with which so few above the threshold are no wonder.

    The probability of so few of `used` rises with how many may be and falls with `used`: one
    question rules out all numbers between two, and the rest are halved until one is left.
    """
    hits, controls = known

    def possible(fewest: int, used: int) -> bool:
        """Whether any number from `fewest` to `used` can be possible; of one: whether it is."""
        # At least so many of the others are above, but for half of the error.
        left = min(above - others.surely(listed - used, error / 2), used)
        if left < 0:
            return False
        of = min(left, fewest)
        return bool(stats.hypergeom.cdf(of, fewest + controls, of + hits, fewest) > error / 2)

    intervals = [(0, listed)]
    while intervals:
        fewest, used = intervals.pop()
        if not possible(fewest, used):
            continue
        if fewest == used:
            return used
        middle = (fewest + used) // 2
        intervals += [(fewest, middle), (middle + 1, used)]
    return 0
