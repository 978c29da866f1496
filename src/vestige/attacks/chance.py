r"""How high do phrases score by chance? The tail that a null pair shows.

Two snapshots that differ by chance alone give one best score, and the next such pair would
beat it every other time. As in sequence search (Karlin and Altschul 1990, "Methods for
assessing the statistical significance of molecular sequence features by using general scoring
schemes"), the scores of local alignments have an exponential tail: fitted to the best of the
null pair, it tells how many phrases of a score are expected where there is nothing to find.

.. math:: E(s) = k \, \Bigl(1 + \frac{s - b}{k m}\Bigr)^{-k}

with b the score that k of the null's phrases exceed, by m on average. The power is the price of
estimating the scale from k of them: an excess over m has the F distribution with (2, 2k)
degrees of freedom. With k without end it is the exponential.
"""

import math
from collections.abc import Iterable
from dataclasses import dataclass

TAIL = 50
"""Phrases of the null pair that the tail is fitted to, at most."""

LEVEL = 0.05
"""A phrase counts as found where fewer than this many are expected by chance."""


@dataclass(frozen=True)
class Chance:
    """The tail of the scores that a search reaches by chance.

    Attributes:
        best: the highest; 0 where nothing was reached.
        base: the score above which the tail was fitted.
        above: how many phrases of the null pair exceed it, k; 0 where too few to fit were there.
        excess: by how much on average, m.
    """

    best: float
    base: float
    above: int
    excess: float

    @classmethod
    def of(cls, scores: Iterable[float]) -> "Chance":
        """The tail of a null pair's scores, in any order.

        Example:
            >>> Chance.of([0.5, 2.0, 1.0])
            Chance(best=2.0, base=0.5, above=2, excess=1.0)
        """
        ranked = sorted(scores, reverse=True)
        above = min(TAIL, len(ranked) - 1)
        if above < 1 or math.isinf(ranked[above]):
            best = max(ranked, default=0.0)
            return cls(best, best, 0, 0.0)
        base = ranked[above]
        return cls(ranked[0], base, above, math.fsum(s - base for s in ranked[:above]) / above)

    def expected(self, score: float) -> float | None:
        """The E-value: how many phrases of at least this score chance alone would give.

        None where the null pair gave too few phrases to tell, or the score is under `base`.
        """
        if not self.above or score < self.base:
            return None
        if self.excess in (0.0, math.inf):
            return 0.0 if score > self.best else float(self.above)
        ratio = (score - self.base) / (self.above * self.excess)
        return self.above * math.pow(1 + ratio, -self.above)

    @property
    def threshold(self) -> float:
        """The score with E-value `LEVEL`, and never under the null's best."""
        if not self.above:
            return self.best
        growth = math.pow(self.above / LEVEL, 1 / self.above) - 1
        return max(self.best, self.base + self.above * self.excess * growth)
