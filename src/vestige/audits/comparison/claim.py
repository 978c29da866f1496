"""The claim of a comparison: whether the compared trainings leak.

Planted canaries are compared with canaries that were never planted, by a permutation test over
canaries. Their exposures are means over the trainings of a name (Bonferroni over names).
"""

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from vestige.audits.comparison.groups import Group
from vestige.claims import Check, Claim, Test, detectable_difference, powerful
from vestige.claims.effects import EXPOSURE_BITS
from vestige.metrics.estimates import difference_of_means
from vestige.metrics.tests import unit_permutation_test

DIVISIONS = 9999


def claim_of(groups: Sequence[Group], base: Group, *, fewest: int, alpha: float) -> Claim:
    """The claim that the comparison supports.

    Args:
        groups: trainings by name.
        base: the undefended ones.
        fewest: trainings of each name that a verdict needs.
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
        least = times / (DIVISIONS + 1)
        test = Test(min(1.0, times * min(p_values)), least, alpha, "unplanted canaries")
        detectable = max(
            detectable_difference(one.exposure.mean(0), one.never.mean(0), alpha=alpha / times)
            for one in measured
        )
        first = base if base in measured else measured[0]
        found = difference_of_means(first.exposure.mean(0), first.never.mean(0))
        name = f"exposure of {first.name} above controls"
        estimate = replace(found, name=name, unit="bits")
    power = powerful(
        test,
        detectable=detectable,
        wanted=EXPOSURE_BITS,
        effect="an exposure of {} bits above controls",
    )
    alive = (Check("alive", "failed", one.useless) if one.useless else one.alive for one in groups)
    checks = (*alive, _different(groups, base), _independent(groups, fewest), power)
    return Claim("compare", test, checks, estimate)


def _different(groups: Sequence[Group], base: Group) -> Check:
    for group in groups:
        pairs = ((one, other) for one in group.trainings for other in base.trainings)
        if group is not base and any(one.same_as(other) for one, other in pairs):
            sentence = f"{group.name} has trainings that are copies of {base.name}."
            return Check("different", "failed", sentence)
    return Check("different", "passed", f"No training is a copy of one of {base.name}.")


def _independent(groups: Sequence[Group], fewest: int) -> Check:
    least = min(groups, key=lambda one: one.distinct)
    number, given = least.distinct, len(least)
    if number >= fewest:
        return Check(
            "independent", "passed", f"Each name has {number} independent trainings or more."
        )
    sentence = f"{least.name} has {number} independent training{'s' * (number != 1)}"
    if given > number:
        sentence += f" ({given} were given, the others are copies)"
    return Check("independent", "failed", f"{sentence}; {fewest} are needed, with different seeds.")
