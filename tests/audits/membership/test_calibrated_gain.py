"""Gains calibrated on never-seen texts: standardized as made, and stronger where spreads differ."""

from dataclasses import replace

import numpy as np
import pytest

from vestige.audits.membership.text_scores import CalibratedGain
from vestige.models.token_statistics import TokenStatistics, first_tokens

TEXTS, LENGTH = 300, 25


def sides(seed, gain=0.0):
    """Rare tokens drift and spread much, common ones hardly; the even texts were seen."""
    chance = np.random.default_rng(seed)
    size = TEXTS * LENGTH
    base = -chance.gamma(2, 1.5, size)
    spread = 0.05 - 0.3 * base
    seen = np.repeat(np.arange(TEXTS) % 2 == 0, LENGTH)
    change = spread * (0.5 + chance.normal(size=size)) + gain * seen
    flat = np.zeros(size, dtype=np.float32)
    own = TokenStatistics(
        offsets=np.arange(TEXTS + 1, dtype=np.int64) * LENGTH,
        tokens=chance.integers(0, 50, size).astype(np.int32),
        log_probs=base.astype(np.float32),
        ranks=1 + np.floor(-base * 3).astype(np.int32),
        means=flat,
        deviations=flat,
        likeliest=flat[:, None].astype(np.int32),
        likeliest_log_probs=flat[:, None],
    )
    return replace(own, log_probs=(base + change).astype(np.float32)), own


def of_texts(values):
    return values.reshape(TEXTS, LENGTH).mean(1)


def auc(scores):
    return (scores[::2][:, None] > scores[1::2]).mean()


def test_scores_of_unseen_tokens_have_mean_0_and_variance_1_whatever_they_are():
    learnt = CalibratedGain.fit(*sides(0))
    target, base = sides(1)
    scores = learnt.token_scores(target, base)
    for some in (base.log_probs < -3.5, base.log_probs > -2.5):
        assert scores[some].mean() == pytest.approx(0, abs=0.1)
        assert scores[some].std() == pytest.approx(1, abs=0.15)


def test_calibrated_gains_tell_more_than_the_mean_gain_where_spreads_differ():
    learnt = CalibratedGain.fit(*sides(0))
    target, base = sides(2, gain=0.2)
    plain = auc(of_texts((target.log_probs - base.log_probs).astype(float)))
    assert auc(of_texts(learnt.token_scores(target, base))) > plain + 0.1


def test_nothing_is_told_where_nothing_was_seen():
    learnt = CalibratedGain.fit(*sides(0))
    aucs = [auc(of_texts(learnt.token_scores(*sides(seed)))) for seed in range(10, 20)]
    assert np.mean(aucs) == pytest.approx(0.5, abs=0.04)


def test_one_text_is_too_few():
    one = [first_tokens(side, [0]) for side in sides(0)]
    with pytest.raises(ValueError, match="texts to calibrate on must be at least 2"):
        CalibratedGain.fit(*one)
