"""Weighted gains: what the kind of text brings is told from what reading it brought."""

from dataclasses import replace

import numpy as np

from vestige.audits.membership.text_scores import Shadow, WeightedGains, unread_means
from vestige.models.token_statistics import TokenStatistics

TEXTS, LENGTH = 60, 25


def side(log_probs, tokens):
    zeros = np.zeros(log_probs.size, dtype=np.float32)
    return TokenStatistics(
        offsets=np.arange(TEXTS + 1, dtype=np.int64) * LENGTH,
        tokens=tokens,
        log_probs=log_probs.astype(np.float32),
        ranks=1 + np.floor(-log_probs * 3).astype(np.int32),
        means=zeros - 2,
        deviations=zeros + 1,
        likeliest=tokens[:, None],
        likeliest_log_probs=log_probs[:, None].astype(np.float32),
    )


def auc(scores, seen):
    return (scores[seen][:, None] > scores[~seen]).mean()


def fine_tunes(seed, *, gain, count=4):
    """Fine-tunes of one base, each of half of the texts; the kind of a text brings it most."""
    chance = np.random.default_rng(seed)
    base = -chance.gamma(2, 1.5, TEXTS * LENGTH)
    kind = np.repeat(chance.normal(0, 1, TEXTS), LENGTH)
    tokens = chance.integers(0, 50, base.size).astype(np.int32)
    for _ in range(count):
        seen = chance.permutation(np.arange(TEXTS) % 2 == 0)
        noise = chance.normal(0, 0.5, base.size)
        target = base + 0.5 * kind + noise + gain * np.repeat(seen, LENGTH)
        yield Shadow(side(np.minimum(target, -1e-3), tokens), side(base, tokens), seen)


def unread(shadows):
    log_probs = [one.target.log_probs for one in shadows]
    return unread_means(log_probs, [one.seen for one in shadows], shadows[0].base)


def test_fine_tunes_that_did_not_read_a_text_tell_what_its_kind_brings():
    learnt = WeightedGains.fit(list(fine_tunes(1, gain=0.3)))
    target, *others = fine_tunes(2, gain=0.3, count=5)
    beside = auc(learnt.scores(target.target, target.base, unread(others)), target.seen)
    ratio = target.target.log_probs - target.base.log_probs
    assert beside > 0.85 > 0.75 > auc(ratio.reshape(TEXTS, LENGTH).mean(1), target.seen)


def test_where_reading_left_nothing_nothing_is_told():
    aucs = []
    for seed in range(8):
        learnt = WeightedGains.fit(list(fine_tunes(100 + seed, gain=0.0)))
        target, *others = fine_tunes(200 + seed, gain=0.0, count=5)
        scores = learnt.scores(target.target, target.base, unread(others))
        aucs.append(auc(scores, target.seen))
    assert abs(np.mean(aucs) - 0.5) < 0.08


def test_the_mean_is_of_those_that_did_not_read_and_else_of_the_base():
    one, two, three = fine_tunes(3, gain=0.3, count=3)
    found = unread([one, two, three]).reshape(TEXTS, LENGTH)
    for text in range(TEXTS):
        own = slice(text * LENGTH, (text + 1) * LENGTH)
        told = [each.target.log_probs[own] for each in (one, two, three) if not each.seen[text]]
        naive = np.mean(told, axis=0, dtype=float) if told else one.base.log_probs[own]
        np.testing.assert_allclose(found[text], naive, rtol=1e-6)


def test_one_shadow_has_gains_over_the_base_alone():
    [only] = fine_tunes(4, gain=2.0, count=1)
    learnt = WeightedGains.fit([only])
    assert not learnt.over_shadows
    [target] = fine_tunes(5, gain=2.0, count=1)
    assert auc(learnt.scores(target.target, target.base), target.seen) > 0.9


def test_where_no_other_shadow_left_a_text_unread_it_is_not_compared_with_any():
    one, two = fine_tunes(7, gain=0.3, count=2)
    two = replace(two, seen=~one.seen)
    assert not WeightedGains.fit([one, two]).over_shadows
    three, four = fine_tunes(8, gain=0.3, count=2)
    texts = replace(three, base=one.base), replace(four, base=one.base)
    pairs = [one, two, texts[0], replace(texts[1], seen=~three.seen)]
    assert WeightedGains.fit(pairs).over_shadows
