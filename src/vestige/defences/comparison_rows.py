"""One row a training: the columns of a comparison's table, its intervals beside its numbers."""

from dataclasses import dataclass

from vestige.defences.measured import MeasuredTraining, ends, mean_of
from vestige.defences.verdict import Measured, Verdict
from vestige.metrics.rates import Rate
from vestige.metrics.subgroup import SubgroupGap

UNDEFENDED = Verdict(
    kind="undefended", short="undefended", sentence="What the others are compared with."
)


@dataclass(frozen=True, kw_only=True)
class Compared:
    """One training beside the undefended one.

    Attributes:
        training: what was measured.
        difference: from the undefended one.
        gap: utility drop of users with many and with few samples; None where not measured.
        verdict: what may be said.
    """

    training: MeasuredTraining
    difference: Measured
    gap: SubgroupGap | None
    verdict: Verdict


def row_of(
    entry: Compared, base: MeasuredTraining, *, recommended: str | None, confidence: float
) -> dict[str, object]:
    """The row of one training.

    Args:
        entry: the training.
        base: the undefended one.
        recommended: name of the training to take.
        confidence: of single values.
    """
    return {
        "name": entry.training.name,
        "defence": entry.training.defence,
        "undefended": entry.training is base,
        "recommended": entry.training.name == recommended,
        "verdict": entry.verdict.kind,
        "verdict_short": entry.verdict.short,
        "sentence": entry.verdict.sentence,
        **_utility_row(entry),
        **_leakage_row(entry, confidence),
        **_fairness_row(entry.gap),
        **_privacy_row(entry.training),
        **_cost_row(entry, base),
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
    own = entry.verdict is UNDEFENDED
    return {
        "test_perplexity": entry.training.perplexity,
        "test_accuracy": entry.training.accuracy,
        "perplexity_ratio": ratio.value if ratio else None,
        **ends("perplexity_ratio", ratio.interval if ratio and not own else None),
    }


def _leakage_row(entry: Compared, confidence: float) -> dict[str, object]:
    bits, change = entry.training.bits, entry.difference.change
    own = entry.verdict is UNDEFENDED
    shuffled = [value for value in bits.shuffled if value is not None] if bits else []
    told = entry.training.completion
    return {
        **mean_of(bits.exposure if bits else (), "exposure", confidence=confidence),
        **mean_of(shuffled, "shuffled", confidence=confidence),
        **mean_of(bits.never if bits else (), "never_planted", confidence=confidence),
        "exposure_change": change.value if change and not own else None,
        **ends("exposure_change", change.interval if change and not own else None),
        **_rate("completion", told.rate() if told else None),
        **_rate("completion_control", told.rate("control") if told else None),
        **_rate("completion_shuffled", told.rate("shuffled") if told else None),
        "by_copies": _by_copies(entry.training, confidence),
    }


def _by_copies(one: MeasuredTraining, confidence: float) -> list[dict[str, object]]:
    if one.bits is None:
        return []
    completed = one.completion.by_copies() if one.completion else {}
    found: list[dict[str, object]] = []
    for copies in sorted(set(one.bits.copies)):
        places = [i for i, n in enumerate(one.bits.copies) if n == copies]
        exposure = [one.bits.exposure[i] for i in places]
        shuffled = [one.bits.shuffled[i] for i in places] if one.bits.shuffled else []
        known = [value for value in shuffled if value is not None]
        found.append(
            {
                "copies": copies,
                "canaries": len(places),
                **mean_of(exposure, "exposure", confidence=confidence),
                **mean_of(known, "shuffled", confidence=confidence),
                **_rate("completion", completed.get(copies)),
            }
        )
    return found


def _rate(name: str, found: Rate | None) -> dict[str, object]:
    return {
        f"{name}_completed": found.successes if found else None,
        f"{name}_trials": found.trials if found else 0,
        **ends(name, found.interval if found else None),
    }


def _fairness_row(gap: SubgroupGap | None) -> dict[str, object]:
    names = ("users", "top_drop", "low_drop", "gap", "correlation", "p_value")
    edges = [f"{name}_{end}" for name in names[1:5] for end in ("low", "high")]
    return {name: (gap.summary()[name] if gap else None) for name in (*names, *edges)}


def _privacy_row(one: MeasuredTraining) -> dict[str, object]:
    claim, audit = one.guarantee, one.audit
    return {
        "epsilon": claim.epsilon if claim else None,
        "delta": claim.delta if claim else None,
        "unit": claim.unit if claim else None,
        "empirical_epsilon": audit.one_run.epsilon if audit else None,
        "empirical_ceiling": audit.one_run.ceiling if audit else None,
        "threshold_epsilon": audit.threshold.epsilon if audit else None,
        "audit_unit": audit.unit if audit else None,
        "audit_claim": audit.claimed if audit else None,
        "audit_verdict": audit.verdict if audit else None,
    }


def _cost_row(entry: Compared, base: MeasuredTraining) -> dict[str, object]:
    cost = entry.training.cost
    return {
        "steps": cost.steps,
        "presentations_per_copy": cost.passes,
        "seconds_per_epoch": cost.seconds_per_epoch,
        "time_ratio": entry.difference.time,
        "peak_memory_mib": cost.peak_memory_mib,
        "memory_ratio": entry.difference.memory,
        "tokens_per_second": cost.tokens_per_second,
        "tokens_ratio": over(cost.tokens_per_second, base.cost.tokens_per_second),
    }
