"""Comparison of defences: leakage, utility, fairness and cost side by side.

Mireshghallah et al. (2021), "Privacy Regularization: Joint Privacy-Utility Optimization in
Language Models", NAACL: Table 1 and Figures 2 to 4 compare trainings at similar perplexity.

Differs from the paper: each defence has several trainings with different seeds, measured on the
same canaries and documents; every difference from the undefended trainings has an interval over
trainings and canaries or documents (`metrics.comparison`); the intervals hold
together for all defences (Bonferroni); and equal perplexity is shown, not assumed (see `verdict`).
A verdict of "helps" or "worse" needs an interval of exposure that excludes 0, so trainings that
differ only in their seeds get one as rarely as the intervals miss.
"""

import math
from collections.abc import Sequence
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from vestige.audits.comparison import verdict
from vestige.audits.comparison.claim import above_controls, claim_of
from vestige.audits.comparison.groups import Group, by_name
from vestige.audits.comparison.measurements import MeasuredTraining
from vestige.audits.comparison.verdict import FEWEST, UNDEFENDED, Difference, Verdict
from vestige.data.files import plain
from vestige.metrics.comparison import SubgroupGap, crossed_difference, subgroup_gap, with_margins
from vestige.metrics.estimates import Estimate, Floats, columns, difference_of_means, mean
from vestige.results import Result

Whole = NDArray[np.integer]
Columns = dict[str, object]

CONFIDENCE = 0.95
FAIRNESS = ("top_drop", "low_drop", "gap", "correlation")


class _Compared(NamedTuple):
    """A group, how it differs from the undefended one, and what follows."""

    group: Group
    difference: Difference
    gap: SubgroupGap | None
    verdict: Verdict


def compare_defences(
    measured: Sequence[MeasuredTraining],
    *,
    baseline: str,
    users: Whole | None = None,
    samples: Whole | None = None,
    k: int = 5,
    tolerance: float = 0.05,
    notes: Sequence[str] = (),
) -> Result:
    """Compare every training with the undefended one and derive the verdict.

    Args:
        measured: of at least two names, on the same canaries and test documents; trainings of one
            name differ in their seeds alone.
        baseline: name of the undefended ones.
        users: (d,) code of each test document's user.
        samples: (u,) documents of each user in the training data.
        k: number of users with most, and with fewest, samples to compare.
        tolerance: relative difference in test perplexity that counts as equal, in (0, 1).
        notes: for the reader, such as what was not measured; reasons found here are added.

    Returns:
        a row per name; which defence to take, and the notes; and the claim whether they leak.
    """
    groups = by_name(measured)
    [base] = [one for one in groups if one.name == baseline]
    level = round(1 - (1 - CONFIDENCE) / (len(groups) - 1), 12)  # of each difference
    noted = [one.useless for one in groups if one.useless] + list(notes)
    entries = []
    for one in groups:
        gap = None
        if one is not base and users is not None and samples is not None:
            gap = _gap(base, one, noted, users=users, samples=samples, k=k, confidence=level)
        difference = _difference(base, one, gap.gap if gap else None, level)
        judged = UNDEFENDED if one is base else verdict.judge(difference, tolerance=tolerance)
        entries.append(_Compared(one, difference, gap, judged))
    others = [entry for entry in entries if entry.group is not base]
    best, ties = _best(others, level)
    above = above_controls(base)
    answer = verdict.answer(
        [(entry.difference, entry.verdict) for entry in others],
        best=best,
        ties=ties,
        leaks=None if above is None or above.low is None else above.low > 0,
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
        "joint_confidence": level,
        "advice": answer[0],
        "answer": " ".join(answer),
        "notes": noted,
    }
    rows = tuple(plain(_row(entry, best)) for entry in entries)
    return Result(kind="DefenceComparison", summary=summary, rows=rows, claim=claim)


def _difference(base: Group, one: Group, gap: Estimate | None, level: float) -> Difference:
    claim, audit = one.guarantee, one.first.audit
    both = bool(base.at_ceiling.size and one.at_ceiling.size)
    stuck = base.at_ceiling.all(0) & one.at_ceiling.all(0) if both else np.zeros(0, bool)
    return Difference(
        name=one.name,
        trainings=(base.distinct, one.distinct),
        change=_more(base.exposure, one.exposure, level),
        stuck=(int(stuck.sum()), stuck.size),
        order=_more(base.orders, one.orders, level),
        ratio=_ratio(base, one, level),
        useless=base.useless or one.useless,
        tokens=_over(one.cost["tokens"], base.cost["tokens"]),
        memory=_over(one.cost["peak_memory_mib"], base.cost["peak_memory_mib"]),
        gap=gap,
        guarantee=str(claim) if claim else "",
        broken=audit.proven.epsilon if audit and audit.verdict == "violated" else None,
    )


def _over(value: float | None, base: float | None) -> float | None:
    return value / base if value is not None and base else None


