from collections.abc import Sequence
from dataclasses import replace
from itertools import combinations, permutations

import numpy as np
import pytest
from scipy import stats

from tests.audits.membership.made_users import queries_of, shadows_of, words_of
from tests.reports.made_audits import checks_of
from vestige.audits.membership.ranked_users import membership_audit
from vestige.audits.membership.ranked_words import RankedWords, surprise_words
from vestige.audits.membership.user_audit import (
    FEWEST_MODELS,
    MOST_CUTS,
    cut_users,
    fewest_compared,
    judge_users,
)
from vestige.audits.membership.user_texts import FITTED, NonMembers, users_needed
from vestige.data.token_queries import TokenQueries
from vestige.errors import DataError
from vestige.metrics.estimates import auc
from vestige.results import Result

QUERIES = queries_of(90)
MEMBERS, OTHERS = np.arange(15), np.arange(15, 30)
FITTED_ON, COMPARED = np.arange(30, 50), np.arange(50, 90)
KNOWN = NonMembers(fitted=tuple(FITTED_ON.tolist()), compared=tuple(COMPARED.tolist()))


def audited(words: RankedWords, users: Sequence[int], known: NonMembers = KNOWN, seed: int = 0):
    """An audit whose checks of the texts passed."""
    return membership_audit(words, audited=users, known=known, checks=checks_of(), seed=seed)


def column(found: Result, name: str, kind: str = "audited") -> list:
    return [row[name] for row in found.rows if row["kind"] == kind]


def test_members_are_found_and_others_are_not() -> None:
    words = words_of(QUERIES, MEMBERS)
    audit = audited(words, range(30))
    names = [f"user {place:04}" for place in range(30)]
    by_name = dict(zip(column(audit, "user"), column(audit, "called"), strict=True))
    called = np.array([by_name[name] for name in names])
    assert called[:15].mean() > 0.9
    assert called[15:].sum() <= 2
    assert audit.claim.test.significant
    assert audit.summary["list_p_value"] < 0.001
    assert audit.summary["calibrated_on"] == 40
    assert audit.summary["fitted_on"] == 20


def test_shadow_models_make_it_stronger_where_little_is_shown() -> None:
    scores = [
        QUERIES.mean_by_user(
            surprise_words(words_of(QUERIES, MEMBERS, gain=0.15, k=10, shadows=shadows), FITTED_ON)
        )
        for shadows in (None, shadows_of(QUERIES, 6, half_of=FITTED_ON))
    ]
    alone, helped = (auc(score[MEMBERS], score[OTHERS]).value for score in scores)
    assert helped > alone > 0.6


def test_p_values_are_uniform_where_nobody_was_in() -> None:
    found = []
    for seed in range(200):
        generator = np.random.default_rng(seed)
        users = generator.normal(0, 0.3, 90)[QUERIES.users]
        noise = users + generator.normal(size=len(QUERIES))
        order = generator.permutation(90)
        judged = judge_users(QUERIES, noise, order[:1].tolist(), order[1:].tolist(), seed=seed)
        found += judged.column("p_value")
    assert stats.kstest(found, "uniform").pvalue > 0.01
    assert np.mean(np.array(found) <= 0.05) < 0.11


def single_words(scores: Sequence[float]) -> tuple[TokenQueries, np.ndarray]:
    """A word of each user, with its score."""
    users = np.arange(len(scores), dtype=np.int32)
    columns = dict.fromkeys(("users", "texts", "positions", "tokens", "previous"), users)
    return TokenQueries(**columns, names=tuple(map(str, users))), np.array(scores)


@pytest.mark.parametrize("seed", range(5))
def test_the_list_and_single_users_share_the_level(seed: int) -> None:
    scores = np.random.default_rng(seed).normal(size=43) + np.repeat([1, 0], [3, 40])
    judged = judge_users(*single_words(scores), range(3), range(3, 43))
    ordered = sorted(judged.column("p_value"))
    simes = min(3 * p / (place + 1) for place, p in enumerate(ordered))
    assert judged.test is not None
    assert judged.test.p == pytest.approx(min(1, 2 * min(judged.list_p_value, simes)))
    alone = judge_users(*single_words(scores), [0], range(3, 43))
    assert alone.test is not None
    assert [alone.test.p] == alone.column("p_value")


def test_nobody_is_flagged_unless_the_test_is_significant() -> None:
    others = np.random.default_rng(0).normal(size=40)
    judged = judge_users(*single_words([9.0, -9.0, *others]), range(2), range(2, 42))
    assert judged.column("p_value") == [1 / 41, 1.0]  # 2 / 41 is at most 0.05
    assert judged.test is not None
    assert judged.test.p > 0.05
    assert judged.column("called") == [False, False]
    alone = judge_users(*single_words([9.0, *others]), [0], range(1, 41))
    assert alone.column("called") == [True]


