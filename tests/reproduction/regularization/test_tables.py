"""Tables of defences at equal perplexity: rows computed by hand, and the smallest scale."""

import re
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from reproduction.papers import compute_tables, settings_of
from reproduction.regularization import tables as module
from reproduction.regularization.methods import METHODS, Method
from reproduction.regularization.tables import (
    Training,
    completion_row,
    exposure_chart,
    exposure_rows,
    subgroup_rows,
    training_rows,
)
from reproduction.stages import Finished, Work
from vestige import results
from vestige.data.encoded import encode
from vestige.metrics.comparison import subgroup_gap
from vestige.training.evaluate import score_documents

PLAIN, OTHER = (
    Method(name="unmitigated", batching="users"),
    Method(name="triplet", batching="users"),
)
SMOKE = settings_of("regularization", "table1", "smoke")["comparison"]
LEVELS = (200.0, 100.0)
NAMES = ["figure2", "figure3ab", "figure3c", "table1"]


@pytest.fixture
def two_methods(monkeypatch: pytest.MonkeyPatch) -> None:
    """Compare only the undefended training and another."""
    monkeypatch.setattr(module, "METHODS", (PLAIN, OTHER))


def trainings(**results_by_method: list[dict[str, Any]]) -> dict[str, list[Training]]:
    """Finished trainings by method, with `levels` and `watched` evaluations."""
    return {
        method: [
            Training(seed, Finished({"seconds": 10.0 + seed, "watched": [], **value}, Path(), ""))
            for seed, value in enumerate(values)
        ]
        for method, values in results_by_method.items()
    }


def evaluated(perplexity: float, exposure: float) -> dict[str, Any]:
    """One evaluation; canaries of four copies have twice the exposure of those of one."""
    by_copies = {"1": exposure, "4": 2 * exposure}
    others = {"shuffled": {"1": 0.5, "4": 0.5}, "at_ceiling": {"1": 0.0, "4": 0.25}}
    exposures = {"canary": by_copies, **others}
    return {
        "watched": [{"perplexity": perplexity, "step": 10, "epoch": 1.0, "exposure": exposures}]
    }


@pytest.mark.usefixtures("two_methods")
def test_exposures_are_means_over_seeds_and_differences_are_paired() -> None:
    runs = trainings(
        unmitigated=[evaluated(100.0, exposure) for exposure in (1.0, 2.0, 3.0)],
        triplet=[evaluated(90.0, exposure) for exposure in (0.5, 1.0, 3.0)],
    )
    rows = {(r["level"], r["training"], r["copies"]): r for r in exposure_rows(runs, LEVELS)}
    assert len(rows) == 2 * 2 * 2
    plain, other = rows[100.0, "unmitigated", 1], rows[100.0, "triplet", 1]
    assert (plain["exposure"], plain["seeds"], plain["against_control"]) == (2.0, 3, None)
    margin = 4.302653 / 3**0.5  # Student's t, two degrees of freedom, deviation 1
    assert (plain["exposure_low"], plain["exposure_high"]) == pytest.approx(
        (2 - margin, 2 + margin)
    )
    assert other["against_control"] == pytest.approx((-0.5 - 1.0 + 0.0) / 3)
    assert other["against_control_low"] < -0.5 < other["against_control_high"]
    four = rows[100.0, "triplet", 4]
    assert (four["presentations"], four["at_ceiling"], four["steps"]) == (4.0, 0.25, 10.0)
    assert four["exposure"] == pytest.approx(2 * other["exposure"])


