"""What the tables of updates train, from which seed and on what, counted by hand."""

from dataclasses import replace
from pathlib import Path

import pytest

from reproduction.papers import paper_numbers, settings_of, tables_of
from reproduction.updates import canary_tables
from reproduction.updates.added_text import addition_plan, persistence_plan
from reproduction.updates.canary_tables import (
    copies_plan,
    extension_plan,
    planted_text,
    profile_plan,
)
from reproduction.updates.private_updates import batches_of, private_plan
from reproduction.updates.settings import Snapshot, prepare
from reproduction.updates.subwords import subword_plan
from vestige.data.canaries.texts import Canary

TABLE1, TABLE2, TABLES34, TABLE5, SUBWORDS, RQ5 = (
    settings_of("updates", name, "smoke")
    for name in ("table1", "table2", "tables3-4", "table5", "subwords", "rq5")
)


def seeds(trials) -> dict[str, int]:
    return {f"{t.directory.parent.name}/{t.directory.name}": t.config.seed for t in trials}


@pytest.fixture
def copies():
    return TABLE1


def test_table1_has_a_model_for_each_number_of_copies(tmp_path: Path, copies) -> None:
    plan = copies_plan(copies, tmp_path, None)
    assert seeds(plan.trials) == {
        "grammar-rnn/copies-0": 0,
        "grammar-rnn/copies-5": 105,
        "grammar-rnn/copies-20": 120,
    }
    assert {trial.start for trial in plan.trials} == {copies.setting.shape}


def test_a_second_training_has_seeds_and_places_of_its_own(tmp_path: Path, copies) -> None:
    twice = replace(copies, copies=(5,), trainings=2)
    plan = copies_plan(twice, tmp_path, None)
    named = {trial.directory.name: trial for trial in plan.trials}
    assert {name: one.config.seed for name, one in named.items()} == {
        "copies-0": 0,
        "copies-5": 105,
        "copies-0-again-1": 1000,
        "copies-5-again-1": 1105,
    }
    first, second = named["copies-5"].corpus, named["copies-5-again-1"].corpus
    assert list(first) != list(second)
    assert sorted(first) == sorted(second)


@pytest.mark.slow
def test_the_figure_shares_the_first_trainings_of_the_table(tmp_path: Path, copies) -> None:
    twice = replace(copies, trainings=2)
    figure = profile_plan(twice, tmp_path, None).trials
    table = copies_plan(twice, tmp_path, None).trials
    assert {trial.key for trial in figure} < {trial.key for trial in table}


def test_so_many_copies_of_each_canary_stand_in_the_text(tmp_path: Path, copies) -> None:
    material = prepare(copies.setting, tmp_path, None)
    text, canaries = planted_text(copies, material, 7, seed=1)
    lines = list(text)
    for canary in canaries:
        assert sum(canary.phrase in line for line in lines) == canary.copies
        assert canary.copies in (0, 7)
        assert material.vocabulary.decode(canary.ids) == canary.phrase
    assert {canary.pattern for canary in canaries if canary.planted} == set(PATTERNS)


PATTERNS = ("all-low", "low-to-high", "mixed", "high-to-low")


def test_table2_trains_each_kind_of_update_from_where_it_begins(tmp_path: Path) -> None:
    plan = extension_plan(TABLE2, tmp_path, None)
    named: dict[str, Snapshot] = {trial.directory.name: trial for trial in plan.trials}
    assert {name: one.config.seed for name, one in named.items()} == {
        "original": 0,
        "retrained-0": 100,
        "retrained-50": 150,
        "continued-50": 350,
        "two-stage-50": 550,
    }
    fresh = TABLE2.setting.shape
    assert named["original"].start == named["retrained-50"].start == fresh
    assert named["continued-50"].start == named["original"]
    assert named["two-stage-50"].start == named["continued-50"]
    assert [one.directory.name for one in named["two-stage-50"].needed] == ["continued-50"]
    original = set(named["original"].corpus)
    assert original <= set(named["retrained-50"].corpus)
    canaries = [phrase for phrase in named["continued-50"].corpus if phrase not in original]
    assert canaries
    assert not set(named["two-stage-50"].corpus) & set(named["continued-50"].corpus)


@pytest.mark.slow
def test_tables34_train_a_null_beside_every_update(tmp_path: Path) -> None:
    plan = addition_plan(TABLES34, tmp_path, None)
    found = seeds(plan.trials)
    assert found == {
        f"{setting}/{name}": seed
        for setting in ("grammar-rnn", "grammar-transformer")
        for name, seed in (("original", 0), ("original-again", 1), ("with-grammar-topic", 100))
    }
    before, again, after = plan.trials[:3]
    assert before.corpus == again.corpus
    assert len(after.corpus) > len(before.corpus)
    assert after.vocabulary == before.vocabulary


@pytest.mark.slow
def test_table5_adds_the_text_to_every_update(tmp_path: Path) -> None:
    plan = persistence_plan(TABLE5, tmp_path, None)
    named = {trial.directory.name: trial for trial in plan.trials}
    assert {name: one.config.seed for name, one in named.items()} == {
        "original": 0,
        "retrained-0": 100,
        "continued-0": 300,
    }
    added = set(named["continued-0"].corpus)
    assert added <= set(named["retrained-0"].corpus)
    assert not added & set(named["original"].corpus)


