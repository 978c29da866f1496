"""The trainings of the update tables with their seeds and texts."""

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from reproduction.papers import paper_numbers, settings_of, tables_of
from reproduction.stages import Call, Work
from reproduction.updates import canary_tables
from reproduction.updates.canary_tables import mixed_canaries, private_batches, train_pair
from reproduction.updates.snapshots import Material, prepare
from vestige.models.checkpoints import load_model

PLANTING = settings_of("updates", "table1", "smoke")["planting"]
SETTING = PLANTING.setting
PATTERNS = ("all-low", "low-to-high", "mixed", "high-to-low")
NO_WORK = Work(Path())


class Planned(Exception):
    """Raised when a table has planned its trainings."""


@pytest.fixture
def trained_by(monkeypatch: pytest.MonkeyPatch) -> Callable[..., list[Call]]:
    """Returns the trainings of a table without running them."""
    planned: list[Call] = []

    def all_of(self: Work, calls: Any) -> Any:
        planned.extend(calls)
        raise Planned

    monkeypatch.setattr(Work, "all", all_of)

    def trained_by(name: str, **changed: Any) -> list[Call]:
        planned.clear()
        settings = settings_of("updates", name, "smoke") | changed
        rows = tables_of("updates")[name].make(NO_WORK, **settings)
        with pytest.raises(Planned):
            list(rows)
        return list({call.key: call for call in planned}.values())

    return trained_by


def seeds(calls: list[Call]) -> list[int]:
    return [call.arguments["config"].seed for call in calls]


def words(corpus) -> int:
    return sum(len(text.split()) for text in corpus)


@pytest.fixture(scope="module")
def material() -> Material:
    return prepare(SETTING, NO_WORK)


def test_table1_has_a_model_for_each_number_of_copies(trained_by) -> None:
    calls = trained_by("table1")
    assert seeds(calls) == [0, 105, 120]
    assert {call.arguments["start"] for call in calls} == {SETTING.shape}


def test_a_second_training_has_other_seeds_and_positions(trained_by) -> None:
    calls = trained_by("table1", planting=replace(PLANTING, copies=(5,)), trainings=2)
    assert seeds(calls) == [0, 105, 1000, 1105]
    first, second = (calls[n].arguments["corpus"] for n in (1, 3))
    assert list(first) != list(second)
    assert sorted(first) == sorted(second)


def test_the_figure_and_rq5_share_the_first_trainings_of_the_table(trained_by) -> None:
    table = {call.key for call in trained_by("table1")}
    assert {call.key for call in trained_by("figure1")} < table
    plain = [c for c in trained_by("rq5", epsilons=()) if c.arguments["config"].seed < 1000]
    assert {call.key for call in plain} < table


def test_the_text_contains_the_copies_of_each_canary(material) -> None:
    text, canaries = material.with_copies(PLANTING, 7, seed=1)
    lines = list(text)
    for canary in canaries:
        assert sum(canary.phrase in line for line in lines) == canary.copies
        assert canary.copies in (0, 7)
        assert material.vocabulary.decode(canary.ids) == canary.phrase
    assert {canary.pattern for canary in canaries if canary.planted} == set(PATTERNS)


def test_given_phrases_have_the_frequencies_of_the_text(material) -> None:
    text = " ".join(material.original).split()
    first, second = list(dict.fromkeys(text))[:2]
    phrases, controls = {"mixed": f"{first} {first}"}, {"mixed": f"{second} {second}"}
    planting = replace(PLANTING, phrases=phrases, controls=controls)
    _, (planted, control) = material.with_copies(planting, 7, seed=0)
    assert planted.frequencies == (text.count(first),) * 2
    assert (planted.copies, control.copies) == (7, 0)


def test_table2_trains_each_kind_of_update_from_its_start(trained_by) -> None:
    original, fresh, retrained, continued, stage = trained_by("table2")
    assert seeds([original, fresh, retrained, continued, stage]) == [0, 100, 150, 350, 550]
    assert original.arguments["start"] == retrained.arguments["start"]
    assert continued.arguments["start"].key == original.key
    assert [call.key for call in stage.needs] == [continued.key]
    text, retrained_text, continued_text, stage_text = (
        set(call.arguments["corpus"]) for call in (original, retrained, continued, stage)
    )
    assert text <= retrained_text
    assert continued_text - text  # canaries
    assert not stage_text & continued_text


