r"""A model's knowledge of deleted texts, and the share that remains after the deletion.

The knowledge of a model M of the deleted texts beyond the reference, which no model read, is

.. math:: K_M = \overline{s_M}(\text{deleted}) - \overline{s_M}(\text{reference}),

where s is the mean log-probability of a text's tokens, each minus the mean at its position
(`metrics.tests`), and the means are over independent units: near-duplicates, and texts of one
author, are one unit. If there is a model R that was trained without the deleted texts, its score is
subtracted, :math:`s_M - s_R`, which removes the difficulty of each text.

- AFTER still knows them: K_AFTER > 0, by a permutation test of units. If AFTER never read them,
  deleted and reference texts are exchangeable, and the test is exact.
- Remaining share: :math:`K_{AFTER} / K_{BEFORE}`, with Fieller's interval (1954, "Some problems in
  interval estimation", JRSS B 16(2)) over units. There is none if BEFORE is not shown to know the
  texts: then there was nothing to delete.
- Suppression: K_AFTER < 0, and K_AFTER < K_BEFORE. Texts that scored as low before the deletion are
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
from vestige.claims.checks import statistics_checks
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
    """A model's scores of the deleted texts and of the reference, in nats per token.

    Attributes:
        deleted: (n,) mean log-probability of each text's tokens, minus the mean at each position.
        reference: (m,) the same for the reference.
        units: (n,) and (m,) the independent unit of each text; None: each text is one.
        compared: number of tokens of the deleted texts that are compared.
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
        lists, n = (deleted, reference), deleted.offsets.size - 1
        lengths = np.concatenate([np.diff(statistics.offsets) for statistics in lists])
        unit_of = np.arange(lengths.size) if units is None else np.concatenate(units)
        cut = common_length(lengths, unit_of, n)
        log_probs = np.concatenate([s.log_probs.astype(np.float64) for s in lists])
        means = above_position_mean(log_probs, lengths, unit_of, cut=cut)
        compared = int(np.minimum(lengths[:n], cut).sum())
        return cls(deleted=means[:n], reference=means[n:], units=units, compared=compared)

    def __sub__(self, other: "Knowledge") -> "Knowledge":
        return replace(
            self,
            deleted=self.deleted - other.deleted,
            reference=self.reference - other.reference,
        )

    @property
    def by_unit(self) -> tuple[Floats, Floats]:
        """The mean of each unit of the deleted texts, and of the reference."""
        if self.units is None:
            return self.deleted, self.reference
        deleted_units, reference_units = self.units
        return (
            means_by_group(self.deleted, deleted_units),
            means_by_group(self.reference, reference_units),
        )

    @property
    def value(self) -> float:
        """K."""
        deleted, reference = self.by_unit
        return float(deleted.mean() - reference.mean())

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
        """Of K > 0, or with `less` of K < 0, if the model never read the deleted texts."""
        if not self.finite:
            return float("nan")
        deleted, reference = ((-side if less else side) for side in self.by_unit)
        return unit_permutation_test(deleted, reference, seed=seed, permutations=PERMUTATIONS)


