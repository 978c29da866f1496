"""Shadow models teach which ranks speak for having been seen, and nothing about who is compared."""

from dataclasses import replace

import numpy as np

from tests.attacks.made_users import answers_of, asked_of, counts_of, references_of
from vestige.attacks.membership.expected_rank import WordCounts
from vestige.attacks.membership.membership_log_odds import MembershipLogOdds
from vestige.attacks.membership.membership_scores import score_words, surprise_words
from vestige.metrics.estimates import auc

ASKED = asked_of(90)
MEMBERS, OTHERS = np.arange(15), np.arange(15, 30)
FITTED, COMPARED = np.arange(30, 60), np.arange(60, 90)
COUNTS: WordCounts = counts_of()
REFERENCES = references_of(ASKED, 6, half_of=FITTED)


def test_members_stand_above_others_and_these_around_zero() -> None:
    areas, means = [], []
    for seed in range(3):
        answers = answers_of(ASKED, MEMBERS, gain=0.15, k=20, seed=seed)
        word_scores = score_words(answers, COUNTS, FITTED, references=REFERENCES)
        scores = ASKED.mean_by_user(word_scores)
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
            answers = answers_of(ASKED, MEMBERS, gain=0.15, k=3, seed=seed)
            scores = ASKED.mean_by_user(how(answers, COUNTS, FITTED, references=REFERENCES))
            areas.append(auc(scores[MEMBERS], scores[OTHERS]).value)
        found[how.__name__] = np.mean(areas)
    assert found["score_words"] > found["surprise_words"] - 0.02


def test_too_few_references_teach_nothing_and_surprise_stands_in() -> None:
    one = references_of(ASKED, 2, half_of=FITTED)
    assert MembershipLogOdds.fit(ASKED, COUNTS, one, FITTED, k=20) is None
    answers = answers_of(ASKED, MEMBERS, k=20)
    given = score_words(answers, COUNTS, FITTED, references=one)
    wanted = surprise_words(answers, COUNTS, FITTED, references=one)
    np.testing.assert_array_equal(given, wanted)


def test_references_that_saw_nobody_of_the_fitted_teach_nothing() -> None:
    blind = replace(REFERENCES, seen=np.zeros_like(REFERENCES.seen))
    assert MembershipLogOdds.fit(ASKED, COUNTS, blind, FITTED, k=20) is None


def test_nothing_is_learnt_from_users_who_are_compared() -> None:
    answers = answers_of(ASKED, MEMBERS, k=20)
    compared = np.isin(ASKED.users, COMPARED)
    ranks = np.where(compared, REFERENCES.ranks[:, ::-1], REFERENCES.ranks)
    changed = replace(REFERENCES, ranks=ranks)
    mine = score_words(answers, COUNTS, FITTED, references=REFERENCES)
    theirs = score_words(answers, COUNTS, FITTED, references=changed)
    np.testing.assert_array_equal(mine[~compared], theirs[~compared])


def test_the_same_seed_gives_the_same_evidence() -> None:
    answers = answers_of(ASKED, MEMBERS, k=20)
    first, second = (
        score_words(answers, COUNTS, FITTED, references=REFERENCES, seed=3) for _ in range(2)
    )
    np.testing.assert_array_equal(first, second)
