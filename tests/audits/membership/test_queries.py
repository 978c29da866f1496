"""One rule selects everybody's queries, and contradictions are refused."""

import numpy as np
import pytest

from tests.audits.membership.made_users import VOCABULARY, queries_of, shadows_of
from vestige.audits.membership.membership import QueryOptions
from vestige.audits.membership.queries import QueryPolicy, best_of_each, information
from vestige.audits.membership.ranked_words import WordCounts

ASKED = queries_of(12)
COUNTS = WordCounts.of(ASKED.tokens, int(ASKED.tokens.max()) + 1)


def selected(policy, shadows=None):
    return ASKED.take(policy.mask(ASKED, COUNTS, shadows))


def test_all_words_are_queried_unless_fewer_are_wanted():
    assert len(selected(QueryPolicy(k=5))) == len(ASKED)


@pytest.mark.parametrize("how", ["random", "rare"])
def test_nobody_has_more_single_words_than_calls(how):
    policy = QueryPolicy(how=how, calls=7, k=5)
    assert set(selected(policy).counts().tolist()) <= set(range(8))
    assert (selected(policy).counts() <= policy.most(ASKED)).all()


@pytest.mark.parametrize("how", ["random", "rare"])
def test_texts_are_queried_whole(how):
    policy = QueryPolicy(how=how, queries=2, k=5)
    chosen = selected(policy)
    for text in np.unique(chosen.texts):
        assert (chosen.texts == text).sum() == (ASKED.texts == text).sum()
    for user in range(12):
        assert len(np.unique(chosen.texts[chosen.users == user])) <= 2
    assert (chosen.counts() <= policy.most(ASKED)).all()


def test_rare_calls_are_the_rarest_words_of_each_user():
    chosen = selected(QueryPolicy(how="rare", calls=3, k=5))
    for user in range(12):
        own = np.sort(COUNTS.words[ASKED.tokens[ASKED.users == user]])
        assert sorted(COUNTS.words[chosen.tokens[chosen.users == user]]) == own[:3].tolist()


def test_informative_words_are_those_near_the_end_of_the_list():
    shadows = shadows_of(ASKED, 4, half_of=np.arange(4))
    policy = QueryPolicy(how="informative", calls=5, k=20)
    ranks = shadows.typical_ranks(ASKED, seed=0)
    mask = policy.mask(ASKED, COUNTS, shadows)
    inside = (ranks >= 2) & (ranks <= 80)
    assert inside[mask].mean() > inside[~mask].mean()


def test_informative_words_need_shadow_models():
    options = QueryOptions(select="informative", calls=5)
    with pytest.raises(ValueError, match="needs shadow models"):
        QueryPolicy.of(options, shadows=0, seed=0)


@pytest.mark.parametrize(
    ("named", "message"),
    [
        ({"how": "rare"}, "must come with `queries` or `calls`"),
        ({"calls": 3}, "must come with another `select`"),
        ({"how": "random", "calls": 3, "queries": 2}, "`calls` must be left out"),
    ],
)
def test_contradictions_are_refused(named, message):
    with pytest.raises(ValueError, match=message):
        QueryPolicy(k=5, **named)


@pytest.mark.parametrize(
    ("queries", "calls", "shadows", "wanted"),
    [(None, None, 4, "all"), (3, None, 4, "random"), (None, 3, 4, "informative"),
     (None, 3, 0, "random")],
)  # fmt: skip
def test_the_usual_selection(queries, calls, shadows, wanted):
    options = QueryOptions(queries=queries, calls=calls)
    assert QueryPolicy.of(options, shadows=shadows, seed=0).how == wanted


def naive_best(users: np.ndarray, texts: np.ndarray, value: np.ndarray, limit: int) -> set[int]:
    chosen = set()
    for user in np.unique(users):
        own = sorted({*texts[users == user].tolist()}, key=lambda t: (-value[texts == t].mean(), t))
        chosen |= set(own[:limit])
    return chosen


def test_rare_texts_are_those_of_the_smallest_mean_frequency() -> None:
    chosen = selected(QueryPolicy(how="rare", queries=3, k=5))
    value = -COUNTS.words[ASKED.tokens].astype(float)
    assert set(chosen.texts.tolist()) == naive_best(ASKED.users, ASKED.texts, value, 3)


def test_informative_words_are_those_that_k_can_show() -> None:
    ranks = np.exp(np.random.default_rng(0).uniform(0, np.log(VOCABULARY), len(ASKED)))
    mask = best_of_each(ASKED.users, information(ranks, k=20), 10)
    assert ((ranks[mask] >= 2) & (ranks[mask] <= 80)).all()


def test_a_word_at_the_end_of_the_list_is_worth_most_and_one_far_from_it_nothing() -> None:
    inside, outside = information([2, 21, 80], k=20), information([1, 82], k=20)
    assert (inside > 0).all()
    assert (outside < 0).all()
    assert inside.argmax() == 1


def test_everyone_is_asked_by_the_same_rule_and_as_much() -> None:
    chosen = selected(QueryPolicy(how="random", queries=2, k=5, seed=4))
    assert (np.bincount(chosen.users) == 40).all()


def test_a_limit_is_at_least_one() -> None:
    with pytest.raises(ValueError, match="limit must be at least 1"):
        selected(QueryPolicy(how="rare", calls=0, k=5))