def remaining_share(
    before: Knowledge, after: Knowledge, *, confidence: float = 0.95
) -> Estimate | None:
    r"""K_AFTER / K_BEFORE with Fieller's interval.

    .. math:: \{\theta : (K_A - \theta K_B)^2 \le t^2 (v_{AA} - 2 \theta v_{AB} + \theta^2 v_{BB})\}

    with the variances and the covariance v of K_A and K_B: both models read the same texts.

    Returns:
        None if K_BEFORE cannot be distinguished from 0, so that any share is possible, or with
        fewer than two units on a side.
    """
    pairs = list(zip(before.by_unit, after.by_unit, strict=True))
    n = min(scores.size for scores, _ in pairs)
    if n < 2:
        return None
    v = np.sum([np.cov(np.stack(pair)) / pair[0].size for pair in pairs], axis=0)
    t2 = t_quantile(confidence, n - 1) ** 2
    b, a = before.value, after.value
    # the ends are the roots of square * theta^2 - 2 * half * theta + constant
    square, half, constant = b * b - t2 * v[0, 0], a * b - t2 * v[0, 1], a * a - t2 * v[1, 1]
    if b <= 0 or square <= 0:
        return None
    root = float(np.sqrt(max(0.0, half * half - square * constant)))
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
        after: of the model after the deletion.
        retrained: of a model that was trained without the deleted texts.
        checks: all checks of the claim, except "powerful".
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
    before_p, p = before.p_value(seed=seed), after.p_value(seed=seed)
    less_p = after.p_value(seed=seed, less=True)
    if less_p <= rate / 2:
        less_p = max(less_p, (after - before).p_value(seed=seed, less=True))
    share = remaining_share(before, after) if before_p <= rate / 2 and after.finite else None
    units, known, test = [scores.size for scores in after.by_unit], after.estimate, None
    if isfinite(p) and isfinite(less_p):  # both directions, Bonferroni
        least = max(1 / (PERMUTATIONS + 1), 1 / comb(sum(units), units[0]))
        test = Test(min(1.0, 2 * min(p, less_p)), min(1.0, 2 * least), rate, "reference texts")
    if test is not None and test.possible and share is None:
        sentence = (
            f"BEFORE is not shown to know the deleted texts (p = {before_p:.2g}), so nothing can "
            "be verified."
        )
        powerful = Check("powerful", "failed", sentence, (NO_LEAK,))
    else:
        high = None if share is None else share.high
        powerful = claims.bounded(test, high, limit=KNOWLEDGE_LEFT, what="of what BEFORE knew")
    estimate = share or (known if known is not None and known.low is not None else None)
    claim = Claim("unlearning", test, (*checks, powerful), estimate)
    finding = "still known" if p <= less_p else "suppressed"
    summary = {
        **claim.summary(),
        "finding": finding if claim.verdict == LEAK else None,
        "deleted": len(after.deleted),
        "reference": len(after.reference),
        "deleted_units": units[0],
        "reference_units": units[1],
        "rate": rate,
        "p_value": p,
        "less_p_value": less_p,
        "before_p_value": before_p,
        "with_retrained": retrained is not None,
        **columns("before_knows", before.estimate),
        **columns("after_knows", known),
        **columns("retrained_knows", None if retrained is None else retrained.estimate),
        **columns("left", share),
    }
    rows = _rows("deleted", before.deleted, after.deleted, lengths, excerpts)
    rows += _rows("reference", before.reference, after.reference)
    return Result(kind="Deletion", summary=summary, rows=rows, claim=claim)


def _rows(
    kind: str,
    before: Floats,
    after: Floats,
    lengths: Sequence[int] = (),
    excerpts: Sequence[str] = (),
) -> list[dict[str, object]]:
    """One row per text, with its scores by both models."""
    return [
        {
            "kind": kind,
            "number": index + 1,
            "before": before_score,
            "after": after_score,
            "length": lengths[index] if lengths else None,
            "text": excerpts[index] if excerpts else None,
        }
        for index, (before_score, after_score) in enumerate(
            zip(before.tolist(), after.tolist(), strict=True)
        )
    ]


def unlearning_checks(
    readings: Readings, lists: ListedTexts, knowledge: Mapping[str, Knowledge], *, seed: int
) -> tuple[Check, ...]:
    """All checks except "powerful"."""
    by_role = readings.by_model("deleted", "reference")
    scored, total = readings.read
    alive_and_read = statistics_checks(
        {NAMES[role]: statistics for role, statistics in by_role.items()},
        read_tokens=(min(scored, knowledge["after"].compared), total),
    )
    retrained, base = knowledge.get("retrained"), None
    if retrained is not None and retrained.finite:
        base = retrained.deleted, retrained.reference
    comparable = comparable_texts(
        list(lists.compared["deleted"]),
        list(lists.compared["reference"]),
        units=(lists.units["deleted"], lists.units["reference"]),
        base=base,
        who=NAMES["retrained"],
        seed=seed,
    )
    log_probs = {
        role: np.concatenate([texts.log_probs for texts in statistics])
        for role, statistics in by_role.items()
    }
    return *alive_and_read, *different_models(log_probs), lists.check, comparable


def different_models(log_probs: Mapping[str, NDArray[np.float32]]) -> tuple[Check, ...]:
    """The checks "different" of BEFORE and AFTER, and of each with the retrained model.

    If AFTER is the same as BEFORE, that is a finding. If the retrained model is the same as one of
    them, nothing is measured.

    Args:
        log_probs: (t,) of the same tokens by role: "before", "after" and perhaps "retrained".
    """
    pairs = [("before", "after"), ("before", "retrained"), ("after", "retrained")]
    return tuple(
        claims.different(
            log_probs[first],
            log_probs[second],
            finding=second == "after",
            names=(NAMES[first], NAMES[second]),
        )
        for first, second in pairs
        if second in log_probs
    )
