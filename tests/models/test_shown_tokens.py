"""What a target that shows k tokens is expected to say of others, against all it would say."""

from dataclasses import replace

import numpy as np
import pytest

from vestige.models.shown_statistics import shown_only, with_expected
from vestige.models.token_statistics import TokenStatistics

TOKENS, OUTPUTS = 200, 30


def distributions(seed, scale=2.0):
    logits = np.random.default_rng(seed).normal(size=(TOKENS, OUTPUTS)) * scale
    return np.exp(logits) / np.exp(logits).sum(1, keepdims=True)


def statistics(chances, known):
    own = np.random.default_rng(9).integers(0, OUTPUTS, TOKENS)
    order = np.argsort(-chances, axis=1, kind="stable")
    zeros = np.zeros(TOKENS, dtype=np.float32)
    return TokenStatistics(
        offsets=np.array([0, 50, TOKENS]),
        tokens=own.astype(np.int32),
        log_probs=np.log(chances[np.arange(TOKENS), own]).astype(np.float32),
        ranks=(order == own[:, None]).argmax(1).astype(np.int32) + 1,
        means=zeros,
        deviations=zeros,
        likeliest=order[:, :known].astype(np.int32),
        likeliest_log_probs=np.log(np.take_along_axis(chances, order[:, :known], 1)).astype("f4"),
    )


def test_hidden_tokens_share_what_is_left_as_under_the_base():
    p, q = distributions(0), distributions(1)
    target, base = statistics(p, 10), statistics(q, OUTPUTS)
    found = shown_only(target, base, likeliest=5)
    for place in range(TOKENS):
        token, top = target.tokens[place], np.argsort(-p[place], kind="stable")[:5]
        if token in top:
            wanted = np.log(p[place, token])
        else:
            rest = (1 - p[place, top].sum()) / (1 - q[place, top].sum())
            wanted = np.log(min(rest * q[place, token], p[place, top[-1]]))
            assert found.ranks[place] == 6
        assert found.log_probs[place] == pytest.approx(wanted, rel=1e-4)


def test_a_target_like_the_base_is_told_whole_by_what_it_shows():
    p = distributions(2)
    target = statistics(p, OUTPUTS)
    found = shown_only(target, target, likeliest=4)
    assert found.log_probs == pytest.approx(target.log_probs, rel=1e-4)


def test_what_is_hidden_changes_nothing():
    """Only the tokens shown are read: a permuted tail gives the same."""
    p, q = distributions(3), distributions(4)
    base = statistics(q, OUTPUTS)
    target = statistics(p, 8)
    hidden = target.ranks > 8
    other = TokenStatistics(
        **vars(target) | {"log_probs": np.where(hidden, -99.0, target.log_probs).astype("f4")}
    )
    found = shown_only(target, base, likeliest=8).log_probs
    assert found.tolist() == shown_only(other, base, likeliest=8).log_probs.tolist()


def test_more_than_is_known_is_refused():
    one = statistics(distributions(0), 5)
    with pytest.raises(ValueError, match=r"likeliest must be in \[1, 5\], got 6"):
        shown_only(one, one, likeliest=6)


def test_tokens_are_expected_where_few_are_shown_and_left_out_where_none_is():
    """As a server tells it: columns that it does not fill are NaN, and so is what it hides."""
    p, q = distributions(0), distributions(1)
    base, most = statistics(q, OUTPUTS), statistics(p, 10)
    hidden = most.ranks > 5
    shown = most.likeliest_log_probs.copy()
    shown[:, 5:], shown[0] = np.nan, np.nan
    told = replace(
        most,
        log_probs=np.where(hidden, np.nan, most.log_probs).astype("f4"),
        likeliest=np.where(np.isnan(shown), -1, most.likeliest).astype("i4"),
        likeliest_log_probs=shown,
    )
    assert hidden[0]
    found = with_expected(told, base).log_probs
    assert np.isnan(found[0])
    assert found[1:].tolist() == shown_only(most, base, likeliest=5).log_probs[1:].tolist()
