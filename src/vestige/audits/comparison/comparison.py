"""Comparison of defences: leakage, utility, fairness and cost side by side.

Mireshghallah et al. (2021), "Privacy Regularization: Joint Privacy-Utility Optimization in
Language Models", NAACL: Table 1 and Figures 2 to 4 compare trainings at similar perplexity.

Differs from the paper: several trainings of each, made with different seeds, answer for the same
canaries and documents; every difference from the undefended trainings has an interval over
trainings and canaries or documents (`metrics.estimates.crossed_difference`); the intervals hold
together for all defences (Bonferroni); and equal perplexity is shown, not assumed (see `verdict`).
A verdict of "helps" or "worse" takes an interval of exposure that excludes 0, so that on trainings
that differ in nothing but their seeds it is as rare as the intervals' misses.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from vestige import _validate
from vestige.audits.comparison import verdict
from vestige.audits.comparison.comparison_claim import claim_of, distinct
from vestige.audits.comparison.comparison_rows import UNDEFENDED, Compared, over, row_of
from vestige.audits.comparison.measured import MeasuredTraining
from vestige.audits.comparison.repeated import Repeated, by_name
from vestige.audits.comparison.verdict import FEWEST, Measured
from vestige.claims import Claim
from vestige.metrics.estimates import (
    Estimate,
    crossed_difference,
    difference_of_means,
    with_margins,
)
from vestige.metrics.subgroup import SubgroupGap, subgroup_gap
from vestige.results import Measurement

Floats = NDArray[np.float64]
_NO_GAP = (None, None, "")


@dataclass(frozen=True, kw_only=True)
class DefenceComparison(Measurement):
    """Trainings under several defences, side by side.

    Attributes:
        entries: one a name, in the order given.
        baseline: name of the undefended trainings.
        recommended: name of the training to take; None where none is shown to help.
        answer: which defence to take, in sentences, the advice first.
        notes: what was not measured, and what else the reader should know.
        tolerance: share by which test perplexities of equal models may differ.
        confidence: of single values; differences have it for all defences together.
        found: whether the trainings leak.
    """

    entries: tuple[Compared, ...]
    baseline: str
    recommended: str | None
    answer: tuple[str, ...]
    notes: tuple[str, ...]
    tolerance: float
    confidence: float
    found: Claim

    @property
    def claim(self) -> Claim:
        """Whether the trainings leak; the answer says which defence to take."""
        return self.found

    def summary(self) -> dict[str, object]:
        """The answer, and what it rests on."""
        first = self.entries[0].trainings
        return {
            **self.claim.summary(),
            "trainings": sum(len(entry.trainings) for entry in self.entries),
            "fewest_trainings": min(len(entry.trainings) for entry in self.entries),
            "trainings_wanted": FEWEST,
            "undefended": self.baseline,
            "advice": self.answer[0],
            "answer": " ".join(self.answer),
            "recommended": self.recommended,
            "canaries": first.exposure.shape[1],
            "documents": len(first.tokens),
            "tolerance": self.tolerance,
            "confidence": self.confidence,
            "joint_confidence": joint(self.confidence, len(self.entries) - 1),
            "notes": list(self.notes),
        }

    def rows(self) -> list[dict[str, object]]:
        """One row a name."""
        [base] = [e.trainings for e in self.entries if e.trainings.name == self.baseline]
        return [
            row_of(entry, base, recommended=self.recommended, confidence=self.confidence)
            for entry in self.entries
        ]


def compare_defences(
    measured: Sequence[MeasuredTraining],
    *,
    baseline: str,
    users: NDArray[np.integer] | None = None,
    samples: NDArray[np.integer] | None = None,
    k: int = 5,
    tolerance: float = 0.05,
    confidence: float = 0.95,
    notes: Sequence[str] = (),
) -> DefenceComparison:
    """Compare every training with the undefended one and derive the verdict.

    Args:
        measured: of at least two names, asked the same canaries and the same test documents;
            trainings of one name are made alike, with different seeds.
        baseline: name of the undefended ones.
        users: (d,) code of each test document's user.
        samples: (u,) documents of each user in the training data.
        k: users with most and with fewest samples whose utility drops are compared.
        tolerance: share by which test perplexities of equal models may differ, in (0, 1).
        confidence: of the intervals, in (0, 1).
        notes: what the reader should know, such as what was not measured; reasons found here are
            added.

    Raises:
        ValueError: fewer than two names, no training of the baseline's name, or trainings that
            were asked different canaries or documents.
    """
    groups = by_name(measured)
    _check(measured, [one.name for one in groups], baseline)
    _validate.open_fraction(tolerance=tolerance, confidence=confidence)
    [base] = [one for one in groups if one.name == baseline]
    level = joint(confidence, len(groups) - 1)
    noted, entries = [one.useless for one in groups if one.useless] + list(notes), []
    for one in groups:
        gap, reach, why = _NO_GAP if one is base else _gap(base, one, users, samples, k, level)
        noted += [why] if why and why not in noted else []
        difference = _difference(base, one, reach, level)
        judged = UNDEFENDED if one is base else verdict.judge(difference, tolerance=tolerance)
        entries.append(Compared(trainings=one, difference=difference, gap=gap, verdict=judged))
    others = [entry for entry in entries if entry.trainings is not base]
    best, ties = _best(others, level)
    answer = verdict.answer(
        [(entry.difference, entry.verdict) for entry in others],
        best=best,
        ties=ties,
        leaks=_leaks(base, confidence),
    )
    return DefenceComparison(
        entries=tuple(entries),
        baseline=baseline,
        recommended=best,
        answer=answer,
        notes=tuple(noted),
        tolerance=tolerance,
        confidence=confidence,
        found=claim_of(groups, base, fewest=FEWEST, alpha=1 - confidence),
    )


def joint(confidence: float, differences: int) -> float:
    """The confidence of each of some intervals that have it together (Bonferroni).

    Example:
        >>> joint(0.95, 5)
        0.99
    """
    return round(1 - (1 - confidence) / max(differences, 1), 12)


def _check(measured: Sequence[MeasuredTraining], names: Sequence[str], baseline: str) -> None:
    if len(names) < 2:
        raise ValueError(f"measured must hold trainings of at least two names, got {len(names)}")
    _validate.one_of(tuple(names), baseline=baseline)
    if len({one.bits.canaries for one in measured if one.bits is not None}) > 1:
        raise ValueError("measured must hold one set of canaries, got several")
    counts = [one.scores.tokens.tolist() for one in measured if one.scores is not None]
    if any(other != counts[0] for other in counts[1:]):
        raise ValueError("measured must hold scores of the same documents, got others")


def _difference(base: Repeated, one: Repeated, gap: Estimate | None, level: float) -> Measured:
    claim, audit = one.guarantee, one.audit
    stuck = base.at_ceiling & one.at_ceiling if base.bits and one.bits else np.zeros(0, bool)
    return Measured(
        name=one.name,
        trainings=(distinct(base.trainings), distinct(one.trainings)),
        change=_estimate(base.exposure, one.exposure, level),
        stuck=(int(stuck.sum()), len(stuck)),
        order=_estimate(base.orders, one.orders, level),
        ratio=_ratio(base, one, level),
        useless=base.useless or one.useless,
        tokens=over(one.cost.tokens, base.cost.tokens),
        memory=over(one.cost.peak_memory_mib, base.cost.peak_memory_mib),
        gap=gap,
        epsilon=claim.epsilon if claim else None,
        guarantee=str(claim) if claim else "",
        broken=audit.proven.epsilon if audit and audit.verdict == "violated" else None,
    )


def _estimate(base: Floats, one: Floats, level: float) -> Estimate | None:
    """Mean over canaries more than that of the undefended trainings."""
    if not (base.size and one.size):
        return None
    return crossed_difference(base, one, confidence=level)


def _ratio(base: Repeated, one: Repeated, level: float) -> Estimate | None:
    """Test perplexity over that of the undefended trainings."""
    if not (base.loss.size and one.loss.size):
        return None
    nats = crossed_difference(base.loss, one.loss, weights=base.tokens, confidence=level)
    value, low, high = (
        None if end is None else math.exp(min(end, 700.0))
        for end in (nats.value, nats.low, nats.high)
    )
    assert value is not None
    return Estimate("perplexity ratio", value, low, high, n=nats.n)


def _gap(
    base: Repeated,
    one: Repeated,
    users: NDArray[np.integer] | None,
    samples: NDArray[np.integer] | None,
    k: int,
    level: float,
) -> tuple[SubgroupGap | None, Estimate | None, str]:
    """The gap by the mean loss of all trainings, also over trainings, or why there is none."""
    if users is None or samples is None or not (base.loss.size and one.loss.size):
        return None, None, ""
    plain, codes, counts = base.loss.mean(0), users, samples

    def gap_of(loss: Floats) -> SubgroupGap:
        return subgroup_gap(
            plain, loss, tokens=base.tokens, users=codes, samples=counts, k=k, confidence=level
        )

    try:
        gap = gap_of(one.loss.mean(0))
    except ValueError as error:
        return None, None, f"Fairness between users: {error}."
    own, other = ([gap_of(loss).gap.value for loss in group.loss] for group in (one, base))
    over_trainings = difference_of_means(own, other, confidence=level)
    return gap, with_margins(gap.gap, over_trainings), ""


def _leaks(base: Repeated, confidence: float) -> bool | None:
    """Whether planted canaries are more exposed than such as were never planted."""
    if not (base.exposure.size and base.never.size):
        return None
    more = difference_of_means(base.exposure.mean(0), base.never.mean(0), confidence=confidence)
    return None if more.low is None else more.low > 0


def _best(others: Sequence[Compared], level: float) -> tuple[str | None, tuple[str, ...]]:
    """The defence that helps most, and those indistinguishable from it; the cheapest leads."""
    helping = [entry for entry in others if entry.verdict.kind == "helps"]
    if not helping:
        return None, ()
    most = min(helping, key=_bits)
    tied = [entry for entry in helping if entry is most or _alike(most, entry, level)]
    counted = all(entry.difference.tokens is not None for entry in tied)
    first = min(tied, key=lambda e: (e.difference.tokens, _bits(e))) if counted else most
    names = tuple(entry.trainings.name for entry in tied if entry is not first)
    return first.trainings.name, names


def _bits(entry: Compared) -> float:
    return entry.difference.change.value if entry.difference.change else 0.0


def _alike(one: Compared, other: Compared, level: float) -> bool:
    change = _estimate(one.trainings.exposure, other.trainings.exposure, level)
    return change is not None and change.interval.low <= 0 <= change.interval.high
