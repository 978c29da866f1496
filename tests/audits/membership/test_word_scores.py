"""Shadow models teach which ranks speak for having been seen, and nothing about who is compared."""

from dataclasses import replace

import numpy as np

from tests.audits.membership.made_users import queries_of, shadows_of, words_of
from vestige.audits.membership.ranked_words import log_odds, score_words, surprise_words
from vestige.metrics.estimates import auc

QUERIES = queries_of(90)
MEMBERS, OTHERS = np.arange(15), np.arange(15, 30)
FITTED, COMPARED = np.arange(30, 60), np.arange(60, 90)
SHADOWS = shadows_of(QUERIES, 6, half_of=FITTED)


def test_members_stand_above_others_and_these_around_zero() -> None:
    areas, means = [], []
    for seed in range(3):
        words = words_of(QUERIES, MEMBERS, gain=0.15, k=20, seed=seed, shadows=SHADOWS)
        scores = QUERIES.mean_by_user(score_words(words, FITTED))
        areas.append(auc(scores[MEMBERS], scores[OTHERS]).value)
        means.append([scores[MEMBERS].mean(), scores[OTHERS].mean()])
    assert np.mean(areas) > 0.9
    inside, outside = np.mean(means, axis=0)
    assert abs(outside) < 0.3 * inside


def test_it_tells_no_less_than_surprise_where_few_words_are_shown() -> None:
    found = {}
    for how in (score_words, surprise_words):
        areas = []
        for seed in range(3):
            words = words_of(QUERIES, MEMBERS, gain=0.15, k=3, seed=seed, shadows=SHADOWS)
            scores = QUERIES.mean_by_user(how(words, FITTED))
            areas.append(auc(scores[MEMBERS], scores[OTHERS]).value)
        found[how.__name__] = np.mean(areas)
    assert found["score_words"] > found["surprise_words"] - 0.02


def test_too_few_shadows_teach_nothing_and_surprise_stands_in() -> None:
    words = words_of(QUERIES, MEMBERS, k=20, shadows=shadows_of(QUERIES, 2, half_of=FITTED))
    assert log_odds(words, FITTED, seed=0) is None
    np.testing.assert_array_equal(score_words(words, FITTED), surprise_words(words, FITTED))


def test_shadows_that_saw_nobody_of_the_fitted_teach_nothing() -> None:
    blind = replace(SHADOWS, seen=np.zeros_like(SHADOWS.seen))
    words = words_of(QUERIES, MEMBERS, k=20, shadows=blind)
    assert log_odds(words, FITTED, seed=0) is None


def test_nothing_is_learnt_from_users_who_are_compared() -> None:
    words = words_of(QUERIES, MEMBERS, k=20, shadows=SHADOWS)
    compared = np.isin(QUERIES.users, COMPARED)
    ranks = np.where(compared, SHADOWS.ranks[:, ::-1], SHADOWS.ranks)
    changed = replace(words, shadows=replace(SHADOWS, ranks=ranks))
    mine, theirs = score_words(words, FITTED), score_words(changed, FITTED)
    np.testing.assert_array_equal(mine[~compared], theirs[~compared])


def test_the_same_seed_gives_the_same_evidence() -> None:
    words = words_of(QUERIES, MEMBERS, k=20, shadows=SHADOWS)
    first, second = (score_words(words, FITTED, seed=3) for _ in range(2))
    np.testing.assert_array_equal(first, second)
