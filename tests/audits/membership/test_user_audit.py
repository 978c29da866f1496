"""Audits of users from scores of words: error rates, p-values, flags and groups."""

from dataclasses import replace
from itertools import permutations

import numpy as np
import pytest
from scipy import stats

from tests.audits.membership.made_texts import audited, failed
from tests.audits.membership.made_users import queries_of, shadows_of, words_of
from tests.reports.made_audits import checks_of
from vestige.audits.membership.ranked_users import audit_ranked_words
from vestige.audits.membership.user_audit import MAX_CUTS, cut_users, judge_users, min_compared
from vestige.audits.membership.user_texts import MAX_FITTED, NonMembers, users_needed
from vestige.data.token_queries import TokenQueries
from vestige.errors import DataError

QUERIES = queries_of(90)
MEMBERS, FITTED_ON, COMPARED = np.arange(15), np.arange(30, 50), np.arange(50, 90)
KNOWN = NonMembers(fitted=tuple(FITTED_ON.tolist()), compared=tuple(COMPARED.tolist()))


def audit(words, users, known=KNOWN):
    """An audit whose checks of the texts passed."""
    return audit_ranked_words(words, audited=users, non_members=known, checks=checks_of(), seed=5)


def null_p_values(result):
    return np.array([row["p_value"] for row in result.rows if row["kind"] == "null"])


def queries_with(users, names):
    """One word of each of the users, who may repeat."""
    column = np.asarray(users, dtype=np.int32)
    columns = dict.fromkeys(("users", "texts", "positions", "tokens", "previous"), column)
    return TokenQueries(**columns, names=tuple(map(str, range(names))))


def judge_words(scores, audited):
    """Judge users of one word each, of whom the first `audited` are audited."""
    queries = queries_with(range(len(scores)), len(scores))
    return judge_users(queries, np.array(scores), range(audited), range(audited, len(scores)))


# Power and error rates.


def test_members_are_flagged_and_others_are_not():
    words = words_of(QUERIES, MEMBERS)
    result = audit(words, range(30))
    assert result == audit(words, range(30))
    flagged = dict(zip(audited(result, "user"), audited(result, "called"), strict=True))
    flags = np.array([flagged[f"user {n:04}"] for n in range(30)])
    assert flags[:15].mean() > 0.9
    assert flags[15:].sum() <= 2
    assert result.claim.test.significant
    assert result.summary["list_p_value"] < 0.001
    assert (result.summary["calibrated_on"], result.summary["fitted_on"]) == (40, 20)


@pytest.mark.slow
def test_p_values_of_non_members_are_uniform():
    p_values = []
    for seed in range(200):
        rng = np.random.default_rng(seed)
        noise = rng.normal(0, 0.3, 90)[QUERIES.users] + rng.normal(size=len(QUERIES))
        order = rng.permutation(90)
        judged = judge_users(QUERIES, noise, order[:1].tolist(), order[1:].tolist(), seed=seed)
        p_values += judged.column("p_value")
    assert stats.kstest(p_values, "uniform").pvalue > 0.01
    assert np.mean(np.array(p_values) <= 0.05) < 0.11


COMPARED_USERS, AUDITED_USERS, REPETITIONS = 59, 20, 60


def many_short(rng, _):
    return rng.integers(2, 9, rng.integers(5, 40)).tolist()


def few_against_many(_, is_audited):
    return [30] if is_audited else [300, 300]


def heavy_tailed(rng, _):
    count = 1 + int(np.exp(rng.normal(1, 1)))
    return [max(1, int(n)) for n in np.exp(rng.normal(2, 0.8, min(count, 60)))]


def p_values_by_word_count(layout, *, gain=0.0):
    """(4, n) p-values of audited users in quarters of their word counts, from many repetitions.

    The layout gives the lengths of a user's texts, on which scores do not depend. `gain` raises
    the scores of audited users.
    """
    return np.hstack([_quarters(layout, seed, gain) for seed in range(REPETITIONS)])


