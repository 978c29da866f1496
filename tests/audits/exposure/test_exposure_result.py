"""Medians, bounds and verdicts, from canaries made by hand."""

from dataclasses import replace
from math import inf

import pytest

from tests.audits.exposure.test_exposure_report import canary as wide
from tests.audits.passed import PASSED
from vestige.audits.exposure.canary_result import CanaryExposure, interval_of, known_range
from vestige.claims import LEAK, NO_LEAK, UNDECIDED
from vestige.metrics.exposure import UNPLANTED_MEAN


def canary(copies, exposure, shuffled=1.5, **more):
    """A canary with an interval of one bit and all orders of its words."""
    own = {"low": exposure - 0.5, "high": exposure + 0.5, "orders": 24, "user": ""}
    return wide(copies, exposure, shuffled, **{**own, **more})


def of(copies, *bits, **more):
    return [canary(copies, float(one), **more) for one in bits]


CONTROLS, MANY = of(0, 0.5, 1.0, 3.0, 1.2), of(0, *(0.5, 1.0, 3.0, 1.2) * 5)


def result(*planted, controls=CONTROLS, words=100, checks=PASSED):
    return CanaryExposure(canaries=(*planted, *controls), words=words, seed=0, checks=checks)


def median_of(found, name="planted", measure="exposure"):
    """The median of a group, whether it is a bound, and its interval."""
    figures = found.figures()
    return tuple(figures[f"{measure}_{name}{end}"] for end in ("", "_is_bound", "_low", "_high"))


# Medians.


def test_medians_and_intervals_are_those_of_the_canaries():
    found = result(canary(2, 4.0, shuffled=None), canary(2, 6.0, shuffled=2.0), canary(5, 8.0))
    assert median_of(found, "2_copies") == (5.0, False, None, None)  # no interval of two
    assert median_of(found, "5_copies") == (8.0, False, 7.5, 8.5)  # of one canary, its own
    assert median_of(found)[0] == 6.0
    assert median_of(found, "controls")[0] == 1.1
    assert median_of(found, "2_copies", measure="shuffled_exposure")[0] == 2.0  # the known one
    assert median_of(result(*of(1, 1, 2, 3, 4, 5, 6)))[2:] == (1.0, 6.0)


def test_what_the_references_do_not_resolve_is_a_bound():
    saturated = canary(1, 10.0)  # 1,024 references
    assert known_range(saturated) == (9.5, inf)
    found = result(saturated, canary(1, 3.0), saturated)
    assert median_of(found) == (9.5, True, None, None)
    assert found.claim.estimate.name == "median exposure of planted canaries (lower bound)"
    assert "3 canaries can be tested with 5 controls or more; there are 4." in found.sentence
    assert "2 of 3 planted canaries are more probable than all 1,024 references" in found.resolution
    assert median_of(result(*of(1, 10, 3, 4)))[:2] == (4.0, False)  # the bound is not the median


def test_an_exact_rank_resolves_what_references_do_not():
    decided = canary(1, 10.0, exact_low=22.0, exact_high=22.0)
    bounded = canary(1, 10.0, exact_low=8.0, exact_high=31.0)
    assert known_range(decided) == (22.0, 22.0) == interval_of(decided)
    assert known_range(bounded) == (9.5, 31.0) == interval_of(bounded)
    below = canary(1, 8.0, exact_low=1.0, exact_high=9.0)
    assert (known_range(below), interval_of(below)) == ((8.0, 8.0), (7.5, 8.5))
    assert median_of(result(decided)) == (22.0, False, 22.0, 22.0)


def test_resolution_and_space_are_said():
    found = result(*of(1, 9, 3))
    assert "All ranks are below the ceiling" in found.resolution
    assert "≥" not in found.sentence
    one, control = of(1, 9, whole=True), of(0, 2, whole=True)
    whole = result(*one, controls=control)
    assert (whole.space, "exact" in whole.resolution) == ("whole", True)
    assert result(*one, controls=control, words=0).space == "candidates"


