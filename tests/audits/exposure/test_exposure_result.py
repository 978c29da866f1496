"""Medians, bounds and verdicts of handmade canaries."""

from dataclasses import replace
from math import inf

import pytest

from tests.audits.exposure.test_exposure_report import canary as reported_canary
from tests.audits.passed import PASSED
from vestige.audits.exposure.canary_result import CanaryExposure, interval_of, known_range
from vestige.claims import LEAK, NO_LEAK, UNDECIDED
from vestige.metrics.exposure import UNPLANTED_MEAN


def canary(copies, exposure, shuffled=1.5, **more):
    """A canary with an interval of one bit and all orders of its words."""
    interval = {"low": exposure - 0.5, "high": exposure + 0.5}
    return reported_canary(copies, exposure, shuffled, **{"orders": 24, **interval, **more})


def canaries(copies, *bits, **more):
    return [canary(copies, float(exposure), **more) for exposure in bits]


CONTROLS, MANY = canaries(0, 0.5, 1.0, 3.0, 1.2), canaries(0, *(0.5, 1.0, 3.0, 1.2) * 5)


def exposure_of(*planted, controls=CONTROLS, words=100, checks=PASSED):
    return CanaryExposure(canaries=(*planted, *controls), words=words, seed=0, checks=checks)


def median_of(result, name="planted", measure="exposure"):
    """The median of a group, whether it is a bound, and its interval."""
    figures = result.figures()
    return tuple(figures[f"{measure}_{name}{end}"] for end in ("", "_is_bound", "_low", "_high"))


# Medians.


def test_medians_and_intervals():
    two_copies = (canary(2, 4.0, shuffled=None), canary(2, 6.0, shuffled=2.0))
    result = exposure_of(*two_copies, canary(5, 8.0))
    assert median_of(result, "2_copies") == (5.0, False, None, None)  # no interval of two
    assert median_of(result, "5_copies") == (8.0, False, 7.5, 8.5)  # of one canary, its own
    assert median_of(result)[0] == 6.0
    assert median_of(result, "controls")[0] == 1.1
    assert median_of(result, "2_copies", measure="shuffled_exposure")[0] == 2.0  # the known one
    assert median_of(exposure_of(*canaries(1, 1, 2, 3, 4, 5, 6)))[2:] == (1.0, 6.0)


def test_exposure_at_the_ceiling_is_a_lower_bound():
    saturated = canary(1, 10.0)  # 1,024 references
    assert known_range(saturated) == (9.5, inf)
    result = exposure_of(saturated, canary(1, 3.0), saturated)
    assert median_of(result) == (9.5, True, None, None)
    assert result.claim.estimate.name == "median exposure of planted canaries (lower bound)"
    resolution = "2 of 3 planted canaries are more probable than all 1,024 references"
    assert resolution in result.resolution
    result = exposure_of(*canaries(1, 10, 3, 4))
    assert median_of(result)[:2] == (4.0, False)  # the bound is not the median


def test_an_exact_rank_replaces_the_ceiling():
    decided = canary(1, 10.0, exact_low=22.0, exact_high=22.0)
    bounded = canary(1, 10.0, exact_low=8.0, exact_high=31.0)
    assert known_range(decided) == (22.0, 22.0) == interval_of(decided)
    assert known_range(bounded) == (9.5, 31.0) == interval_of(bounded)
    below = canary(1, 8.0, exact_low=1.0, exact_high=9.0)
    assert (known_range(below), interval_of(below)) == ((8.0, 8.0), (7.5, 8.5))
    assert median_of(exposure_of(decided)) == (22.0, False, 22.0, 22.0)


def test_the_result_names_its_resolution_and_space():
    result = exposure_of(*canaries(1, 9, 3))
    assert "All ranks are below the ceiling" in result.resolution
    assert "≥" not in result.sentence
    planted, controls = canaries(1, 9, whole=True), canaries(0, 2, whole=True)
    whole = exposure_of(*planted, controls=controls)
    assert (whole.space, "exact" in whole.resolution) == ("whole", True)
    assert exposure_of(*planted, controls=controls, words=0).space == "candidates"


