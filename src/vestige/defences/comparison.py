"""Which of these defences should one take? Leakage, utility, fairness and cost side by side.

Mireshghallah et al. (2021), "Privacy Regularization: Joint Privacy-Utility Optimization in
Language Models", NAACL: Table 1 and Figures 2 to 4 compare trainings at similar perplexity.

Differs from the paper: every difference from the undefended training has an interval, paired by
canary or by document, since all models are asked the same; the intervals hold together for all
defences (Bonferroni); and equal perplexity is shown, not assumed (see `verdict`).
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from vestige import _validate
from vestige.defences import verdict
from vestige.defences.comparison_rows import UNDEFENDED, Compared, over, row_of
from vestige.defences.measured import MeasuredTraining
from vestige.defences.verdict import Estimate, Measured
from vestige.metrics.differences import difference_of_means, perplexity_ratio
from vestige.metrics.intervals import Interval, mean_interval
from vestige.metrics.subgroup import SubgroupGap, subgroup_gap


@dataclass(frozen=True, kw_only=True)
class DefenceComparison:
    """Trainings under several defences, side by side.

    Attributes:
        entries: in the order given.
        baseline: name of the undefended training.
        recommended: name of the training to take; None where none is shown to help.
        answer: which defence to take, in sentences, the advice first.
        notes: what was not measured, and what else the reader should know.
        tolerance: share by which test perplexities of equal models may differ.
        confidence: of single values; differences have it for all defences together.
    """

    entries: tuple[Compared, ...]
    baseline: str
    recommended: str | None
    answer: tuple[str, ...]
    notes: tuple[str, ...]
    tolerance: float
    confidence: float

    def summary(self) -> dict[str, object]:
        """The answer, and what it rests on."""
        first = self.entries[0].training
        return {
            "trainings": len(self.entries),
            "undefended": self.baseline,
            "advice": self.answer[0],
            "answer": " ".join(self.answer),
            "recommended": self.recommended,
            "canaries": len(first.bits.exposure) if first.bits else 0,
            "documents": len(first.scores.tokens) if first.scores else 0,
            "tolerance": self.tolerance,
            "confidence": self.confidence,
            "joint_confidence": joint(self.confidence, len(self.entries) - 1),
            "notes": list(self.notes),
        }

    def rows(self) -> list[dict[str, object]]:
        """One row a training."""
        [base] = [e.training for e in self.entries if e.training.name == self.baseline]
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
    """Set every training beside the undefended one and say what follows.

    Args:
        measured: at least two, asked the same canaries and the same test documents.
        baseline: name of the undefended one.
        users: (d,) code of each test document's user.
        samples: (u,) documents of each user in the training data.
        k: users with most and with fewest samples whose utility drops are compared.
        tolerance: share by which test perplexities of equal models may differ, in (0, 1).
        confidence: of the intervals, in (0, 1).
        notes: what the reader should know, such as what was not measured; reasons found here are
            added.

    Raises:
        ValueError: fewer than two trainings, a name twice, no training of the baseline's name,
            or trainings that were asked different canaries or documents.
    """
    _check(measured, baseline, tolerance, confidence)
    [base] = [one for one in measured if one.name == baseline]
    level = joint(confidence, len(measured) - 1)
    told, entries = list(notes), []
    for one in measured:
        gap = None
        if one is not base:
            gap, why = _gap(base, one, users, samples, k, level)
            told += [why] if why and why not in told else []
        difference = _difference(base, one, gap, level)
        judged = UNDEFENDED if one is base else verdict.judge(difference, tolerance=tolerance)
        entries.append(Compared(training=one, difference=difference, gap=gap, verdict=judged))
    others = [entry for entry in entries if entry.training is not base]
    best, ties = _best(others, level)
    said = verdict.answer(
        [(entry.difference, entry.verdict) for entry in others],
        best=best,
        ties=ties,
        leaks=_leaks(base, confidence),
    )
    return DefenceComparison(
        entries=tuple(entries),
        baseline=baseline,
        recommended=best,
        answer=said,
        notes=tuple(told),
        tolerance=tolerance,
        confidence=confidence,
    )


def joint(confidence: float, differences: int) -> float:
    """The confidence of each of some intervals that have it together (Bonferroni).

    Example:
        >>> joint(0.95, 5)
        0.99
    """
    return round(1 - (1 - confidence) / max(differences, 1), 12)


def _check(
    measured: Sequence[MeasuredTraining], baseline: str, tolerance: float, confidence: float
) -> None:
    names = [one.name for one in measured]
    if len(names) < 2:
        raise ValueError(f"measured must hold at least two trainings, got {len(names)}")
    if len(set(names)) < len(names):
        twice = next(name for name in names if names.count(name) > 1)
        raise ValueError(f"names of trainings must differ, got {twice!r} twice")
    _validate.one_of(tuple(names), baseline=baseline)
    for name, value in {"tolerance": tolerance, "confidence": confidence}.items():
        if not 0 < value < 1:
            raise ValueError(f"{name} must lie in (0, 1), got {value}")
    if len({one.bits.canaries for one in measured if one.bits is not None}) > 1:
        raise ValueError("measured must hold one set of canaries, got several")
    counts = [one.scores.tokens.tolist() for one in measured if one.scores is not None]
    if any(other != counts[0] for other in counts[1:]):
        raise ValueError("measured must hold scores of the same documents, got others")


def _difference(
    base: MeasuredTraining, one: MeasuredTraining, gap: SubgroupGap | None, level: float
) -> Measured:
    claim = one.guarantee
    return Measured(
        name=one.name,
        change=_change(base, one, level),
        order=_order(base, one, level),
        ratio=_ratio(base, one, level),
        time=over(one.cost.seconds_per_epoch, base.cost.seconds_per_epoch),
        memory=over(one.cost.peak_memory_mib, base.cost.peak_memory_mib),
        gap=gap.gap_interval if gap else None,
        epsilon=claim.epsilon if claim else None,
        guarantee=str(claim) if claim else "",
        broken=one.audit.one_run.epsilon if one.audit and one.audit.verdict == "violated" else None,
    )


def _change(base: MeasuredTraining, one: MeasuredTraining, level: float) -> Estimate | None:
    """Mean exposure more than that of the undefended training, canary by canary."""
    if base.bits is None or one.bits is None:
        return None
    change = np.subtract(one.bits.exposure, base.bits.exposure)
    interval = mean_interval(change, confidence=level)
    return None if interval is None else Estimate(float(change.mean()), interval)


def _order(base: MeasuredTraining, one: MeasuredTraining, level: float) -> Interval | None:
    """The same for what a canary has more than its words in another order."""
    if base.bits is None or one.bits is None:
        return None
    before, after = base.bits.orders(), one.bits.orders()
    return mean_interval([after[i] - before[i] for i in after if i in before], confidence=level)


def _ratio(base: MeasuredTraining, one: MeasuredTraining, level: float) -> Estimate | None:
    if base.scores is None or one.scores is None:
        return None
    ratio, interval = perplexity_ratio(
        base.scores.loss, one.scores.loss, base.scores.tokens, confidence=level
    )
    return None if interval is None else Estimate(ratio, interval)


def _gap(
    base: MeasuredTraining,
    one: MeasuredTraining,
    users: NDArray[np.integer] | None,
    samples: NDArray[np.integer] | None,
    k: int,
    level: float,
) -> tuple[SubgroupGap | None, str]:
    """The gap, or why there is none."""
    if base.scores is None or one.scores is None or users is None or samples is None:
        return None, ""
    try:
        gap = subgroup_gap(
            base.scores.loss,
            one.scores.loss,
            tokens=base.scores.tokens,
            users=users,
            samples=samples,
            k=k,
            confidence=level,
        )
    except ValueError as error:
        return None, f"Fairness between users: {error}."
    return gap, ""


def _leaks(base: MeasuredTraining, confidence: float) -> bool | None:
    """Whether planted canaries are more exposed than such as were never planted."""
    if base.bits is None:
        return None
    more = difference_of_means(base.bits.exposure, base.bits.never, confidence=confidence)
    return None if more is None else more.low > 0


def _best(others: Sequence[Compared], level: float) -> tuple[str | None, tuple[str, ...]]:
    """The defence that helps most, and those that cannot be told from it; the cheapest leads."""
    helping = [entry for entry in others if entry.verdict.kind == "helps"]
    if not helping:
        return None, ()
    most = min(helping, key=lambda e: e.difference.change.value if e.difference.change else 0.0)
    tied = [entry for entry in helping if entry is most or _alike(most, entry, level)]
    timed = all(entry.difference.time is not None for entry in tied)
    first = min(tied, key=lambda e: e.difference.time or 0.0) if timed else most
    names = tuple(entry.training.name for entry in tied if entry is not first)
    return first.training.name, names


def _alike(one: Compared, other: Compared, level: float) -> bool:
    change = _change(one.training, other.training, level)
    return change is not None and change.interval.low <= 0 <= change.interval.high
