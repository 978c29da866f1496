"""Log-odds learnt from shadows: they find what is there, and nothing where nothing is."""

import numpy as np
import pytest

from vestige.attacks.texts.learnt_log_odds import LearntLogOdds, Shadow
from vestige.attacks.texts.token_statistics import TokenStatistics

TEXTS, LENGTH = 60, 25


def side(log_probs, tokens):
    zeros = np.zeros(log_probs.size, dtype=np.float32)
    return TokenStatistics(
        offsets=np.arange(TEXTS + 1, dtype=np.int64) * LENGTH,
        tokens=tokens,
        log_probs=log_probs.astype(np.float32),
        ranks=np.floor(-log_probs * 3).astype(np.int32),
        means=zeros - 2,
        deviations=zeros + 1,
        likeliest=tokens[:, None],
        likeliest_log_probs=log_probs[:, None].astype(np.float32),
    )


def shadow(seed, gain):
    """Seen texts gain where the base was sure of nothing, and lose as much elsewhere."""
    chance = np.random.default_rng(seed)
    base = -chance.gamma(2, 1.5, TEXTS * LENGTH)
    seen = np.arange(TEXTS) % 2 == 0
    change = chance.normal(0, 0.5, base.size)
    change += gain * np.repeat(seen, LENGTH) * np.where(base < np.median(base), 1, -1)
    tokens = chance.integers(0, 50, base.size).astype(np.int32)
    return Shadow(side(np.minimum(base + change, -1e-3), tokens), side(base, tokens), seen)


def auc(scores, seen):
    return (scores[seen][:, None] > scores[~seen]).mean()


def test_what_training_does_to_tokens_is_learnt_where_its_mean_is_nothing():
    learnt = LearntLogOdds.fit([shadow(1, 0.3), shadow(2, 0.3)], seed=0)
    other = shadow(3, 0.3)
    found = auc(learnt.scores(other.target, other.base), other.seen)
    mean = (other.target.log_probs - other.base.log_probs).reshape(TEXTS, LENGTH).mean(1)
    assert found > 0.9 > 0.7 > auc(mean, other.seen)


def test_where_training_left_nothing_the_learnt_score_tells_nothing():
    aucs = []
    for seed in range(8):
        learnt = LearntLogOdds.fit([shadow(100 + seed, 0.0)], seed=0)
        other = shadow(200 + seed, 0.0)
        aucs.append(auc(learnt.scores(other.target, other.base), other.seen))
    assert abs(np.mean(aucs) - 0.5) < 0.08


def test_unknown_means_and_tokens_never_read_are_scored_too():
    one = shadow(1, 0.3)
    learnt = LearntLogOdds.fit([one], seed=0)
    blind = TokenStatistics(
        **vars(one.target)
        | {"means": np.full_like(one.target.means, np.nan), "tokens": one.target.tokens + 1000}
    )
    assert np.isfinite(learnt.scores(blind, one.base)).all()
    learnt = LearntLogOdds.fit([Shadow(blind, one.base, one.seen)], seed=0)
    assert np.isfinite(learnt.scores(blind, one.base)).all()


def test_shadows_that_saw_all_or_nothing_teach_nothing():
    one = shadow(1, 0.3)
    with pytest.raises(ValueError, match="seen some"):
        LearntLogOdds.fit([Shadow(one.target, one.base, np.ones(TEXTS, dtype=bool))], seed=0)
