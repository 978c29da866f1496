"""The audit of a private model: how its epsilon grows, ranks and means by hand."""

from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from reproduction.papers import settings_of
from reproduction.provenance import private_audits
from reproduction.provenance.audited_texts import vocabulary_of
from reproduction.provenance.private_audits import (
    _digest,
    _frequency_ranks,
    _mean_rank,
    epsilon_of,
    private_rows,
)
from vestige.data.corpus import Corpus

PRIVATE = settings_of("provenance", "private", "small").private


def trial_of(users: int) -> Any:
    return SimpleNamespace(target=SimpleNamespace(members=tuple(map(str, range(users)))))


@pytest.mark.slow
def test_more_rounds_cost_more_privacy() -> None:
    training = replace(PRIVATE.training, epochs=2 * PRIVATE.training.epochs)
    longer = replace(PRIVATE, training=training)
    assert epsilon_of(trial_of(500), PRIVATE) < epsilon_of(trial_of(500), longer)


@pytest.mark.slow
def test_a_looser_delta_costs_less_privacy() -> None:
    loose = replace(PRIVATE, delta=1e-2)
    assert epsilon_of(trial_of(500), loose) < epsilon_of(trial_of(500), PRIVATE)


def test_epsilon_does_not_depend_on_the_norm_that_is_cut_to() -> None:
    wide = replace(PRIVATE, defence=replace(PRIVATE.defence, max_grad_norm=10.0))
    assert epsilon_of(trial_of(500), wide) == epsilon_of(trial_of(500), PRIVATE)


def test_ranks_by_frequency_put_the_commonest_word_first() -> None:
    learnt = Corpus.from_texts(["b b b a", "a b c"])
    vocabulary = vocabulary_of(learnt, 20)
    trial: Any = SimpleNamespace(
        target=SimpleNamespace(parts=lambda: (learnt, None)),
        texts=SimpleNamespace(vocabulary=vocabulary),
    )
    ranks = dict(zip(vocabulary.words, _frequency_ranks(trial).tolist(), strict=True))
    assert (ranks["b"], ranks["c"] > ranks["a"]) == (1, True)
    assert sorted(ranks.values()) == list(range(1, len(vocabulary) + 1))


def test_a_mean_rank_is_of_these_users_words_alone() -> None:
    observed: Any = SimpleNamespace(
        words=SimpleNamespace(
            ranks=np.array([1, 9, 3, 100]), queries=SimpleNamespace(users=np.array([0, 1, 0, 0]))
        )
    )
    within = np.array([True, True, True, False])
    row = _mean_rank(observed, within, (0,), "seen")
    assert (row["seen"], row["seen_words"]) == (2.0, 2)
    assert row["seen_high"] == pytest.approx(2 + 1.96 * np.std([1, 3], ddof=1) / np.sqrt(2))
    alone = _mean_rank(observed, within, (1,), "seen")
    assert (alone["seen"], alone["seen_low"], alone["seen_words"]) == (None, None, 1)


def test_what_decides_a_training_names_its_folder_whatever_the_order() -> None:
    assert _digest({"a": 1, "b": 2}) == _digest({"b": 2, "a": 1})
    assert _digest({"a": 1, "b": 2}) != _digest({"a": 1, "b": 3})


def test_the_plain_target_stands_first_and_without_a_guarantee(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def observe(*, target: Any) -> Any:
        score = SimpleNamespace(accuracy=0.1 if target else 0.3, perplexity=50.0)
        return SimpleNamespace(target=SimpleNamespace(inside=score, outside=score))

    monkeypatch.setattr(private_audits, "private_target", lambda *_: "private")
    monkeypatch.setattr(private_audits, "epsilon_of", lambda *_: 4.0)
    monkeypatch.setattr(
        private_audits, "audit_row", lambda _, method, *, k: {"audit": method, "k": k}
    )
    trial: Any = SimpleNamespace(observe=observe)
    rows = list(private_rows(trial, PRIVATE, k=(9, 5), dataset="made"))
    told = [(row["epsilon"], row["delta"], row["accuracy_in"]) for row in rows]
    assert told == [(None, None, 0.3)] * 4 + [(4.0, 1e-4, 0.1)] * 4
    assert [(row["k"], row["audit"]) for row in rows[:4]] == [
        (k, method) for k in (9, 5) for method in ("paper", "ours")
    ]