def _more(base: Floats, one: Floats, level: float) -> Estimate | None:
    """Mean over canaries above that of the undefended trainings."""
    return crossed_difference(base, one, confidence=level) if base.size and one.size else None


def _ratio(base: Group, one: Group, level: float) -> Estimate | None:
    """Test perplexity relative to the undefended trainings."""
    if not (base.loss.size and one.loss.size):
        return None
    nats = crossed_difference(base.loss, one.loss, weights=base.tokens, confidence=level)
    ends = () if one is base or nats.low is None else map(_exp, nats.interval)
    return Estimate("perplexity ratio", _exp(nats.value), *ends)


def _exp(nats: float) -> float:
    return math.exp(min(nats, 700.0))


def _gap(base: Group, one: Group, notes: list[str], **how: Any) -> SubgroupGap | None:
    """By the mean loss of all trainings, the gap's interval over trainings too; or a note."""
    if not (base.loss.size and one.loss.size):
        return None

    def measure(loss: Floats) -> SubgroupGap:
        return subgroup_gap(base.loss.mean(0), loss, tokens=base.tokens, **how)

    try:
        found = measure(one.loss.mean(0))
    except ValueError as error:
        note = f"Fairness between users: {error}."
        notes += [note] if note not in notes else []
        return None
    own, other = ([measure(loss).gap.value for loss in group.loss] for group in (one, base))
    over_trainings = difference_of_means(own, other, confidence=how["confidence"])
    return replace(found, gap=with_margins(found.gap, over_trainings))


def _best(others: Sequence[_Compared], level: float) -> tuple[str | None, list[str]]:
    """The defence that helps most, and those indistinguishable from it; the cheapest leads."""

    def bits(entry: _Compared) -> float:
        return entry.difference.change.value if entry.difference.change else 0.0

    def alike(entry: _Compared) -> bool:
        change = _more(most.group.exposure, entry.group.exposure, level)
        return change is not None and change.interval.low <= 0 <= change.interval.high

    helping = [entry for entry in others if entry.verdict.kind == "helps"]
    if not helping:
        return None, []
    most = min(helping, key=bits)
    tied = [entry for entry in helping if entry is most or alike(entry)]
    counted = all(entry.difference.tokens is not None for entry in tied)
    first = min(tied, key=lambda e: (e.difference.tokens, bits(e))) if counted else most
    return first.group.name, [entry.group.name for entry in tied if entry is not first]


def _row(entry: _Compared, recommended: str | None) -> Columns:
    """The row of one name; intervals of single values are over trainings, and hold one by one."""
    group, difference, judged = entry.group, entry.difference, entry.verdict
    own, cost, claim, audit = judged is UNDEFENDED, group.cost, group.guarantee, group.first.audit
    gap = entry.gap.summary() if entry.gap else {}
    ends = [f"{name}_{end}" for name in FAIRNESS for end in ("low", "high")]
    return {
        "name": group.name,
        "defence": group.first.defence,
        "trainings": len(group),
        "undefended": own,
        "recommended": group.name == recommended,
        "verdict": judged.kind,
        "verdict_short": judged.short,
        "sentence": judged.sentence,
        "test_perplexity": group.perplexity,
        "test_accuracy": group.accuracy,
        **columns("perplexity_ratio", difference.ratio),
        **_bits("exposure", group.exposure),
        **_bits("shuffled", group.shuffled.compress(group.ordered, axis=1)),
        **_bits("never_planted", group.never),
        "at_ceiling": float(group.at_ceiling.mean()) if group.at_ceiling.size else None,
        **columns("exposure_change", None if own else difference.change),
        **_rate("completion", group.completed()),
        **_rate("completion_control", group.completed("control")),
        **_rate("completion_shuffled", group.completed("shuffled")),
        "by_copies": _by_copies(group),
        **{name: gap.get(name) for name in ("users", *FAIRNESS, "p_value", *ends)},
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
        "tokens_ratio": difference.tokens,
        "presentations_per_copy": cost["epoch"],
        "seconds": cost["seconds"],
        "peak_memory_mib": cost["peak_memory_mib"],
        "memory_ratio": difference.memory,
    }


def _by_copies(group: Group) -> list[Columns]:
    found: list[Columns] = []
    for number in sorted(set(group.copies[:1].ravel().astype(int).tolist())):
        planted = group.copies[0] == number
        shuffled = group.shuffled[:, planted & group.ordered]
        found.append(
            {
                "copies": number,
                "canaries": int(planted.sum()),
                **_bits("exposure", group.exposure[:, planted]),
                **_bits("shuffled", shuffled),
                **_rate("completion", group.completed(copies=number)),
            }
        )
    return found


def _bits(name: str, bits: Floats) -> dict[str, float | None]:
    means = bits.mean(1).tolist() if bits.size else []
    return columns(name, mean(means))


def _rate(name: str, found: Estimate | None) -> Columns:
    return {
        f"{name}_completed": found and found.count,
        f"{name}_trials": found.n if found else 0,
        f"{name}_low": found and found.low,
        f"{name}_high": found and found.high,
    }