@pytest.mark.slow
def test_tables34_train_a_null_for_every_update(trained_by) -> None:
    additions = settings_of("updates", "tables3-4", "smoke")["additions"]
    for addition in additions:
        calls = trained_by("tables3-4", additions=(addition,))
        assert seeds(calls) == [0, 1, 100]
        before, again, after = (call.arguments for call in calls)
        assert before["corpus"] == again["corpus"]
        assert len(after["corpus"]) > len(before["corpus"])
        assert after["vocabulary"] == before["vocabulary"]


@pytest.mark.slow
def test_table5_adds_the_text_to_every_update(trained_by) -> None:
    calls = trained_by("table5")
    assert seeds(calls) == [0, 100, 300]
    original, retrained, continued = (set(call.arguments["corpus"]) for call in calls)
    assert continued <= retrained
    assert not continued & original


@pytest.mark.slow
def test_subword_models_of_a_repetition_start_from_its_snapshot(trained_by) -> None:
    calls = trained_by("subwords")
    before, after = calls[:2], (calls[2:4], calls[4:])
    assert seeds(before) == [0, 1]
    assert before[0].arguments["corpus"] == before[1].arguments["corpus"]
    for n, pair in enumerate(after):
        assert seeds(pair) == [100 + n] * 2
        assert all([need.key for need in call.needs] == [before[n].key] for call in pair)
        adapter = pair[1].arguments["adapter"]
        assert (adapter.rank, adapter.seed, pair[0].arguments["adapter"]) == (2, n, None)
    assert after[0][0].arguments["corpus"] != after[1][0].arguments["corpus"]


@pytest.mark.slow
def test_private_trainings_have_the_noise_for_their_text(trained_by, material, monkeypatch) -> None:
    budgets: list[dict[str, float]] = []

    def noise_for(**budget: float) -> float:
        budgets.append(budget)
        return 5.0 * len(budgets)

    monkeypatch.setattr(canary_tables, "noise_for", noise_for)
    settings = settings_of("updates", "rq5", "smoke")
    calls = trained_by("rq5", epsilons=(3.0,))
    assert seeds(calls) == [0, 120, 0, 120]
    for number in (0, 1):
        plain, private = (call.arguments for call in calls[number::2])
        assert plain["corpus"] == private["corpus"]
        seed = plain["config"].seed
        assert private["config"] == replace(settings["private"], seed=seed)
        assert private["defence"].max_grad_norm == settings["max_grad_norm"]
        assert private["defence"].noise_multiplier == 5.0 * (number + 1)
        batches = private_batches(settings["private"], plain["corpus"], material.vocabulary)
        assert budgets[number] == {
            "epsilon": 3.0,
            "delta": settings["delta"],
            "sample_rate": batches.sample_rate,
            "steps": settings["private"].epochs * len(batches),
        }


@pytest.mark.slow
def test_the_validation_text_has_the_size_of_its_part(material) -> None:
    part = prepare(replace(SETTING, words=1500), NO_WORK, percents=[20])
    assert words(part.original) == pytest.approx(1500, abs=6)
    assert words(part.extras[0]) == pytest.approx(300, abs=6)
    assert words(part.validation) == pytest.approx(300, abs=6)
    assert words(material.validation) > 600


def test_each_extra_text_contains_the_smaller_ones() -> None:
    setting = replace(SETTING, words=1000)
    material = prepare(setting, NO_WORK, percents=[50, 20])
    assert material.percents == (0, 20, 50)
    sizes = [sum(map(words, material.extra(percent))) for percent in material.percents]
    assert sizes == pytest.approx([0, 200, 500], abs=12)
    assert material.extra(50)[:1] == material.extra(20)
    assert words(material.extras[-1]) == pytest.approx(500, abs=6)
    with pytest.raises(ValueError, match="words must be given"):
        prepare(replace(setting, words=None), NO_WORK, percents=[50])


