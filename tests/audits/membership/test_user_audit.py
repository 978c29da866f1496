"""From scores of users' words to p-values and a claim: error rates, and what they are made of."""

from collections.abc import Sequence
from dataclasses import replace
from itertools import permutations

import numpy as np
import pytest
from scipy import stats

from tests.audits.membership.made_texts import audited, failed
from tests.audits.membership.made_users import queries_of, shadows_of, words_of
from tests.reports.made_audits import checks_of
from vestige.audits.membership.ranked_users import audit_ranked_words
from vestige.audits.membership.ranked_words import RankedWords
from vestige.audits.membership.user_audit import MAX_CUTS, cut_users, judge_users, min_compared
from vestige.audits.membership.user_texts import MAX_FITTED, NonMembers, users_needed
from vestige.data.token_queries import TokenQueries
from vestige.errors import DataError
from vestige.results import Result

QUERIES = queries_of(90)
MEMBERS, FITTED_ON, COMPARED = np.arange(15), np.arange(30, 50), np.arange(50, 90)
KNOWN = NonMembers(fitted=tuple(FITTED_ON.tolist()), compared=tuple(COMPARED.tolist()))


def audit(words: RankedWords, users: Sequence[int], known: NonMembers = KNOWN) -> Result:
    """An audit whose checks of the texts passed."""
    return audit_ranked_words(words, audited=users, non_members=known, checks=checks_of(), seed=5)


def nulls(result: Result) -> np.ndarray:
    return np.array([row["p_value"] for row in result.rows if row["kind"] == "null"])


def queries_with(users: Sequence[int], names: int) -> TokenQueries:
    """A word of each of the users, who may repeat."""
    column = np.asarray(users, dtype=np.int32)
    columns = dict.fromkeys(("users", "texts", "positions", "tokens", "previous"), column)
    return TokenQueries(**columns, names=tuple(map(str, range(names))))


def judged_words(scores: Sequence[float], own: int, **options):
    """Users of one word each, of whom the first ones are audited."""
    queries = queries_with(range(len(scores)), len(scores))
    return judge_users(queries, np.array(scores), range(own), range(own, len(scores)), **options)


# Power, and errors where nobody was in.


def test_members_are_found_and_others_are_not() -> None:
    words = words_of(QUERIES, MEMBERS)
    result = audit(words, range(30))
    assert result == audit(words, range(30))
    called = dict(zip(audited(result, "user"), audited(result, "called"), strict=True))
    flags = np.array([called[f"user {place:04}"] for place in range(30)])
    assert flags[:15].mean() > 0.9
    assert flags[15:].sum() <= 2
    assert result.claim.test.significant
    assert result.summary["list_p_value"] < 0.001
    assert (result.summary["calibrated_on"], result.summary["fitted_on"]) == (40, 20)


@pytest.mark.slow
def test_p_values_are_uniform_where_nobody_was_in() -> None:
    result = []
    for seed in range(200):
        rng = np.random.default_rng(seed)
        noise = rng.normal(0, 0.3, 90)[QUERIES.users] + rng.normal(size=len(QUERIES))
        order = rng.permutation(90)
        judged = judge_users(QUERIES, noise, order[:1].tolist(), order[1:].tolist(), seed=seed)
        result += judged.column("p_value")
    assert stats.kstest(result, "uniform").pvalue > 0.01
    assert np.mean(np.array(result) <= 0.05) < 0.11


AGAINST, AUDITED, WORLDS = 59, 20, 60


def many_short(rng: np.random.Generator, _: bool) -> list[int]:
    return list(rng.integers(2, 9, rng.integers(5, 40)).tolist())


def few_against_many(_: np.random.Generator, audited: bool) -> list[int]:
    return [30] if audited else [300, 300]


def heavy_tailed(rng: np.random.Generator, _: bool) -> list[int]:
    count = 1 + int(np.exp(rng.normal(1, 1)))
    return [max(1, int(n)) for n in np.exp(rng.normal(2, 0.8, min(count, 60)))]


