"""Every score of a text against its authors' formula, and what learned scores may learn."""

import zlib
from dataclasses import replace

import numpy as np
import pytest

from tests.audits.membership.made_texts import auc, statistics_of
from vestige.audits.membership.text_scores import (
    EPSILON,
    SCORES,
    CalibratedGain,
    ShadowStatistics,
    WeightedGains,
    non_member_means,
    zlib_score,
)
from vestige.models.token_statistics import TokenStatistics, first_tokens

LENGTHS = (1, 2, 3, 7, 20, 64)


def statistics(seed: int) -> TokenStatistics:
    """Of random distributions over 30 tokens."""
    rng, tokens = np.random.default_rng(seed), sum(LENGTHS)
    logits = rng.normal(size=(tokens, 30)) * 2
    log_probs = logits - np.log(np.exp(logits).sum(1, keepdims=True))
    own = np.random.default_rng(9).integers(0, 30, tokens)
    p = np.exp(log_probs)
    means = (p * log_probs).sum(1)
    order = np.argsort(-log_probs, axis=1, kind="stable")
    return TokenStatistics(
        offsets=np.cumsum([0, *LENGTHS]),
        tokens=own.astype(np.int32),
        log_probs=log_probs[np.arange(tokens), own].astype(np.float32),
        ranks=(order == own[:, None]).argmax(1).astype(np.int32) + 1,
        means=means.astype(np.float32),
        deviations=np.sqrt((p * (log_probs - means[:, None]) ** 2).sum(1)).astype(np.float32),
        likeliest=order[:, :5].astype(np.int32),
        likeliest_log_probs=np.take_along_axis(log_probs, order[:, :5], 1).astype(np.float32),
    )


TARGET, BASE = statistics(0), statistics(1)


def texts_of(side):
    """Columns of one text after another."""
    for first, stop in zip(side.offsets[:-1], side.offsets[1:], strict=True):
        yield {key: value[first:stop] for key, value in vars(side).items() if key != "offsets"}


