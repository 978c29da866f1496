"""An audit trains models, queries them and caches ranks; noise and ranks follow definitions."""

from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from reproduction.papers import settings_of
from reproduction.provenance import audits
from reproduction.provenance import queries as query_module
from reproduction.provenance.audits import AuditTrial, Observations
from reproduction.provenance.private import _mean_rank, frequency_ranks
from reproduction.provenance.queries import further_texts, numbered_texts, query_mask, with_further
from reproduction.provenance.scoring import audit_row, decide
from reproduction.stages import Work
from vestige.audits.membership.ranked_words import ranks_of
from vestige.data.corpus import Corpus
from vestige.data.encoded import encode
from vestige.data.token_queries import token_queries
from vestige.models.checkpoints import load_model

TARGET = settings_of("provenance", "table1", "smoke")["targets"][0]
ALL_WORDS = 10**9


@pytest.fixture(scope="module")
def trial(tmp_path_factory: pytest.TempPathFactory) -> AuditTrial:
    return AuditTrial(TARGET, Work(tmp_path_factory.mktemp("trial")))


@pytest.fixture(scope="module")
def observed(trial: AuditTrial) -> Observations:
    return trial.observe()


def test_ranks_come_from_the_trained_target(trial, observed) -> None:
    vocabulary = trial.texts.vocabulary
    texts = encode(trial.texts.audited, vocabulary)
    queries = token_queries(texts, vocabulary)
    ranks = ranks_of(load_model(trial.target.directory / "model"), texts, queries)[0]
    assert observed.words.ranks[: len(queries)].tolist() == ranks.tolist()
    assert observed.words.queries.tokens[: len(queries)].tolist() == queries.tokens.tolist()


def test_a_second_observation_computes_nothing(trial, observed, monkeypatch) -> None:
    def fails(*_: object, **__: object) -> None:
        raise AssertionError("ranks were computed again")

    monkeypatch.setattr(audits, "ranks_of", fails)
    again = trial.observe()
    assert again.words.ranks.tolist() == observed.words.ranks.tolist()
    assert again.words.shadows.log_probs.tolist() == observed.words.shadows.log_probs.tolist()


def test_groups_are_disjoint_and_shadows_read_half_of_the_reference(observed) -> None:
    groups = (observed.members, observed.others, observed.shadowed, observed.known.compared)
    users = [user for group in groups for user in group]
    assert len(users) == len(set(users)) == len(observed.words.queries.names)
    members = observed.words.shadows.members
    assert members[:, list(observed.shadowed)].sum(axis=1).tolist() == [12, 12]
    assert not members[:, [*observed.audited, *observed.known.compared]].any()


def test_a_changed_text_is_observed_again(trial, observed) -> None:
    def reverse(corpus: Corpus) -> Corpus:
        texts = [" ".join(reversed(text.split())) for text in corpus]
        return Corpus.from_texts(texts, users=corpus.users)

    ranks, changed = observed.words.ranks, trial.observe(reverse).words.ranks
    others = ~np.isin(observed.words.queries.users, observed.audited)
    assert changed[others].tolist() == ranks[others].tolist()
    assert changed[~others].tolist() != ranks[~others].tolist()


@pytest.mark.parametrize("method", ["paper", "ours"])
def test_a_row_has_decisions_about_members_then_others(observed, method) -> None:
    scores, flagged = decide(observed, method, k=ALL_WORDS)
    assert (len(scores), len(flagged)) == (16, 16)
    row = audit_row(observed, method, k=7, dataset="grammar")
    assert (row["dataset"], row["audit"], row["k"]) == ("grammar", method, 7)
    assert row["ratio"] == observed.target.outside.perplexity / observed.target.inside.perplexity


def test_all_users_have_the_same_number_of_queries(observed: Observations) -> None:
    for selection in ("random", "rare", "rare-sum"):
        texts = observed.words.queries.take(
            query_mask(observed, 4, k=ALL_WORDS, selection=selection)
        )
        for user in range(len(texts.names)):
            assert len(np.unique(texts.texts[texts.users == user])) == 4
    mask = query_mask(observed, 9, k=20, selection="informative", words=True)
    assert set(observed.words.queries.take(mask).counts().tolist()) == {9}


