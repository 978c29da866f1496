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
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from vestige import _validate
from vestige.audits.comparison import verdict
from vestige.audits.comparison.claim import claim_of
from vestige.audits.comparison.groups import Floats, Group, MeasuredTraining, by_name
from vestige.audits.comparison.verdict import FEWEST, Difference, Verdict
from vestige.claims import Claim
from vestige.metrics.comparison import SubgroupGap, crossed_difference, subgroup_gap, with_margins
from vestige.metrics.estimates import Estimate, columns, difference_of_means, mean
from vestige.results import Measurement

UNDEFENDED = Verdict("undefended", "undefended", "The others are compared with this one.")


@dataclass(frozen=True, kw_only=True)
class DefenceComparison(Measurement):
    """Trainings under several defences, side by side.

    Attributes:
        table: one row per name, in the order given.
        answer: which defence to take, in sentences, the advice first.
        facts: of the summary, besides the claim and the answer.
        notes: what was not measured, and what else the reader should know.
        found: whether the trainings leak.
    """

    table: tuple[dict[str, object], ...]
    answer: tuple[str, ...]
    facts: dict[str, object]
    notes: tuple[str, ...]
    found: Claim

    @property
    def recommended(self) -> str | None:
        """Name of the training to take; None if none is shown to help."""
        return next((str(row["name"]) for row in self.table if row["recommended"]), None)

    @property
    def claim(self) -> Claim:
        """Whether the trainings leak; the answer says which defence to take."""
        return self.found

    def summary(self) -> dict[str, object]:
        """The answer, and what it rests on."""
        answer = {"advice": self.answer[0], "answer": " ".join(self.answer)}
        return {**self.claim.summary(), **self.facts, **answer, "notes": list(self.notes)}

    def rows(self) -> list[dict[str, object]]:
        """One row per name."""
        return [dict(row) for row in self.table]


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
    users: NDArray[np.integer] | None = None,
    samples: NDArray[np.integer] | None = None,
    k: int = 5,
    tolerance: float = 0.05,
    confidence: float = 0.95,
    notes: Sequence[str] = (),
) -> DefenceComparison:
    """Compare every training with the undefended one and derive the verdict.

    Args:
        measured: of at least two names, on the same canaries and test documents; trainings of one
            name differ in their seeds alone.
        baseline: name of the undefended ones.
        users: (d,) code of each test document's user.
        samples: (u,) documents of each user in the training data.
        k: number of users with most, and with fewest, samples to compare.
        tolerance: relative difference in test perplexity that counts as equal, in (0, 1).
        confidence: of the intervals, in (0, 1).
        notes: for the reader, such as what was not measured; reasons found here are added.

    Raises:
        ValueError: fewer than two names, no training of the baseline's name, or trainings that
            were measured on different canaries or documents.
    """
    groups = by_name(measured)
    _check(measured, [one.name for one in groups], baseline)
    _validate.open_fraction(tolerance=tolerance, confidence=confidence)
    [base] = [one for one in groups if one.name == baseline]
    level = joint(confidence, len(groups) - 1)
    noted = [one.useless for one in groups if one.useless] + list(notes)
    entries = []
    for one in groups:
        gap, reach, why = _gap(base, one, users, samples, k, level)
        noted += [why] if why and why not in noted else []
        difference = _difference(base, one, reach, level)
        judged = UNDEFENDED if one is base else verdict.judge(difference, tolerance=tolerance)
        entries.append(_Compared(one, difference, gap, judged))
    others = [entry for entry in entries if entry.group is not base]
    best, ties = _best(others, level)
    answer = verdict.answer(
        [(entry.difference, entry.verdict) for entry in others],
        best=best,
        ties=ties,
        leaks=_leaks(base, confidence),
    )
    sizes = [len(one) for one in groups]
    return DefenceComparison(
        table=tuple(
            _row(entry, base, recommended=best, confidence=confidence) for entry in entries
        ),
        answer=answer,
        facts={
            "trainings": sum(sizes),
            "fewest_trainings": min(sizes),
            "trainings_wanted": FEWEST,
            "undefended": baseline,
            "recommended": best,
            "canaries": groups[0].exposure.shape[1],
            "documents": len(groups[0].tokens),
            "tolerance": tolerance,
            "confidence": confidence,
            "joint_confidence": level,
        },
        notes=tuple(noted),
        found=claim_of(groups, base, fewest=FEWEST, alpha=1 - confidence),
    )


