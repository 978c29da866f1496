"""Rows of a comparison, one for each defence, with intervals beside the numbers.

Intervals of exposure and of shares are over trainings; one training has none of exposure, and its
shares' speak of that model alone.
"""

from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from vestige.audits.comparison.repeated import Repeated
from vestige.audits.comparison.verdict import Measured, Verdict
from vestige.metrics.estimates import Estimate, columns, mean
from vestige.metrics.subgroup import SubgroupGap

Floats = NDArray[np.float64]

UNDEFENDED = Verdict("undefended", "undefended", "The others are compared with this one.")


@dataclass(frozen=True, kw_only=True)
class Compared:
    """The trainings of one name beside the undefended ones.

    Attributes:
        trainings: what was measured.
        difference: from the undefended ones.
        gap: utility drop of users with many and with few samples; None where not measured.
        verdict: what may be said.
    """

    trainings: Repeated
    difference: Measured
    gap: SubgroupGap | None
    verdict: Verdict


def row_of(
    entry: Compared, base: Repeated, *, recommended: str | None, confidence: float
) -> dict[str, object]:
    """The row of one name.

    Args:
        entry: its trainings.
        base: the undefended ones.
        recommended: name of the training to take.
        confidence: of single values.
    """
    return {
        "name": entry.trainings.name,
        "defence": entry.trainings.defence,
        "trainings": len(entry.trainings),
        "undefended": entry.trainings is base,
        "recommended": entry.trainings.name == recommended,
        "verdict": entry.verdict.kind,
        "verdict_short": entry.verdict.short,
        "sentence": entry.verdict.sentence,
        **_utility_row(entry),
        **_leakage_row(entry, confidence),
        **_fairness_row(entry),
        **_privacy_row(entry.trainings),
        **_cost_row(entry),
    }


def over(value: float | None, base: float | None) -> float | None:
    """How many times the base, where both are known.

    Example:
        >>> over(3.0, 2.0), over(3.0, None)
        (1.5, None)
    """
    return value / base if value is not None and base else None


def _utility_row(entry: Compared) -> dict[str, object]:
    ratio = entry.difference.ratio
    if ratio is not None and entry.verdict is UNDEFENDED:
        ratio = replace(ratio, low=None, high=None)
    return {
        "test_perplexity": entry.trainings.perplexity,
        "test_accuracy": entry.trainings.accuracy,
        **columns("perplexity_ratio", ratio),
    }


def _leakage_row(entry: Compared, confidence: float) -> dict[str, object]:
    trained, change = entry.trainings, entry.difference.change
    own = entry.verdict is UNDEFENDED
    return {
        **_over_trainings(trained.exposure, "exposure", confidence),
        **_over_trainings(trained.shuffled, "shuffled", confidence),
        **_over_trainings(trained.never, "never_planted", confidence),
        "at_ceiling": float(np.mean([b.stuck() for b in trained.bits])) if trained.bits else None,
        **columns("exposure_change", None if own else change),
        **_rate("completion", trained.completed()),
        **_rate("completion_control", trained.completed("control")),
        **_rate("completion_shuffled", trained.completed("shuffled")),
        "by_copies": _by_copies(trained, confidence),
    }


def _over_trainings(bits: Floats, name: str, confidence: float) -> dict[str, float | None]:
    """The mean of (k, m) bits, with its interval over the k trainings."""
    means = bits.mean(1).tolist() if bits.size else []
    return columns(name, mean(means, confidence=confidence))


def _by_copies(trained: Repeated, confidence: float) -> list[dict[str, object]]:
    if not trained.bits:
        return []
    first = trained.bits[0]
    copies = np.array(first.copies)
    ordered = np.array([value is not None for value in first.shuffled] or [False] * len(copies))
    found: list[dict[str, object]] = []
    for number in sorted(set(first.copies)):
        exposure = trained.exposure[:, copies == number]
        shuffled = trained.shuffled[:, copies[ordered] == number] if ordered.any() else exposure[:0]
        found.append(
            {
                "copies": number,
                "canaries": exposure.shape[1],
                **_over_trainings(exposure, "exposure", confidence),
                **_over_trainings(shuffled, "shuffled", confidence),
                **_rate("completion", trained.completed(copies=number)),
            }
        )
    return found


def _rate(name: str, found: Estimate | None) -> dict[str, object]:
    return {
        f"{name}_completed": found.count if found else None,
        f"{name}_trials": found.n if found else 0,
        f"{name}_low": found.low if found else None,
        f"{name}_high": found.high if found else None,
    }


def _fairness_row(entry: Compared) -> dict[str, object]:
    names = ("users", "top_drop", "low_drop", "gap", "correlation", "p_value")
    edges = [f"{name}_{end}" for name in names[1:5] for end in ("low", "high")]
    found = entry.gap.summary() if entry.gap else {}
    row = {name: found.get(name) for name in (*names, *edges)}
    gap = entry.difference.gap
    return {**row, "gap_low": gap and gap.low, "gap_high": gap and gap.high}


def _privacy_row(one: Repeated) -> dict[str, object]:
    claim, audit = one.guarantee, one.audit
    return {
        "epsilon": claim.epsilon if claim else None,
        "delta": claim.delta if claim else None,
        "unit": claim.unit if claim else None,
        "empirical_epsilon": audit.proven.epsilon if audit else None,
        "empirical_ceiling": audit.ceiling if audit else None,
        "empirical_assumes": audit.proven.assumes if audit else None,
        "threshold_epsilon": audit.threshold.epsilon if audit else None,
        "audit_unit": audit.unit if audit else None,
        "audit_claim": audit.claimed if audit else None,
        "audit_verdict": audit.verdict if audit else None,
    }


def _cost_row(entry: Compared) -> dict[str, object]:
    cost = entry.trainings.cost
    return {
        "steps": cost.steps,
        "tokens": cost.tokens,
        "tokens_ratio": entry.difference.tokens,
        "presentations_per_copy": cost.passes,
        "seconds": cost.seconds,
        "peak_memory_mib": cost.peak_memory_mib,
        "memory_ratio": entry.difference.memory,
    }
