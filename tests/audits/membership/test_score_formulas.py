"""Each score of a text equals its published formula; properties of learned scores."""

import zlib
from dataclasses import replace
from itertools import pairwise

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
    """Token statistics of random distributions over 30 tokens."""
    rng, tokens = np.random.default_rng(seed), sum(LENGTHS)
    logits = rng.normal(size=(tokens, 30)) * 2
    log_probs = logits - np.log(np.exp(logits).sum(1, keepdims=True))
    ids = np.random.default_rng(9).integers(0, 30, tokens)
    p = np.exp(log_probs)
    means = (p * log_probs).sum(1)
    order = np.argsort(-log_probs, axis=1, kind="stable")
    return TokenStatistics(
        offsets=np.cumsum([0, *LENGTHS]),
        tokens=ids.astype(np.int32),
        log_probs=log_probs[np.arange(tokens), ids].astype(np.float32),
        ranks=(order == ids[:, None]).argmax(1).astype(np.int32) + 1,
        means=means.astype(np.float32),
        deviations=np.sqrt((p * (log_probs - means[:, None]) ** 2).sum(1)).astype(np.float32),
        likeliest=order[:, :5].astype(np.int32),
        likeliest_log_probs=np.take_along_axis(log_probs, order[:, :5], 1).astype(np.float32),
    )


TARGET, BASE = statistics(0), statistics(1)


def by_text(statistics):
    """The columns of each text."""
    for start, end in pairwise(statistics.offsets):
        yield {key: v[start:end] for key, v in vars(statistics).items() if key != "offsets"}


