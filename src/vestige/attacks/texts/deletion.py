r"""Whether a model still knows texts that were deleted, and how much of what it knew is left.

What a model M knows of the deleted texts beyond the reference, which no model read, is

.. math:: K_M = \overline{s_M}(\text{deleted}) - \overline{s_M}(\text{reference}),

s the mean log-probability of a text's tokens, each less the mean at its position (`positions`), and
the means over independent units: near-duplicates and texts of one author are one. A model R that
was trained without the deleted texts is subtracted where there is one, :math:`s_M - s_R`, which
removes how hard each text is.

- Whether AFTER still knows them: K_AFTER > 0, by a permutation test of units. Where AFTER never
  read them, deleted and reference texts are exchangeable, and the test is exact.
- What is left: :math:`K_{AFTER} / K_{BEFORE}`, with Fieller's interval (1954, "Some problems in
  interval estimation", JRSS B 16(2)) over units. There is none where BEFORE is not shown to know
  the texts: then there was nothing to delete.
- Suppression: K_AFTER < 0, and K_AFTER < K_BEFORE. Texts that were as low before the deletion are
  not suppressed by it. Both must be significant, so the p-value is the larger one (Berger 1982,
  "Multiparameter Hypothesis Testing and Acceptance Sampling", Technometrics 24(4)).
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from math import comb, isfinite
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from vestige import _validate, claims
from vestige.attacks.texts.positions import above_position_mean, common_length
from vestige.claims import LEAK, NO_LEAK, Check, Claim, Estimate, Test, Verdict
from vestige.claims.effects import KNOWLEDGE_LEFT
from vestige.metrics.estimates import columns, difference_of_means, t_quantile
from vestige.metrics.permutation import means_by_group, unit_permutation_test
from vestige.models.token_statistics import TokenStatistics
from vestige.results import Measurement

PERMUTATIONS = 9999
NAMES = {"before": "BEFORE", "after": "AFTER", "retrained": "the retrained model"}
"""Models in a sentence, by role."""

Floats = NDArray[np.float64]
Finding = Literal["still known", "suppressed"]


@dataclass(frozen=True, kw_only=True)
class Knowledge:
    """What a model knows of the deleted texts and of the reference, in nats per token.

    Attributes:
        deleted: (n,) mean log-probability of each text's tokens, less the means at their positions.
        reference: (m,) likewise.
        units: (n,) and (m,) the independent unit of each; None: each text is one.
    """

    deleted: Floats
    reference: Floats
    units: tuple[NDArray[np.int64], NDArray[np.int64]] | None = None

    @classmethod
    def of(
        cls,
        deleted: TokenStatistics,
        reference: TokenStatistics,
        units: tuple[NDArray[np.int64], NDArray[np.int64]] | None = None,
    ) -> "Knowledge":
        """From token statistics, over the positions that enough units of both sides reach."""
        lengths, owners, cut = _positions(deleted, reference, units)
        values = np.concatenate([one.log_probs.astype(np.float64) for one in (deleted, reference)])
        means = above_position_mean(values, lengths, owners, cut=cut)
        n = deleted.offsets.size - 1
        return cls(deleted=means[:n], reference=means[n:], units=units)

    def __sub__(self, other: "Knowledge") -> "Knowledge":
        return Knowledge(
            deleted=self.deleted - other.deleted,
            reference=self.reference - other.reference,
            units=self.units,
        )

    @cached_property
    def by_unit(self) -> tuple[Floats, Floats]:
        """The mean of each unit of the deleted texts, and of the reference."""
        if self.units is None:
            return self.deleted, self.reference
        return (
            means_by_group(self.deleted, self.units[0]),
            means_by_group(self.reference, self.units[1]),
        )

    @property
    def value(self) -> float:
        """K."""
        own, rest = self.by_unit
        return float(own.mean() - rest.mean())

    @property
    def estimate(self) -> Estimate | None:
        """K with its 95% interval over units; None where a score is no number."""
        if not self.finite:
            return None
        found = difference_of_means(*self.by_unit)
        name = "what AFTER knows of the deleted texts beyond the reference"
        return replace(found, name=name, unit="nats per token")

    @property
    def finite(self) -> bool:
        """Whether every score is a number."""
        return all(bool(np.isfinite(side).all()) and side.size > 0 for side in self.by_unit)

    def p_value(self, *, seed: int, less: bool = False) -> float:
        """That texts which were never read are known as well, or with `less` as badly."""
        if not self.finite:
            return float("nan")
        own, rest = ((-side if less else side) for side in self.by_unit)
        return unit_permutation_test(own, rest, seed=seed, permutations=PERMUTATIONS)


def compared_tokens(
    deleted: TokenStatistics,
    reference: TokenStatistics,
    units: tuple[NDArray[np.int64], NDArray[np.int64]] | None = None,
) -> int:
    """How many tokens of the deleted texts `Knowledge.of` compares."""
    _, _, cut = _positions(deleted, reference, units)
    return int(np.minimum(np.diff(deleted.offsets), cut).sum())


@dataclass(frozen=True, kw_only=True)
class Deletion(Measurement):
    """Whether deleted texts are still known.

    Attributes:
        before: what BEFORE knows, less what the retrained model does where there is one.
        after: what AFTER knows, likewise.
        retrained: what the retrained model knows; None without one.
        before_p_value: that BEFORE knows the deleted texts no better than the reference.
        p_value: that AFTER knows them no better; NaN where a score is not finite.
        less_p_value: that AFTER knows them no worse, or no worse than BEFORE did; likewise.
        left: share of what BEFORE knew that AFTER knows; None where BEFORE knows nothing.
        rate: level of both tests together, in (0, 1).
        checks: all that the claim requires but "powerful".
        excerpts: the beginning of each deleted text.
        tokens: of each deleted text, as many as were read.
    """

    before: Knowledge
    after: Knowledge
    retrained: Knowledge | None
    before_p_value: float
    p_value: float
    less_p_value: float
    left: Estimate | None
    rate: float = 0.05
    checks: tuple[Check, ...] = ()
    excerpts: Sequence[str] = ()
    tokens: Sequence[int] = ()

    @property
    def claim(self) -> Claim:
        """Whether AFTER still knows the texts, or knows them too little."""
        test = self._test()
        return Claim("unlearning", test, (*self.checks, self._powerful(test)), self._estimate())

    @property
    def verdict(self) -> Verdict:
        """The verdict of the claim."""
        return self.claim.verdict

    @property
    def finding(self) -> Finding | None:
        """What was found where the verdict is a leak."""
        if self.verdict != LEAK:
            return None
        return "still known" if self.p_value <= self.less_p_value else "suppressed"

    def _test(self) -> Test | None:
        """Both directions, Bonferroni."""
        if not (isfinite(self.p_value) and isfinite(self.less_p_value)):
            return None
        n, m = (side.size for side in self.after.by_unit)
        least = max(1 / (PERMUTATIONS + 1), 1 / comb(n + m, n))
        p = 2 * min(self.p_value, self.less_p_value)
        return Test(min(1.0, p), min(1.0, 2 * least), self.rate, "reference texts")

    def _powerful(self, test: Test | None) -> Check:
        if test is not None and test.possible and self.left is None:
            return Check(
                "powerful", "failed",
                f"BEFORE is not shown to know the deleted texts (p = {self.before_p_value:.2g}), "
                "so nothing can be verified.",
                (NO_LEAK,),
            )  # fmt: skip
        high = None if self.left is None else self.left.high
        return claims.bounded(test, high, limit=KNOWLEDGE_LEFT, what="of what BEFORE knew")

    def _estimate(self) -> Estimate | None:
        known = self.after.estimate
        return self.left or (known if known is not None and known.low is not None else None)

    def summary(self) -> dict[str, object]:
        """Verdict, p-values, what each model knows, and the share left."""
        known = {"before": self.before, "after": self.after, "retrained": self.retrained}
        found: dict[str, object] = {
            **self.claim.summary(),
            "finding": self.finding,
            "deleted": len(self.after.deleted),
            "reference": len(self.after.reference),
            "deleted_units": len(self.after.by_unit[0]),
            "reference_units": len(self.after.by_unit[1]),
            "rate": self.rate,
            "p_value": self.p_value,
            "less_p_value": self.less_p_value,
            "before_p_value": self.before_p_value,
            "with_retrained": self.retrained is not None,
        }
        for name, one in known.items():
            found |= columns(f"{name}_knows", None if one is None else one.estimate)
        found |= columns("left", self.left)
        return found

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
    checks: Sequence[Check] = (),
    rate: float = 0.05,
    seed: int = 0,
) -> Deletion:
    """Whether AFTER still knows the deleted texts.

    Args:
        before: of the model that was trained on them.
        after: of the model that they were deleted from.
        retrained: of a model that was trained without them.
        checks: that the claim requires, but "powerful".
        rate: level of both tests together, in (0, 1); each direction has half.
        seed: of the permutations.

    Raises:
        ValueError: the rate is out of range.
    """
    _validate.open_fraction(rate=rate)
    if retrained is not None:
        before, after = before - retrained, after - retrained
    known = before.p_value(seed=seed)
    less = after.p_value(seed=seed, less=True)
    if less <= rate / 2:
        less = max(less, (after - before).p_value(seed=seed, less=True))
    return Deletion(
        before=before,
        after=after,
        retrained=retrained,
        before_p_value=known,
        p_value=after.p_value(seed=seed),
        less_p_value=less,
        left=share_left(before, after) if known <= rate / 2 and after.finite else None,
        rate=rate,
        checks=tuple(checks),
    )


def differences(log_probs: Mapping[str, NDArray[np.float32]]) -> tuple[Check, ...]:
    """The checks "different" of BEFORE and AFTER, and of each with the retrained model.

    That AFTER is BEFORE is a finding. A retrained model that is one of them measures nothing.

    Args:
        log_probs: (t,) of the same tokens by role: "before", "after" and perhaps "retrained".
    """
    pairs = [("before", "after")]
    if "retrained" in log_probs:
        pairs += [("before", "retrained"), ("after", "retrained")]
    return tuple(
        claims.different(
            log_probs[one],
            log_probs[other],
            finding=other == "after",
            names=(NAMES[one], NAMES[other]),
        )
        for one, other in pairs
    )


def share_left(before: Knowledge, after: Knowledge, *, confidence: float = 0.95) -> Estimate | None:
    r"""K_AFTER / K_BEFORE with Fieller's interval.

    .. math:: \{\theta : (K_A - \theta K_B)^2 \le t^2 (v_{AA} - 2 \theta v_{AB} + \theta^2 v_{BB})\}

    v the variances and covariance of the two means' differences, since both models read the same
    texts.

    Args:
        before: what BEFORE knows.
        after: what AFTER knows, of the same texts in the same order.
        confidence: how often the interval covers the ratio, in (0, 1).

    Returns:
        the ratio; None where K_BEFORE cannot be told from 0, so that any share is possible,
        and with fewer than two units on a side.
    """
    sides = list(zip(before.by_unit, after.by_unit, strict=True))
    n = min(own.size for own, _ in sides)
    if n < 2:
        return None
    v = np.sum([np.cov(np.stack(side)) / side[0].size for side in sides], axis=0)
    t2 = t_quantile(confidence, n - 1) ** 2
    b, a = before.value, after.value
    square, half, rest = b * b - t2 * v[0, 0], a * b - t2 * v[0, 1], a * a - t2 * v[1, 1]
    if b <= 0 or square <= 0:
        return None
    root = float(np.sqrt(max(0.0, half * half - square * rest)))
    ends = float((half - root) / square), float((half + root) / square)
    return Estimate("remaining share of what BEFORE knew", a / b, *ends)


def _positions(
    deleted: TokenStatistics,
    reference: TokenStatistics,
    units: tuple[NDArray[np.int64], NDArray[np.int64]] | None,
) -> tuple[NDArray[np.int64], NDArray[np.int64], int]:
    """Lengths and units of all texts, the deleted first, and the positions that are compared."""
    lengths = np.concatenate([np.diff(one.offsets) for one in (deleted, reference)])
    owners = np.arange(lengths.size) if units is None else np.concatenate(units)
    return lengths, owners, common_length(lengths, owners, deleted.offsets.size - 1)
