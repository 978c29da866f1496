"""Where nobody was in, an audited user and one of those compared with may change places.

A corpus of users is audited twice, word counts, references, query selection and all; in between the
audited user and one of the compared exchange their roles. All scores must be the same to the bit:
then an audited non-member could be any of the compared, and the p-value is exact.
"""

from dataclasses import replace

import numpy as np
import pytest

from tests.audits.membership.made_users import VOCABULARY, shadows_of, words_of
from tests.reports.made_audits import checks_of
from vestige.audits.membership.queries import QueryPolicy
from vestige.audits.membership.ranked_users import audit_ranked_words
from vestige.audits.membership.ranked_words import WordCounts
from vestige.audits.membership.user_texts import NonMembers
from vestige.data.encoded import EncodedCorpus
from vestige.data.token_queries import token_queries

USERS, EOS = 80, 1
KNOWN = NonMembers(
    counted=tuple(range(20)), fitted=tuple(range(20, 40)), compared=tuple(range(40, 70))
)
TAUGHT = np.array([*KNOWN.counted, *KNOWN.fitted])
A, B = 41, 71
"""One of the compared and an audited user, who write more than most."""


class Words:
    """A vocabulary of ids alone."""

    eos_id, unk_id = EOS, 0


def corpus(seed):
    """Users with words of their own, and with more or less text than others."""
    rng = np.random.default_rng(seed)
    ids, offsets, owners = [], [0], []
    for user in range(USERS):
        liked = rng.integers(2, VOCABULARY, 30)
        for _ in range(rng.integers(3, 7) + 5 * (user % 10 == 1)):
            common = np.minimum(rng.zipf(1.3, 15) + 1, VOCABULARY - 1)
            ids += [*np.where(rng.random(15) < 0.4, rng.choice(liked, 15), common), EOS]
            offsets.append(len(ids))
            owners.append(user)
    return EncodedCorpus(
        tokens=np.array(ids, dtype=np.int32), offsets=np.array(offsets, dtype=np.int64),
        users=np.array(owners, dtype=np.int32), names=tuple(f"user {n:04}" for n in range(USERS)),
    )  # fmt: skip


DATA = corpus(0)
ASKED = token_queries(DATA, Words())


def scores_of(one, known, *, counted, shadows, k, select):
    """A whole audit of one user, whom neither target nor shadow models have read.

    Gives the user's score, all scores compared in order of size, and the number of p-values under
    shadow models.
    """
    counts = WordCounts.of_users(DATA, counted, VOCABULARY)
    models = shadows_of(ASKED, shadows, half_of=TAUGHT) if shadows else None
    words = replace(words_of(ASKED, np.array([]), k=k, shadows=models), counts=counts)
    if select is not None:
        limit = {"calls": 60} if select == "informative" else {"queries": 3}
        policy = QueryPolicy(select=select, k=k, seed=2, **limit)
        words = words.take(policy.selected(ASKED, counts, models))
    rows = audit_ranked_words(words, audited=[one], non_members=known, checks=checks_of()).rows
    scores = sorted(row["score"] for row in rows if row["kind"] in ("audited", "known out"))
    return rows[0]["score"], scores, sum(row["kind"] == "null" for row in rows)


def both_ways(counted, **how):
    """The audit of B, and that of A in whose place B is compared."""

    def swapped(users):
        return tuple(B if user == A else user for user in users)

    changed = replace(KNOWN, compared=swapped(KNOWN.compared))
    before = scores_of(B, KNOWN, counted=counted, **how)
    return before, scores_of(A, changed, counted=swapped(counted), **how)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("shadows", "k", "select"),
    [(0, VOCABULARY, None), (0, 20, "random"), (0, 20, "rare"), (2, 20, "informative"),
     (4, 20, None), (4, 20, "informative")],
)  # fmt: skip
def test_an_audited_and_a_compared_user_may_change_places(shadows, k, select):
    before, after = both_ways(KNOWN.counted, shadows=shadows, k=k, select=select)
    (first, scores, nulls), (second, again, nulls_again) = before, after
    assert first != second
    assert scores == again
    assert {first, second} <= set(scores)
    assert nulls == nulls_again == (shadows if shadows > 2 else 0)


def test_a_user_whose_text_is_counted_may_not_change_places_with_the_audited():
    """The test above can fail: with counts of all non-members, as there once were, it does."""
    everybody = (*KNOWN.counted, *KNOWN.compared)
    (_, scores, _), (_, again, _) = both_ways(everybody, shadows=0, k=20, select=None)
    assert scores != again


def test_everybody_has_as_many_references_and_one_of_each_pair():
    shadows = shadows_of(ASKED, 6, half_of=TAUGHT)
    drawn = shadows.sample_references(3, seed=0)
    assert (np.sort(drawn // 2, axis=1) == [0, 1, 2]).all()
    assert not shadows.members[drawn, np.arange(USERS)[:, None]].any()
    # Of users whom no model read, both of a pair are drawn about as often.
    assert 0.3 < (drawn[np.arange(40, USERS)] % 2).mean() < 0.7
    more = shadows.without_pair_of(2)
    assert len(more) == 4
    assert more.sample_references(2, seed=1).shape == (USERS, 2)
