"""Plans of the audit's tables: sizes counted by hand, and what p-values of them can reach."""

import pytest

from reproduction.provenance.audit_plans import (
    crowd,
    named,
    other_shapes_of,
    private_training,
)
from reproduction.provenance.audited_texts import AuditedText
from reproduction.provenance.paper_tables import FULL, SMALL

SCALES = pytest.mark.parametrize("scale", [SMALL, FULL], ids=["small", "full"])
MADE = AuditedText(dataset="grammar", members=8, others=7, reference=24, compared=19, each=12)


@pytest.mark.parametrize(("users", "drawn"), [(500, 20), (1500, 60), (25, 1), (8, 1)])
def test_a_round_draws_a_twenty_fifth_of_the_users_and_one_at_least(users: int, drawn: int) -> None:
    assert private_training(1.0, 0.3, users=users, rounds=300).training.batch_size == drawn


@pytest.mark.parametrize("users", [500, 1500])
def test_private_training_has_the_papers_300_rounds(users: int) -> None:
    training = private_training(1.0, 0.3, users=users, rounds=300).training
    rounds_an_epoch = users // training.batch_size
    assert rounds_an_epoch * training.batch_size == users
    assert training.epochs * rounds_an_epoch == 300


def test_few_rounds_are_an_epoch_at_least() -> None:
    assert private_training(1.0, 0.3, users=500, rounds=3).training.epochs == 1


def test_noise_and_norm_of_a_private_training_are_the_defences() -> None:
    private = private_training(1.5, 0.2, users=100, rounds=50)
    assert (private.defence.noise_multiplier, private.defence.max_grad_norm) == (1.5, 0.2)
    assert private.training.max_grad_norm is None
    assert private.training.batching == "poisson-users"


def test_a_setting_is_keyed_by_its_corpus_and_not_by_its_name() -> None:
    setting = named("reddit, early", MADE, 4)
    assert (setting.name, setting.dataset) == ("reddit, early", "grammar")


def test_a_setting_learns_for_the_given_epochs_and_keeps_the_last() -> None:
    setting = named("made", MADE, 7, shadows=3, domain="wikitext2").setting
    assert (setting.training.epochs, setting.training.keep) == (7, "last")
    assert (setting.shadows, setting.domain, setting.other) == (3, "wikitext2", None)


def test_shadows_of_other_shapes_leave_the_target_as_it_was() -> None:
    given = named("made", MADE, 7, shadows=3)
    changed = other_shapes_of(given, shadows=5, epochs=2, rate=0.1)
    learning = changed.setting.other
    assert learning is not None
    assert (learning.optimizer, learning.momentum) == ("sgd", 0.9)
    assert (learning.epochs, learning.learning_rate) == (2, 0.1)
    assert (changed.setting.model, changed.setting.training) == (
        given.setting.model,
        given.setting.training,
    )
    assert (changed.setting.shadows, given.setting.shadows) == (5, 3)


def test_a_crowd_has_twenty_comments_of_each_member() -> None:
    made = crowd(300, others=200, reference=80, compared=199, epochs=6, shadows=2)
    text = made.setting.text
    assert (made.name, made.dataset) == ("300 users", "reddit")
    assert (text.members, text.others, text.reference, text.compared) == (300, 200, 80, 199)
    assert text.each == 20


@SCALES
def test_p_values_of_one_and_five_percent_can_be_had_exactly(scale) -> None:
    settings = (*scale.targets, *scale.crossed, *scale.others, *scale.crowds)
    for compared in {one.setting.text.compared for one in settings}:
        assert (compared + 1) % 100 == 0


@SCALES
def test_crowds_differ_in_their_members_alone(scale) -> None:
    texts = [one.setting.text for one in scale.crowds]
    assert len({text.members for text in texts}) == len(texts)
    assert len({(text.others, text.reference, text.compared, text.each) for text in texts}) == 1


@SCALES
def test_the_private_training_is_planned_for_the_last_crowd(scale) -> None:
    users = scale.crowds[-1].setting.text.members
    assert scale.private.training.batch_size / users == 0.04


@SCALES
def test_only_crossed_settings_have_shadows_of_another_domain(scale) -> None:
    assert [one.setting.domain for one in scale.crossed] == ["wikitext2", "ubuntu-irc"]
    assert {one.setting.domain for one in (*scale.targets, *scale.crowds)} == {None}


@SCALES
def test_every_crossed_setting_has_a_target_of_the_same_domain_beside_it(scale) -> None:
    same = {(one.name, one.setting.text, one.setting.training) for one in scale.targets}
    for one in scale.crossed:
        assert (one.name, one.setting.text, one.setting.training) in same


@SCALES
def test_queries_are_asked_of_users_who_have_as_many_texts(scale) -> None:
    assert max(scale.queries) <= scale.targets[0].setting.text.each
    assert all(0 < share < 1 for share in scale.noise)


def test_nulls_are_three_corpora_with_shadows_and_three_without() -> None:
    for scale, repetitions in ((SMALL, (8, 16)), (FULL, (40, 40))):
        told = [(one.dataset, one.shadows, one.repetitions) for one in scale.null]
        assert told == [
            (dataset, shadows, number)
            for shadows, number in zip((4, 0), repetitions, strict=True)
            for dataset in ("reddit", "sated", "cornell")
        ]