@pytest.mark.usefixtures("two_methods")
def test_a_row_has_only_trainings_that_reached_its_level() -> None:
    runs = trainings(
        unmitigated=[evaluated(150.0, 1.0 + seed) for seed in range(3)],
        triplet=[evaluated(150.0 if seed else 300.0, 1.0) for seed in range(3)],
    )
    rows = list(exposure_rows(runs, LEVELS))
    assert [row for row in rows if row["level"] == 100.0] == [
        {"level": 100.0, "training": name, "seeds": 0} for name in ("unmitigated", "triplet")
    ]
    reached = [row for row in rows if row["level"] == 200.0 and row["training"] == "triplet"]
    assert {row["seeds"] for row in reached} == {2}
    assert reached[0]["against_control"] == pytest.approx(((1 - 2) + (1 - 3)) / 2)


def test_completions_are_shares_over_all_trainings() -> None:
    def measured(single: int, four: int) -> dict[str, Any]:
        rates = {"control_rate": 0.1, "shuffled_rate": 0.2}
        return {"completed": {"1": [single, 10], "4": [four, 10]}, "completion": rates}

    row = completion_row([measured(n, 5) for n in range(3)], [(1, 1), (1, 2), (1, 3)], "4")
    assert row["synthetic"] == pytest.approx((0 + 1 + 2 + 15) / 60)
    assert (row["of_4_copies"], row["of_4_copies_by_seed"]) == (pytest.approx(0.5), "5 5 5")
    assert row["real"] == pytest.approx(3 / 6)
    assert (row["never_planted"], row["other_order"]) == pytest.approx((0.1, 0.2))
    empty = completion_row([], [], "4")
    assert empty["synthetic"] is empty["real"] is empty["never_planted"] is None


@pytest.mark.usefixtures("two_methods")
def test_a_gap_compares_trainings_of_the_same_seed() -> None:
    rng, tokens = np.random.default_rng(0), [5] * 8
    losses = {name: rng.uniform(5, 20, (3, 8)).tolist() for name in ("unmitigated", "triplet")}
    levels = {
        name: [{"levels": {"100": {"loss": loss, "tokens": tokens}}} for loss in by_seed]
        for name, by_seed in losses.items()
    }
    runs = trainings(**levels)
    groups = {"users": np.repeat(np.arange(4), 2), "samples": np.array([9, 5, 3, 1]), "k": 2}
    (row,) = subgroup_rows(runs, 100.0, **groups)
    pairs = zip(losses["unmitigated"], losses["triplet"], strict=True)
    gaps = [subgroup_gap(plain, defended, tokens=tokens, **groups) for plain, defended in pairs]
    assert (row["training"], row["seeds"], row["paper_gap"]) == ("triplet", 3, 7.0)
    assert row["gap"] == pytest.approx(np.mean([gap.gap.value for gap in gaps]))
    assert row["top_low"] < row["top"] < row["top_high"]
    never = trainings(unmitigated=[{"levels": {}}], triplet=[{"levels": {}}])
    assert list(subgroup_rows(never, 100.0, **groups)) == [
        {"level": 100.0, "training": "triplet", "seeds": 0, "paper_gap": 7.0}
    ]


@pytest.mark.usefixtures("two_methods")
def test_training_rows_have_measures_at_a_level_and_the_papers_perplexities() -> None:
    runs = trainings(
        unmitigated=[
            {"levels": {"200": {"perplexity": 190.0 + s, "step": 10 * s, "probe_accuracy": 0.5}}}
            for s in range(3)
        ],
        triplet=[{"levels": {}} for _ in range(3)],
    )
    rows = {(row["level"], row["training"]): row for row in training_rows(runs, LEVELS)}
    row = rows[200.0, "unmitigated"]
    assert (row["test_perplexity"], row["steps"], row["author_probe"]) == (191.0, 10.0, 0.5)
    assert (row["paper_training"], row["paper_test"], row["seconds"]) == (93.5, 103.5, 11.0)
    assert row["bag_of_words"] is None
    missing = rows[100.0, "triplet"]
    assert (missing["seeds"], missing["test_perplexity"]) == (0, None)


