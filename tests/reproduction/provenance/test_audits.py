"""An audit trains, queries and caches; noise, ranks and epsilon follow their definitions."""

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
from reproduction.provenance.queries import (
    further_texts,
    numbered_texts,
    query_mask,
    with_further,
)
from reproduction.provenance.scoring import audit_row, decide
from reproduction.stages import Work
from vestige.audits.membership.ranked_words import ranks_of
from vestige.data.corpus import Corpus
from vestige.data.encoded import encode
from vestige.data.token_queries import token_queries
from vestige.models.checkpoints import load_model

TARGET = settings_of("provenance", "table1", "smoke")["targets"][0]
WHOLE = 10**9


@pytest.fixture(scope="module")
def trial(tmp_path_factory: pytest.TempPathFactory) -> AuditTrial:
    return AuditTrial(TARGET, Work(tmp_path_factory.mktemp("trial")))


@pytest.fixture(scope="module")
def observed(trial: AuditTrial) -> Observations:
    return trial.observe()


def test_ranks_are_those_of_the_trained_target(trial: AuditTrial, observed: Observations) -> None:
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


def test_groups_are_disjoint_and_shadows_saw_half_of_the_reference(observed: Observations) -> None:
    groups = (observed.members, observed.others, observed.shadowed, observed.known.compared)
    users = [user for group in groups for user in group]
    assert len(users) == len(set(users)) == len(observed.words.queries.names)
    seen = observed.words.shadows.members
    assert seen[:, list(observed.shadowed)].sum(axis=1).tolist() == [12, 12]
    assert not seen[:, [*observed.audited, *observed.known.compared]].any()


def test_a_changed_text_is_observed_again(trial, observed) -> None:
    def backwards(corpus: Corpus) -> Corpus:
        turned = [" ".join(reversed(text.split())) for text in corpus]
        return Corpus.from_texts(turned, users=corpus.users)

    altered = trial.observe(backwards)
    others = ~np.isin(observed.words.queries.users, observed.audited)
    assert altered.words.ranks[others].tolist() == observed.words.ranks[others].tolist()
    assert altered.words.ranks[~others].tolist() != observed.words.ranks[~others].tolist()


@pytest.mark.parametrize("method", ["paper", "ours"])
def test_a_row_states_the_decisions_about_members_then_others(observed, method) -> None:
    scores, flagged = decide(observed, method, k=WHOLE)
    assert (len(scores), len(flagged)) == (16, 16)
    row = audit_row(observed, method, k=7, dataset="grammar")
    assert (row["dataset"], row["audit"], row["k"]) == ("grammar", method, 7)
    assert row["ratio"] == observed.target.outside.perplexity / observed.target.inside.perplexity


def test_all_users_have_equally_many_queries(observed: Observations) -> None:
    for selection in ("random", "rare", "rare-sum"):
        texts = observed.words.queries.take(query_mask(observed, 4, k=WHOLE, selection=selection))
        for user in range(len(texts.names)):
            assert len(np.unique(texts.texts[texts.users == user])) == 4
    mask = query_mask(observed, 9, k=20, selection="informative", words=True)
    assert set(observed.words.queries.take(mask).counts().tolist()) == {9}


# Member 0 has texts 0 and 2, other 1 has texts 1 and 3; 4, 5 and 6 are further: two are 0's, the
# last is 1's. Text 2 is two words long.
TEXTS = np.array([0, 1, 2, 2, 3, 4, 5, 6])
USERS = np.array([0, 1, 0, 0, 1, 0, 0, 1])


@pytest.mark.parametrize(
    ("count", "expected"),
    [(0, [0, 1, 2, 2, 3, 6]), (1, [1, 2, 2, 3, 4, 6]), (2, [1, 3, 4, 5, 6])],
)
def test_noise_replaces_a_members_first_texts_by_further_ones(count, expected) -> None:
    queries = SimpleNamespace(texts=TEXTS, users=USERS, names=["ann", "bob"])
    observed: Any = SimpleNamespace(words=SimpleNamespace(queries=queries), members=(0,))
    texts = numbered_texts(observed, trained=4)
    assert texts.number.tolist() == [0, 0, 1, 1, 0, 1, 2]
    assert texts[texts.further].index.tolist() == [4, 5]
    assert TEXTS[with_further(texts, count)[TEXTS]].tolist() == expected


@pytest.mark.parametrize(("most", "expected"), [(0, []), (1, ["g h"]), (9, ["g h", "i j k"])])
def test_further_texts_are_members_texts_outside_the_training(
    most: int, expected: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    learnt = Corpus.from_texts(["a b", "c d", "e f"], users=["ann", "ann", "bob"])
    trial: Any = SimpleNamespace(
        audit=SimpleNamespace(text=SimpleNamespace(dataset="made", shortest=2, longest=3)),
        work=Work(Path()),
        texts=SimpleNamespace(members=("ann",), audited=learnt),
    )
    texts = ["a b", "g", "g h", "x y", "c d", "i j k", "l m n o"]
    users = ["ann", "ann", "ann", "bob", "ann", "ann", "ann"]
    whole = Corpus.from_texts(texts, users=users)
    monkeypatch.setattr(query_module, "read_users_texts", lambda *_: whole)
    result = further_texts(trial, most=most)
    assert list(result) == expected
    assert result.users == ["ann"] * len(expected)


def test_words_are_ranked_by_frequency_in_the_targets_text(trial: AuditTrial) -> None:
    ranks = frequency_ranks(trial)
    learnt, _ = trial.target_job.parts()
    counts = np.bincount(encode(learnt, trial.texts.vocabulary).tokens, minlength=len(ranks))
    assert sorted(ranks.tolist()) == list(range(1, len(ranks) + 1))
    assert ranks[counts.argmax()] == 1
    assert (np.diff(counts[np.argsort(ranks)]) <= 0).all()


def test_a_mean_rank_is_of_these_users_words_with_its_interval() -> None:
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


def test_shadows_of_another_domain_learn_and_are_compared_there(tmp_path: Path) -> None:
    trial = AuditTrial(replace(TARGET, domain="grammar"), Work(tmp_path))
    reference, compared = (set(corpus.users or ()) for corpus in trial.non_members)
    assert (len(reference), len(compared)) == (24, 14)
    assert not reference & compared


def test_shadows_of_other_shapes_are_trained_in_the_other_way() -> None:
    (audit,) = settings_of("provenance", "table2", "smoke")["others"]
    plain = replace(audit, other_epochs=None)
    assert audit.target_plan == plain.target_plan
    assert plain.shadow_plan == replace(plain.target_plan, seed=1, count=audit.shadows)
    assert audit.shadow_plan.training == replace(
        plain.shadow_plan.training, epochs=1, optimizer="sgd", learning_rate=0.1, momentum=0.9
    )
    assert set(audit.shadow_plan.models).isdisjoint(plain.shadow_plan.models)