# Texts 0 and 2 are of member 0, texts 1 and 3 of user 1; of the further texts, 4 and 5 are of
# member 0 and 6 of user 1. Text 2 has two words.
TEXTS = np.array([0, 1, 2, 2, 3, 4, 5, 6])
USERS = np.array([0, 1, 0, 0, 1, 0, 0, 1])


@pytest.mark.parametrize(
    ("count", "expected"), [(0, [0, 1, 2, 2, 3, 6]), (1, [1, 2, 2, 3, 4, 6]), (2, [1, 3, 4, 5, 6])]
)
def test_noise_replaces_a_members_first_texts_by_further_ones(count, expected) -> None:
    queries = SimpleNamespace(texts=TEXTS, users=USERS, names=["ann", "bob"])
    observed: Any = SimpleNamespace(words=SimpleNamespace(queries=queries), members=(0,))
    texts = numbered_texts(observed, trained=4)
    assert texts.number.tolist() == [0, 0, 1, 1, 0, 1, 2]
    assert texts[texts.further].index.tolist() == [4, 5]
    assert TEXTS[with_further(texts, count)[TEXTS]].tolist() == expected


@pytest.mark.parametrize(("most", "expected"), [(0, []), (1, ["g h"]), (9, ["g h", "i j k"])])
def test_further_texts_are_untrained_texts_of_members(most, expected, monkeypatch) -> None:
    training = Corpus.from_texts(["a b", "c d", "e f"], users=["ann", "ann", "bob"])
    trial: Any = SimpleNamespace(
        audit=SimpleNamespace(text=SimpleNamespace(dataset="made", shortest=2, longest=3)),
        work=Work(Path()),
        texts=SimpleNamespace(members=("ann",), audited=training),
    )
    texts = ["a b", "g", "g h", "x y", "c d", "i j k", "l m n o"]
    users = ["ann", "ann", "ann", "bob", "ann", "ann", "ann"]
    corpus = Corpus.from_texts(texts, users=users)
    monkeypatch.setattr(query_module, "read_users_texts", lambda *_: corpus)
    result = further_texts(trial, most=most)
    assert list(result) == expected
    assert result.users == ["ann"] * len(expected)


def test_words_are_ranked_by_frequency_in_the_targets_text(trial: AuditTrial) -> None:
    ranks = frequency_ranks(trial)
    training, _ = trial.target_job.parts()
    counts = np.bincount(encode(training, trial.texts.vocabulary).tokens, minlength=len(ranks))
    assert sorted(ranks.tolist()) == list(range(1, len(ranks) + 1))
    assert ranks[counts.argmax()] == 1
    assert (np.diff(counts[np.argsort(ranks)]) <= 0).all()


def test_a_mean_rank_has_an_interval() -> None:
    words = SimpleNamespace(
        ranks=np.array([1, 9, 3, 100]), queries=SimpleNamespace(users=np.array([0, 1, 0, 0]))
    )
    observed: Any = SimpleNamespace(words=words)
    within = np.array([True, True, True, False])
    row = _mean_rank(observed, within, (0,), "seen")
    assert (row["seen"], row["seen_words"]) == (2.0, 2)
    assert row["seen_high"] == pytest.approx(2 + 1.96 * np.std([1, 3], ddof=1) / np.sqrt(2))
    alone = _mean_rank(observed, within, (1,), "seen")
    assert (alone["seen"], alone["seen_low"], alone["seen_words"]) == (None, None, 1)


def test_shadows_of_another_domain_have_texts_and_users_of_it(tmp_path: Path) -> None:
    trial = AuditTrial(replace(TARGET, domain="grammar"), Work(tmp_path))
    reference, compared = (set(corpus.users or ()) for corpus in trial.non_members)
    assert (len(reference), len(compared)) == (24, 14)
    assert not reference & compared


def test_shadows_may_differ_from_the_target_in_model_and_training() -> None:
    (audit,) = settings_of("provenance", "table2", "smoke")["others"]
    plain = replace(audit, other_epochs=None)
    assert audit.target_plan == plain.target_plan
    assert plain.shadow_plan == replace(plain.target_plan, seed=1, count=audit.shadows)
    assert audit.shadow_plan.training == replace(
        plain.shadow_plan.training, epochs=1, optimizer="sgd", learning_rate=0.1, momentum=0.9
    )
    assert set(audit.shadow_plan.models).isdisjoint(plain.shadow_plan.models)
