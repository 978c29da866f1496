"""Comparison of defences: leakage, utility, fairness and cost side by side.

Mireshghallah et al. (2021), "Privacy Regularization: Joint Privacy-Utility Optimization in
Language Models", NAACL: Table 1 and Figures 2 to 4 compare trainings at similar perplexity.

Differs from the paper: each defence has several trainings with different seeds, measured on the
same canaries and documents; every difference from the undefended trainings has an interval over
trainings and canaries or documents (`metrics.comparison`); the intervals hold together for all
defences (Bonferroni); and equal perplexity is shown, not assumed (see `verdict`). A verdict of
"helps" or "worse" needs an interval of exposure that excludes 0, so trainings that differ only in
their seeds get one as rarely as the intervals miss.
"""

import math
from collections.abc import Sequence
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from vestige.audits.comparison import verdict
from vestige.audits.comparison.claim import above_controls, claim_of
from vestige.audits.comparison.groups import SeedGroup, by_name
from vestige.audits.comparison.measurements import MeasuredTraining
from vestige.audits.comparison.verdict import FEWEST, UNDEFENDED, Difference, Verdict
from vestige.data.files import plain
from vestige.metrics.comparison import SubgroupGap, crossed_difference, subgroup_gap, with_margins
from vestige.metrics.estimates import Estimate, Floats, columns, difference_of_means, mean
from vestige.results import Result

Integers = NDArray[np.integer]
Columns = dict[str, object]

CONFIDENCE = 0.95
FAIRNESS = ("top_drop", "low_drop", "gap", "correlation")


class _Defence(NamedTuple):
    """A group, how it differs from the undefended one, and the verdict."""

    group: SeedGroup
    difference: Difference
    gap: SubgroupGap | None
    verdict: Verdict


def compare_defences(
    measured: Sequence[MeasuredTraining],
    *,
    baseline: str,
    users: Integers | None = None,
    samples: Integers | None = None,
    k: int = 5,
    tolerance: float = 0.05,
    notes: Sequence[str] = (),
) -> Result:
    """Compare every training with the undefended one and derive the verdict.

    Args:
        measured: trainings of at least two names, on the same canaries and test documents;
            trainings of one name differ only in their seeds.
        baseline: name of the undefended ones.
        users: (d,) code of each test document's user.
        samples: (u,) documents of each user in the training data.
        k: number of users with most, and with fewest, samples to compare.
        tolerance: relative difference in test perplexity that counts as equal, in (0, 1).
        notes: for the reader, such as missing measurements; this function adds its own.

    Returns:
        a row per name; a summary with the recommended defence and the notes; and the claim whether
        the trainings leak.
    """
    groups = by_name(measured)
    [base] = [group for group in groups if group.name == baseline]
    confidence = round(1 - (1 - CONFIDENCE) / (len(groups) - 1), 12)  # of each difference
    all_notes = [group.useless for group in groups if group.useless] + list(notes)
    defences = []
    for group in groups:
        gap = None
        if group is not base and users is not None and samples is not None:
            gap = _gap(
                base, group, all_notes, users=users, samples=samples, k=k, confidence=confidence
            )
        difference = _difference(base, group, gap.gap if gap else None, confidence)
        judged = UNDEFENDED if group is base else verdict.judge(difference, tolerance=tolerance)
        defences.append(_Defence(group, difference, gap, judged))
    others = [defence for defence in defences if defence.group is not base]
    best, ties = _best(others, confidence)
    base_exposure = above_controls(base)
    low = None if base_exposure is None else base_exposure.low
    answer = verdict.answer(
        [(defence.difference, defence.verdict) for defence in others],
        best=best,
        ties=ties,
        leaks=None if low is None else low > 0,
    )
    claim = claim_of(groups, base, fewest=FEWEST, alpha=1 - CONFIDENCE)
    summary = {
        **claim.summary(),
        "trainings": len(measured),
        "fewest_trainings": min(map(len, groups)),
        "trainings_wanted": FEWEST,
        "undefended": baseline,
        "recommended": best,
        "canaries": groups[0].exposure.shape[1],
        "documents": len(groups[0].tokens),
        "tolerance": tolerance,
        "confidence": CONFIDENCE,
        "joint_confidence": confidence,
        "advice": answer[0],
        "answer": " ".join(answer),
        "notes": all_notes,
    }
    rows = tuple(plain(_row(defence, best)) for defence in defences)
    return Result(kind="DefenceComparison", summary=summary, rows=rows, claim=claim)


