"""Texts of users are sampled, split and planted with one seed."""

from collections import Counter
from dataclasses import replace
from pathlib import Path

import pytest

from reproduction.papers import settings_of
from reproduction.regularization.user_texts import UserText, read_users
from vestige.errors import DataError

SMOKE = settings_of("regularization", "table1", "smoke")["comparison"]


def test_every_user_has_enough_text_and_the_test_text_has_the_same_users() -> None:
    text = replace(SMOKE.text, users=6, fewest=10, most=40)
    users = read_users(text, None)
    counts = Counter([*(users.original.users or ()), *(users.test.users or ())])
    assert len(counts) == 6
    assert all(10 <= number <= 40 for number in counts.values())
    assert set(users.test.users or ()) <= set(users.original.users or ())
    share = len(users.test) / sum(counts.values())
    assert share == pytest.approx(text.held_out, abs=0.1)


def test_each_users_canaries_have_their_copies_in_the_text() -> None:
    users = read_users(SMOKE.text, None)
    planted = [canary for canary in users.canaries if canary.planted]
    controls = [canary for canary in users.canaries if not canary.planted]
    assert len(controls) == SMOKE.text.controls
    copies = Counter(canary.copies for canary in planted)
    assert copies == dict.fromkeys(SMOKE.text.repetitions, SMOKE.text.users)
    lines = list(users.planted)
    for canary in users.canaries:
        assert sum(canary.phrase in line for line in lines) == canary.copies
    assert len(users.planted) == len(users.original) + sum(c.copies for c in planted)
    assert all(users.vocabulary.decode(canary.ids) == canary.phrase for canary in users.canaries)


def test_a_seed_samples_the_same_users() -> None:
    first, second = read_users(SMOKE.text, None), read_users(SMOKE.text, None)
    assert first.planted.fingerprint() == second.planted.fingerprint()
    assert first.canaries == second.canaries


def test_too_few_users_or_no_corpus_are_refused(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="users have 5 to 60 documents where 99 are wanted"):
        read_users(replace(SMOKE.text, users=99), None)
    reddit = UserText(dataset="reddit", users=2, fewest=1, most=5)
    with pytest.raises(DataError, match="needs a folder of corpora"):
        read_users(reddit, None)
    with pytest.raises((DataError, OSError), match="reddit_college"):
        read_users(reddit, tmp_path)
