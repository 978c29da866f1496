r"""Whether a model still knows texts that were deleted, and how much of what it knew is left.

What a model M knows of the deleted texts beyond what anybody knows of such texts is

.. math:: K_M = \overline{s_M}(\text{deleted}) - \overline{s_M}(\text{reference}),

s the mean log-probability of a text's first tokens, and the reference texts that no model ever
saw. A model R that was trained without the deleted texts is subtracted where there is one,
:math:`s_M - s_R`, which takes away how hard each text is.

- Whether AFTER still knows them: K_AFTER > 0, by a permutation test of whole texts. Where AFTER
  never saw them, deleted and reference texts are exchangeable, and the test is exact.
- What is left: :math:`K_{AFTER} / K_{BEFORE}`, with Fieller's interval (1954, "Some problems in
  interval estimation", JRSS B 16(2)) over texts. It is nothing where BEFORE is not shown to know
  them: then there was nothing to delete.
- The other direction: K_AFTER < 0 says that AFTER knows them less than texts that it never saw,
  which tells them apart as well.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy import stats

from vestige import _validate
from vestige.attacks.texts.shift import WordShift
from vestige.attacks.texts.statistics_of_parts import first_tokens
from vestige.attacks.texts.token_statistics import TokenStatistics
from vestige.errors import DataError
from vestige.metrics.differences import difference_of_means
from vestige.metrics.intervals import Interval, columns
from vestige.metrics.unit_permutation import unit_permutation_test
from vestige.result import Result

FEWEST = 8
"""Texts on a side from which on means of texts are compared."""

Floats = NDArray[np.float64]
Verdict = Literal["not decided", "still known", "suppressed", "not shown"]


@dataclass(frozen=True, kw_only=True)
class Knowledge:
    """What a model knows of the deleted texts, in nats a token.

    Attributes:
        deleted: (n,) mean log-probability of each text's tokens.
        reference: (m,) likewise.
    """

    deleted: Floats
    reference: Floats

    @classmethod
    def of(cls, deleted: TokenStatistics, reference: TokenStatistics) -> "Knowledge":
        """From token statistics, over as many tokens on both sides at most: the median of all."""
        lengths = [np.diff(one.offsets) for one in (deleted, reference)]
        most = int(np.median(np.concatenate(lengths)))
        return cls(deleted=text_means(deleted, most), reference=text_means(reference, most))

    def __sub__(self, other: "Knowledge") -> "Knowledge":
        return Knowledge(
            deleted=self.deleted - other.deleted, reference=self.reference - other.reference
        )

    @property
    def value(self) -> float:
        """K."""
        return float(self.deleted.mean() - self.reference.mean())

    def interval(self) -> Interval | None:
        """Of K, over texts."""
        return difference_of_means(self.deleted, self.reference)

    def p_value(self, *, seed: int, less: bool = False) -> float:
        """That texts never seen are known as well, or with `less` as badly."""
        sign = -1 if less else 1
        return unit_permutation_test(sign * self.deleted, sign * self.reference, seed=seed)


@dataclass(frozen=True, kw_only=True)
class Deletion(Result):
    """Whether deleted texts are still known.

    Attributes:
        before: what BEFORE knows, less what the retrained model does where there is one.
        after: what AFTER knows, likewise.
        retrained: what the retrained model knows; None without one.
        before_p_value: that BEFORE knows the deleted texts no better than others.
        p_value: that AFTER knows them no better.
        less_p_value: that AFTER knows them no worse.
        left: share of what BEFORE knew that AFTER knows; None where BEFORE knows nothing.
        rate: level of the tests, in (0, 1).
        shift: what the words alone tell; None where nobody asked.
        excerpts: the beginning of each deleted text.
        tokens: of each deleted text, as many as were read.
    """

    before: Knowledge
    after: Knowledge
    retrained: Knowledge | None
    before_p_value: float
    p_value: float
    less_p_value: float
    left: tuple[float, Interval] | None
    rate: float = 0.05
    shift: WordShift | None = None
    excerpts: Sequence[str] = ()
    tokens: Sequence[int] = ()

    @property
    def told_apart(self) -> bool:
        """Whether a classifier that knows no model tells deleted texts from the reference."""
        return self.shift is not None and self.shift.told_apart

    @property
    def verdict(self) -> Verdict:
        """Each direction has half of the rate.

        Nothing is decided where words alone tell deleted texts from the reference, unless a
        retrained model says how hard each text is.
        """
        if self.told_apart and self.retrained is None:
            return "not decided"
        if self.p_value <= self.rate / 2:
            return "still known"
        return "suppressed" if self.less_p_value <= self.rate / 2 else "not shown"

    def summary(self) -> dict[str, object]:
        """Verdict, p-values, what each model knows, and the share left."""
        known = {"before": self.before, "after": self.after, "retrained": self.retrained}
        told: dict[str, object] = {
            "verdict": self.verdict,
            "deleted": len(self.after.deleted),
            "reference": len(self.after.reference),
            "rate": self.rate,
            "p_value": self.p_value,
            "less_p_value": self.less_p_value,
            "before_p_value": self.before_p_value,
            "with_retrained": self.retrained is not None,
            "shift_auc": None if self.shift is None else self.shift.auc,
            "told_apart": self.told_apart,
        }
        for name, one in known.items():
            value, ends = (None, None) if one is None else (one.value, one.interval())
            told |= columns(f"{name}_knows", value, ends)
        told |= columns("left", *(self.left or (None, None)))
        return told

    def rows(self) -> Iterator[dict[str, object]]:
        """One row a deleted text, in their order; then one a text of the reference."""
        for kind in ("deleted", "reference"):
            own, base = getattr(self.after, kind), getattr(self.before, kind)
            for place, (after, before) in enumerate(zip(own.tolist(), base.tolist(), strict=True)):
                here = kind == "deleted"
                yield {
                    "kind": kind,
                    "number": place + 1,
                    "before": before,
                    "after": after,
                    "length": self.tokens[place] if here and self.tokens else None,
                    "text": self.excerpts[place] if here and self.excerpts else None,
                }


def verify(
    before: Knowledge,
    after: Knowledge,
    *,
    retrained: Knowledge | None = None,
    rate: float = 0.05,
    seed: int = 0,
) -> Deletion:
    """Whether AFTER still knows the deleted texts.

    Args:
        before: of the model that was trained on them.
        after: of the model that they were deleted from.
        retrained: of a model that was trained without them.
        rate: level of the tests, in (0, 1); each direction has half.
        seed: of the permutations.

    Raises:
        ValueError: the rate is out of range.
        DataError: there are too few texts on a side.
    """
    _validate.open_fraction(rate=rate)
    _require_enough(after)
    if retrained is not None:
        before, after = before - retrained, after - retrained
    known = before.p_value(seed=seed)
    return Deletion(
        before=before,
        after=after,
        retrained=retrained,
        before_p_value=known,
        p_value=after.p_value(seed=seed),
        less_p_value=after.p_value(seed=seed, less=True),
        left=share_left(before, after) if known <= rate / 2 else None,
        rate=rate,
    )


def share_left(
    before: Knowledge, after: Knowledge, *, confidence: float = 0.95
) -> tuple[float, Interval] | None:
    r"""K_AFTER / K_BEFORE with Fieller's interval.

    .. math:: \{\theta : (K_A - \theta K_B)^2 \le t^2 (v_{AA} - 2 \theta v_{AB} + \theta^2 v_{BB})\}

    v the variances and covariance of the two means' differences, since both models read the same
    texts.

    Args:
        before: what BEFORE knows.
        after: what AFTER knows, of the same texts in the same order.
        confidence: how often the interval covers the ratio, in (0, 1).

    Returns:
        (ratio, interval); None where K_BEFORE cannot be told from 0, so that any share is possible.
    """
    v = _covariance(before.deleted, after.deleted) + _covariance(before.reference, after.reference)
    n = min(len(after.deleted), len(after.reference))
    t2 = float(stats.t.isf((1 - confidence) / 2, n - 1)) ** 2
    b, a = before.value, after.value
    square, half, rest = b * b - t2 * v[0, 0], a * b - t2 * v[0, 1], a * a - t2 * v[1, 1]
    if b <= 0 or square <= 0:
        return None
    root = float(np.sqrt(max(0.0, half * half - square * rest)))
    return a / b, Interval((half - root) / square, (half + root) / square)


def text_means(statistics: TokenStatistics, most: int | None = None) -> Floats:
    """(n,) the mean log-probability of each text's first tokens, `most` of them at most."""
    statistics = first_tokens(statistics, np.arange(statistics.offsets.size - 1), most)
    starts, lengths = statistics.offsets[:-1], np.diff(statistics.offsets)
    sums: Floats = np.add.reduceat(statistics.log_probs.astype(np.float64), starts)
    return sums / lengths


def _covariance(first: ArrayLike, second: ArrayLike) -> Floats:
    """(2, 2) of the two means over the same texts."""
    found: Floats = np.cov(np.stack([first, second]))
    return found / np.asarray(first).size


def _require_enough(known: Knowledge) -> None:
    for name in ("deleted", "reference"):
        count = len(getattr(known, name))
        if count < FEWEST:
            raise DataError(
                f"`{name}` holds {count} texts: too few to say how much they differ by chance",
                remedy=f"Give {FEWEST} or more, {FEWEST - count} besides these.",
            )
