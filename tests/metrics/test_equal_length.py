"""Comparison at one length: against its definition, text by text, and its level."""

import numpy as np
import pytest

from tests.audits.membership.made_texts import cut_scores
from vestige.metrics.listed import STEP, CutScores, compare, ladder


def test_a_ladder_has_eight_rungs_from_a_length_to_its_double():
    assert ladder(200).tolist()[-9:] == [99, 108, 117, 128, 140, 152, 166, 181, 197]


def test_a_ladder_loses_little_of_any_text():
    rungs = ladder(1000)
    assert rungs[0] == 1
    for tokens in range(20, 1001):
        largest = rungs[rungs <= tokens].max()
        assert (largest + 1) * STEP >= tokens


def test_each_text_is_compared_at_its_own_length_with_those_that_have_as_much():
    chance = np.random.default_rng(0)
    texts, reference = cut_scores(12, 0.5, chance), cut_scores(50, 0.0, chance)
    most = reference.last_rung(20)
    owners = np.arange(50) // 3
    found = compare(texts, reference, most=most, authors=owners)
    for place in range(12):
        cut = max(k for k in range(most + 1) if texts.rungs[k] <= texts.lengths[place])
        own = texts.scores[place, cut]
        shares = []
        for owner in set(owners):
            known = [
                reference.scores[other, cut]
                for other in range(50)
                if owners[other] == owner and reference.lengths[other] >= texts.rungs[cut]
            ]
            if known:
                shares.append(np.mean([score >= own for score in known]))
        assert found.tokens[place] == texts.rungs[cut]
        assert found.others[place] == len(shares)
        assert found.p_values[place] == pytest.approx((1 + sum(shares)) / (1 + len(shares)))


def test_a_reference_against_its_own_rest_has_every_place_once():
    known = CutScores.whole(np.random.default_rng(2).normal(size=25))
    found = compare(known, known, most=0, among=True)
    assert sorted(found.p_values) == pytest.approx((np.arange(25) + 1) / 25)
    assert set(found.others) == {24}


@pytest.mark.slow
@pytest.mark.parametrize("mean_length", [20, 60, 180])
def test_p_values_of_unused_texts_are_small_as_seldom_as_they_say_whatever_the_length(mean_length):
    chance, small = np.random.default_rng(mean_length), []
    for _ in range(30):
        reference = cut_scores(150, 0.0, chance)
        texts = cut_scores(40, 0.0, chance, mean_length=mean_length)
        most = reference.last_rung(75)
        small.append((compare(texts, reference, most=most).p_values <= 0.05).mean())
    assert 0.02 <= np.mean(small) <= 0.05 + 2.5 * np.std(small) / np.sqrt(len(small))


def test_scores_of_whole_texts_would_call_short_ones_used():
    chance = np.random.default_rng(3)
    reference = cut_scores(300, 0.0, chance, mean_length=200)
    texts = cut_scores(200, 0.0, chance, mean_length=8)
    whole = [own.scores[np.arange(len(own)), own.cut_at(10**6)] for own in (texts, reference)]
    plain = compare(*map(CutScores.whole, whole), most=0)
    assert (plain.p_values <= 0.05).mean() > 0.08
    matched = compare(texts, reference, most=reference.last_rung(150))
    assert (matched.p_values <= 0.05).mean() < 0.08