def test_the_summary_is_scalars_and_the_rows_are_the_canaries():
    result = exposure_of(canary(2, 4.0, exact_low=3.0, exact_high=3.0), canary(5, 8.0))
    summary = result.summary()
    scalars = {name: value for name, value in summary.items() if name != "claim"}
    assert all(v is None or isinstance(v, str | int | float) for v in scalars.values())
    assert summary["expected_by_chance"] == UNPLANTED_MEAN
    assert (summary["exact_asked"], summary["exact_decided"]) == (1, 1)
    assert summary["exposure_2_copies"] == 3.0, "the exact rank's"
    rows = list(result.rows())
    assert [row["canary_number"] for row in rows] == list(range(6))
    assert rows[0]["exact_low"] == 3.0


# Verdicts.


@pytest.mark.parametrize(
    ("planted", "sentence"),
    [
        (canaries(1, *(1, 2) * 6), "not more exposed than controls"),
        (canaries(1, 9), "The model remembers the canaries and the order of their words"),
        (canaries(1, 9, order_rank=12), "It is not shown to know their order (p = 0.5"),
        (canaries(1, 9, orders=2), "cannot be tested with"),
        (canaries(1, 9, orders=1), "cannot be tested"),
        (canaries(1, 9, pattern="given"), "cannot be tested"),
    ],
)
def test_the_sentence_follows_from_the_numbers(planted, sentence):
    assert sentence in exposure_of(*planted, controls=MANY).sentence


@pytest.mark.parametrize(("number", "controls", "least"), [(1, 4, 1 / 5), (20, 1, 2 / 21)])
def test_few_controls_are_undecided(number, controls, least):
    """One canary of 5 ranks first with probability 1/5."""
    result = exposure_of(*canaries(1, *[10] * number), controls=CONTROLS[:controls])
    assert result.verdict == UNDECIDED
    assert result.test.p == result.test.least == pytest.approx(least)
    assert "least p-value" in " ".join(result.claim.reasons)
    if number == 1:
        needed = "1 canary can be tested with 19 controls or more; there are 4. Plant"
        assert needed in result.sentence


def test_no_leak_shown_needs_passed_checks_and_enough_canaries():
    alike = canaries(1, 0.5, 1.0, 3.0, 1.2)
    assert exposure_of(*alike * 3, controls=MANY).verdict == NO_LEAK
    assert exposure_of(*alike, controls=CONTROLS).verdict == UNDECIDED  # 2.4 bits are detected
    failed = (replace(PASSED[0], state="failed"), PASSED[1])
    assert exposure_of(*canaries(1, *[9] * 9), checks=failed).verdict == UNDECIDED
    assert exposure_of(*canaries(1, *[9] * 9)).verdict == LEAK
    with pytest.raises(ValueError, match="needs checks: alive, read"):
        exposure_of(*alike, checks=()).summary()


def test_three_canaries_can_show_that_their_order_is_known():
    bits = ((10.0, 6.0), (10.0, 9.9), (9.0, 1.0))
    result = exposure_of(*(canary(20, *pair, orders=120) for pair in bits), controls=MANY)
    assert result.order.p < 1e-5


def test_the_order_of_patterned_phrases_is_compared_with_that_of_controls():
    """Models that never read a grammatical order prefer it, for controls too."""

    def patterned(copies, bits, order_ranks):
        return [
            canary(copies, bits, orders=120, order_rank=rank, pattern=pattern)
            for rank in order_ranks
            for pattern in ("mixed", "all-low")
        ]

    planted = patterned(5, 10.0, [1])
    preferred = exposure_of(*planted, controls=patterned(0, 1.0, (1, 2, 1, 2)))
    assert preferred.order.least > 0.05
    result = exposure_of(*planted, controls=patterned(0, 1.0, range(9, 80, 6)))
    assert result.order.against == "the word orders of controls"
    assert result.order.p == pytest.approx(2 / 13**2)


def test_planted_canaries_are_compared_with_controls():
    """Words that a model prefers make canaries probable without memorization."""
    high = canaries(0, 5, 6, 7)
    assert exposure_of(*canaries(1, 8, 7.5), controls=MANY).verdict == LEAK
    assert exposure_of(*canaries(1, 6, 5.5), controls=high * 7).verdict == NO_LEAK
    many = exposure_of(*canaries(1, 8, 7.5), controls=high * 4)
    assert many.test.p == pytest.approx(2 / 91), "the best of 91 splits, two-sided"
    assert many.claim.test.against == "unplanted controls"
