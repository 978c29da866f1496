"""Medians, bounds and verdicts, from canaries made by hand."""

from dataclasses import replace
from math import inf

import pytest

from tests.attacks.exposure.passed import PASSED
from vestige.attacks.exposure.exposed_canary import ExposedCanary, Median
from vestige.attacks.exposure.exposure_result import CanaryExposure
from vestige.claims import LEAK, NO_LEAK, UNDECIDED
from vestige.metrics.estimates import Interval
from vestige.metrics.exposure import CHANCE


def canary(copies, exposure, shuffled=1.5, fit=None, **more):
    defaults = {
        "references": 1024,
        "whole": False,
        "space_bits": 40.0,
        "pattern": "random",
        "rank": max(1, round(1024 * 2**-exposure)),
        "orders": 24,
    }
    return ExposedCanary(
        phrase="a b c d",
        user="",
        copies=copies,
        length=4,
        log_perplexity=40.0,
        per_token=10.0,
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
MANY = [canary(0, x) for x in (0.5, 1.0, 3.0, 1.2) * 5]


def result(*planted, controls=CONTROLS, words=100, checks=PASSED):
    return CanaryExposure(
        canaries=(*planted, *controls), words=words, fit_distance=0.01, seed=0, checks=checks
    )


def test_medians_and_intervals_are_those_of_the_canaries():
    found = result(canary(2, 4.0), canary(2, 6.0), canary(5, 8.0))
    first, second = found.by_copies()
    assert (first.copies, first.exposure.value) == (2, 5.0)
    assert first.exposure.interval is None, "two canaries have no interval of 95 %"
    assert second.exposure.interval == (7.5, 8.5)  # of one canary, its own
    assert found.planted.exposure.value == 6.0
    assert found.controls.exposure.value == 1.1
    assert found.controls.copies == 0


def test_six_canaries_have_an_interval():
    found = result(*[canary(1, float(bits)) for bits in range(1, 7)])
    assert found.planted.exposure.interval == (1.0, 6.0)


def test_a_median_leaves_out_what_is_not_known():
    found = result(canary(2, 4.0, shuffled=None), canary(2, 6.0, shuffled=2.0))
    assert found.planted.shuffled.value == 2.0


def test_what_the_references_do_not_resolve_is_a_bound():
    stuck = canary(1, 10.0, fit=183.0)  # 1,024 references, and a fit that means nothing
    assert stuck.resolved == (9.5, inf)
    found = result(stuck, canary(1, 3.0), stuck)
    assert found.planted.exposure == Median(value=9.5, bound=True, interval=None)
    assert found.summary()["exposure_planted_is_bound"] is True
    assert found.summary()["exposure_planted_high"] is None
    for words in (found.sentence, found.resolution):
        assert "183" not in words
    assert "3 canaries can be tested with 5 controls or more; there are 4." in found.sentence
    assert "2 of 3 planted canaries are more probable than all 1,024 references" in found.resolution


def test_a_bound_that_does_not_reach_the_median_is_none():
    found = result(canary(1, 10.0), canary(1, 3.0), canary(1, 4.0))
    assert (found.planted.exposure.value, found.planted.exposure.bound) == (4.0, False)


def test_an_exact_rank_resolves_what_references_do_not():
    decided = canary(1, 10.0, exact_low=22.0, exact_high=22.0)
    bounded = canary(1, 10.0, exact_low=8.0, exact_high=31.0)
    assert decided.resolved == (22.0, 22.0) == decided.interval
    assert bounded.resolved == (9.5, 31.0)
    assert canary(1, 8.0, exact_low=1.0, exact_high=9.0).resolved == (8.0, 8.0)
    assert result(decided).planted.exposure == Median(
        value=22.0, bound=False, interval=Interval(22.0, 22.0)
    )


@pytest.mark.parametrize(
    ("planted", "words"),
    [
        ([canary(1, 1.0), canary(1, 2.0)] * 6, "not more exposed than controls"),
        ([canary(1, 9.0)], "The model remembers the canaries and the order of their words"),
        ([canary(1, 9.0, order_rank=12)], "It is not shown to know their order (p = 0.5"),
        ([canary(1, 9.0, orders=2)], "cannot be tested with"),
        ([canary(1, 9.0, orders=1)], "cannot be tested"),
        ([canary(1, 9.0, pattern="given")], "cannot be tested"),
    ],
)
def test_the_verdict_follows_the_numbers(planted, words):
    assert words in result(*planted, controls=MANY).sentence


def test_few_controls_are_undecided_however_likely_the_canaries_are():
    """One of 5 is first in a fifth of all cases, and 20 of 21 hold the likeliest but one."""
    one = result(canary(1, 10.0))
    many = result(*[canary(1, 10.0)] * 20, controls=CONTROLS[:1])
    for found, least in ((one, 1 / 5), (many, 2 / 21)):
        assert found.verdict == UNDECIDED
        assert found.test.p == found.test.least == pytest.approx(least)
        assert "least p-value" in " ".join(found.claim.reasons)
    assert "1 canary can be tested with 19 controls or more; there are 4. Plant" in one.sentence


def test_no_leak_shown_takes_a_checked_model_and_enough_canaries():
    alike = [canary(1, x) for x in (0.5, 1.0, 3.0, 1.2)]
    assert result(*alike, *alike, *alike, controls=MANY).verdict == NO_LEAK
    assert result(*alike, controls=CONTROLS).verdict == UNDECIDED  # 2.4 bits are detected
    dead = (replace(PASSED[0], state="failed"), PASSED[1])
    assert result(*[canary(1, 9.0)] * 9, checks=dead).verdict == UNDECIDED
    assert result(*[canary(1, 9.0)] * 9).verdict == LEAK
    with pytest.raises(ValueError, match="needs checks: alive, read"):
        result(*alike, checks=()).summary()


def test_three_canaries_are_enough_to_show_that_their_order_is_known():
    """Two at the ceiling and one recited, where Student's t over three saw nothing."""
    planted = [
        canary(20, 10.0, 6.0, orders=120),
        canary(20, 10.0, 9.9, orders=120),
        canary(20, 9.0, 1.0, orders=120),
    ]
    found = result(*planted, controls=MANY)
    assert found.order.p < 1e-5
    assert "remembers the canaries and the order of their words" in found.sentence


def test_phrases_made_to_a_pattern_are_asked_against_their_controls_orders():
    """A grammatical order is preferred by models that never read it: by the controls', too."""

    def made(copies, bits, order_rank, pattern):
        return canary(copies, bits, orders=120, order_rank=order_rank, pattern=pattern)

    patterns = ["mixed", "all-low"]
    planted = [made(5, 10.0, 1, pattern) for pattern in patterns]
    alike = [made(0, 1.0, rank, pattern) for rank in (1, 2, 1, 2) for pattern in patterns]
    apart = [made(0, 1.0, rank, pattern) for rank in range(9, 80, 6) for pattern in patterns]
    assert result(*planted, controls=alike).order.least > 0.05
    assert "cannot be tested with" in result(*planted, controls=alike).sentence
    found = result(*planted, controls=apart)
    assert found.order.against == "controls' orders"
    assert found.order.p == pytest.approx(2 / 13**2)
    assert (
        "The model remembers the canaries and the order of their words (p = 0.012 compared with "
        "the word orders" in found.sentence
    )


def test_controls_that_are_likely_too_are_what_canaries_are_compared_with():
    """Words that the model likes make all references unlikely, and no memory."""
    high = [canary(0, x) for x in (5.0, 6.0, 7.0)]
    assert result(canary(1, 8.0), canary(1, 7.5), controls=MANY).verdict == LEAK
    assert result(canary(1, 6.0), canary(1, 5.5), controls=high * 7).verdict == NO_LEAK
    many = result(canary(1, 8.0), canary(1, 7.5), controls=high * 4)
    assert many.memory.p == pytest.approx(2 / 91), "of 91 splits the best, looked at twice"
    assert many.claim.test.against == "unplanted controls"
    assert "The model remembers the canaries and the order of their words (p = 0.0" in many.sentence


def test_ranks_below_the_ceiling_are_resolved():
    found = result(canary(1, 9.0), canary(1, 3.0))
    assert "All ranks are below the ceiling" in found.resolution
    assert "≥" not in found.sentence


def test_a_whole_space_is_exact():
    whole = [canary(c, x, whole=True) for c, x in ((1, 9.0), (0, 2.0))]
    found = result(whole[0], controls=whole[1:])
    assert (found.space, "exact" in found.resolution) == ("whole", True)
    assert result(whole[0], controls=whole[1:], words=0).space == "candidates"


def test_the_summary_is_scalars_and_the_rows_are_the_canaries():
    found = result(canary(2, 4.0, exact_low=3.0, exact_high=3.0), canary(5, 8.0))
    summary = found.summary()
    scalars = {name: value for name, value in summary.items() if name != "claim"}
    assert all(v is None or isinstance(v, str | int | float) for v in scalars.values())
    assert summary["expected_by_chance"] == CHANCE
    assert (summary["exact_asked"], summary["exact_decided"]) == (1, 1)
    assert summary["exposure_2_copies"] == 3.0, "the exact rank's"
    rows = list(found.rows())
    assert [row["canary_number"] for row in rows] == list(range(6))
    assert rows[0]["exact_low"] == 3.0
