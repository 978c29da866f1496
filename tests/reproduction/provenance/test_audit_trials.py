"""A trial trains, observes and keeps; decisions, queries and noise follow their definitions."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from reproduction.papers import settings_of
from reproduction.provenance.audit_rows import (
    AuditDecisions,
    audit_row,
    decide,
)
from reproduction.provenance.audit_studies import _turns, by_queries, choose
from reproduction.provenance.audit_trials import AuditTrial, Observations
from reproduction.provenance.private_audits import (
    _frequency_ranks,
    _mean_rank,
    epsilon_of,
)
from tests.damage import damage_store
from vestige.audits.membership.ranked_words import ranks_of
from vestige.data.corpus import Corpus
from vestige.data.encoded import encode
from vestige.models.checkpoints import load_model
from vestige.store import Store
from vestige.training.shadows import train_shadow

SMOKE = settings_of("provenance", "table1", "smoke")
WHOLE = 10**9


@pytest.fixture(scope="module")
def trial(tmp_path_factory: pytest.TempPathFactory) -> AuditTrial:
    return AuditTrial(SMOKE.targets[0], tmp_path_factory.mktemp("trial"), None)


@pytest.fixture(scope="module")
def observed(trial: AuditTrial) -> Observations:
    return trial.observe()


def test_ranks_are_those_of_the_trained_target(trial: AuditTrial, observed: Observations) -> None:
    model = load_model(train_shadow(trial.target).directory / "model")
    vocabulary = trial.texts.vocabulary
    own = trial._queries(trial.texts.audited)
    ranks = ranks_of(model, encode(trial.texts.audited, vocabulary), own)[0]
    assert observed.words.ranks[: len(own)].tolist() == ranks.tolist()
    assert observed.words.queries.tokens[: len(own)].tolist() == own.tokens.tolist()


def test_a_second_observation_computes_nothing(
    trial: AuditTrial, observed: Observations, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fails(*_: object, **__: object) -> None:
        raise AssertionError("ranks were computed again")

    monkeypatch.setattr("reproduction.provenance.audit_trials.ranks_of", fails)
    again = trial.observe()
    assert again.words.ranks.tolist() == observed.words.ranks.tolist()
    assert again.words.shadows.log_probs.tolist() == observed.words.shadows.log_probs.tolist()


def test_damaged_ranks_are_computed_again(trial: AuditTrial, observed: Observations) -> None:
    path = trial.directory / "ranks.sqlite"
    assert damage_store(path) == 3 * 3  # three corpora, a target and two shadows
    assert trial.observe().words.ranks.tolist() == observed.words.ranks.tolist()
    with Store(path) as store:
        assert len(store) == 3 * 3


def test_groups_are_disjoint_and_shadows_saw_half_of_the_reference(observed: Observations) -> None:
    groups = (observed.members, observed.others, observed.shadowed, observed.known.compared)
    users = [user for group in groups for user in group]
    assert len(users) == len(set(users)) == len(observed.words.queries.names)
    seen = observed.words.shadows.seen
    assert seen[:, list(observed.shadowed)].sum(axis=1).tolist() == [12, 12]
    assert not seen[:, [*observed.audited, *observed.known.compared]].any()


def test_a_target_that_shows_k_words_tells_no_rank_beyond(observed: Observations) -> None:
    answers = observed.shown(5)
    assert answers.shown.max() == 6
    near = observed.words.ranks <= 5
    assert answers.shown[near].tolist() == observed.words.ranks[near].tolist()
    assert observed.shown(WHOLE).k == observed.words.vocab_size


def test_some_words_keep_their_ranks_and_references(observed: Observations) -> None:
    mask = np.arange(len(observed.words.queries)) % 3 == 0
    part = observed.take(mask)
    assert part.words.ranks.tolist() == observed.words.ranks[mask].tolist()
    assert part.words.shadows.ranks.tolist() == observed.words.shadows.ranks[:, mask].tolist()
    assert part.members == observed.members


def test_a_text_that_was_altered_is_observed_anew(
    trial: AuditTrial, observed: Observations
) -> None:
    def backwards(corpus: Corpus) -> Corpus:
        turned = [" ".join(reversed(text.split())) for text in corpus]
        return Corpus.from_texts(turned, users=corpus.users)

    altered = trial.observe(backwards)
    others = ~np.isin(observed.words.queries.users, observed.audited)
    assert altered.words.ranks[others].tolist() == observed.words.ranks[others].tolist()
    assert altered.words.ranks[~others].tolist() != observed.words.ranks[~others].tolist()


def test_a_row_states_accuracy_auc_and_the_share_found() -> None:
    members, others = np.array([3.0, 2.0, 1.0, 0.0]), np.array([2.5, -1.0, -2.0, -3.0])
    flagged = np.array([True, True, False, False, True, False, False, False])
    row = AuditDecisions(members=members, others=others, called=flagged).row()
    pairs = [(one > other) + 0.5 * (one == other) for one in members for other in others]
    assert row["auc"] == pytest.approx(np.mean(pairs))
    assert row["accuracy"] == pytest.approx(5 / 8)
    assert row["precision"] == pytest.approx(2 / 3)
    assert row["recall"] == pytest.approx(1 / 2)


@pytest.mark.parametrize("method", ["paper", "ours"])
def test_decisions_are_about_members_then_others(observed: Observations, method: str) -> None:
    found = decide(observed, method, k=WHOLE)  # type: ignore[arg-type]
    assert (len(found.members), len(found.others), len(found.called)) == (8, 8, 16)
    assert (found.p_values is None) == (method == "paper")
    if found.p_values is not None:
        assert found.called.tolist() == (found.p_values <= 0.05).tolist()
        assert ((found.p_values >= 1 / 15) & (found.p_values <= 1)).all()


def test_an_unknown_audit_is_refused(observed: Observations) -> None:
    with pytest.raises(ValueError, match="method must be one of"):
        decide(observed, "best", k=5)  # type: ignore[arg-type]


def test_a_row_says_what_the_target_shows(observed: Observations) -> None:
    row = audit_row(observed, "ours", k=7, dataset="grammar")
    assert (row["dataset"], row["audit"], row["k"]) == ("grammar", "ours", 7)
    outside, inside = observed.target.outside, observed.target.inside
    assert row["ratio"] == outside.perplexity / inside.perplexity


def test_queries_are_as_many_for_everybody(observed: Observations) -> None:
    texts = observed.words.queries.take(choose(observed, 4, k=WHOLE, how="random"))
    for user in range(len(texts.names)):
        assert len(np.unique(texts.texts[texts.users == user])) == 4
    words = observed.words.queries.take(choose(observed, 9, k=20, how="informative", single=True))
    assert set(words.counts().tolist()) == {9}


def test_every_selection_gives_rows_of_both_audits(observed: Observations) -> None:
    rows = list(by_queries(observed, (3, 5), k=20, how=("random", "rare"), dataset="grammar"))
    told = [(row["selection"], row["queries"], row["audit"]) for row in rows]
    assert told == [
        (how, count, method)
        for how in ("random", "rare")
        for count in (3, 5)
        for method in ("paper", "ours")
    ]


def test_noise_replaces_as_many_of_a_members_texts(
    trial: AuditTrial, observed: Observations
) -> None:
    audited = trial.texts.audited
    member = trial.texts.members[0]
    more = Corpus.from_texts(list(trial.texts.spare)[:2], users=[member] * 2)
    mixed = trial.observe(more=more)
    turns = _turns(mixed, each=12, learnt=len(audited))
    place = mixed.words.queries.names.index(member)
    assert turns.further[place] == 2
    assert turns.further.sum() == 2
    kept = mixed.words.queries.take(turns.kept(2))
    own = np.unique(kept.texts[kept.users == place])
    assert len(own) == 12
    assert (own >= len(audited)).sum() == 2
    other = mixed.words.queries.names.index(trial.texts.others[0])
    assert len(np.unique(kept.texts[kept.users == other])) == 12


@pytest.mark.slow
def test_epsilon_grows_as_noise_falls(trial: AuditTrial) -> None:
    private = SMOKE.private
    less = replace(private, defence=replace(private.defence, noise_multiplier=0.7))
    assert 0 < epsilon_of(trial, private) < epsilon_of(trial, less)


def test_words_are_ranked_by_frequency_in_the_targets_text(trial: AuditTrial) -> None:
    ranks = _frequency_ranks(trial)
    learnt, _ = trial.target.parts()
    tokens = encode(learnt, trial.texts.vocabulary).tokens
    counts = np.bincount(tokens, minlength=len(ranks))
    assert sorted(ranks.tolist()) == list(range(1, len(ranks) + 1))
    assert ranks[counts.argmax()] == 1
    by_rank = counts[np.argsort(ranks)]
    assert (np.diff(by_rank) <= 0).all()


def test_a_mean_rank_has_its_interval_over_words(observed: Observations) -> None:
    within = np.ones(len(observed.words.queries), dtype=bool)
    row = _mean_rank(observed, within, observed.members, "seen")
    own = observed.words.ranks[np.isin(observed.words.queries.users, observed.members)].astype(
        float
    )
    half = 1.96 * own.std(ddof=1) / np.sqrt(len(own))
    assert row["seen"] == pytest.approx(own.mean())
    assert row["seen_low"] == pytest.approx(own.mean() - half)
    assert row["seen_words"] == len(own)
    nobody = _mean_rank(observed, ~within, observed.members, "seen")
    assert nobody["seen"] is None


def test_shadows_of_another_domain_learn_and_are_compared_there(tmp_path: Path) -> None:
    audit = replace(SMOKE.targets[0], domain="grammar")
    trial = AuditTrial(audit, tmp_path, None)
    assert len(set(trial.reference.users or ())) == 24
    assert len(set(trial.compared.users or ())) == 14
    assert not set(trial.reference.users or ()) & set(trial.compared.users or ())
