"""One rule selects everybody's queries, and contradictions are refused."""

import numpy as np
import pytest

from tests.attacks.made_users import asked_of, references_of
from vestige.attacks.membership.expected_rank import WordCounts
from vestige.attacks.membership.query_policy import QueryPolicy, usual_selection

ASKED = asked_of(12)
COUNTS = WordCounts.of(ASKED.tokens, int(ASKED.tokens.max()) + 1)


def selected(policy, references=None):
    return ASKED.take(policy.mask(ASKED, COUNTS, references))


def test_all_words_are_queried_unless_fewer_are_wanted():
    assert len(selected(QueryPolicy(k=5))) == len(ASKED)


@pytest.mark.parametrize("how", ["random", "rare"])
def test_nobody_has_more_single_words_than_calls(how):
    policy = QueryPolicy(how=how, calls=7, k=5)
    assert set(selected(policy).counts().tolist()) <= set(range(8))
    assert (selected(policy).counts() <= policy.most(ASKED)).all()


@pytest.mark.parametrize("how", ["random", "rare", "rare-sum"])
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
    references = references_of(ASKED, 4, half_of=np.arange(4))
    policy = QueryPolicy(how="informative", calls=5, k=20)
    ranks = references.typical_ranks(ASKED, seed=0)
    mask = policy.mask(ASKED, COUNTS, references)
    inside = (ranks >= 2) & (ranks <= 80)
    assert inside[mask].mean() > inside[~mask].mean()


def test_informative_words_need_references():
    with pytest.raises(ValueError, match="reference_ranks"):
        QueryPolicy(how="informative", calls=5, k=20).mask(ASKED, COUNTS)


@pytest.mark.parametrize(
    ("named", "message"),
    [
        ({"how": "best"}, "select must be one of"),
        ({"how": "rare"}, "must come with `queries` or `calls`"),
        ({"calls": 3}, "must come with another `select`"),
        ({"how": "random", "calls": 3, "queries": 2}, "`calls` must be left out"),
        ({"how": "rare-sum", "calls": 3}, "a word has no sum"),
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
    assert usual_selection(queries=queries, calls=calls, shadows=shadows) == wanted
