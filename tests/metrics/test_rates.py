import pytest

from vestige.metrics.intervals import clopper_pearson
from vestige.metrics.rates import rate, rates_by


def test_a_rate_is_a_count_with_its_interval() -> None:
    found = rate([True, False, True, True], confidence=0.9)
    assert found is not None
    assert (found.successes, found.trials, found.rate) == (3, 4, 0.75)
    assert found.interval == clopper_pearson(3, 4, confidence=0.9)


def test_nothing_tried_has_no_rate() -> None:
    assert rate([]) is None
    assert rates_by([], []) == {}


def test_keys_ascend_and_each_has_its_own_trials() -> None:
    found = rates_by([20, 1, 20, 3], [True, False, False, True])
    assert list(found) == [1, 3, 20]
    assert [(r.successes, r.trials) for r in found.values()] == [(0, 1), (1, 1), (1, 2)]


def test_keys_and_trials_must_be_as_many() -> None:
    with pytest.raises(ValueError, match="zip"):
        rates_by([1, 2], [True])
