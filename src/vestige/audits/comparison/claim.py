"""The claim of a comparison: whether the compared trainings leak.

Planted canaries are compared with canaries that were never planted, by a permutation test over
canaries. Their exposures are means over the trainings of a name (Bonferroni over names).
"""

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from vestige.audits.comparison.groups import SeedGroup
from vestige.claims import Check, Claim, Test, detectable_difference, powerful
from vestige.claims.effects import EXPOSURE_BITS
from vestige.metrics.estimates import Estimate, difference_of_means
from vestige.metrics.tests import unit_permutation_test

PERMUTATIONS = 9999


def above_controls(group: SeedGroup) -> Estimate | None:
    """Mean exposure of planted canaries minus that of controls; None if one side is missing."""
    if not (group.exposure.size and group.never_planted.size):
        return None
    difference = difference_of_means(group.exposure.mean(0), group.never_planted.mean(0))
    return replace(difference, name=f"exposure of {group.name} above controls", unit="bits")


def claim_of(groups: Sequence[SeedGroup], base: SeedGroup, *, fewest: int, alpha: float) -> Claim:
    """The claim that the comparison supports.

    Args:
        groups: trainings by name.
        base: the undefended ones.
        fewest: trainings of each name that a verdict needs.
        alpha: level of the test of all names together.
    """
    measured = [group for group in groups if group.exposure.size and group.never_planted.size]
    exposures = [(group.exposure.mean(0), group.never_planted.mean(0)) for group in measured]
    p_values = [
        unit_permutation_test(planted, controls, seed=0, permutations=PERMUTATIONS)
        for planted, controls in exposures
        if np.isfinite(planted).all() and np.isfinite(controls).all()
    ]
    test = estimate = detectable = None
    if tests := len(p_values):
        p, least = min(1.0, tests * min(p_values)), tests / (PERMUTATIONS + 1)
        test = Test(p, least, alpha, "unplanted canaries")
        detectable = max(detectable_difference(*pair, alpha=alpha / tests) for pair in exposures)
        estimate = above_controls(base) or above_controls(measured[0])
    power = powerful(
        test,
        detectable=detectable,
        wanted=EXPOSURE_BITS,
        effect="an exposure of {} bits above controls",
    )
    alive = (
        Check("alive", "failed", group.useless) if group.useless else group.alive
        for group in groups
    )
    checks = (*alive, _different(groups, base), _independent(groups, fewest), power)
    return Claim("compare", test, checks, estimate)


def _different(groups: Sequence[SeedGroup], base: SeedGroup) -> Check:
    for group in groups:
        pairs = ((own, other) for own in group.trainings for other in base.trainings)
        if group is not base and any(own.same_as(other) for own, other in pairs):
            sentence = f"{group.name} has trainings that are copies of {base.name}."
            return Check("different", "failed", sentence)
    return Check("different", "passed", f"No training is a copy of one of {base.name}.")


def _independent(groups: Sequence[SeedGroup], fewest: int) -> Check:
    smallest = min(groups, key=lambda group: group.distinct)
    number, total = smallest.distinct, len(smallest)
    if number >= fewest:
        sentence = f"Each name has {number} independent trainings or more."
        return Check("independent", "passed", sentence)
    sentence = f"{smallest.name} has {number} independent training{'s' * (number != 1)}"
    if total > number:
        sentence += f" ({total} were given, the others are copies)"
    return Check("independent", "failed", f"{sentence}; {fewest} are needed, with different seeds.")