def mean_of_lowest(values):
    """The mean of the lowest fifth, rounded up."""
    values = sorted(values)
    lowest = values[: -(-len(values) // 5)]
    return sum(lowest) / len(lowest)


def loss(text, _=None):
    return sum(map(float, text["log_probs"])) / len(text["log_probs"])


def min_k_plus(target, _):
    parts = zip(target["log_probs"], target["means"], target["deviations"], strict=True)
    return mean_of_lowest([(float(log) - float(mean)) / float(dev) for log, mean, dev in parts])


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
    "min-k": lambda target, _: mean_of_lowest(map(float, target["log_probs"])),
    "min-k-plus": min_k_plus,
    "error-zone": error_zone,
    "rmia": rmia,
}


@pytest.mark.parametrize("name", SCORES)
def test_a_score_equals_its_formula_and_grows_with_the_probability_of_the_text(name):
    result = SCORES[name](target=TARGET, base=BASE)
    pairs = zip(by_text(TARGET), by_text(BASE), strict=True)
    assert result == pytest.approx([NAIVE[name](*pair) for pair in pairs], rel=1e-4, abs=1e-5)
    better = replace(TARGET, log_probs=TARGET.log_probs / 2)
    assert (SCORES[name](target=better, base=BASE) > result).all()


def test_the_zlib_score_equals_its_formula():
    texts = [f"text number {n} " * (n + 1) for n in range(len(LENGTHS))]
    sums = [sum(map(float, text["log_probs"])) for text in by_text(TARGET)]
    sizes = [len(zlib.compress(text.encode())) for text in texts]
    assert zlib_score(TARGET, texts) == pytest.approx(np.array(sums) / sizes)


# Calibrated gains. Rare tokens change more than common ones; texts with even numbers are members.

TEXTS, LENGTH = 300, 25
MEMBERS = np.arange(TEXTS) % 2 == 0


def fine_tuned(seed, gain=0.0):
    """Statistics of a target and its base."""
    rng = np.random.default_rng(seed)
    base = -rng.gamma(2, 1.5, TEXTS * LENGTH)
    spread = 0.05 - 0.3 * base
    change = spread * (0.5 + rng.normal(size=base.size)) + gain * np.repeat(MEMBERS, LENGTH)
    of_base = statistics_of(base, length=LENGTH, tokens=rng.integers(0, 50, base.size))
    return replace(of_base, log_probs=(base + change).astype(np.float32)), of_base


def text_means(values):
    return values.astype(float).reshape(-1, LENGTH).mean(1)


def test_calibrated_scores_of_unseen_tokens_have_mean_0_and_variance_1():
    calibrated = CalibratedGain.fit(*fine_tuned(0))
    target, base = fine_tuned(1)
    scores = calibrated.token_scores(target, base)
    for tokens in (base.log_probs < -3.5, base.log_probs > -2.5):
        assert scores[tokens].mean() == pytest.approx(0, abs=0.1)
        assert scores[tokens].std() == pytest.approx(1, abs=0.15)
    with pytest.raises(ValueError, match="texts to calibrate on must be at least 2"):
        CalibratedGain.fit(*(first_tokens(each, [0]) for each in fine_tuned(0)))


def test_calibrated_gains_detect_members_better_than_mean_gains():
    calibrated = CalibratedGain.fit(*fine_tuned(0))
    target, base = fine_tuned(2, gain=0.2)
    mean_gain = auc(text_means(target.log_probs - base.log_probs), MEMBERS)
    assert auc(text_means(calibrated.token_scores(target, base)), MEMBERS) > mean_gain + 0.1
    unread = [text_means(calibrated.token_scores(*fine_tuned(seed))) for seed in range(10, 20)]
    assert np.mean([auc(scores, MEMBERS) for scores in unread]) == pytest.approx(0.5, abs=0.04)


# Weighted gains. Each fine-tune has read half of the texts; most of a gain is common to its kind.

FEW = 60


def fine_tunes(seed, *, gain, count=4):
    rng = np.random.default_rng(seed)
    base = -rng.gamma(2, 1.5, FEW * LENGTH)
    kind = np.repeat(rng.normal(0, 1, FEW), LENGTH)
    tokens = rng.integers(0, 50, base.size)
    for _ in range(count):
        members = rng.permutation(np.arange(FEW) % 2 == 0)
        noise = rng.normal(0, 0.5, base.size)
        target = base + 0.5 * kind + noise + gain * np.repeat(members, LENGTH)
        target = np.minimum(target, -1e-3)
        both = (statistics_of(each, length=LENGTH, tokens=tokens) for each in (target, base))
        yield ShadowStatistics(*both, members)


def reference_of(shadows):
    log_probs = [shadow.target.log_probs for shadow in shadows]
    return non_member_means(log_probs, [shadow.members for shadow in shadows], shadows[0].base)


def weighted_auc(seed, gain):
    weighted = WeightedGains.fit(list(fine_tunes(seed, gain=gain)))
    target, *others = fine_tunes(seed + 1000, gain=gain, count=5)
    scores = weighted.scores(target.target, target.base, reference_of(others))
    return auc(scores, target.members), target


def test_weighted_gains_detect_members_better_than_mean_gains():
    weighted, target = weighted_auc(1, 0.3)
    gains = text_means(target.target.log_probs - target.base.log_probs)
    assert weighted > 0.85 > 0.75 > auc(gains, target.members)
    unread = [weighted_auc(100 + seed, 0.0)[0] for seed in range(8)]
    assert abs(np.mean(unread) - 0.5) < 0.08


def test_non_member_means_are_over_shadow_models_without_the_text_or_else_the_base():
    shadows = list(fine_tunes(3, gain=0.3, count=3))
    result = reference_of(shadows).reshape(FEW, LENGTH)
    base = shadows[0].base.log_probs.reshape(FEW, LENGTH)
    for text in range(FEW):
        values = [
            shadow.target.log_probs.reshape(FEW, LENGTH)[text]
            for shadow in shadows
            if not shadow.members[text]
        ]
        expected = np.mean(values, axis=0, dtype=float) if values else base[text]
        np.testing.assert_allclose(result[text], expected, rtol=1e-6)


def test_a_shadow_model_is_compared_with_others_only_if_each_text_has_non_members():
    [shadow], [target] = (fine_tunes(seed, gain=2.0, count=1) for seed in (4, 5))
    weighted = WeightedGains.fit([shadow])
    assert not weighted.over_shadows
    assert auc(weighted.scores(target.target, target.base), target.members) > 0.9
    first, second = fine_tunes(7, gain=0.3, count=2)
    pair = [first, replace(second, members=~first.members)]
    assert not WeightedGains.fit(pair).over_shadows
    third, fourth = (replace(each, base=first.base) for each in fine_tunes(8, gain=0.3, count=2))
    pairs = [*pair, third, replace(fourth, members=~third.members)]
    assert WeightedGains.fit(pairs).over_shadows