def test_the_summary_is_scalars_and_the_rows_are_the_canaries():
    found = result(canary(2, 4.0, exact_low=3.0, exact_high=3.0), canary(5, 8.0))
    summary = found.summary()
    scalars = {name: value for name, value in summary.items() if name != "claim"}
    assert all(v is None or isinstance(v, str | int | float) for v in scalars.values())
    assert summary["expected_by_chance"] == UNPLANTED_MEAN
    assert (summary["exact_asked"], summary["exact_decided"]) == (1, 1)
    assert summary["exposure_2_copies"] == 3.0, "the exact rank's"
    rows = list(found.rows())
    assert [row["canary_number"] for row in rows] == list(range(6))
    assert rows[0]["exact_low"] == 3.0


# Verdicts.


@pytest.mark.parametrize(
    ("planted", "words"),
    [
        (of(1, *(1, 2) * 6), "not more exposed than controls"),
        (of(1, 9), "The model remembers the canaries and the order of their words"),
        (of(1, 9, order_rank=12), "It is not shown to know their order (p = 0.5"),
        (of(1, 9, orders=2), "cannot be tested with"),
        (of(1, 9, orders=1), "cannot be tested"),
        (of(1, 9, pattern="given"), "cannot be tested"),
    ],
)
def test_the_sentence_follows_from_the_numbers(planted, words):
    assert words in result(*planted, controls=MANY).sentence


@pytest.mark.parametrize(("number", "controls", "least"), [(1, 4, 1 / 5), (20, 1, 2 / 21)])
def test_few_controls_are_undecided_however_probable_the_canaries_are(number, controls, least):
    """One of 5 is first in a fifth of all cases, and 20 of 21 hold the best but one."""
    found = result(*of(1, *[10] * number), controls=CONTROLS[:controls])
    assert found.verdict == UNDECIDED
    assert found.test.p == found.test.least == pytest.approx(least)
    assert "least p-value" in " ".join(found.claim.reasons)
    if number == 1:
        needed = "1 canary can be tested with 19 controls or more; there are 4. Plant"
        assert needed in found.sentence


def test_no_leak_shown_needs_a_checked_model_and_enough_canaries():
    alike = of(1, 0.5, 1.0, 3.0, 1.2)
    assert result(*alike * 3, controls=MANY).verdict == NO_LEAK
    assert result(*alike, controls=CONTROLS).verdict == UNDECIDED  # 2.4 bits are detected
    dead = (replace(PASSED[0], state="failed"), PASSED[1])
    assert result(*of(1, *[9] * 9), checks=dead).verdict == UNDECIDED
    assert result(*of(1, *[9] * 9)).verdict == LEAK
    with pytest.raises(ValueError, match="needs checks: alive, read"):
        result(*alike, checks=()).summary()


def test_three_canaries_are_enough_to_show_that_their_order_is_known():
    """Two at the ceiling and one recited, where Student's t over three saw nothing."""
    bits = ((10.0, 6.0), (10.0, 9.9), (9.0, 1.0))
    found = result(*(canary(20, *pair, orders=120) for pair in bits), controls=MANY)
    assert found.order.p < 1e-5
    assert "remembers the canaries and the order of their words" in found.sentence


def test_phrases_made_to_a_pattern_are_compared_with_their_controls_orders():
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
    assert found.order.against == "the word orders of controls"
    assert found.order.p == pytest.approx(2 / 13**2)
    assert (
        "The model remembers the canaries and the order of their words (p = 0.012 compared with "
        "the word orders" in found.sentence
    )


def test_controls_that_are_probable_too_are_what_canaries_are_compared_with():
    """Words that the model likes make all references improbable, and are no memory."""
    high = of(0, 5, 6, 7)
    assert result(*of(1, 8, 7.5), controls=MANY).verdict == LEAK
    assert result(*of(1, 6, 5.5), controls=high * 7).verdict == NO_LEAK
    many = result(*of(1, 8, 7.5), controls=high * 4)
    assert many.test.p == pytest.approx(2 / 91), "of 91 splits the best, looked at twice"
    assert many.claim.test.against == "unplanted controls"
    assert "The model remembers the canaries and the order of their words (p = 0.0" in many.sentence