def test_the_chart_has_a_panel_for_each_level_with_measurements() -> None:
    rows: list[Mapping[str, Any]] = [
        {
            "level": level, "training": name, "copies": copies, "exposure": 1.0 + copies,
            "exposure_low": 0.5, "exposure_high": 3.0, "shuffled": 0.4,
        }
        for level in LEVELS
        for name in ("unmitigated", "triplet")
        for copies in (1, 4)
    ]  # fmt: skip
    svg = exposure_chart([*rows, {"level": 50.0, "training": "triplet", "seeds": 0}])
    assert svg.startswith("<svg")
    assert "exposure in bits" in svg
    assert re.search(r">100<", svg)
    assert not re.search(r">50<", svg)


def test_every_method_and_seed_has_its_own_training() -> None:
    users = SMOKE.users(Work(Path()))
    calls = {(m.name, seed): SMOKE.call(users, m, seed) for m in METHODS for seed in SMOKE.seeds}
    assert len({call.key for call in calls.values()}) == len(METHODS) * len(SMOKE.seeds)
    noisy = calls["dp", 1].arguments["config"]
    assert (noisy.optimizer, noisy.batching) == ("sgd", "poisson")
    assert (noisy.seed, noisy.learning_rate) == (1, 20.0)
    shape = calls["dropout 0.5", 0].arguments["shape"]
    assert (shape.dropout_in, shape.dropout_out) == (0.5, 0.5)
    plain = calls["unmitigated", 0].arguments
    assert plain["config"] == replace(SMOKE.training, seed=0, batching="users")
    assert plain["levels"] == SMOKE.levels


def test_every_control_is_undefended_with_the_same_batches() -> None:
    by_name = {method.name: method for method in METHODS}
    for method in METHODS:
        control = by_name[method.control]
        assert control.control == control.name
        if method.name != "dp":  # no undefended training has sampled batches
            assert control.batching == method.batching


@pytest.fixture(scope="module")
def smoke(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A directory with all figures."""
    directory = tmp_path_factory.mktemp("regularization") / "smoke"
    torch.set_num_threads(1)
    assert [table.name for table in compute_tables("regularization", "smoke", directory)] == NAMES
    return directory


@pytest.mark.slow
def test_every_figure_has_a_run_and_is_on_the_page(smoke: Path) -> None:
    page = (smoke / "tables.md").read_text()
    for name in NAMES:
        run = results.load(smoke / "results" / name)
        assert {row["training"] for row in run.rows} >= {m.name for m in METHODS[1:]}
        assert run.summary["title"] in page
    assert (smoke / "figure2.svg").read_text().startswith("<svg")
    rows = results.load(smoke / "results" / "figure2").rows
    exposure = {(r["training"], r["level"], r["copies"]): r["exposure"] for r in rows}
    for row in rows:
        if row["training"] in ("dp", "triplet, in-batch"):
            control = "unmitigated, SGD" if row["training"] == "dp" else "unmitigated, mixed"
            difference = row["exposure"] - exposure[control, row["level"], row["copies"]]
            assert row["against_control"] == pytest.approx(difference)
        if row["training"] == "unmitigated":
            assert row["against_control"] is None


@pytest.mark.slow
def test_a_level_keeps_the_model_that_first_reached_it(smoke: Path) -> None:
    work = Work(smoke)
    trained = SMOKE.trainings(work)
    for training in (training for seeds in trained.values() for training in seeds):
        *before, last = [seen["perplexity"] for seen in training.result.value["watched"]]
        assert last <= SMOKE.levels[-1] < min(before, default=float("inf"))
    users, training, level = SMOKE.users(work), trained["unmitigated"][0], SMOKE.levels[0]
    measures, test = training.at(level), encode(users.test, users.vocabulary)
    scores = score_documents(training.model(level), test, sequence_length=12).evaluation()
    assert scores.perplexity == pytest.approx(measures["perplexity"], rel=1e-5)
    mean_loss = sum(measures["loss"]) / sum(measures["tokens"])
    assert mean_loss == pytest.approx(np.log(scores.perplexity), rel=1e-5)