def _difference(
    base: SeedGroup, group: SeedGroup, gap: Estimate | None, confidence: float
) -> Difference:
    claim, audit = group.guarantee, group.first.audit
    measured = bool(base.at_ceiling.size and group.at_ceiling.size)
    saturated = base.at_ceiling.all(0) & group.at_ceiling.all(0) if measured else np.zeros(0, bool)
    return Difference(
        name=group.name,
        trainings=(base.distinct, group.distinct),
        exposure=_mean_difference(base.exposure, group.exposure, confidence),
        saturated=(int(saturated.sum()), saturated.size),
        exposure_over_shuffled=_mean_difference(
            base.exposure_over_shuffled, group.exposure_over_shuffled, confidence
        ),
        perplexity_ratio=_perplexity_ratio(base, group, confidence),
        useless=base.useless or group.useless,
        tokens_ratio=_ratio(group.cost["tokens"], base.cost["tokens"]),
        memory_ratio=_ratio(group.cost["peak_memory_mib"], base.cost["peak_memory_mib"]),
        gap=gap,
        guarantee=str(claim) if claim else "",
        refuting_epsilon=audit.proven.epsilon if audit and audit.verdict == "violated" else None,
    )


def _ratio(value: float | None, base: float | None) -> float | None:
    return value / base if value is not None and base else None


def _mean_difference(base: Floats, values: Floats, confidence: float) -> Estimate | None:
    """Mean over canaries minus that of the undefended trainings; None if one was not measured."""
    if not (base.size and values.size):
        return None
    return crossed_difference(base, values, confidence=confidence)


def _perplexity_ratio(base: SeedGroup, group: SeedGroup, confidence: float) -> Estimate | None:
    """Test perplexity relative to the undefended trainings."""
    if not (base.loss.size and group.loss.size):
        return None
    nats = crossed_difference(base.loss, group.loss, weights=base.tokens, confidence=confidence)
    ends = () if group is base or nats.low is None else map(_exp, nats.interval)
    return Estimate("perplexity ratio", _exp(nats.value), *ends)


def _exp(nats: float) -> float:
    return math.exp(min(nats, 700.0))


def _gap(
    base: SeedGroup, group: SeedGroup, notes: list[str], *, confidence: float, **options: Any
) -> SubgroupGap | None:
    """The gap between users, with an interval over trainings too; None adds a note."""
    if not (base.loss.size and group.loss.size):
        return None

    def measure(loss: Floats) -> SubgroupGap:
        return subgroup_gap(
            base.loss.mean(0), loss, tokens=base.tokens, confidence=confidence, **options
        )

    try:
        gap = measure(group.loss.mean(0))
    except ValueError as error:
        note = f"Fairness between users: {error}."
        notes += [note] if note not in notes else []
        return None
    gaps, base_gaps = (
        [measure(loss).gap.value for loss in trainings.loss] for trainings in (group, base)
    )
    over_trainings = difference_of_means(gaps, base_gaps, confidence=confidence)
    return replace(gap, gap=with_margins(gap.gap, over_trainings))


def _best(others: Sequence[_Defence], confidence: float) -> tuple[str | None, list[str]]:
    """The recommended defence, and those that help as much; the cheapest of them is recommended."""

    def bits(defence: _Defence) -> float:
        return defence.difference.exposure.value if defence.difference.exposure else 0.0

    def ties_with_most(defence: _Defence) -> bool:
        change = _mean_difference(most.group.exposure, defence.group.exposure, confidence)
        return change is not None and change.interval.low <= 0 <= change.interval.high

    helping = [defence for defence in others if defence.verdict.kind == "helps"]
    if not helping:
        return None, []
    most = min(helping, key=bits)
    tied = [defence for defence in helping if defence is most or ties_with_most(defence)]
    best = most
    if all(defence.difference.tokens_ratio is not None for defence in tied):
        best = min(tied, key=lambda defence: (defence.difference.tokens_ratio, bits(defence)))
    return best.group.name, [defence.group.name for defence in tied if defence is not best]


