"""Audits of users outside the training sample everything again and have uniform p-values."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy import stats

from reproduction.provenance import nulls, tables
from reproduction.provenance.nulls import (
    NullAudits,
    _attainable,
    _by_quarter,
    null_audit,
    null_row,
    sample_users,
    trainings,
)
from reproduction.stages import Work

NULL = NullAudits(
    dataset="grammar", members=8, audited=8, known=40, fewest=6, most=12, epochs=2, repetitions=2
)


def test_each_user_is_in_one_group_with_a_fixed_number_of_texts() -> None:
    users = sample_users(NULL, 3, None)
    known = users.known
    groups = (users.members, users.audited, known.counted, known.fitted, known.compared)
    names = [name for group in groups for name in group]
    assert len(names) == len(set(names)) == 56
    authors, counts = np.unique(np.array(users.texts.users), return_counts=True)
    assert set(authors) == set(names)
    assert set(counts) == {12}  # each user of the grammar has 20
    shadow_text = users.texts_of(known.fitted, known.counted)
    assert set(shadow_text.users or ()) == {*known.fitted, *known.counted}


def test_another_repetition_samples_everything_again(tmp_path: Path) -> None:
    first, second = (sample_users(NULL, repetition, None) for repetition in (0, 1))
    for part in ("members", "audited"):
        assert set(getattr(first, part)) != set(getattr(second, part))
    for part in ("counted", "fitted", "compared"):
        assert set(getattr(first.known, part)) != set(getattr(second.known, part))
    jobs = [trainings(NULL, n, users, tmp_path) for n, users in enumerate((first, second))]
    digests = [job.digest for target, shadows in jobs for job in (target, *shadows)]
    assert len(set(digests)) == 10
    for users, (target, shadows) in zip((first, second), jobs, strict=True):
        never_in = {*users.audited, *users.known.compared}
        assert not never_in & set(target.members)
        assert not never_in & {name for shadow in shadows for name in shadow.members}


@pytest.mark.slow
def test_p_values_of_members_are_small(tmp_path, monkeypatch) -> None:
    null, work = replace(NULL, epochs=25, shown=(0,)), Work(tmp_path)
    of_others = null_audit.function(null, 0, work=work)

    def leaking_trainings(*arguments: Any) -> Any:
        target, shadows = trainings(*arguments)
        return replace(target, members=tuple(sorted(arguments[2].audited))), shadows

    monkeypatch.setattr(nulls, "trainings", leaking_trainings)
    of_members = null_audit.function(null, 0, work=work)
    for other, member in zip(of_others, of_members, strict=True):
        assert np.mean(other["p_values"]) > 0.25
        assert np.mean(member["p_values"]) < 0.15


@pytest.mark.slow
def test_the_unit_of_an_interval_is_the_audit(tmp_path: Path) -> None:
    work = Work(tmp_path)
    rows = list(tables.null(work, nulls=(NULL,)))
    assert [row["dataset"] for row in rows] == ["grammar"] * 4 + ["all"] * 4
    settings = [(True, None), (True, 50), (False, None), (False, 50)]
    assert [(row["shadows"], row["k"]) for row in rows] == settings * 2
    done = [work(null_audit(NULL, n)).value for n in range(2)]
    shares = [np.mean(np.array(outcomes[0]["p_values"]) <= 0.05) for outcomes in done]
    half = stats.t.ppf(0.975, 1) * abs(shares[0] - shares[1]) / 2
    assert rows[0]["below_0.05"] == pytest.approx(np.mean(shares))
    assert rows[0]["below_0.05_high"] == pytest.approx(np.mean(shares) + half)


def outcome(p_values: list[float], *, scores: tuple[float, ...] = (1.0, 2.0), **more: Any) -> Any:
    return {
        "shadows": True,
        "k": 50,
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


def test_audits_have_equal_weights_and_differences_are_paired() -> None:
    row = null_row(TWO)
    assert (row["audits"], row["people"], row["k"]) == (2, 12, 50)
    assert row["below_0.05"] == pytest.approx((2 / 4 + 1 / 8) / 2)  # pooled: 3 / 12
    assert row["below_0.01"] == pytest.approx((1 / 4 + 0) / 2)
    assert (row["score_never_in"], row["score_compared"]) == ((1.5 + 4) / 2, 1.0)
    assert row["difference"] == ((1.5 - 1) + (4 - 1)) / 2
    half = stats.t.ppf(0.975, 1) * np.std([0.5, 3.0], ddof=1) / np.sqrt(2)
    assert row["difference_high"] == pytest.approx(1.75 + half)
    single = null_row([{**TWO[0], "shadows": False, "k": 0}])
    assert (single["k"], single["below_0.05"], single["below_0.05_low"]) == (None, 0.5, None)


@pytest.mark.parametrize(
    ("p_values", "words", "quarters"),
    [
        ([0.01, 0.5, 0.5, 0.04, 0.01, 0.5, 0.5, 0.5], [9, 1, 8, 2, 7, 3, 6, 4], [0.5, 0, 0.5, 0.5]),
        ([0.05, 0.04, 0.2, 0.01, 0.6, 0.9, 0.02, 0.3], list(range(8)), [1, 0.5, 0, 0.5]),
    ],
)
def test_quarters_are_by_number_of_words_in_any_order_of_users(p_values, words, quarters) -> None:
    order = np.random.default_rng(0).permutation(8)
    for index in (np.arange(8), order):
        users = {"p_values": np.array(p_values)[index], "words": np.array(words)[index]}
        assert _by_quarter(users).tolist() == quarters
    assert np.mean(quarters) == np.mean(np.array(p_values) <= 0.05)


@pytest.mark.parametrize("compared", [7, 19, 29, 66, 99])
@pytest.mark.parametrize("level", [0.01, 0.05])
def test_the_attainable_share_follows_from_uniform_ranks(compared, level) -> None:
    ranks = np.arange(1, compared + 2)
    naive = np.mean([rank / (compared + 1) <= level + 1e-12 for rank in ranks])
    assert _attainable([{"compared_with": compared}], level) == pytest.approx(naive)
    both = [{"compared_with": compared}, {"compared_with": 9}]
    assert _attainable(both, level) == pytest.approx(naive / 2)


def test_the_interval_of_a_share_covers_it_at_its_rate() -> None:
    generator = np.random.default_rng(5)
    covered = []
    for _ in range(200):
        audits = [outcome((generator.integers(1, 21, size=40) / 20).tolist()) for _ in range(12)]
        row: Any = null_row(audits)
        covered.append(row["below_0.05_low"] <= 0.05 <= row["below_0.05_high"])
    assert 0.88 <= np.mean(covered) <= 0.99
