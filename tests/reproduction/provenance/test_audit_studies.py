"""Noise: turns of texts numbered naively, and further texts that the target did not learn."""

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from reproduction.provenance import audit_studies
from reproduction.provenance.audit_studies import _further, _turns, by_obfuscation
from vestige.data.corpus import Corpus

# Member 0 has texts 0 and 2, other 1 has texts 1 and 3; 4, 5 and 6 are further: two are 0's, the
# last is 1's. Text 2 is two words long.
TEXTS = np.array([0, 1, 2, 2, 3, 4, 5, 6])
USERS = np.array([0, 1, 0, 0, 1, 0, 0, 1])


@pytest.fixture
def turns() -> Any:
    asked = SimpleNamespace(texts=TEXTS, users=USERS, names=["ann", "bob"])
    observed: Any = SimpleNamespace(words=SimpleNamespace(queries=asked), members=(0,))
    return _turns(observed, each=2, learnt=4)


def test_words_of_a_text_share_its_turn(turns: Any) -> None:
    assert turns.turn.tolist() == [0, 0, 1, 1, 1, 2, 3, 2]


def test_only_members_have_further_texts(turns: Any) -> None:
    assert turns.further.tolist() == [2, 0]


def test_without_noise_the_learnt_texts_count(turns: Any) -> None:
    assert TEXTS[turns.kept(0)].tolist() == [0, 1, 2, 2, 3]


def test_noise_drops_a_members_first_texts_for_further_ones(turns: Any) -> None:
    assert TEXTS[turns.kept(1)].tolist() == [1, 2, 2, 3, 4]


@pytest.mark.parametrize("count", [0, 1, 2])
def test_everybody_keeps_as_many_texts_under_any_noise(turns: Any, count: int) -> None:
    kept = turns.kept(count)
    for user in (0, 1):
        assert len(np.unique(TEXTS[kept & (user == USERS)])) == 2


def test_noise_leaves_others_alone(turns: Any) -> None:
    own = USERS == 1
    assert turns.kept(0)[own].tolist() == turns.kept(2)[own].tolist()


def made_trial() -> Any:
    learnt = Corpus.from_texts(["a b", "c d", "e f"], users=["ann", "ann", "bob"])
    text = SimpleNamespace(dataset="made", shortest=2, longest=3)
    return SimpleNamespace(
        audit=SimpleNamespace(text=text),
        data=None,
        texts=SimpleNamespace(members=("ann",), audited=learnt),
    )


@pytest.mark.parametrize(("most", "expected"), [(0, []), (1, ["g h"]), (9, ["g h", "i j k"])])
def test_further_texts_are_members_own_of_the_right_length_and_not_learnt(
    most: int, expected: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    texts = ["a b", "g", "g h", "x y", "c d", "i j k", "l m n o"]
    users = ["ann", "ann", "ann", "bob", "ann", "ann", "ann"]
    whole = Corpus.from_texts(texts, users=users)
    monkeypatch.setattr(audit_studies, "read_users_texts", lambda *_: whole)
    found = _further(made_trial(), most=most)
    assert list(found) == expected
    assert found.users == ["ann"] * len(expected)


def test_every_obfuscation_is_observed_once_for_both_audits(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    seen = []

    def observe(change: Any) -> Any:
        seen.append(change(1))
        return seen[-1]

    monkeypatch.setattr(
        audit_studies,
        "audit_row",
        lambda observed, method, *, k, **labels: {"got": observed, "audit": method, **labels},
    )
    trial: Any = SimpleNamespace(observe=observe)
    ways: Any = {"none": lambda value: value, "tenfold": lambda value: 10 * value}
    rows = list(by_obfuscation(trial, ways, k=5, dataset="made"))
    assert seen == [1, 10]
    assert [(row["got"], row["audit"], row["obfuscation"]) for row in rows] == [
        (1, "paper", "none"),
        (1, "ours", "none"),
        (10, "paper", "tenfold"),
        (10, "ours", "tenfold"),
    ]
