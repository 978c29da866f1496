"""The estimate of a rank against counting every phrase."""

from math import comb

import numpy as np
import pytest
import torch

from vestige.attacks.update import sampled_rank as module
from vestige.attacks.update.differential_rank import TIE, differential_rank
from vestige.attacks.update.model_pair import ModelPair
from vestige.attacks.update.sampled_rank import Sampling, sampled_rank
from vestige.attacks.update.token_scores import token_score
from vestige.models.table import TableModel


def updated(rng, size, concentration):
    """A random table, and one that has half moved to another."""
    alpha = np.full(size, concentration)
    old, new = rng.dirichlet(alpha, size + 1), rng.dirichlet(alpha, size + 1)
    moved = (old + new) / 2
    return TableModel(old[size], old[:size]), TableModel(moved[size], moved[:size])


def every_score(before, after, length):
    """(v ** length,) of every phrase, in the order of its ids."""
    size = before.vocab_size
    gains = (after.log_table.exp() - before.log_table.exp()).double().numpy()
    scores = gains[size]
    for _ in range(length - 1):
        scores = (scores.reshape(-1, size)[:, :, None] + gains[None, :size]).reshape(-1)
    return scores


def a_phrase(scores, rank, size, length):
    cell = int(np.argsort(-scores, kind="stable")[rank])
    return tuple(int(i) for i in np.unravel_index(cell, (size,) * length)), scores[cell]


@pytest.mark.parametrize(("size", "length", "concentration"), [(8, 4, 0.3), (20, 3, 0.1)])
def test_intervals_cover_the_count_of_better_phrases(size, length, concentration):
    rng = np.random.default_rng(size)
    covered, ratios = [], []
    for seed in range(30):
        before, after = updated(rng, size, concentration)
        scores = every_score(before, after, length)
        rank = int(10 ** rng.uniform(1, np.log10(len(scores) / 2)))
        tokens, score = a_phrase(scores, rank, size, length)
        above = score + TIE * length
        found = sampled_rank(
            ModelPair(before, after, token_score("differential")),
            tokens,
            above=above,
            sampling=Sampling(seed=seed, samples=160),
        )
        true = int((scores > above).sum())
        assert found.seen <= true, "what was seen is there"
        if found.value is not None:
            covered.append(found.low <= true <= found.high)
            ratios.append(found.value / true)
    assert len(covered) > 22
    assert np.mean(covered) >= 0.83, "95 % of them, within the error of 30 runs"
    assert np.mean(ratios) == pytest.approx(1, abs=0.1), "unbiased"


def test_too_few_samples_give_no_estimate():
    before, after = updated(np.random.default_rng(3), 8, 0.3)
    scores = every_score(before, after, 4)
    tokens, score = a_phrase(scores, 0, 8, 4)
    pair = ModelPair(before, after, token_score("differential"))
    found = sampled_rank(pair, tokens, above=score + 1e-6, sampling=Sampling(seed=0, samples=50))
    assert (found.value, found.hits, found.seen) == (None, 0, 0)


def test_the_phrase_itself_is_not_counted():
    before, after = updated(np.random.default_rng(4), 8, 0.3)
    scores = every_score(before, after, 3)
    tokens, score = a_phrase(scores, 0, 8, 3)
    pair = ModelPair(before, after, token_score("differential"))
    found = sampled_rank(pair, tokens, above=score - 1e-6, sampling=Sampling(seed=0, samples=99))
    assert (found.hits, found.seen) == (0, 0)


def test_samples_raise_the_proven_bound_and_never_past_the_truth():
    before, after = updated(np.random.default_rng(5), 20, 0.3)
    scores = every_score(before, after, 4)
    tokens, score = a_phrase(scores, 900, 20, 4)
    true = int((scores > score + TIE * 4).sum())
    alone = differential_rank(before, after, tokens=tokens, budget=5)
    helped = differential_rank(before, after, tokens=tokens, budget=5, sampling=Sampling(seed=0))
    assert alone.rank_lower < helped.rank_lower <= true <= helped.rank_upper == alone.rank_upper
    assert helped.estimate.low <= true <= helped.estimate.high


def test_a_rank_that_is_decided_needs_no_samples(monkeypatch):
    monkeypatch.setattr(module, "_Search", None)
    before, after = updated(np.random.default_rng(6), 6, 0.3)
    found = differential_rank(
        before, after, tokens=(1, 2, 3), budget=10_000, sampling=Sampling(seed=0)
    )
    assert found.estimate is None


def test_weights_may_be_larger_than_any_float():
    before, after = updated(np.random.default_rng(7), 400, 0.3)
    found = differential_rank(
        before, after, tokens=(3, 5) * 65, budget=5, sampling=Sampling(seed=1, samples=64)
    )
    assert found.rank_lower <= found.rank_upper
    assert torch.isfinite(torch.tensor(found.estimate.effective))


@pytest.mark.parametrize(("length", "followed"), [(8, 5), (12, 9), (28, 20)])
def test_long_phrases_are_counted_as_the_closed_form_counts_them(length, followed):
    """After every token one follows at 0.9, so that a score says how often it did."""
    size = 30
    flat = np.full((size + 1, size), 1 / size)
    after = np.full((size + 1, size), 0.1 / (size - 1))
    after[np.arange(size + 1), (np.arange(size + 1) * 7 + 3) % size] = 0.9
    pair = ModelPair(
        TableModel(flat[size], flat[:size]),
        TableModel(after[size], after[:size]),
        token_score("differential"),
    )
    tokens = [(size * 7 + 3) % size]
    for place in range(1, length):
        tokens.append((tokens[-1] * 7 + 3 + (place < length - followed + 1)) % size)
    score = float(pair.token_gains(torch.tensor([tokens])).double().sum())
    true = sum(
        comb(length, k) * (size - 1) ** (length - k) for k in range(followed + 1, length + 1)
    )

    found = sampled_rank(
        pair, tuple(tokens), above=score + 1e-4, sampling=Sampling(seed=1, samples=1600)
    )

    assert found.effective > 10
    assert found.value == pytest.approx(true, rel=0.3)
    assert found.low <= true <= found.high
    assert found.seen <= true
