r"""What a model knows of deleted texts, and how much of what it knew remains.

What a model M knows of the deleted texts beyond the reference, which no model read, is

.. math:: K_M = \overline{s_M}(\text{deleted}) - \overline{s_M}(\text{reference}),

s the mean log-probability of a text's tokens, each less the mean at its position
(`metrics.tests`), and the means over independent units: near-duplicates and texts of one
author are one. A model R that was trained without the deleted texts is subtracted if there is one,
:math:`s_M - s_R`, which removes how difficult each text is.

- AFTER still knows them: K_AFTER > 0, by a permutation test of units. If AFTER never read them,
  deleted and reference texts are exchangeable, and the test is exact.
- What remains: :math:`K_{AFTER} / K_{BEFORE}`, with Fieller's interval (1954, "Some problems in
  interval estimation", JRSS B 16(2)) over units. There is none if BEFORE is not shown to know the
  texts: then there was nothing to delete.
- Suppression: K_AFTER < 0, and K_AFTER < K_BEFORE. Texts that were as low before the deletion are
  not suppressed by it. Both must be significant, so the p-value is the larger one (Berger 1982,
  "Multiparameter Hypothesis Testing and Acceptance Sampling", Technometrics 24(4)).
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from math import comb, isfinite

import numpy as np
from numpy.typing import NDArray

from vestige import _validate, claims
from vestige.claims import LEAK, NO_LEAK, Check, Claim, Estimate, Test
from vestige.claims.checks import model_checks
from vestige.claims.comparable import comparable_texts
from vestige.claims.effects import KNOWLEDGE_LEFT
from vestige.claims.text_lists import ListedTexts
from vestige.metrics.estimates import columns, difference_of_means, t_quantile
from vestige.metrics.tests import (
    above_position_mean,
    common_length,
    means_by_group,
    unit_permutation_test,
)
from vestige.models.snapshots import Readings
from vestige.models.token_statistics import TokenStatistics
from vestige.results import Result

PERMUTATIONS = 9999

NAMES = {"before": "BEFORE", "after": "AFTER", "retrained": "the retrained model"}
"""Models in a sentence, by role."""

Floats = NDArray[np.float64]
Units = tuple[NDArray[np.int64], NDArray[np.int64]]


@dataclass(frozen=True, kw_only=True)
class Knowledge:
    """What a model knows of the deleted texts and of the reference, in nats per token.

    Attributes:
        deleted: (n,) mean log-probability of each text's tokens, less the means at their positions.
        reference: (m,) likewise.
        units: (n,) and (m,) the independent unit of each; None: each text is one.
        compared: tokens of the deleted texts that are compared.
    """

    deleted: Floats
    reference: Floats
    units: Units | None = None
    compared: int = 0

    @classmethod
    def of(
        cls, deleted: TokenStatistics, reference: TokenStatistics, units: Units | None = None
    ) -> "Knowledge":
        """From token statistics, over the positions that enough units of both sides reach."""
        sides, n = (deleted, reference), deleted.offsets.size - 1
        lengths = np.concatenate([np.diff(one.offsets) for one in sides])
        owners = np.arange(lengths.size) if units is None else np.concatenate(units)
        cut = common_length(lengths, owners, n)
        values = np.concatenate([one.log_probs.astype(np.float64) for one in sides])
        means = above_position_mean(values, lengths, owners, cut=cut)
        compared = int(np.minimum(lengths[:n], cut).sum())
        return cls(deleted=means[:n], reference=means[n:], units=units, compared=compared)

    def __sub__(self, other: "Knowledge") -> "Knowledge":
        sides = self.deleted - other.deleted, self.reference - other.reference
        return replace(self, deleted=sides[0], reference=sides[1])

    @property
    def by_unit(self) -> tuple[Floats, Floats]:
        """The mean of each unit of the deleted texts, and of the reference."""
        if self.units is None:
            return self.deleted, self.reference
        own, rest = self.units
        return means_by_group(self.deleted, own), means_by_group(self.reference, rest)

    @property
    def value(self) -> float:
        """K."""
        own, rest = self.by_unit
        return float(own.mean() - rest.mean())

    @property
    def finite(self) -> bool:
        """Whether every score is a number."""
        return all(bool(np.isfinite(side).all()) and side.size > 0 for side in self.by_unit)

    @property
    def estimate(self) -> Estimate | None:
        """K with its 95% interval over units; None if a score is not finite."""
        if not self.finite:
            return None
        name = "what AFTER knows of the deleted texts beyond the reference"
        return replace(difference_of_means(*self.by_unit), name=name, unit="nats per token")

    def p_value(self, *, seed: int, less: bool = False) -> float:
        """That texts which were never read are known as well, or with `less` as badly."""
        if not self.finite:
            return float("nan")
        own, rest = ((-side if less else side) for side in self.by_unit)
        return unit_permutation_test(own, rest, seed=seed, permutations=PERMUTATIONS)


def share_left(before: Knowledge, after: Knowledge, *, confidence: float = 0.95) -> Estimate | None:
    r"""K_AFTER / K_BEFORE with Fieller's interval.

    .. math:: \{\theta : (K_A - \theta K_B)^2 \le t^2 (v_{AA} - 2 \theta v_{AB} + \theta^2 v_{BB})\}

    v the variances and covariance of the two means' differences, since both models read the same
    texts.

    Returns:
        None if K_BEFORE cannot be distinguished from 0, so that any share is possible, or with
        fewer than two units on a side.
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