def _row(defence: _Defence, recommended: str | None) -> Columns:
    """The row of one name; intervals of single values are over trainings and not joint."""
    group, difference, judged = defence.group, defence.difference, defence.verdict
    cost, claim, audit = group.cost, group.guarantee, group.first.audit
    undefended = judged is UNDEFENDED
    gap = defence.gap.summary() if defence.gap else {}
    gap_ends = [f"{name}_{end}" for name in FAIRNESS for end in ("low", "high")]
    return {
        "name": group.name,
        "defence": group.first.defence,
        "trainings": len(group),
        "undefended": undefended,
        "recommended": group.name == recommended,
        "verdict": judged.kind,
        "verdict_short": judged.short,
        "sentence": judged.sentence,
        "test_perplexity": group.perplexity,
        "test_accuracy": group.accuracy,
        **columns("perplexity_ratio", difference.perplexity_ratio),
        **_mean_columns("exposure", group.exposure),
        **_mean_columns("shuffled", group.shuffled.compress(group.has_shuffled, axis=1)),
        **_mean_columns("never_planted", group.never_planted),
        "at_ceiling": float(group.at_ceiling.mean()) if group.at_ceiling.size else None,
        **columns("exposure_change", None if undefended else difference.exposure),
        **_rate_columns("completion", group.completed()),
        **_rate_columns("completion_control", group.completed("control")),
        **_rate_columns("completion_shuffled", group.completed("shuffled")),
        "by_copies": _by_copies(group),
        **{name: gap.get(name) for name in ("users", *FAIRNESS, "p_value", *gap_ends)},
        "epsilon": claim.epsilon if claim else None,
        "delta": claim.delta if claim else None,
        "unit": claim.unit if claim else None,
        # Of the first training: the best of several would need its own level.
        "empirical_epsilon": audit.proven.epsilon if audit else None,
        "empirical_ceiling": audit.ceiling if audit else None,
        "empirical_assumes": audit.proven.assumes if audit else None,
        "threshold_epsilon": audit.threshold.epsilon if audit else None,
        "audit_unit": audit.unit if audit else None,
        "audit_claim": audit.claimed if audit else None,
        "audit_verdict": audit.verdict if audit else None,
        "steps": cost["steps"],
        "tokens": cost["tokens"],
        "tokens_ratio": difference.tokens_ratio,
        "presentations_per_copy": cost["epoch"],
        "seconds": cost["seconds"],
        "peak_memory_mib": cost["peak_memory_mib"],
        "memory_ratio": difference.memory_ratio,
    }


def _by_copies(group: SeedGroup) -> list[Columns]:
    """Exposure and completion of the canaries with each number of copies."""
    points: list[Columns] = []
    for number in sorted(set(group.copies[:1].ravel().astype(int).tolist())):
        planted = group.copies[0] == number
        points.append(
            {
                "copies": number,
                "canaries": int(planted.sum()),
                **_mean_columns("exposure", group.exposure[:, planted]),
                **_mean_columns("shuffled", group.shuffled[:, planted & group.has_shuffled]),
                **_rate_columns("completion", group.completed(copies=number)),
            }
        )
    return points


def _mean_columns(name: str, bits: Floats) -> dict[str, float | None]:
    """Mean of the trainings' means over canaries, with its interval."""
    means = bits.mean(1).tolist() if bits.size else []
    return columns(name, mean(means))


def _rate_columns(name: str, rate: Estimate | None) -> Columns:
    return {
        f"{name}_completed": rate and rate.count,
        f"{name}_trials": rate.n if rate else 0,
        f"{name}_low": rate and rate.low,
        f"{name}_high": rate and rate.high,
    }