def test_how_much_text_a_user_gave_does_not_tell_membership() -> None:
    """Members gave four times as much text, and the model learnt nothing."""
    asked = queries_of(120)
    short = np.arange(60, 120)
    kept = asked.take(~(np.isin(asked.users, short) & (asked.texts % 8 >= 2)))
    words = words_of(kept, np.array([]), gain=0)
    few = NonMembers(fitted=tuple(range(60, 80)), compared=tuple(range(80, 120)))
    found = audited(words, range(60), few)
    assert np.mean(np.array(column(found, "p_value")) <= 0.1) < 0.2
    much = NonMembers(fitted=tuple(range(20)), compared=tuple(range(20, 60)))
    others = audited(words, short[:30].tolist(), much)
    assert np.mean(np.array(column(others, "p_value")) <= 0.1) < 0.27


def test_the_null_shows_users_who_differ_in_more_than_membership() -> None:
    shadows = shadows_of(QUERIES, 4, half_of=FITTED_ON)
    apart = np.isin(QUERIES.users, np.arange(30))
    easier = np.where(apart, np.maximum(shadows.ranks // 3, 1), shadows.ranks)
    words = words_of(QUERIES, np.array([]), gain=0)
    words = replace(words, ranks=np.where(apart, np.maximum(words.ranks // 3, 1), words.ranks))
    audits = [
        audited(replace(words, shadows=replace(shadows, ranks=ranks)), range(30))
        for ranks in (shadows.ranks, easier)
    ]
    null = np.array(column(audits[0], "p_value", "null"))
    assert np.mean(null <= 0.05) < 0.15
    assert len(null) == 4 * 30
    failed = [{c.name for c in audit.claim.checks if c.state == "failed"} for audit in audits]
    assert ["comparable" in names for names in failed] == [False, True]


def test_who_is_too_few_is_told_how_many_it_takes() -> None:
    few = replace(KNOWN, compared=KNOWN.compared[:18])
    audit = audited(words_of(QUERIES, MEMBERS, gain=2.0), [0], few)
    assert not audit.claim.test.possible
    made = audit.summary
    assert made["calibration_needed"] == 19
    assert made["known_needed"] == users_needed(0.05) == 37
    for known, compared in ((37, 19), (36, 18)):
        groups = NonMembers.drawn(range(known), seed=0)
        sizes = [len(group) for group in (groups.counted, groups.fitted, groups.compared)]
        assert sizes == [9, 9, compared]


@pytest.mark.parametrize("users", [4, 5, 7, 37, 200, 1000])
def test_groups_share_nobody_and_half_are_compared(users: int) -> None:
    groups = NonMembers.drawn(range(users), seed=1)
    assert sorted(groups.counted + groups.fitted + groups.compared) == list(range(users))
    assert len(groups.compared) == users - users // 2
    assert len(groups.fitted) == min(FITTED, (users // 2 + 1) // 2)
    assert NonMembers.drawn(range(users)[::-1], seed=1) == groups


def test_a_user_without_words_is_not_called() -> None:
    left = words_of(QUERIES, MEMBERS).take(QUERIES.users != 3)
    audit = audited(left, [2, 3])
    assert column(audit, "user") == ["user 0002", "user 0003"]
    _, last = (row for row in audit.rows if row["kind"] == "audited")
    assert (last["score"], last["p_value"], last["called"]) == (None, 1, False)


def test_the_rows_hold_what_one_user_was_compared_with() -> None:
    shadows = shadows_of(QUERIES, 4, half_of=FITTED_ON)
    words = words_of(QUERIES, MEMBERS, gain=0.05, shadows=shadows)
    audit = audited(words, [4])
    own, *others = audit.rows
    known = [row["score"] for row in others if row["kind"] == "known out"]
    assert len(known) == audit.summary["calibrated_on"]
    reached = sum(score >= own["score"] for score in known)
    assert own["p_value"] == (1 + reached) / (1 + len(known))
    assert (own["compared_with"], own["compared_words"]) == (len(known), own["words"])
    null = [row for row in others if row["kind"] == "null"]
    assert len(null) == 4
    small = np.mean([row["p_value"] <= 0.05 for row in null])
    assert audit.summary["null_below_rate"] == small
    assert {row["user"] for row in null} == {"user 0004"}
    assert all(row.keys() == own.keys() for row in others)


def test_the_same_seed_gives_the_same_audit() -> None:
    words = words_of(QUERIES, MEMBERS)
    one, other = (audited(words, [1, 2], seed=5) for _ in range(2))
    assert one == other


@pytest.mark.parametrize("words", [17, 20, 21, 55])
def test_everybody_is_cut_to_the_word_inside_the_last_text(words: int) -> None:
    whole = queries_of(3, texts=3, words=20)
    short = (whole.users == 1) & (np.arange(len(whole)) - 60 >= words)
    asked = whole.take(~short)
    word_scores = np.random.default_rng(0).normal(size=len(asked))
    [ordered] = cut_users(asked, word_scores, ([2, 0, 1],), seed=1)
    assert ordered.rungs.tolist() == [words, 60]
    assert ordered.lengths.tolist() == [60, 60, words]
    for place, user in enumerate((2, 0)):
        own = [word_scores[asked.texts == text] for text in range(3 * user, 3 * user + 3)]
        means = {round(np.concatenate(lots)[:words].mean(), 9) for lots in permutations(own)}
        assert round(ordered.scores[place, 0], 9) in means
    assert np.isnan(ordered.scores[2, 1])


def test_the_order_of_ones_texts_does_not_depend_on_who_else_is_there() -> None:
    word_scores = np.random.default_rng(0).normal(size=len(QUERIES))
    [alone] = cut_users(QUERIES, word_scores, ([7],), seed=3)
    first, second = cut_users(QUERIES, word_scores, ([2], [7]), seed=3)
    assert second.scores.tolist() == alone.scores.tolist()
    assert first.rungs.tolist() == second.rungs.tolist()


def test_many_users_are_cut_to_few_different_numbers_of_words() -> None:
    lengths = np.arange(1, 601)
    users = np.repeat(np.arange(600), lengths).astype(np.int32)
    columns = dict.fromkeys(("users", "texts", "positions", "tokens", "previous"), users)
    asked = TokenQueries(**columns, names=tuple(map(str, range(600))))
    [cut] = cut_users(asked, np.ones(len(users)), (range(600),), seed=0)
    assert cut.rungs.size <= MOST_CUTS + 1
    assert (cut.lengths - cut.rungs[cut.cut_at(cut.rungs.size)] <= 3).all()


def test_half_of_those_known_are_compared_with_or_as_many_as_a_p_value_needs() -> None:
    assert [fewest_compared(n, 0.05) for n in (10, 19, 30, 38, 39, 101)] == [10, 19, 19, 19, 20, 51]


def audit(users: list[int], half_of: np.ndarray = FITTED_ON) -> None:
    words = words_of(QUERIES, MEMBERS, shadows=shadows_of(QUERIES, 4, half_of=half_of))
    audited(words, users)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: audit([50]), "got user 50 as both"),
        (lambda: audit([]), "at least one"),
        (
            lambda: audit([0], half_of=COMPARED),
            "compared must be non-members for every reference model",
        ),
        (
            lambda: audit([0], half_of=np.arange(30)),
            "audited must be non-members for every reference model",
        ),
    ],
)
def test_what_cannot_be_asked_is_refused(call: object, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        call()  # type: ignore[operator]


def test_too_few_known_users_are_refused() -> None:
    with pytest.raises(DataError, match="4 or more are needed"):
        NonMembers.drawn([40, 41, 42], seed=0)
    words = words_of(QUERIES, MEMBERS).take(QUERIES.users != 30)
    with pytest.raises(DataError, match="0 non-members with words to fit on and 40"):
        audited(words, [0], replace(KNOWN, fitted=(30,)))


@pytest.mark.parametrize("models", [2, 3, 4])
def test_it_takes_three_models_of_ones_own_to_audit_one_in_the_targets_place(models: int) -> None:
    words = words_of(QUERIES, MEMBERS, shadows=shadows_of(QUERIES, models, half_of=FITTED_ON))
    found = audited(words, [0, 1])
    assert bool(column(found, "p_value", "null")) == (models >= FEWEST_MODELS)


def test_users_whom_every_shadow_saw_are_refused() -> None:
    shadows = shadows_of(QUERIES, 4, half_of=FITTED_ON)
    seen = shadows.seen.copy()
    seen[:, 31] = True
    with pytest.raises(DataError, match="members for every reference"):
        surprise_words(words_of(QUERIES, MEMBERS, shadows=replace(shadows, seen=seen)), FITTED_ON)


def test_a_words_typical_rank_is_the_geometric_mean_over_models_that_never_saw_its_user() -> None:
    asked = queries_of(4, texts=2, words=5)
    found = shadows_of(asked, 4, half_of=np.arange(4))  # each user is out of two of them
    typical = found.typical_ranks(asked, seed=0)
    for word, user in enumerate(asked.users):
        logs = [
            np.log(found.ranks[model, word]) for model in range(4) if not found.seen[model, user]
        ]
        assert typical[word] == pytest.approx(np.exp(np.mean(logs)))


def test_typical_ranks_come_from_as_many_models_for_everybody() -> None:
    asked = queries_of(6, texts=2, words=5)
    found = shadows_of(asked, 4, half_of=np.arange(4))  # nobody saw users 4 and 5
    typical = found.typical_ranks(asked, seed=0)
    for word in np.flatnonzero(asked.users > 3):
        pairs = combinations(np.log(found.ranks[:, word]), 2)
        assert any(typical[word] == pytest.approx(np.exp(np.mean(pair))) for pair in pairs)


def test_a_user_whom_all_references_saw_has_no_typical_ranks():
    asked = queries_of(4, texts=2, words=5)
    found = shadows_of(asked, 1, half_of=np.arange(4))
    with pytest.raises(DataError, match="members for every reference model"):
        found.typical_ranks(asked, seed=0)