def verify(
    before: Knowledge,
    after: Knowledge,
    *,
    retrained: Knowledge | None = None,
    checks: Sequence[Check],
    rate: float = 0.05,
    seed: int = 0,
    lengths: Sequence[int] = (),
    excerpts: Sequence[str] = (),
) -> Result:
    """Whether AFTER still knows the texts: one row per deleted text, then one per reference text.

    Args:
        before: of the model that was trained on the deleted texts.
        after: of the model that they were deleted from.
        retrained: of a model that was trained without them.
        checks: all that the claim requires, but "powerful".
        rate: level of both tests together, in (0, 1); each direction has half.
        seed: of the permutations.
        lengths: tokens of each deleted text that were read.
        excerpts: the beginning of each deleted text.

    Raises:
        ValueError: the rate is out of range.
    """
    _validate.open_fraction(rate=rate)
    if retrained is not None:
        before, after = before - retrained, after - retrained
    known, p = before.p_value(seed=seed), after.p_value(seed=seed)
    less = after.p_value(seed=seed, less=True)
    if less <= rate / 2:
        less = max(less, (after - before).p_value(seed=seed, less=True))
    left = share_left(before, after) if known <= rate / 2 and after.finite else None
    counts, own, test = [side.size for side in after.by_unit], after.estimate, None
    if isfinite(p) and isfinite(less):  # both directions, Bonferroni
        least = max(1 / (PERMUTATIONS + 1), 1 / comb(sum(counts), counts[0]))
        test = Test(min(1.0, 2 * min(p, less)), min(1.0, 2 * least), rate, "reference texts")
    if test is not None and test.possible and left is None:
        unknown = f"BEFORE is not shown to know the deleted texts (p = {known:.2g})"
        nothing = f"{unknown}, so nothing can be verified."
        powerful = Check("powerful", "failed", nothing, (NO_LEAK,))
    else:
        high = None if left is None else left.high
        powerful = claims.bounded(test, high, limit=KNOWLEDGE_LEFT, what="of what BEFORE knew")
    estimate = left or (own if own is not None and own.low is not None else None)
    claim = Claim("unlearning", test, (*checks, powerful), estimate)
    finding = "still known" if p <= less else "suppressed"
    summary = {
        **claim.summary(),
        "finding": finding if claim.verdict == LEAK else None,
        "deleted": len(after.deleted),
        "reference": len(after.reference),
        "deleted_units": counts[0],
        "reference_units": counts[1],
        "rate": rate,
        "p_value": p,
        "less_p_value": less,
        "before_p_value": known,
        "with_retrained": retrained is not None,
        **columns("before_knows", before.estimate),
        **columns("after_knows", own),
        **columns("retrained_knows", None if retrained is None else retrained.estimate),
        **columns("left", left),
    }
    sides = {"deleted": (lengths, excerpts), "reference": ((), ())}
    rows = [
        {
            "kind": kind,
            "number": place + 1,
            "before": earlier,
            "after": later,
            "length": tokens[place] if tokens else None,
            "text": texts[place] if texts else None,
        }
        for kind, (tokens, texts) in sides.items()
        for place, (earlier, later) in enumerate(
            zip(getattr(before, kind).tolist(), getattr(after, kind).tolist(), strict=True)
        )
    ]
    return Result(kind="Deletion", summary=summary, rows=rows, claim=claim)


def checks_of(
    read: Readings, lists: ListedTexts, known: Mapping[str, Knowledge], *, seed: int
) -> tuple[Check, ...]:
    """All checks but "powerful"."""
    both = read.by_model("deleted", "reference")
    scored, total = read.read
    alive_and_read = model_checks(
        {NAMES[role]: two for role, two in both.items()},
        read_tokens=(min(scored, known["after"].compared), total),
    )
    other = known.get("retrained")
    comparable = comparable_texts(
        list(lists.compared["deleted"]),
        list(lists.compared["reference"]),
        units=(lists.units["deleted"], lists.units["reference"]),
        base=(other.deleted, other.reference) if other is not None and other.finite else None,
        who=NAMES["retrained"],
        seed=seed,
    )
    log_probs = {role: np.concatenate([one.log_probs for one in two]) for role, two in both.items()}
    return *alive_and_read, *differences(log_probs), lists.check, comparable


def differences(log_probs: Mapping[str, NDArray[np.float32]]) -> tuple[Check, ...]:
    """The checks "different" of BEFORE and AFTER, and of each with the retrained model.

    An AFTER that is BEFORE is a finding. A retrained model that is one of them measures nothing.

    Args:
        log_probs: (t,) of the same tokens by role: "before", "after" and perhaps "retrained".
    """
    pairs = [("before", "after"), ("before", "retrained"), ("after", "retrained")]
    return tuple(
        claims.different(
            log_probs[one],
            log_probs[other],
            finding=other == "after",
            names=(NAMES[one], NAMES[other]),
        )
        for one, other in pairs
        if other in log_probs
    )
