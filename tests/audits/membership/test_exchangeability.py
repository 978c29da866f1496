"""If nobody is a member, an audited user and a compared user are exchangeable.

A corpus of users is audited twice with word counts, references and query selection; in the second
audit the audited user and a compared user exchange their roles. All scores must have equal bits:
then an audited non-member could be any compared user, and the p-value is exact.
"""

from dataclasses import replace
from types import SimpleNamespace

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
SHADOW_MEMBERS = np.array([*KNOWN.counted, *KNOWN.fitted])
COMPARED, AUDITED = 41, 71
"""Users who write more than most."""


def corpus(seed):
    """Users with different favourite words and amounts of text."""
    rng = np.random.default_rng(seed)
    ids, offsets, authors = [], [0], []
    for user in range(USERS):
        favourites = rng.integers(2, VOCABULARY, 30)
        for _ in range(rng.integers(3, 7) + 5 * (user % 10 == 1)):
            common = np.minimum(rng.zipf(1.3, 15) + 1, VOCABULARY - 1)
            ids += [*np.where(rng.random(15) < 0.4, rng.choice(favourites, 15), common), EOS]
            offsets.append(len(ids))
            authors.append(user)
    return EncodedCorpus(
        tokens=np.array(ids, dtype=np.int32), offsets=np.array(offsets, dtype=np.int64),
        users=np.array(authors, dtype=np.int32), names=tuple(f"user {n:04}" for n in range(USERS)),
    )  # fmt: skip


DATA = corpus(0)
QUERIES = token_queries(DATA, SimpleNamespace(eos_id=EOS, unk_id=0))


def audit(user, known, *, counted, shadows, k, select):
    """Audit one user whom neither the target nor the shadow models have read.

    Returns the user's score, all compared scores sorted, and the number of p-values under shadow
    models.
    """
    counts = WordCounts.of_users(DATA, counted, VOCABULARY)
    models = shadows_of(QUERIES, shadows, half_of=SHADOW_MEMBERS) if shadows else None
    words = replace(words_of(QUERIES, np.array([]), k=k, shadows=models), counts=counts)
    if select is not None:
        limit = {"calls": 60} if select == "informative" else {"queries": 3}
        policy = QueryPolicy(select=select, k=k, seed=2, **limit)
        words = words.take(policy.selected(QUERIES, counts, models))
    rows = audit_ranked_words(words, audited=[user], non_members=known, checks=checks_of()).rows
    scores = sorted(row["score"] for row in rows if row["kind"] in ("audited", "known out"))
    return rows[0]["score"], scores, sum(row["kind"] == "null" for row in rows)


def audit_both_ways(counted, **options):
    """The audit of AUDITED, and that of COMPARED with AUDITED in its role."""

    def exchange(users):
        return tuple(AUDITED if user == COMPARED else user for user in users)

    exchanged = replace(KNOWN, compared=exchange(KNOWN.compared))
    first = audit(AUDITED, KNOWN, counted=counted, **options)
    return first, audit(COMPARED, exchanged, counted=exchange(counted), **options)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("shadows", "k", "select"),
    [(0, VOCABULARY, None), (0, 20, "random"), (0, 20, "rare"), (2, 20, "informative"),
     (4, 20, None), (4, 20, "informative")],
)  # fmt: skip
def test_an_audited_and_a_compared_user_are_exchangeable(shadows, k, select):
    (score, scores, nulls), (exchanged, exchanged_scores, exchanged_nulls) = audit_both_ways(
        KNOWN.counted, shadows=shadows, k=k, select=select
    )
    assert score != exchanged
    assert scores == exchanged_scores
    assert {score, exchanged} <= set(scores)
    assert nulls == exchanged_nulls == (shadows if shadows > 2 else 0)


def test_users_whose_texts_are_counted_are_not_exchangeable():
    """With counts of all non-members, the test above would fail."""
    counted = (*KNOWN.counted, *KNOWN.compared)
    first, second = audit_both_ways(counted, shadows=0, k=20, select=None)
    assert first[1] != second[1]


def test_each_user_has_one_reference_of_each_pair():
    shadows = shadows_of(QUERIES, 6, half_of=SHADOW_MEMBERS)
    references = shadows.sample_references(3, seed=0)
    assert (np.sort(references // 2, axis=1) == [0, 1, 2]).all()
    assert not shadows.members[references, np.arange(USERS)[:, None]].any()
    # For users whom no model read, both models of a pair are sampled about equally often.
    assert 0.3 < (references[np.arange(40, USERS)] % 2).mean() < 0.7
    rest = shadows.without_pair_of(2)
    assert len(rest) == 4
    assert rest.sample_references(2, seed=1).shape == (USERS, 2)