def by_word_count(layout, seed: int, gain: float = 0.0) -> np.ndarray:
    """(4, n) p-values of the audited in quarters of their word counts; `gain` raises the audited.

    The layout gives lengths of a user's texts; scores know nothing of them.
    """
    rng = np.random.default_rng(seed)
    lengths = [layout(rng, user >= AGAINST) for user in range(AGAINST + AUDITED)]
    texts = np.array([length for own in lengths for length in own])
    users = np.repeat(np.arange(len(lengths)), [sum(own) for own in lengths])
    asked = replace(
        queries_with(users, len(lengths)),
        texts=np.repeat(np.arange(len(texts)), texts).astype(np.int32),
        positions=np.concatenate([np.arange(length) for length in texts]).astype(np.int32),
    )
    scores = rng.normal(size=len(users)) + rng.normal(0, 0.05, len(lengths))[users]
    scores += gain * (users >= AGAINST)
    audited_users = range(AGAINST, AGAINST + AUDITED)
    judged = judge_users(asked, scores, audited_users, range(AGAINST), seed=seed)
    order = np.argsort(judged.column("words"), kind="stable")
    return np.array(judged.column("p_value"))[order].reshape(4, -1)


@pytest.mark.slow
@pytest.mark.parametrize("layout", [many_short, few_against_many, heavy_tailed])
def test_p_values_hold_in_every_quarter_of_word_counts(layout) -> None:
    p_values = np.hstack([by_word_count(layout, seed) for seed in range(WORLDS)])
    # Three standard errors of 300 users against sets that some of them share.
    assert (np.abs((p_values <= 0.1).mean(axis=1) - 0.1) < 0.06).all()
    assert (np.abs((p_values <= 0.5).mean(axis=1) - 0.5) < 0.1).all()


@pytest.mark.slow
def test_who_writes_much_is_found_no_less_often_for_it() -> None:
    """Before everybody was cut to as many words, the heaviest were hardly ever found."""
    p_values = np.hstack([by_word_count(heavy_tailed, seed, gain=0.35) for seed in range(WORLDS)])
    result = (p_values <= 0.05).mean(axis=1)
    assert result[3] > 0.9 * result[2]
    assert result[3] > 1.9 * result[0]