def mean_of_worst(values):
    """The mean of the smallest fifth, rounded up."""
    worst = sorted(values)[: -(-len(values) // 5)]
    return sum(worst) / len(worst)


def loss(text, _=None):
    return sum(map(float, text["log_probs"])) / len(text["log_probs"])


def min_k_plus(target, _):
    parts = zip(target["log_probs"], target["means"], target["deviations"], strict=True)
    return mean_of_worst([(float(log) - float(mean)) / float(dev) for log, mean, dev in parts])


def error_zone(target, base):
    change = target["log_probs"].astype(float) - base["log_probs"].astype(float)
    zone = [d for d, rank in zip(change, target["ranks"], strict=True) if rank != 1]
    zone = zone if len(zone) >= 2 else list(change)
    gains, losses = sum(d for d in zone if d > 0), -sum(d for d in zone if d < 0)
    return np.log((gains + EPSILON) / (losses + EPSILON))


def rmia(target, base):
    return np.log(np.exp(loss(target)) / (0.5 * (1.3 * np.exp(loss(base)) + 0.7)))


NAIVE = {
    "loss": loss,
    "log-ratio": lambda target, base: loss(target) - loss(base),
    "min-k": lambda target, _: mean_of_worst([float(one) for one in target["log_probs"]]),
    "min-k-plus": min_k_plus,
    "error-zone": error_zone,
    "rmia": rmia,
}


@pytest.mark.parametrize("name", SCORES)
def test_a_score_is_its_formula_and_rises_with_what_the_target_knows(name):
    result = SCORES[name](target=TARGET, base=BASE)
    pairs = zip(texts_of(TARGET), texts_of(BASE), strict=True)
    assert result == pytest.approx([NAIVE[name](*pair) for pair in pairs], rel=1e-4, abs=1e-5)
    better = replace(TARGET, log_probs=TARGET.log_probs / 2)
    assert (SCORES[name](target=better, base=BASE) > result).all()


def test_rmia_orders_texts_as_the_share_of_the_population_that_they_dominate():
    """Equation 4, counted: pairs whose likelihood ratio is at least 1."""
    ratios = np.exp(SCORES["rmia"](target=TARGET, base=BASE))
    shares = [(ratio / ratios >= 1).mean() for ratio in ratios]
    assert (np.argsort(shares) == np.argsort(ratios)).all()


def test_the_zlib_score_is_its_formula():
    texts = [f"text number {place} " * (place + 1) for place in range(len(LENGTHS))]
    sums = [sum(map(float, text["log_probs"])) for text in texts_of(TARGET)]
    sizes = [len(zlib.compress(text.encode())) for text in texts]
    assert zlib_score(TARGET, texts) == pytest.approx(np.array(sums) / sizes)


# Calibrated gains: rare tokens change and vary much, common ones hardly; even texts were read.

TEXTS, LENGTH = 300, 25
EVEN = np.arange(TEXTS) % 2 == 0


def fine_tuned(seed, gain=0.0):
    """Statistics of a target and of its base."""
    rng = np.random.default_rng(seed)
    base = -rng.gamma(2, 1.5, TEXTS * LENGTH)
    spread = 0.05 - 0.3 * base
    change = spread * (0.5 + rng.normal(size=base.size)) + gain * np.repeat(EVEN, LENGTH)
    own = statistics_of(base, length=LENGTH, tokens=rng.integers(0, 50, base.size))
    return replace(own, log_probs=(base + change).astype(np.float32)), own


def of_texts(values):
    return values.astype(float).reshape(TEXTS, LENGTH).mean(1)


def test_calibrated_scores_of_unseen_tokens_have_mean_0_and_variance_1():
    calibrated = CalibratedGain.fit(*fine_tuned(0))
    target, base = fine_tuned(1)
    scores = calibrated.token_scores(target, base)
    for some in (base.log_probs < -3.5, base.log_probs > -2.5):
        assert scores[some].mean() == pytest.approx(0, abs=0.1)
        assert scores[some].std() == pytest.approx(1, abs=0.15)
    with pytest.raises(ValueError, match="texts to calibrate on must be at least 2"):
        CalibratedGain.fit(*(first_tokens(side, [0]) for side in fine_tuned(0)))


def test_calibrated_gains_beat_the_mean_gain_and_show_nothing_if_nothing_was_read():
    calibrated = CalibratedGain.fit(*fine_tuned(0))
    target, base = fine_tuned(2, gain=0.2)
    plain = auc(of_texts(target.log_probs - base.log_probs), EVEN)
    assert auc(of_texts(calibrated.token_scores(target, base)), EVEN) > plain + 0.1
    unread = [of_texts(calibrated.token_scores(*fine_tuned(seed))) for seed in range(10, 20)]
    assert np.mean([auc(scores, EVEN) for scores in unread]) == pytest.approx(0.5, abs=0.04)


# Weighted gains: fine-tunes of one base, each of half of the texts; most of a gain is its kind's.

FEW = 60


def fine_tunes(seed, *, gain, count=4):
    rng = np.random.default_rng(seed)
    base = -rng.gamma(2, 1.5, FEW * LENGTH)
    kind = np.repeat(rng.normal(0, 1, FEW), LENGTH)
    tokens = rng.integers(0, 50, base.size)
    for _ in range(count):
        seen = rng.permutation(np.arange(FEW) % 2 == 0)
        noise = rng.normal(0, 0.5, base.size)
        target = base + 0.5 * kind + noise + gain * np.repeat(seen, LENGTH)
        read = np.minimum(target, -1e-3)
        target, of_base = (statistics_of(one, length=LENGTH, tokens=tokens) for one in (read, base))
        yield ShadowStatistics(target, of_base, seen)


def reference_of(shadows):
    log_probs = [one.target.log_probs for one in shadows]
    return non_member_means(log_probs, [one.members for one in shadows], shadows[0].base)


def weighted_auc(seed, gain):
    learned = WeightedGains.fit(list(fine_tunes(seed, gain=gain)))
    target, *others = fine_tunes(seed + 1000, gain=gain, count=5)
    return auc(
        learned.scores(target.target, target.base, reference_of(others)), target.members
    ), target


def test_fine_tunes_that_did_not_read_a_text_show_what_its_kind_gains():
    beside, target = weighted_auc(1, 0.3)
    ratio = target.target.log_probs - target.base.log_probs
    assert beside > 0.85 > 0.75 > auc(ratio.reshape(FEW, LENGTH).mean(1), target.members)
    nothing = [weighted_auc(100 + seed, 0.0)[0] for seed in range(8)]
    assert abs(np.mean(nothing) - 0.5) < 0.08


def test_the_mean_is_over_shadows_not_trained_on_a_text_and_else_the_base():
    shadows = list(fine_tunes(3, gain=0.3, count=3))
    result = reference_of(shadows).reshape(FEW, LENGTH)
    for text in range(FEW):
        own = slice(text * LENGTH, (text + 1) * LENGTH)
        values = [each.target.log_probs[own] for each in shadows if not each.members[text]]
        expected = (
            np.mean(values, axis=0, dtype=float) if values else shadows[0].base.log_probs[own]
        )
        np.testing.assert_allclose(result[text], expected, rtol=1e-6)


def test_shadow_models_are_compared_only_where_another_left_the_text_unread():
    [only], [target] = (fine_tunes(seed, gain=2.0, count=1) for seed in (4, 5))
    learned = WeightedGains.fit([only])
    assert not learned.over_shadows
    assert auc(learned.scores(target.target, target.base), target.members) > 0.9
    one, two = fine_tunes(7, gain=0.3, count=2)
    two = replace(two, members=~one.members)
    assert not WeightedGains.fit([one, two]).over_shadows
    three, four = (replace(each, base=one.base) for each in fine_tunes(8, gain=0.3, count=2))
    assert WeightedGains.fit([one, two, three, replace(four, members=~three.members)]).over_shadows