def _quarters(layout, seed, gain):
    rng, total = np.random.default_rng(seed), COMPARED_USERS + AUDITED_USERS
    lengths = [layout(rng, user >= COMPARED_USERS) for user in range(total)]
    texts = np.array([length for of_user in lengths for length in of_user])
    users = np.repeat(np.arange(total), [sum(of_user) for of_user in lengths])
    queries = replace(
        queries_with(users, total),
        texts=np.repeat(np.arange(len(texts)), texts).astype(np.int32),
        positions=np.concatenate([np.arange(length) for length in texts]).astype(np.int32),
    )
    scores = rng.normal(size=len(users)) + rng.normal(0, 0.05, total)[users]
    scores += gain * (users >= COMPARED_USERS)
    groups = range(COMPARED_USERS, total), range(COMPARED_USERS)
    judged = judge_users(queries, scores, *groups, seed=seed)
    order = np.argsort(judged.column("words"), kind="stable")
    return np.array(judged.column("p_value"))[order].reshape(4, -1)


@pytest.mark.slow
@pytest.mark.parametrize("layout", [many_short, few_against_many, heavy_tailed])
def test_p_values_are_valid_in_every_quarter_of_word_counts(layout):
    p_values = p_values_by_word_count(layout)
    # Three standard errors of 300 users, some of whom share the compared users.
    assert (np.abs((p_values <= 0.1).mean(axis=1) - 0.1) < 0.06).all()
    assert (np.abs((p_values <= 0.5).mean(axis=1) - 0.5) < 0.1).all()


@pytest.mark.slow
def test_power_grows_with_the_number_of_words():
    power = (p_values_by_word_count(heavy_tailed, gain=0.35) <= 0.05).mean(axis=1)
    assert power[3] > 0.9 * power[2]
    assert power[3] > 1.9 * power[0]


