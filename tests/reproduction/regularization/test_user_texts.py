"""Users' texts: sampled, split and planted with one seed."""

from collections import Counter
from dataclasses import replace
from pathlib import Path

import pytest

from reproduction.papers import settings_of
from reproduction.regularization.user_texts import UserText, read_users
from vestige.errors import DataError

SMOKE = settings_of("regularization", "table1", "smoke")["comparison"]


def test_every_user_has_enough_text_and_the_test_text_is_theirs() -> None:
    text = replace(SMOKE.text, users=6, fewest=10, most=40)
    read = read_users(text, None)
    whole = Counter([*(read.original.users or ()), *(read.test.users or ())])
    assert len(whole) == 6
    assert all(10 <= number <= 40 for number in whole.values())
    assert set(read.test.users or ()) <= set(read.original.users or ())
    share = len(read.test) / sum(whole.values())
    assert share == pytest.approx(text.held_out, abs=0.1)


def test_each_users_canaries_have_their_copies_in_the_text() -> None:
    read = read_users(SMOKE.text, None)
    planted = [canary for canary in read.canaries if canary.planted]
    controls = [canary for canary in read.canaries if not canary.planted]
    assert len(controls) == SMOKE.text.controls
    assert Counter(canary.copies for canary in planted) == dict.fromkeys(
        SMOKE.text.repetitions, SMOKE.text.users
    )
    lines = list(read.planted)
    for canary in read.canaries:
        assert sum(canary.phrase in line for line in lines) == canary.copies
    assert len(read.planted) == len(read.original) + sum(c.copies for c in planted)
    assert all(read.vocabulary.decode(canary.ids) == canary.phrase for canary in read.canaries)


def test_the_same_users_are_sampled_again() -> None:
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