@pytest.mark.slow
def test_subword_models_of_a_repetition_begin_with_its_own_snapshot(tmp_path: Path) -> None:
    plan = subword_plan(SUBWORDS, tmp_path, None)
    named = {trial.directory.name: trial for trial in plan.trials}
    assert set(named) == {f"{kind}-{n}" for kind in ("before", "after", "lora") for n in (0, 1)}
    for n in (0, 1):
        assert named[f"before-{n}"].config.seed == n
        for kind in ("after", "lora"):
            assert [one.key for one in named[f"{kind}-{n}"].needed] == [named[f"before-{n}"].key]
            assert named[f"{kind}-{n}"].config.seed == 100 + n
        adapter = named[f"lora-{n}"].start
        assert (adapter.rank, adapter.seed) == (SUBWORDS.lora_rank, n)
    assert named["before-0"].corpus == named["before-1"].corpus
    assert named["after-0"].corpus != named["after-1"].corpus


@pytest.mark.slow
def test_private_trainings_take_the_noise_that_their_own_text_needs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = []
    monkeypatch.setattr(
        "reproduction.updates.private_updates.noise_for",
        lambda **needed: asked.append(needed) or 5.0 * len(asked),
    )
    update = replace(RQ5, epsilons=(3.0,))
    plan = private_plan(update, tmp_path, None)
    named = {trial.directory.name: trial for trial in plan.trials}
    assert set(named) == {f"{kind}copies-{k}" for kind in ("", "private-3-") for k in (0, 20)}
    material = prepare(update.trial.setting, tmp_path, None)
    for place, copies in enumerate((0, 20)):
        plain, private = named[f"copies-{copies}"], named[f"private-3-copies-{copies}"]
        assert plain.config.seed == private.config.seed == (100 + copies if copies else 0)
        assert plain.corpus == private.corpus
        assert private.config == replace(update.private, seed=plain.config.seed)
        assert private.defence.max_grad_norm == update.max_grad_norm
        assert private.defence.noise_multiplier == 5.0 * (place + 1)
        batches = batches_of(update, material, private.corpus)
        assert asked[place] == {
            "epsilon": 3.0,
            "delta": update.delta,
            "sample_rate": batches.sample_rate,
            "steps": update.private.epochs * len(batches),
        }


@pytest.mark.parametrize(
    ("row", "shown"),
    [
        ({"rank_lower": 3, "rank_upper": 3}, "3"),
        ({"rank_lower": 1200, "rank_upper": 45_000}, "1,200 to 45,000"),
        ({"rank_lower": 0, "rank_upper": 10**9}, "0 to 1.0e+09"),
    ],
)
def test_a_rank_is_shown_as_a_number_or_as_its_bounds(row: dict[str, int], shown: str) -> None:
    assert canary_tables._span(row, "rank") == shown


def test_scores_of_several_trainings_have_students_interval() -> None:
    one = canary_tables._over_trainings([2.0])
    assert (one["mean_score"], one["interval"], one["trainings"]) == (2.0, None, 1)
    three = canary_tables._over_trainings([1.0, 2.0, 3.0])
    low, high = map(float, three["interval"].split(" to "))
    assert (low, high) == pytest.approx((2 - 4.303 / 3**0.5, 2 + 4.303 / 3**0.5), abs=0.005)


def test_canaries_of_one_frequency_are_a_row_with_their_range() -> None:
    rows = [
        {"score": score, "beam_rank": rank, "control_score": 0.5}
        for score, rank in ((1.0, 4), (4.0, 0), (2.5, 17))
    ]
    assert canary_tables._over_phrases(rows) == {
        "phrases": 3,
        "score": 2.5,
        "score_low": 1.0,
        "score_high": 4.0,
        "scores": [1.0, 4.0, 2.5],
        "beam_ranks": "4, 0, 17",
        "control_score": 0.5,
    }


def test_mixed_canaries_have_the_numbers_of_copies_in_turn(tmp_path: Path) -> None:
    material = prepare(TABLE2.setting, tmp_path, None)
    made: tuple[Canary, ...] = canary_tables._mixed(material, replace(TABLE2, phrases=2))
    assert [canary.copies for canary in made if canary.planted] == [3, 3, 9, 9]
    assert {canary.pattern for canary in made} == {"mixed"}
    assert len({canary.phrase for canary in made}) == len(made)


def test_the_papers_figures_name_rows_that_full_scale_has() -> None:
    table2, table5, rq5 = (
        settings_of("updates", name, "full") for name in ("table2", "table5", "rq5")
    )
    updates = {("re-training", percent) for percent in table2.retrained}
    updates |= {("continued", percent) for percent in table2.continued}
    updates.add(("two-stage", table2.two_stage))
    assert {key[:2] for key in paper_numbers("updates", "table2", key=3)} == updates
    named = {f"re-training {percent} %" for percent in table5.retrained}
    named |= {f"continued {percent} %" for percent in table5.continued}
    assert all(set(row) == named for row in paper_numbers("updates", "table5", key=1).values())
    assert {key[0] for key in paper_numbers("updates", "rq5", key=1)} == {None, *rq5.epsilons}


def test_small_scale_has_a_row_for_each_of_the_papers() -> None:
    small = {name: one.settings("small") for name, one in tables_of("updates").items()}
    table1 = {
        (of.setting.dataset, of.setting.model, copies)
        for name, of in small.items()
        if name.startswith("table1")
        for copies in of.copies
    }
    paper1 = paper_numbers("updates", "table1", key=4)
    assert table1 == {(dataset, model, copies) for dataset, model, _, copies in paper1}
    tables34 = {(name, of.setting.model) for of in small["tables3-4"] for name in of.added}
    paper34 = paper_numbers("updates", "tables34", key=4)
    assert tables34 == {(name, model) for name, model, *_ in paper34}
