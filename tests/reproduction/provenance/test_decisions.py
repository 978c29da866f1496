import numpy as np
import pytest
from scipy.stats import norm
from sklearn.metrics import accuracy_score, precision_score, recall_score, roc_curve

from reproduction.provenance.decisions import judge_decisions, true_positives_at


def test_the_shares_are_those_of_scikit_learn() -> None:
    generator = np.random.default_rng(0)
    for _ in range(20):
        called, members = generator.random((2, 30)) < 0.5
        row = judge_decisions(called, members)
        assert row["accuracy"] == pytest.approx(accuracy_score(members, called))
        assert row["precision"] == pytest.approx(precision_score(members, called))
        assert row["recall"] == pytest.approx(recall_score(members, called))
        assert row["false_positive_rate"] == pytest.approx(called[~members].mean())


def test_where_nobody_was_called_there_is_no_precision() -> None:
    row = judge_decisions([False, False], [True, False])
    assert row["precision"] is row["precision_low"] is row["precision_high"] is None
    assert row["recall"] == 0
    assert row["recall_high"] is not None
    assert row["recall_high"] > 0.9


def test_the_true_positive_rate_is_the_roc_curves_at_that_rate() -> None:
    generator = np.random.default_rng(1)
    members, others = generator.normal(1, 1, 150), generator.normal(0, 1, 230)
    point = true_positives_at(members, others, false_positive_rate=0.05)
    wrong, right, _ = roc_curve(
        np.repeat([1, 0], [150, 230]), np.concatenate([members, others]), drop_intermediate=False
    )
    assert point is not None
    assert point.value == right[wrong <= 0.05 + 1e-12].max()
    assert point.low < point.value < point.high


@pytest.mark.slow
def test_the_interval_covers_the_true_rate_about_as_often_as_it_says() -> None:
    truth = float(norm.sf(norm.isf(0.1) - 1))
    generator = np.random.default_rng(2)
    covered = 0
    for number in range(100):
        point = true_positives_at(
            generator.normal(1, 1, 200),
            generator.normal(0, 1, 200),
            false_positive_rate=0.1,
            seed=number,
        )
        covered += point.low <= truth <= point.high
    assert covered >= 88


def test_a_rate_that_no_other_fits_into_is_not_told() -> None:
    assert true_positives_at([1.0], np.zeros(99), false_positive_rate=0.01) is None
    assert true_positives_at([1.0], np.zeros(100), false_positive_rate=0.01) is not None


def test_scores_that_are_all_alike_give_no_true_positives() -> None:
    point = true_positives_at(np.zeros(10), np.zeros(10), false_positive_rate=0.5)
    assert point is not None
    assert point.value == 0


def test_decisions_of_nobody_are_refused() -> None:
    with pytest.raises(ValueError, match="at least one user"):
        judge_decisions([], [])


def test_more_decisions_than_users_are_refused() -> None:
    with pytest.raises(ValueError, match=r"shorter|longer"):
        judge_decisions([True, False], [True])
