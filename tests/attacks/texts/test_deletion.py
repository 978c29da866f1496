"""What is left of deleted texts, by simulation where the truth is known."""

import numpy as np
import pytest

from vestige.attacks.texts.deletion import Knowledge, share_left, text_means, verify
from vestige.attacks.texts.token_statistics import TokenStatistics
from vestige.errors import DataError


def drawn(chance, *, gains, count=(25, 60), hardness=0.5):
    """What models know of the same texts: each text's hardness, a gain of each, and noise."""
    sides = {}
    for side, n in zip(("deleted", "reference"), count, strict=True):
        hard = chance.normal(-4, hardness, n)
        sides[side] = [
            hard + (gain if side == "deleted" else 0) + chance.normal(0, 0.1, n) for gain in gains
        ]
    return [
        Knowledge(deleted=a, reference=b)
        for a, b in zip(sides["deleted"], sides["reference"], strict=True)
    ]


def test_a_model_that_never_saw_them_is_blamed_as_often_as_stated():
    chance, blamed = np.random.default_rng(1), 0
    for seed in range(150):
        before, after = drawn(chance, gains=(1.0, 0.0))
        blamed += verify(before, after, seed=seed).verdict != "not shown"
    assert 0.01 < blamed / 150 < 0.104  # 0.05 and three standard errors


def test_the_interval_of_what_is_left_holds_the_truth_as_often_as_stated():
    chance, held, asked = np.random.default_rng(2), 0, 0
    for _ in range(800):
        before, after = drawn(chance, gains=(0.8, 0.2))
        found = share_left(before, after)
        if found is not None:
            asked += 1
            held += found[1].low <= 0.25 <= found[1].high
    assert asked > 700
    assert 0.93 < held / asked < 0.97


def test_fiellers_ends_solve_its_equation():
    from scipy import stats

    chance = np.random.default_rng(3)
    before, after = drawn(chance, gains=(1.5, 0.5))
    _, ends = share_left(before, after)
    for share in ends:
        left = Knowledge(
            deleted=after.deleted - share * before.deleted,
            reference=after.reference - share * before.reference,
        )
        spread = left.deleted.var(ddof=1) / 25 + left.reference.var(ddof=1) / 60
        assert left.value**2 / spread == pytest.approx(stats.t.isf(0.025, 24) ** 2)


def test_a_retrained_model_takes_away_how_hard_texts_are():
    chance = np.random.default_rng(4)
    before, after, retrained = drawn(chance, gains=(1.0, 0.1, 0.0), hardness=1.0)
    alone, beside = verify(before, after), verify(before, after, retrained=retrained)
    assert alone.verdict == "not shown"
    assert beside.verdict == "still known"
    wide, narrow = (one.left[1].high - one.left[1].low for one in (alone, beside))
    assert narrow < wide / 3
    assert beside.left[1].low <= 0.1 <= beside.left[1].high


def test_texts_known_less_than_others_are_called_suppressed():
    before, after = drawn(np.random.default_rng(5), gains=(1.0, -1.0))
    assert verify(before, after).verdict == "suppressed"


def test_no_share_is_told_of_what_was_not_known():
    before, after = drawn(np.random.default_rng(6), gains=(0.0, 0.0))
    assert verify(before, after).left is None


def test_a_text_counts_with_the_mean_of_its_first_tokens():
    rows = [[-1.0, -3.0], [-2.0], [-1.0, -2.0, -6.0]]
    flat = np.array([value for row in rows for value in row], dtype=np.float32)
    zeros = np.zeros(6, dtype=np.int32)
    statistics = TokenStatistics(
        offsets=np.array([0, 2, 3, 6]), tokens=zeros, log_probs=flat, ranks=zeros, means=flat,
        deviations=flat, likeliest=zeros[:, None], likeliest_log_probs=flat[:, None],
    )  # fmt: skip
    assert text_means(statistics).tolist() == [-2.0, -2.0, -3.0]
    assert text_means(statistics, 2).tolist() == [-2.0, -2.0, -1.5]


def test_too_few_texts_are_refused():
    few = drawn(np.random.default_rng(7), gains=(1.0, 0.0), count=(5, 60))
    with pytest.raises(DataError, match="3 besides these"):
        verify(*few)
