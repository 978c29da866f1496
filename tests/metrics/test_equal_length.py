"""Comparison of texts at equal lengths: its naive definition, and its error rate."""

import numpy as np
import pytest

from tests.audits.membership.made_texts import cut_scores
from vestige.metrics.listed import STEP, CutScores, compare, ladder


def test_a_ladder_has_eight_lengths_per_factor_of_two():
    assert ladder(200).tolist()[-9:] == [99, 108, 117, 128, 140, 152, 166, 181, 197]
    rungs = ladder(1000)
    assert rungs[0] == 1
    for tokens in range(20, 1001):
        assert (rungs[rungs <= tokens].max() + 1) * STEP >= tokens


def test_p_values_equal_the_naive_definition_at_the_length_of_each_text():
    rng = np.random.default_rng(0)
    texts, reference = cut_scores(12, 0.5, rng), cut_scores(50, 0.0, rng)
    most = reference.last_rung(20)
    authors = np.arange(50) // 3
    result = compare(texts, reference, most=most, authors=authors)
    for text in range(12):
        cut = max(k for k in range(most + 1) if texts.rungs[k] <= texts.lengths[text])
        long_enough = reference.lengths >= texts.rungs[cut]
        higher = reference.scores[:, cut] >= texts.scores[text, cut]
        shares = [
            higher[long_enough & (authors == author)].mean()
            for author in set(authors)
            if (long_enough & (authors == author)).any()
        ]
        assert result.tokens[text] == texts.rungs[cut]
        assert result.others[text] == len(shares)
        assert result.p_values[text] == pytest.approx((1 + sum(shares)) / (1 + len(shares)))


def test_a_reference_compared_with_itself_has_each_rank_once():
    reference = CutScores.whole(np.random.default_rng(2).normal(size=25))
    result = compare(reference, reference, most=0, among=True)
    assert sorted(result.p_values) == pytest.approx((np.arange(25) + 1) / 25)
    assert set(result.others) == {24}


@pytest.mark.slow
@pytest.mark.parametrize("mean_length", [20, 60, 180])
def test_p_values_of_unused_texts_keep_their_level_at_each_length(mean_length):
    rng, rates = np.random.default_rng(mean_length), []
    for _ in range(30):
        reference = cut_scores(150, 0.0, rng)
        texts = cut_scores(40, 0.0, rng, mean_length=mean_length)
        most = reference.last_rung(75)
        rates.append((compare(texts, reference, most=most).p_values <= 0.05).mean())
    assert 0.02 <= np.mean(rates) <= 0.05 + 2.5 * np.std(rates) / np.sqrt(len(rates))


def test_scores_of_complete_texts_would_flag_short_ones():
    rng = np.random.default_rng(3)
    reference = cut_scores(300, 0.0, rng, mean_length=200)
    texts = cut_scores(200, 0.0, rng, mean_length=8)
    complete = [
        side.scores[np.arange(len(side)), side.cut_at(10**6)] for side in (texts, reference)
    ]
    unmatched = compare(*map(CutScores.whole, complete), most=0)
    assert (unmatched.p_values <= 0.05).mean() > 0.08
    matched = compare(texts, reference, most=reference.last_rung(150))
    assert (matched.p_values <= 0.05).mean() < 0.08
