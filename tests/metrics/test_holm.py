"""Holm's adjustment against its procedure."""

import numpy as np
import pytest

from vestige.metrics.holm import holm


def rejected(p: list[float], level: float) -> set[int]:
    """Step by step: the least p at level / m, the next at level / (m - 1), until one is above."""
    found = set()
    for step, number in enumerate(sorted(range(len(p)), key=p.__getitem__)):
        if p[number] > level / (len(p) - step):
            break
        found.add(number)
    return found


def test_adjusted_values_reject_what_the_procedure_rejects():
    generator = np.random.default_rng(0)
    for _ in range(500):
        p = (generator.random(generator.integers(1, 9)) ** 3).tolist()
        for level in (0.01, 0.05, 0.3):
            assert set(np.flatnonzero(holm(p) <= level)) == rejected(p, level)


def test_no_tests_are_refused():
    with pytest.raises(ValueError, match="p_values must be an array"):
        holm([])