@pytest.mark.slow
def test_shadow_models_show_users_who_differ_in_more_than_membership() -> None:
    shadows = shadows_of(QUERIES, 4, half_of=FITTED_ON)
    apart = np.isin(QUERIES.users, np.arange(30))
    words = words_of(QUERIES, np.array([]), gain=0)
    words = replace(words, ranks=np.where(apart, np.maximum(words.ranks // 3, 1), words.ranks))
    easier = np.where(apart, np.maximum(shadows.ranks // 3, 1), shadows.ranks)
    alike, unlike = (
        audit(replace(words, shadows=replace(shadows, ranks=ranks)), range(30))
        for ranks in (shadows.ranks, easier)
    )
    assert len(nulls(alike)) == 4 * 30
    assert np.mean(nulls(alike) <= 0.05) < 0.15
    assert "comparable" not in failed(alike)
    assert "comparable" in failed(unlike)


# What p-values and flags are made of.


@pytest.mark.parametrize("seed", range(3))
def test_the_list_and_single_users_share_the_level(seed: int) -> None:
    scores = np.random.default_rng(seed).normal(size=43) + np.repeat([1, 0], [3, 40])
    judged = judged_words(scores, 3)
    ordered = sorted(judged.column("p_value"))
    simes = min(3 * p / (place + 1) for place, p in enumerate(ordered))
    assert judged.test.p == pytest.approx(min(1, 2 * min(judged.list_p_value, simes)))
    alone = judged_words([scores[0], *scores[3:]], 1)
    assert [alone.test.p] == alone.column("p_value")


def test_nobody_is_flagged_unless_the_test_is_significant() -> None:
    others = np.random.default_rng(0).normal(size=40)
    judged = judged_words([9.0, -9.0, *others], 2)
    assert judged.column("p_value") == [1 / 41, 1.0]  # 2 / 41 is at most 0.05
    assert judged.test.p > 0.05
    assert judged.column("called") == [False, False]
    assert judged_words([9.0, *others], 1).column("called") == [True]


def test_the_rows_hold_what_one_user_was_compared_with() -> None:
    shadows = shadows_of(QUERIES, 4, half_of=FITTED_ON)
    result = audit(words_of(QUERIES, MEMBERS, gain=0.05, shadows=shadows), [4])
    own, *others = result.rows
    known = [row["score"] for row in others if row["kind"] == "known out"]
    assert len(known) == result.summary["calibrated_on"]
    assert own["p_value"] == (1 + sum(score >= own["score"] for score in known)) / (1 + len(known))
    assert (own["compared_with"], own["compared_words"]) == (len(known), own["words"])
    assert len(nulls(result)) == 4
    assert result.summary["null_below_rate"] == np.mean(nulls(result) <= 0.05)
    assert {row["user"] for row in others if row["kind"] == "null"} == {"user 0004"}
    assert all(row.keys() == own.keys() for row in others)
    pair = shadows_of(QUERIES, 2, half_of=FITTED_ON)  # neither leaves the other a reference
    assert not nulls(audit(words_of(QUERIES, MEMBERS, shadows=pair), [4])).size


def test_a_user_without_words_is_not_called() -> None:
    result = audit(words_of(QUERIES, MEMBERS).take(QUERIES.users != 3), [2, 3])
    assert audited(result, "user").tolist() == ["user 0002", "user 0003"]
    assert [audited(result, name)[1] for name in ("score", "p_value", "called")] == [None, 1, False]


@pytest.mark.parametrize("words", [17, 20, 21, 55])
def test_everybody_is_cut_to_the_word_inside_the_last_text(words: int) -> None:
    whole = queries_of(3, texts=3, words=20)
    asked = whole.take(~((whole.users == 1) & (np.arange(len(whole)) - 60 >= words)))
    scores = np.random.default_rng(0).normal(size=len(asked))
    [ordered] = cut_users(asked, scores, ([2, 0, 1],), seed=1)
    assert ordered.rungs.tolist() == [words, 60]
    assert ordered.lengths.tolist() == [60, 60, words]
    for place, user in enumerate((2, 0)):
        own = [scores[asked.texts == text] for text in range(3 * user, 3 * user + 3)]
        means = {round(np.concatenate(lots)[:words].mean(), 9) for lots in permutations(own)}
        assert round(ordered.scores[place, 0], 9) in means
    assert np.isnan(ordered.scores[2, 1])


def test_the_order_of_ones_texts_does_not_depend_on_who_else_is_there() -> None:
    scores = np.random.default_rng(0).normal(size=len(QUERIES))
    [alone] = cut_users(QUERIES, scores, ([7],), seed=3)
    first, second = cut_users(QUERIES, scores, ([2], [7]), seed=3)
    assert second.scores.tolist() == alone.scores.tolist()
    assert first.rungs.tolist() == second.rungs.tolist()


def test_many_users_are_cut_to_few_different_numbers_of_words() -> None:
    asked = queries_with(np.repeat(np.arange(600), np.arange(1, 601)), 600)
    [cut] = cut_users(asked, np.ones(len(asked)), (range(600),), seed=0)
    assert cut.rungs.size <= MAX_CUTS + 1
    assert (cut.lengths - cut.rungs[cut.cut_at(cut.rungs.size)] <= 3).all()


# Groups, and how many users they need.


@pytest.mark.parametrize("users", [4, 5, 37, 1000])
def test_groups_share_nobody_and_half_are_compared(users: int) -> None:
    groups = NonMembers.split(range(users), seed=1)
    assert sorted(groups.counted + groups.fitted + groups.compared) == list(range(users))
    assert len(groups.compared) == users - users // 2
    assert len(groups.fitted) == min(MAX_FITTED, (users // 2 + 1) // 2)
    assert NonMembers.split(range(users)[::-1], seed=1) == groups


def test_a_small_reference_is_told_how_many_users_it_needs() -> None:
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
def test_users_with_two_parts_are_refused(users, half_of, message) -> None:
    shadows = shadows_of(QUERIES, 4, half_of=half_of)
    with pytest.raises(ValueError, match=message):
        audit(words_of(QUERIES, MEMBERS, shadows=shadows), users)
