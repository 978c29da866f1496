"""Rows of the null: shares and intervals by hand, and what uniform p-values can reach."""

from typing import Any

import numpy as np
import pytest
from scipy import stats

from reproduction.provenance.null_audits import (
    _attainable,
    _by_quarter,
    _by_way,
    _mean,
    _row,
)


def outcome(p_values: list[float], *, scores: tuple[float, ...] = (1.0, 2.0), **more: Any) -> Any:
    return {
        "p_values": p_values,
        "words": list(range(len(p_values))),
        "attainable": {"0.01": 0.0, "0.05": 0.04},
        "scores": list(scores),
        "compared": [0.5, 1.5],
        **more,
    }


TWO = [
    outcome([0.005, 0.05, 0.5, 0.6]),
    outcome([0.02, 0.3, 0.4, 1.0, 0.9, 0.8, 0.7, 0.6], scores=(4.0, 4.0)),
]


def test_every_audit_weighs_the_same_whatever_its_people() -> None:
    row = _row((True, 50), TWO)
    assert (row["audits"], row["people"]) == (2, 12)
    assert row["below_0.05"] == pytest.approx((2 / 4 + 1 / 8) / 2)  # pooled: 3 / 12
    assert row["below_0.01"] == pytest.approx((1 / 4 + 0) / 2)


def test_the_whole_vocabulary_is_a_row_without_k() -> None:
    assert _row((True, 50), TWO)["k"] == 50
    assert _row((False, 0), TWO)["k"] is None


def test_a_difference_is_paired_within_its_audit() -> None:
    row = _row((True, 50), TWO)
    assert (row["score_never_in"], row["score_compared"]) == ((1.5 + 4) / 2, 1.0)
    assert row["difference"] == ((1.5 - 1) + (4 - 1)) / 2
    half = stats.t.ppf(0.975, 1) * np.std([0.5, 3.0], ddof=1) / np.sqrt(2)
    assert row["difference_high"] == pytest.approx(1.75 + half)


def test_one_audit_has_a_mean_and_no_interval() -> None:
    assert _mean("share", [0.3]) == {"share": 0.3, "share_low": None, "share_high": None}


def test_quarters_weigh_up_to_the_whole_where_they_are_as_large() -> None:
    one = outcome([0.05, 0.04, 0.2, 0.01, 0.6, 0.9, 0.02, 0.3])
    assert _by_quarter(one).tolist() == [1.0, 0.5, 0.0, 0.5]
    assert _by_quarter(one).mean() == np.mean(np.array(one["p_values"]) <= 0.05)


def test_people_in_another_order_give_the_same_quarters() -> None:
    one = outcome([0.05, 0.04, 0.2, 0.01, 0.6, 0.9, 0.02, 0.3])
    order = np.random.default_rng(0).permutation(8)
    mixed = {name: np.array(one[name])[order].tolist() for name in ("p_values", "words")}
    assert _by_quarter({**one, **mixed}).tolist() == _by_quarter(one).tolist()


@pytest.mark.parametrize("compared", [7, 19, 29, 66, 99])
@pytest.mark.parametrize("level", [0.01, 0.05])
def test_the_attainable_share_is_that_of_every_rank_being_as_likely(
    compared: int, level: float
) -> None:
    ranks = np.arange(1, compared + 2)
    naive = np.mean([rank / (compared + 1) <= level + 1e-12 for rank in ranks])
    user: Any = {"compared_with": compared}
    assert _attainable([user], level) == pytest.approx(naive)
    assert _attainable([user], level) <= level + 1e-12


def test_the_attainable_share_is_the_mean_over_people() -> None:
    people: Any = [{"compared_with": count} for count in (19, 9)]
    assert _attainable(people, 0.05) == pytest.approx((0.05 + 0) / 2)


def test_uniform_p_values_give_a_share_inside_its_interval_as_often_as_it_says() -> None:
    generator = np.random.default_rng(5)
    covered = []
    for _ in range(200):
        audits = [outcome((generator.integers(1, 21, size=40) / 20).tolist()) for _ in range(12)]
        row: Any = _row((True, 0), audits)
        covered.append(row["below_0.05_low"] <= 0.05 <= row["below_0.05_high"])
    assert 0.88 <= np.mean(covered) <= 0.99


def test_outcomes_are_gathered_by_shadows_and_words_shown() -> None:
    ways = [(True, 0), (True, 50), (False, 0), (False, 50)]
    done = [
        [outcome([0.5], shadows=way[0], k=way[1], audit=audit) for way in ways]
        for audit in range(3)
    ]
    found = _by_way(done)
    assert list(found) == ways
    assert all([one["audit"] for one in each] == [0, 1, 2] for each in found.values())