@pytest.mark.slow
def test_a_snapshot_is_trained_from_its_start_and_again_if_damaged(tmp_path, listener) -> None:
    work = Work(tmp_path, monitor=listener)
    material = prepare(replace(SETTING, words=300), work)
    first = material.snapshot(material.original, seed=0)
    second = material.snapshot(material.original, seed=1, start=first)
    later, earlier = work(second), work(first)
    before, after = (dict(load_model(d.folder).named_parameters()) for d in (earlier, later))
    assert any(not before[name].equal(after[name]) for name in before)
    history = json.loads((later.folder / "history.json").read_text())
    best = min(history, key=lambda record: record["validation_perplexity"])
    assert later.value["perplexity"] == best["validation_perplexity"]
    assert (later.value["epoch"], later.value["precision"]) == (best["epoch"], "float32")
    weights = earlier.folder / "model" / "model.safetensors"
    content = weights.read_bytes()
    weights.write_bytes(content[:100])
    work(first)
    assert "is damaged" in listener.lines[-2]
    assert weights.read_bytes() == content


@pytest.mark.parametrize(
    ("row", "text"),
    [
        ({"rank_lower": 3, "rank_upper": 3}, "3"),
        ({"rank_lower": 1200, "rank_upper": 45_000}, "1,200 to 45,000"),
        ({"rank_lower": 0, "rank_upper": 10**9}, "0 to 1.0e+09"),
    ],
)
def test_a_rank_is_shown_as_a_number_or_as_bounds(row: dict[str, int], text: str) -> None:
    assert canary_tables.rank_range(row, "rank") == text


def test_scores_of_several_trainings_have_a_t_interval() -> None:
    single = canary_tables.over_trainings([2.0])
    assert (single["mean_score"], single["interval"], single["trainings"]) == (2.0, None, 1)
    three = canary_tables.over_trainings([1.0, 2.0, 3.0])
    low, high = map(float, three["interval"].split(" to "))
    assert (low, high) == pytest.approx((2 - 4.303 / 3**0.5, 2 + 4.303 / 3**0.5), abs=0.005)


def test_canaries_of_one_frequency_are_a_row_with_a_range() -> None:
    rows = [
        {"score": score, "beam_rank": rank, "control_score": 0.5}
        for score, rank in ((1.0, 4), (4.0, 0), (2.5, 17))
    ]
    assert canary_tables.over_phrases(rows) == {
        "phrases": 3, "score": 2.5, "score_low": 1.0, "score_high": 4.0,
        "scores": [1.0, 4.0, 2.5], "beam_ranks": "4, 0, 17", "control_score": 0.5,
    }  # fmt: skip


def test_mixed_canaries_have_each_number_of_copies(material) -> None:
    canaries = mixed_canaries(material, (3, 9), 2)
    assert [canary.copies for canary in canaries if canary.planted] == [3, 3, 9, 9]
    assert {canary.pattern for canary in canaries} == {"mixed"}
    assert len({canary.phrase for canary in canaries}) == len(canaries)


def test_larger_scales_have_the_rows_of_the_papers_figures() -> None:
    table2, table5, rq5 = (
        settings_of("updates", name, "full") for name in ("table2", "table5", "rq5")
    )
    updates = {("re-training", percent) for percent in table2["retrained"]}
    updates |= {("continued", percent) for percent in table2["continued"]}
    updates.add(("two-stage", table2["two_stage"]))
    assert {key[:2] for key in paper_numbers("updates", "table2", key=3)} == updates
    columns = {f"re-training {percent} %" for percent in table5["retrained"]}
    columns |= {f"continued {percent} %" for percent in table5["continued"]}
    assert all(set(row) == columns for row in paper_numbers("updates", "table5", key=1).values())
    assert {key[0] for key in paper_numbers("updates", "rq5", key=1)} == {None, *rq5["epsilons"]}
    small = {name: table.settings("small") for name, table in tables_of("updates").items()}
    plantings = [small[name]["planting"] for name in small if name.startswith("table1")]
    table1 = {
        (p.setting.dataset, p.setting.model, copies) for p in plantings for copies in p.copies
    }
    paper1 = paper_numbers("updates", "table1", key=4)
    assert table1 == {(dataset, model, copies) for dataset, model, _, copies in paper1}
    additions = small["tables3-4"]["additions"]
    tables34 = {(name, each.setting.model) for each in additions for name in each.added}
    paper34 = paper_numbers("updates", "tables34", key=4)
    assert tables34 == {(name, model) for name, model, *_ in paper34}


def test_models_before_the_update_have_no_canaries(material) -> None:
    before, after = train_pair(PLANTING, material, 5)
    assert before.arguments["corpus"] == material.original
    assert len(after.arguments["corpus"]) == len(material.original) + 5 * len(PATTERNS)
