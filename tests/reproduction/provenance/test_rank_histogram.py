"""The paper's audit: counts of ranks in bins, and a support vector machine of them."""

from dataclasses import replace

import numpy as np
import pytest

from reproduction.provenance.rank_histogram import histogram_scores, rank_histogram
from tests.audits.membership.made_users import VOCABULARY, queries_of, shadows_of, words_of
from vestige.audits.membership.ranked_words import surprise_words
from vestige.metrics.estimates import auc

QUERIES = queries_of(90)
MEMBERS, OTHERS, FITTED = np.arange(15), np.arange(15, 30), np.arange(30, 50)


def test_histograms_are_those_of_algorithm_1() -> None:
    words = words_of(QUERIES, MEMBERS, k=300)
    found = rank_histogram(words, bins=50)
    for user in (0, 44, 89):
        ranks = words.shown[QUERIES.users == user]
        width = VOCABULARY // 50
        expected = [
            sum((i - 1) * width <= r - 1 < i * width for r in ranks if r <= 300)
            for i in range(1, 51)
        ]
        assert found[user].tolist() == [*expected, int((ranks == 301).sum())]


def test_ours_is_stronger_than_the_papers_where_little_is_shown() -> None:
    shadows = shadows_of(QUERIES, 6, half_of=FITTED)
    words = words_of(QUERIES, MEMBERS, gain=0.15, k=10, shadows=shadows)
    ours = QUERIES.mean_by_user(surprise_words(words, FITTED))
    papers = histogram_scores(words, FITTED)
    assert auc(ours[MEMBERS], ours[OTHERS]).value > auc(papers[MEMBERS], papers[OTHERS]).value


def test_shadow_models_that_saw_nobody_are_refused() -> None:
    shadows = shadows_of(QUERIES, 2, half_of=FITTED)
    blind = replace(shadows, seen=np.zeros_like(shadows.seen))
    with pytest.raises(ValueError, match="must hold both kinds, got 0 members of 40"):
        histogram_scores(words_of(QUERIES, MEMBERS, shadows=blind), FITTED)
    with pytest.raises(ValueError, match="bins must be at least 1"):
        rank_histogram(words_of(QUERIES, MEMBERS), bins=0)
