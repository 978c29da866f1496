"""The claim of a comparison: whether the compared trainings leak, and whether they are several.

Planted canaries are compared with such as were never planted, by a permutation test over canaries,
whose exposures are means over the trainings of one name (Bonferroni over names). Two trainings with
the same measurements are one, whatever their files say.
"""

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
from numpy.typing import ArrayLike

from vestige.audits.comparison.measured import MeasuredTraining
from vestige.audits.comparison.repeated import Repeated
from vestige.claims import (
    Check,
    Claim,
    Test,
    detectable_difference,
    powerful,
)
from vestige.claims.effects import EXPOSURE_BITS
from vestige.metrics.estimates import difference_of_means
from vestige.metrics.permutation import unit_permutation_test

DIVISIONS = 9999


def distinct(trainings: Sequence[MeasuredTraining]) -> int:
    """How many of some trainings differ in what was measured of them."""
    firsts: list[MeasuredTraining] = []
    for one in trainings:
        if not any(same(one, other) for other in firsts):
            firsts.append(one)
    return len(firsts)


def same(one: MeasuredTraining, other: MeasuredTraining) -> bool:
    """Whether two trainings have the same losses and the same exposures, up to rounding."""
    pairs: list[tuple[ArrayLike, ArrayLike]] = []
    if one.scores is not None and other.scores is not None:
        pairs.append((one.scores.loss, other.scores.loss))
    if one.bits is not None and other.bits is not None:
        pairs.append((one.bits.exposure, other.bits.exposure))
        pairs.append((one.bits.never, other.bits.never))
    return bool(pairs) and all(
        np.allclose(own, rest, rtol=1e-6, atol=1e-6, equal_nan=True) for own, rest in pairs
    )


def claim_of(
    groups: Sequence[Repeated],
    base: Repeated,
    *,
    fewest: int,
    alpha: float,
) -> Claim:
    """The claim that the comparison supports.

    Args:
        groups: trainings by name.
        base: the undefended ones.
        fewest: trainings of each that a verdict takes.
        alpha: level of the test of all names together.
    """
    measured = [one for one in groups if one.exposure.size and one.never.size]
    p_values = [
        unit_permutation_test(
            one.exposure.mean(0), one.never.mean(0), seed=0, permutations=DIVISIONS
        )
        for one in measured
        if np.isfinite(one.exposure).all() and np.isfinite(one.never).all()
    ]
    test = estimate = detectable = None
    if p_values:
        times = len(p_values)
        against = "unplanted canaries"
        test = Test(min(1.0, times * min(p_values)), times / (DIVISIONS + 1), alpha, against)
        first = base if base in measured else measured[0]
        planted, never = first.exposure.mean(0), first.never.mean(0)
        detectable = max(
            detectable_difference(one.exposure.mean(0), one.never.mean(0), alpha=alpha / times)
            for one in measured
        )
        found = difference_of_means(planted, never)
        name = f"exposure of {first.name} above controls"
        estimate = replace(found, name=name, unit="bits")
    power = powerful(
        test,
        detectable=detectable,
        wanted=EXPOSURE_BITS,
        effect="an exposure of {} bits above controls",
    )
    checks = (*_alive(groups), _different(groups, base), _independent(groups, fewest), power)
    return Claim("compare", test, checks, estimate)


def _alive(groups: Sequence[Repeated]) -> tuple[Check, ...]:
    return tuple(
        Check("alive", "failed", one.useless) if one.useless else one.alive for one in groups
    )


def _different(groups: Sequence[Repeated], base: Repeated) -> Check:
    copies = [
        group.name
        for group in groups
        if group is not base
        and any(same(one, other) for one in group.trainings for other in base.trainings)
    ]
    if copies:
        return Check(
            "different", "failed", f"{copies[0]} has trainings that are copies of {base.name}."
        )
    return Check("different", "passed", f"No training is a copy of one of {base.name}.")


def _independent(groups: Sequence[Repeated], fewest: int) -> Check:
    counts = {one.name: distinct(one.trainings) for one in groups}
    name, least = min(counts.items(), key=lambda pair: pair[1])
    given = next(len(one) for one in groups if one.name == name)
    told = f"{name} has {least} independent training{'s' * (least != 1)}"
    if given > least:
        told += f" ({given} were given, the others are copies)"
    if least < fewest:
        return Check("independent", "failed", f"{told}; {fewest} are needed, with different seeds.")
    return Check("independent", "passed", f"Each name has {least} independent trainings or more.")
