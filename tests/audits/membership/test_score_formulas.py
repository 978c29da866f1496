"""Every score against its authors' formula, written for one text at a time."""

import zlib

import numpy as np
import pytest

from vestige.audits.membership.text_scores import EPSILON, SCORES, zlib_score
from vestige.models.token_statistics import TokenStatistics

LENGTHS = (1, 2, 3, 7, 20, 64)


def statistics(seed: int) -> TokenStatistics:
    """Of random distributions over 30 tokens."""
    chance, tokens = np.random.default_rng(seed), sum(LENGTHS)
    logits = chance.normal(size=(tokens, 30)) * 2
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


def naive_loss(target, base):
    return sum(float(one) for one in target["log_probs"]) / len(target["log_probs"])


def naive_log_ratio(target, base):
    return naive_loss(target, None) - naive_loss(base, None)


def naive_min_k(target, base):
    worst = sorted(float(one) for one in target["log_probs"])
    worst = worst[: -(-len(worst) // 5)]
    return sum(worst) / len(worst)


def naive_min_k_plus(target, base):
    parts = zip(target["log_probs"], target["means"], target["deviations"], strict=True)
    worst = sorted((float(log) - float(mean)) / float(spread) for log, mean, spread in parts)
    worst = worst[: -(-len(worst) // 5)]
    return sum(worst) / len(worst)


def naive_error_zone(target, base):
    change = target["log_probs"].astype(float) - base["log_probs"].astype(float)
    zone = [d for d, rank in zip(change, target["ranks"], strict=True) if rank != 1]
    zone = zone if len(zone) >= 2 else list(change)
    gains, losses = sum(d for d in zone if d > 0), -sum(d for d in zone if d < 0)
    return np.log((gains + EPSILON) / (losses + EPSILON))


def naive_rmia(target, base):
    likelihood, unseen = (np.exp(naive_loss(one, None)) for one in (target, base))
    return np.log(likelihood / (0.5 * (1.3 * unseen + 0.7)))


NAIVE = {
    "loss": naive_loss,
    "log-ratio": naive_log_ratio,
    "min-k": naive_min_k,
    "min-k-plus": naive_min_k_plus,
    "error-zone": naive_error_zone,
    "rmia": naive_rmia,
}


def test_every_score_has_its_formula_here():
    assert set(NAIVE) == set(SCORES)


@pytest.mark.parametrize("name", NAIVE)
def test_a_score_is_its_formula(name):
    target, base = statistics(0), statistics(1)
    found = SCORES[name](target=target, base=base)
    for place, (first, stop) in enumerate(
        zip(target.offsets[:-1], target.offsets[1:], strict=True)
    ):
        one, other = (
            {key: value[first:stop] for key, value in vars(side).items() if key != "offsets"}
            for side in (target, base)
        )
        assert found[place] == pytest.approx(NAIVE[name](one, other), rel=1e-4, abs=1e-5)


@pytest.mark.parametrize("name", NAIVE)
def test_a_text_that_the_target_knows_better_scores_higher(name):
    """Training raises the log-probability of every token that was used."""
    target, base = statistics(0), statistics(1)
    better = TokenStatistics(**vars(target) | {"log_probs": target.log_probs / 2})
    assert (SCORES[name](target=better, base=base) > SCORES[name](target=target, base=base)).all()


def test_rmia_orders_texts_as_the_share_of_the_population_that_they_dominate():
    """Equation 4, counted: pairs whose likelihood ratio is at least 1."""
    target, base = statistics(0), statistics(1)
    ratios = np.exp(SCORES["rmia"](target=target, base=base))
    shares = [(ratio / ratios >= 1).mean() for ratio in ratios]
    assert (np.argsort(shares) == np.argsort(ratios)).all()


def test_the_score_of_characters_is_its_formula():
    target = statistics(0)
    texts = [f"text number {place} " * (place + 1) for place in range(len(LENGTHS))]
    packed = zlib_score(target, texts)
    for place, (first, stop) in enumerate(
        zip(target.offsets[:-1], target.offsets[1:], strict=True)
    ):
        own = sum(map(float, target.log_probs[first:stop]))
        assert packed[place] == pytest.approx(own / len(zlib.compress(texts[place].encode())))