def joint(confidence: float, differences: int) -> float:
    """The confidence of each of several intervals that together have `confidence` (Bonferroni).

    Example:
        >>> joint(0.95, 5)
        0.99
    """
    return round(1 - (1 - confidence) / max(differences, 1), 12)


def _check(measured: Sequence[MeasuredTraining], names: Sequence[str], baseline: str) -> None:
    if len(names) < 2:
        raise ValueError(f"measured must hold trainings of at least two names, got {len(names)}")
    _validate.one_of(tuple(names), baseline=baseline)
    if len({one.phrases for one in measured if one.canaries is not None}) > 1:
        raise ValueError("measured must hold one set of canaries, got several")
    counts = [one.scores.tokens.tolist() for one in measured if one.scores is not None]
    if any(other != counts[0] for other in counts[1:]):
        raise ValueError("measured must hold scores of the same documents, got others")


def _difference(base: Group, one: Group, gap: Estimate | None, level: float) -> Difference:
    claim, audit = one.guarantee, one.first.audit
    both = base.has_canaries and one.has_canaries
    stuck = np.vstack([base.at_ceiling, one.at_ceiling]) if both else None
    return Difference(
        name=one.name,
        trainings=(base.distinct, one.distinct),
        change=_more(base.exposure, one.exposure, level),
        stuck=(0, 0) if stuck is None else (int(stuck.all(0).sum()), stuck.shape[1]),
        order=_more(base.orders, one.orders, level),
        ratio=_ratio(base, one, level),
        useless=base.useless or one.useless,
        tokens=over(one.cost["tokens"], base.cost["tokens"]),
        memory=over(one.cost["peak_memory_mib"], base.cost["peak_memory_mib"]),
        gap=gap,
        epsilon=claim.epsilon if claim else None,
        guarantee=str(claim) if claim else "",
        broken=audit.proven.epsilon if audit and audit.verdict == "violated" else None,
    )


def over(value: float | None, base: float | None) -> float | None:
    """The ratio, if both are known.

    Example:
        >>> over(3.0, 2.0), over(3.0, None)
        (1.5, None)
    """
    return value / base if value is not None and base else None


def _more(base: Floats, one: Floats, level: float) -> Estimate | None:
    """Mean over canaries above that of the undefended trainings."""
    if not (base.size and one.size):
        return None
    return crossed_difference(base, one, confidence=level)


def _ratio(base: Group, one: Group, level: float) -> Estimate | None:
    """Test perplexity relative to the undefended trainings."""
    if not (base.loss.size and one.loss.size):
        return None
    nats = crossed_difference(base.loss, one.loss, weights=base.tokens, confidence=level)
    low, high = (None if end is None else _exp(end) for end in (nats.low, nats.high))
    return Estimate("perplexity ratio", _exp(nats.value), low, high, n=nats.n)


def _exp(nats: float) -> float:
    return math.exp(min(nats, 700.0))


def _gap(
    base: Group,
    one: Group,
    users: NDArray[np.integer] | None,
    samples: NDArray[np.integer] | None,
    k: int,
    level: float,
) -> tuple[SubgroupGap | None, Estimate | None, str]:
    """The gap by the mean loss of all trainings, its interval over trainings too, or why not."""
    known = base.loss.size and one.loss.size
    if one is base or users is None or samples is None or not known:
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


def _leaks(base: Group, confidence: float) -> bool | None:
    """Whether planted canaries are more exposed than unplanted ones; None if unknown."""
    if not (base.exposure.size and base.never.size):
        return None
    more = difference_of_means(base.exposure.mean(0), base.never.mean(0), confidence=confidence)
    return None if more.low is None else more.low > 0


