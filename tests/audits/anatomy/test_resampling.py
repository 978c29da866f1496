"""Units drawn anew spread as the mean of a sample does, and one unit says nothing of spread."""

import numpy as np

from vestige.audits.anatomy import resampling
from vestige.audits.anatomy.resampling import drawn_counts, percentiles, ratio, resampled_sums


def test_every_resample_draws_one_unit_less_than_there_are():
    counts = drawn_counts(7, 50, np.random.default_rng(0))
    assert counts.shape == (50, 7)
    assert set(counts.sum(1)) == {6.0}


def test_means_of_resamples_spread_as_a_sample_of_so_many_says():
    values = np.array([1.0, 4.0, 9.0, 2.0])
    sums = np.stack([values, np.ones(4)], axis=1)
    drawn = resampled_sums(sums, resamples=40_000, generator=np.random.default_rng(1))
    means = ratio(drawn[:, 0], drawn[:, 1])
    assert means[0] == values.mean()
    assert np.isclose(means[1:].mean(), values.mean(), atol=0.03)
    assert np.isclose(means[1:].var(), values.var(ddof=1) / 4, rtol=0.03)


def test_a_resampled_sum_is_the_sum_of_the_units_that_were_drawn():
    sums = np.random.default_rng(2).normal(size=(5, 2, 3))
    counts = drawn_counts(5, 6, np.random.default_rng(3))
    found = resampled_sums(sums, resamples=6, generator=np.random.default_rng(3))
    for row, drawn in enumerate(counts, start=1):
        naive = sum(n * unit for n, unit in zip(drawn, sums, strict=True))
        np.testing.assert_allclose(found[row], naive)


def test_many_units_are_drawn_in_blocks(monkeypatch):
    monkeypatch.setattr(resampling, "_CELLS", 10)
    found = resampled_sums(np.ones((5, 1)), resamples=7, generator=np.random.default_rng(0))
    assert found[:, 0].tolist() == [5.0] + [4.0] * 7


def test_one_unit_says_nothing_of_its_own_spread():
    found = percentiles(resampled_sums([[3.0]], resamples=9, generator=np.random.default_rng(0)))
    assert found[0].tolist() == [3.0]
    assert np.isnan(found[1:]).all()


def test_a_share_of_zero_has_no_interval_of_zero_width():
    assert np.isnan(percentiles(np.zeros((30, 1)))[1]).all()


def test_ends_are_unknown_where_many_resamples_have_nothing_to_count():
    draws = np.arange(200.0)[:, None].repeat(2, axis=1)
    draws[1:21, 0] = np.nan
    draws[1:5, 1] = np.nan
    low = percentiles(draws)[1]
    assert np.isnan(low[0])
    assert low[1] > 0


def test_a_ratio_over_nothing_is_no_number():
    assert np.isnan(ratio([1.0, 0.0], [0.0, 0.0])).all()
