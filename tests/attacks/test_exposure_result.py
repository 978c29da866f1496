"""Means, verdicts and the estimate to read, from canaries made by hand."""

from statistics import fmean

import pytest

from vestige.attacks.exposure_result import CanaryExposure, ExposedCanary
from vestige.metrics.exposure import CHANCE
from vestige.metrics.intervals import mean_interval


def canary(copies, exposure, shuffled=1.5, fit=None, **more):
    defaults = {"references": 1024, "whole": False, "space_bits": 40.0}
    return ExposedCanary(
        phrase="a b c d",
        pattern="random",
        user="",
        copies=copies,
        length=4,
        log_perplexity=40.0,
        per_token=10.0,
        rank=1 + round(1024 * 2**-exposure),
        exposure=exposure,
        low=exposure - 0.5,
        high=exposure + 0.5,
        at_ceiling=exposure >= 10,
        fit_exposure=exposure if fit is None else fit,
        extrapolated=False,
        shuffled_log_perplexity=None if shuffled is None else 50.0,
        shuffled_exposure=shuffled,
        shuffled_fit_exposure=shuffled,
        **{**defaults, **more},
    )


CONTROLS = [canary(0, x) for x in (0.5, 1.0, 3.0, 1.2)]


def result(*planted, controls=CONTROLS, words=100):
    return CanaryExposure(canaries=(*planted, *controls), words=words, fit_distance=0.01, seed=0)


def test_means_and_intervals_are_those_of_the_canaries():
    found = result(canary(2, 4.0), canary(2, 6.0), canary(5, 8.0))
    first, second = found.by_copies()
    assert (first.copies, first.exposure) == (2, 5.0)
    assert first.exposure_interval == mean_interval([4.0, 6.0])
    assert second.exposure_interval == (7.5, 8.5)  # of one canary, its own
    assert found.planted.exposure == 6.0
    assert found.controls.exposure == fmean([0.5, 1.0, 3.0, 1.2])
    assert found.controls.copies == 0
    assert found.order_gain[0] == 4.5


def test_a_mean_leaves_out_what_is_not_known():
    found = result(canary(2, 4.0, shuffled=None), canary(2, 6.0, shuffled=2.0))
    assert found.planted.shuffled == 2.0
    assert found.order_gain == (4.0, None)


@pytest.mark.parametrize(
    ("planted", "beginning"),
    [
        ([canary(1, 1.0), canary(1, 2.0)], "No memory"),
        ([canary(1, 4.0)], "No memory"),
        ([canary(1, 9.0)], "The model remembers"),
        ([canary(1, 9.0), canary(1, 10.0)], "The model remembers"),
        ([canary(1, 9.0, 9.5), canary(1, 10.0, 9.0)], "The model knows the words"),
        ([canary(1, 9.0, None)], "The model remembers"),
    ],
)
def test_the_verdict_follows_the_numbers(planted, beginning):
    assert result(*planted).verdict.startswith(beginning)


def test_controls_that_are_exposed_themselves_raise_the_bar():
    high = [canary(0, x) for x in (5.0, 6.0, 7.0)]
    assert result(canary(1, 8.0), canary(1, 6.0)).chance < 0.001
    assert result(canary(1, 8.0), canary(1, 6.0), controls=high).chance > 0.2


def test_a_sample_at_its_ceiling_asks_for_the_fit():
    found = result(canary(1, 10.0, fit=45.0), canary(1, 3.0))
    assert found.estimate == "fit"
    assert "1 of 2 planted canaries are likelier" in found.why
    assert "1 of them past the 40.0 bits" in found.why
    assert "bits or more" in found.verdict
    assert found.summary()["at_ceiling_planted"] == 1


def test_ranks_that_are_not_at_the_ceiling_need_no_fit():
    found = result(canary(1, 9.0), canary(1, 3.0))
    assert found.estimate == "rank"
    assert "no extrapolation" in found.why
    assert "or more" not in found.verdict


def test_a_whole_space_needs_no_fit():
    whole = [canary(c, x, whole=True) for c, x in ((1, 9.0), (0, 2.0))]
    found = result(whole[0], controls=whole[1:])
    assert (found.space, found.estimate) == ("whole", "rank")
    assert result(whole[0], controls=whole[1:], words=0).space == "candidates"


def test_the_summary_is_scalars_and_the_rows_are_the_canaries():
    found = result(canary(2, 4.0, exact_low=3.0, exact_high=3.0), canary(5, 8.0))
    summary = found.summary()
    assert all(v is None or isinstance(v, str | int | float) for v in summary.values())
    assert summary["expected_by_chance"] == CHANCE
    assert (summary["exact_asked"], summary["exact_decided"]) == (1, 1)
    assert summary["exposure_2_copies"] == 4.0
    rows = list(found.rows())
    assert [row["canary_number"] for row in rows] == list(range(6))
    assert rows[0]["exact_low"] == 3.0