def _best(others: Sequence[_Compared], level: float) -> tuple[str | None, tuple[str, ...]]:
    """The defence that helps most, and those indistinguishable from it; the cheapest leads."""
    helping = [entry for entry in others if entry.verdict.kind == "helps"]
    if not helping:
        return None, ()
    most = min(helping, key=_bits)
    tied = [entry for entry in helping if entry is most or _alike(most, entry, level)]
    counted = all(entry.difference.tokens is not None for entry in tied)
    first = min(tied, key=lambda e: (e.difference.tokens, _bits(e))) if counted else most
    return first.group.name, tuple(entry.group.name for entry in tied if entry is not first)


def _bits(entry: _Compared) -> float:
    return entry.difference.change.value if entry.difference.change else 0.0


def _alike(one: _Compared, other: _Compared, level: float) -> bool:
    change = _more(one.group.exposure, other.group.exposure, level)
    return change is not None and change.interval.low <= 0 <= change.interval.high


def _row(
    entry: _Compared, base: Group, *, recommended: str | None, confidence: float
) -> dict[str, object]:
    """The row of one name; `confidence` is of single values."""
    group, difference = entry.group, entry.difference
    own, ratio = group is base, difference.ratio
    if own and ratio is not None:
        ratio = replace(ratio, low=None, high=None)
    return {
        "name": group.name,
        "defence": group.first.defence,
        "trainings": len(group),
        "undefended": own,
        "recommended": group.name == recommended,
        "verdict": entry.verdict.kind,
        "verdict_short": entry.verdict.short,
        "sentence": entry.verdict.sentence,
        "test_perplexity": group.perplexity,
        "test_accuracy": group.accuracy,
        **columns(
            "perplexity_ratio", replace(ratio, low=None, high=None) if own and ratio else ratio
        ),
        **_leakage(group, None if own else difference.change, confidence),
        **_fairness(entry),
        **_privacy(group),
        "steps": group.cost["steps"],
        "tokens": group.cost["tokens"],
        "tokens_ratio": difference.tokens,
        "presentations_per_copy": group.cost["epochs"],
        "seconds": group.cost["seconds"],
        "peak_memory_mib": group.cost["peak_memory_mib"],
        "memory_ratio": difference.memory,
    }


def _leakage(group: Group, change: Estimate | None, confidence: float) -> dict[str, object]:
    """Intervals are over trainings; a single training has none."""
    return {
        **_bits_of("exposure", group.exposure, confidence),
        **_bits_of("shuffled", group.shuffled, confidence),
        **_bits_of("never_planted", group.never, confidence),
        "at_ceiling": float(group.at_ceiling.mean()) if group.at_ceiling.size else None,
        **columns("exposure_change", change),
        **_rate("completion", group.completed()),
        **_rate("completion_control", group.completed("control")),
        **_rate("completion_shuffled", group.completed("shuffled")),
        "by_copies": _by_copies(group, confidence),
    }


def _bits_of(name: str, bits: Floats, confidence: float) -> dict[str, float | None]:
    means = bits.mean(1).tolist() if bits.size else []
    return columns(name, mean(means, confidence=confidence))


def _by_copies(group: Group, confidence: float) -> list[dict[str, object]]:
    found: list[dict[str, object]] = []
    for number in sorted(set(group.copies.tolist())):
        planted = group.copies == number
        found.append(
            {
                "copies": number,
                "canaries": int(planted.sum()),
                **_bits_of("exposure", group.exposure[:, planted], confidence),
                **_bits_of("shuffled", group.shuffled[:, planted[group.ordered]], confidence),
                **_rate("completion", group.completed(copies=number)),
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


def _fairness(entry: _Compared) -> dict[str, object]:
    names = ("users", "top_drop", "low_drop", "gap", "correlation", "p_value")
    edges = [f"{name}_{end}" for name in names[1:5] for end in ("low", "high")]
    found = entry.gap.summary() if entry.gap else {}
    row = {name: found.get(name) for name in (*names, *edges)}
    gap = entry.difference.gap
    return {**row, "gap_low": gap and gap.low, "gap_high": gap and gap.high}


def _privacy(group: Group) -> dict[str, object]:
    """The measured ε is of the first training: the best of several would need its own level."""
    claim, audit = group.guarantee, group.first.audit
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