@pytest.mark.slow
def test_shadow_models_detect_users_who_differ_in_more_than_membership():
    def easier(ranks):
        return np.where(QUERIES.users < 30, np.maximum(ranks // 3, 1), ranks)

    shadows = shadows_of(QUERIES, 4, half_of=FITTED_ON)
    words = words_of(QUERIES, np.array([]), gain=0)
    words = replace(words, ranks=easier(words.ranks))
    comparable, different = (
        audit(replace(words, shadows=replace(shadows, ranks=ranks)), range(30))
        for ranks in (shadows.ranks, easier(shadows.ranks))
    )
    assert len(null_p_values(comparable)) == 4 * 30
    assert np.mean(null_p_values(comparable) <= 0.05) < 0.15
    assert "comparable" not in failed(comparable)
    assert "comparable" in failed(different)


# P-values and flags.


@pytest.mark.parametrize("seed", range(3))
def test_the_test_of_the_list_and_those_of_users_share_the_level(seed):
    scores = np.random.default_rng(seed).normal(size=43) + np.repeat([1, 0], [3, 40])
    judged = judge_words(scores, 3)
    simes = min(3 * p / n for n, p in enumerate(sorted(judged.column("p_value")), 1))
    assert judged.test.p == pytest.approx(min(1, 2 * min(judged.list_p_value, simes)))
    single = judge_words([scores[0], *scores[3:]], 1)
    assert [single.test.p] == single.column("p_value")


def test_nobody_is_flagged_unless_the_test_is_significant():
    compared = np.random.default_rng(0).normal(size=40)
    judged = judge_words([9.0, -9.0, *compared], 2)
    assert judged.column("p_value") == [1 / 41, 1.0]  # 2 / 41 is at most 0.05
    assert judged.test.p > 0.05
    assert judged.column("called") == [False, False]
    assert judge_words([9.0, *compared], 1).column("called") == [True]


def test_rows_have_the_scores_that_a_user_is_compared_with():
    shadows = shadows_of(QUERIES, 4, half_of=FITTED_ON)
    result = audit(words_of(QUERIES, MEMBERS, gain=0.05, shadows=shadows), [4])
    row, *others = result.rows
    scores = [other["score"] for other in others if other["kind"] == "known out"]
    assert len(scores) == result.summary["calibrated_on"]
    above = sum(score >= row["score"] for score in scores)
    assert row["p_value"] == (1 + above) / (1 + len(scores))
    assert (row["compared_with"], row["compared_words"]) == (len(scores), row["words"])
    assert len(null_p_values(result)) == 4
    assert result.summary["null_below_rate"] == np.mean(null_p_values(result) <= 0.05)
    assert {other["user"] for other in others if other["kind"] == "null"} == {"user 0004"}
    assert all(other.keys() == row.keys() for other in others)
    pair = shadows_of(QUERIES, 2, half_of=FITTED_ON)  # neither has another pair as reference
    assert not null_p_values(audit(words_of(QUERIES, MEMBERS, shadows=pair), [4])).size


def test_a_user_without_words_is_not_flagged():
    result = audit(words_of(QUERIES, MEMBERS).take(QUERIES.users != 3), [2, 3])
    assert audited(result, "user").tolist() == ["user 0002", "user 0003"]
    assert [audited(result, name)[1] for name in ("score", "p_value", "called")] == [None, 1, False]


@pytest.mark.parametrize("words", [17, 20, 21, 55])
def test_users_are_compared_over_the_same_number_of_words(words):
    queries = queries_of(3, texts=3, words=20)
    queries = queries.take((queries.users != 1) | (np.arange(len(queries)) - 60 < words))
    scores = np.random.default_rng(0).normal(size=len(queries))
    [cut] = cut_users(queries, scores, ([2, 0, 1],), seed=1)
    assert cut.rungs.tolist() == [words, 60]
    assert cut.lengths.tolist() == [60, 60, words]
    for row, user in enumerate((2, 0)):
        texts = [scores[queries.texts == text] for text in range(3 * user, 3 * user + 3)]
        means = {round(np.concatenate(order)[:words].mean(), 9) for order in permutations(texts)}
        assert round(cut.scores[row, 0], 9) in means
    assert np.isnan(cut.scores[2, 1])


def test_the_order_of_a_users_texts_does_not_depend_on_other_users():
    scores = np.random.default_rng(0).normal(size=len(QUERIES))
    [single] = cut_users(QUERIES, scores, ([7],), seed=3)
    first, second = cut_users(QUERIES, scores, ([2], [7]), seed=3)
    assert second.scores.tolist() == single.scores.tolist()
    assert first.rungs.tolist() == second.rungs.tolist()


def test_many_users_are_compared_at_few_numbers_of_words():
    queries = queries_with(np.repeat(np.arange(600), np.arange(1, 601)), 600)
    [cut] = cut_users(queries, np.ones(len(queries)), (range(600),), seed=0)
    assert cut.rungs.size <= MAX_CUTS + 1
    assert (cut.lengths - cut.rungs[cut.cut_at(cut.rungs.size)] <= 3).all()


# Groups.


@pytest.mark.parametrize("users", [4, 37, 1000])
def test_groups_are_disjoint_and_half_of_the_users_are_compared(users):
    groups = NonMembers.split(range(users), seed=1)
    assert sorted(groups.counted + groups.fitted + groups.compared) == list(range(users))
    assert len(groups.compared) == users - users // 2
    assert len(groups.fitted) == min(MAX_FITTED, (users // 2 + 1) // 2)
    assert NonMembers.split(range(users)[::-1], seed=1) == groups


def test_a_small_reference_names_the_number_of_users_that_it_needs():
    few = replace(KNOWN, compared=KNOWN.compared[:18])
    result = audit(words_of(QUERIES, MEMBERS, gain=2.0), [0], few)
    assert not result.claim.test.possible
    assert result.summary["calibration_needed"] == 19
    assert result.summary["known_needed"] == users_needed(0.05) == 37
    assert [len(NonMembers.split(range(n), seed=0).compared) for n in (37, 36)] == [19, 18]
    assert [min_compared(n, 0.05) for n in (10, 19, 30, 38, 39, 101)] == [10, 19, 19, 19, 20, 51]
    with pytest.raises(DataError, match="4 or more are needed"):
        NonMembers.split([40, 41, 42], seed=0)
    words = words_of(QUERIES, MEMBERS).take(QUERIES.users != 30)
    with pytest.raises(DataError, match="0 non-members with words to fit on and 40"):
        audit(words, [0], replace(KNOWN, fitted=(30,)))


@pytest.mark.parametrize(
    ("users", "half_of", "message"),
    [
        ([50], FITTED_ON, "got user 50 as both"),
        ([], FITTED_ON, "at least one"),
        ([0], COMPARED, "compared must be non-members for every reference model"),
        ([0], np.arange(30), "audited must be non-members for every reference model"),
    ],
)
def test_users_in_two_groups_are_refused(users, half_of, message):
    shadows = shadows_of(QUERIES, 4, half_of=half_of)
    with pytest.raises(ValueError, match=message):
        audit(words_of(QUERIES, MEMBERS, shadows=shadows), users)
