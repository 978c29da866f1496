"""The bootstrap over units: variances, sums and interval ends."""

import numpy as np
import pytest

from vestige.audits.anatomy import resampling
from vestige.audits.anatomy.resampling import draw_counts, percentiles, ratio, resampled_sums


def resampled(sums, resamples, seed=0):
    return resampled_sums(sums, resamples=resamples, generator=np.random.default_rng(seed))


def test_means_of_resamples_have_the_variance_of_a_mean():
    values = np.array([1.0, 4.0, 9.0, 2.0])
    sums = resampled(np.stack([values, np.ones(4)], axis=1), 40_000, seed=1)
    means = ratio(sums[:, 0], sums[:, 1])
    assert means[0] == values.mean()
    assert np.isclose(means[1:].mean(), values.mean(), atol=0.03)
    assert np.isclose(means[1:].var(), values.var(ddof=1) / 4, rtol=0.03)


def test_a_resampled_sum_has_n_minus_1_units():
    sums = np.random.default_rng(2).normal(size=(5, 2, 3))
    counts = draw_counts(5, 6, np.random.default_rng(3))
    assert counts.shape == (6, 5)
    assert set(counts.sum(1)) == {4.0}
    result = resampled(sums, 6, seed=3)
    for row, numbers in enumerate(counts, start=1):
        naive = sum(n * unit for n, unit in zip(numbers, sums, strict=True))
        np.testing.assert_allclose(result[row], naive)


def test_many_units_are_drawn_in_blocks(monkeypatch):
    monkeypatch.setattr(resampling, "_CELLS", 10)
    assert resampled(np.ones((5, 1)), 7)[:, 0].tolist() == [5.0] + [4.0] * 7


def with_missing(number):
    """200 resamples, `number` of them without a value."""
    values = np.arange(200.0)[:, None]
    values[1 : 1 + number] = np.nan
    return values


@pytest.mark.parametrize(
    ("resamples", "has_ends"),
    [
        (resampled([[3.0]], 9), False),  # one unit
        (np.zeros((30, 1)), False),  # a share of 0 has no interval of width 0
        (with_missing(20), False),
        (with_missing(4), True),
    ],
)
def test_interval_ends_are_nan_if_resamples_are_missing_or_equal(resamples, has_ends):
    value, *ends = percentiles(resamples)
    assert value == resamples[0]
    assert np.isfinite(ends).all() == has_ends


def test_a_ratio_over_zero_is_nan():
    assert np.isnan(ratio([1.0, 0.0], [0.0, 0.0])).all()
