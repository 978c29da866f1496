"""Means of resampled units have the variance of a mean; one unit has none."""

import numpy as np
import pytest

from vestige.audits.anatomy import resampling
from vestige.audits.anatomy.resampling import draw_counts, percentiles, ratio, resampled_sums


def resampled(sums, resamples, seed=0):
    return resampled_sums(sums, resamples=resamples, generator=np.random.default_rng(seed))


def test_means_of_resamples_have_the_variance_of_a_mean():
    values = np.array([1.0, 4.0, 9.0, 2.0])
    drawn = resampled(np.stack([values, np.ones(4)], axis=1), 40_000, seed=1)
    means = ratio(drawn[:, 0], drawn[:, 1])
    assert means[0] == values.mean()
    assert np.isclose(means[1:].mean(), values.mean(), atol=0.03)
    assert np.isclose(means[1:].var(), values.var(ddof=1) / 4, rtol=0.03)


def test_a_resampled_sum_has_n_minus_1_units():
    sums = np.random.default_rng(2).normal(size=(5, 2, 3))
    counts = draw_counts(5, 6, np.random.default_rng(3))
    assert counts.shape == (6, 5)
    assert set(counts.sum(1)) == {4.0}
    result = resampled(sums, 6, seed=3)
    for row, drawn in enumerate(counts, start=1):
        naive = sum(n * unit for n, unit in zip(drawn, sums, strict=True))
        np.testing.assert_allclose(result[row], naive)


def test_many_units_are_drawn_in_blocks(monkeypatch):
    monkeypatch.setattr(resampling, "_CELLS", 10)
    assert resampled(np.ones((5, 1)), 7)[:, 0].tolist() == [5.0] + [4.0] * 7


def missing(number):
    """200 resamples, `number` of them without a value."""
    draws = np.arange(200.0)[:, None]
    draws[1 : 1 + number] = np.nan
    return draws


@pytest.mark.parametrize(
    ("draws", "has_ends"),
    [
        (resampled([[3.0]], 9), False),  # one unit
        (np.zeros((30, 1)), False),  # a share of 0 has no interval of width 0
        (missing(20), False),
        (missing(4), True),
    ],
)
def test_ends_are_nan_if_resamples_are_missing_or_equal(draws, has_ends):
    value, *ends = percentiles(draws)
    assert value == draws[0]
    assert np.isfinite(ends).all() == has_ends


def test_a_ratio_over_zero_is_nan():
    assert np.isnan(ratio([1.0, 0.0], [0.0, 0.0])).all()
