"""Chance of a number of rare events against enumeration and SciPy."""

from itertools import product
from math import prod

import numpy as np
import pytest
from scipy.stats import binom

from vestige.metrics.rare_events import at_least


def test_it_is_the_sum_over_all_outcomes():
    generator = np.random.default_rng(0)
    for _ in range(30):
        chances = generator.random(generator.integers(0, 7)).tolist()
        for number in range(len(chances) + 2):
            total = sum(
                prod(c if happened else 1 - c for c, happened in zip(chances, outcome, strict=True))
                for outcome in product((False, True), repeat=len(chances))
                if sum(outcome) >= number
            )
            assert at_least(number, chances) == pytest.approx(total, abs=1e-12)


def test_equal_chances_are_binomial_and_small_ones_keep_their_digits():
    assert at_least(3, [1e-6] * 15) == pytest.approx(binom.sf(2, 15, 1e-6), rel=1e-9)


@pytest.mark.parametrize(("number", "chances"), [(-1, [0.5]), (1, [1.5]), (1, [float("nan")])])
def test_what_is_no_probability_is_refused(number, chances):
    with pytest.raises(ValueError, match=r"number|chances"):
        at_least(number, chances)
