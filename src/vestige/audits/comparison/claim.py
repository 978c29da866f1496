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
from vestige.metrics.estimates import Estimate, difference_of_means
from vestige.metrics.tests import unit_permutation_test

DIVISIONS = 9999


def above_controls(group: Group) -> Estimate | None:
    """Exposure of planted canaries above those never planted; None if one side is missing."""
    if not (group.exposure.size and group.never.size):
        return None
    found = difference_of_means(group.exposure.mean(0), group.never.mean(0))
    return replace(found, name=f"exposure of {group.name} above controls", unit="bits")


def claim_of(groups: Sequence[Group], base: Group, *, fewest: int, alpha: float) -> Claim:
    """The claim that the comparison supports.

    Args:
        groups: trainings by name.
        base: the undefended ones.
        fewest: trainings of each name that a verdict needs.
        alpha: level of the test of all names together.
    """
    measured = [one for one in groups if one.exposure.size and one.never.size]
    sides = [(one.exposure.mean(0), one.never.mean(0)) for one in measured]
    p_values = [
        unit_permutation_test(planted, never, seed=0, permutations=DIVISIONS)
        for planted, never in sides
        if np.isfinite(planted).all() and np.isfinite(never).all()
    ]
    test = estimate = detectable = None
    if times := len(p_values):
        p, least = min(1.0, times * min(p_values)), times / (DIVISIONS + 1)
        test = Test(p, least, alpha, "unplanted canaries")
        detectable = max(detectable_difference(*both, alpha=alpha / times) for both in sides)
        estimate = above_controls(base) or above_controls(measured[0])
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
        enough = f"Each name has {number} independent trainings or more."
        return Check("independent", "passed", enough)
    sentence = f"{least.name} has {number} independent training{'s' * (number != 1)}"
    if given > number:
        sentence += f" ({given} were given, the others are copies)"
    return Check("independent", "failed", f"{sentence}; {fewest} are needed, with different seeds.")
