"""Rows of the comparison, from measures that are made up and counted by hand."""

import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from reproduction.papers import settings_of
from reproduction.regularization import equal_utility as module
from reproduction.regularization.equal_utility import (
    Comparison,
    completion_rows,
    exposure_chart,
    exposure_rows,
    plan_of,
    subgroup_rows,
    training_rows,
)
from reproduction.regularization.methods import METHODS, Method
from vestige.metrics.comparison import subgroup_gap

PLAIN, OTHER = (
    Method(name="unmitigated", batching="users"),
    Method(name="triplet", batching="users"),
)
SMOKE = settings_of("regularization", "table1", "smoke")
SCALE = replace(SMOKE, levels=(200.0, 100.0), seeds=(0, 1, 2))


@pytest.fixture
def two_methods(monkeypatch: pytest.MonkeyPatch) -> None:
    """Only the undefended training and one other are compared."""
    monkeypatch.setattr(module, "METHODS", (PLAIN, OTHER))


@dataclass
class Training:
    """What a finished training would say of itself."""

    seed: int
    found: Mapping[float, Mapping[str, Any]]
    seen: tuple[Mapping[str, Any], ...] = ()

    @property
    def config(self) -> Any:
        return SimpleNamespace(seed=self.seed, sequence_length=5)

    def measures(self, level: float) -> Any:
        return self.found.get(level)

    def watched(self) -> Any:
        return self.seen

    def level_folder(self, level: float) -> Path:
        return Path(f"{self.seed}-{level:g}")

    def result(self) -> dict[str, float]:
        return {"seconds": 10.0 + self.seed}


@dataclass(frozen=True)
class Made(Comparison):
    """A comparison whose trainings are made up."""

    own: Any = None

    @cached_property
    def trainings(self) -> Any:
        return {
            (method, seed): training
            for method, trainings in self.own.items()
            for seed, training in enumerate(trainings)
        }


def comparison(**own: list[Training]) -> Made:
    users: Any = SimpleNamespace(canaries=[None] * 25)
    return Made(SCALE, users, Path(), own)


def seen(perplexity: float, exposure: float, *, step: int = 10) -> dict[str, Any]:
    """One evaluation: exposure of canaries of one copy and, twice that, of four."""
    by_copies = {"1": exposure, "4": 2 * exposure}
    return {
        "perplexity": perplexity,
        "step": step,
        "epoch": step / 10,
        "exposure": {
            "canary": by_copies,
            "shuffled": {"1": 0.5, "4": 0.5},
            "at_ceiling": {"1": 0.0, "4": 0.25},
        },
    }


@pytest.mark.usefixtures("two_methods")
def test_exposures_are_means_over_seeds_and_differences_are_paired() -> None:
    made = comparison(
        unmitigated=[Training(s, {}, (seen(100.0, e),)) for s, e in enumerate((1.0, 2.0, 3.0))],
        triplet=[Training(s, {}, (seen(90.0, e),)) for s, e in enumerate((0.5, 1.0, 3.0))],
    )
    rows = {(row["level"], row["training"], row["copies"]): row for row in exposure_rows(made)}
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
def test_a_training_that_never_reached_a_level_has_no_part_in_its_row() -> None:
    made = comparison(
        unmitigated=[Training(s, {}, (seen(150.0, 1.0 + s),)) for s in range(3)],
        triplet=[Training(s, {}, (seen(150.0 if s else 300.0, 1.0),)) for s in range(3)],
    )
    rows = list(exposure_rows(made))
    assert [row for row in rows if row["level"] == 100.0] == [
        {"level": 100.0, "training": name, "seeds": 0} for name in ("unmitigated", "triplet")
    ]
    reached = [row for row in rows if row["level"] == 200.0 and row["training"] == "triplet"]
    assert {row["seeds"] for row in reached} == {2}
    assert reached[0]["against_control"] == pytest.approx(((1 - 2) + (1 - 3)) / 2)


def completed(one: int, four: int) -> dict[str, Any]:
    return {
        "completed": {"1": [one, 10], "4": [four, 10]},
        "completion": {"control_rate": 0.1, "shuffled_rate": 0.2},
    }


@pytest.mark.usefixtures("two_methods")
def test_completions_are_shares_over_all_trainings(monkeypatch: pytest.MonkeyPatch) -> None:
    made = comparison(
        unmitigated=[Training(s, {200.0: completed(s, 5)}) for s in range(3)],
        triplet=[Training(s, {200.0: completed(0, 2)} if s else {}) for s in range(3)],
    )
    monkeypatch.setattr(module, "_real", lambda made, one, level: ["text"] * (one.seed + 1))
    monkeypatch.setattr(module, "_completed", lambda folder, texts: [1, len(texts)])
    rows = {(row["level"], row["training"]): row for row in completion_rows(made)}
    plain, other = rows[200.0, "unmitigated"], rows[200.0, "triplet"]
    assert plain["synthetic"] == pytest.approx((0 + 1 + 2 + 15) / 60)
    assert plain["of_4_copies"] == pytest.approx(0.5)
    assert plain["of_4_copies_by_seed"] == "5 5 5"
    assert plain["real"] == pytest.approx(3 / 6)
    assert (other["seeds"], other["synthetic"]) == (2, pytest.approx(4 / 40))
    assert other["real"] == pytest.approx(2 / 5)  # of the seeds that reached it, 1 and 2
    assert (plain["never_planted"], plain["other_order"]) == pytest.approx((0.1, 0.2))
    assert plain["canaries"] == 25 - SCALE.text.controls
    nobody = rows[100.0, "triplet"]
    assert nobody["seeds"] == 0
    assert nobody["synthetic"] is nobody["real"] is nobody["never_planted"] is None


@pytest.mark.usefixtures("two_methods")
def test_a_gap_is_that_of_the_same_seed(monkeypatch: pytest.MonkeyPatch) -> None:
    rng = np.random.default_rng(0)
    tokens = [5] * 8
    losses = {name: rng.uniform(5, 20, (3, 8)).tolist() for name in ("unmitigated", "triplet")}
    made = comparison(
        **{
            name: [Training(s, {100.0: {"loss": loss[s], "tokens": tokens}}) for s in range(3)]
            for name, loss in losses.items()
        }
    )
    users, samples = np.repeat(np.arange(4), 2), np.array([9, 5, 3, 1])
    monkeypatch.setattr(Made, "test_users", (users, samples), raising=False)
    (row,) = subgroup_rows(made, paper={("triplet",): {"gap": 7.0}})
    gaps = [
        subgroup_gap(
            losses["unmitigated"][s],
            losses["triplet"][s],
            tokens=tokens,
            users=users,
            samples=samples,
            k=2,
        )
        for s in range(3)
    ]
    assert (row["training"], row["seeds"], row["paper_gap"]) == ("triplet", 3, 7.0)
    assert row["gap"] == pytest.approx(np.mean([gap.gap.value for gap in gaps]))
    assert row["top_low"] < row["top"] < row["top_high"]


@pytest.mark.usefixtures("two_methods")
def test_a_method_that_reached_no_level_has_no_gap() -> None:
    made = comparison(
        unmitigated=[Training(s, {100.0: {}}) for s in range(3)],
        triplet=[Training(s, {}) for s in range(3)],
    )
    (row,) = subgroup_rows(made, paper={})
    assert row == {"level": 100.0, "training": "triplet", "seeds": 0, "paper_gap": None}


@pytest.mark.usefixtures("two_methods")
def test_trainings_are_described_at_their_levels_with_the_papers_perplexities() -> None:
    made = comparison(
        unmitigated=[
            Training(s, {200.0: {"perplexity": 190.0 + s, "step": 10 * s, "probe_accuracy": 0.5}})
            for s in range(3)
        ],
        triplet=[Training(s, {}) for s in range(3)],
    )
    paper = {("avocado", "high", "unmitigated"): {"paper_training": 93.5, "paper_test": 103.5}}
    rows = {(row["level"], row["training"]): row for row in training_rows(made, paper=paper)}
    row = rows[200.0, "unmitigated"]
    assert (row["test_perplexity"], row["steps"], row["author_probe"]) == (191.0, 10.0, 0.5)
    assert (row["paper_training"], row["paper_test"], row["seconds"]) == (93.5, 103.5, 11.0)
    assert row["bag_of_words"] is None
    none = rows[100.0, "triplet"]
    assert (none["seeds"], none["test_perplexity"], none["paper_test"]) == (0, None, None)


def test_the_chart_has_a_panel_for_each_level_and_leaves_empty_rows_out() -> None:
    rows: list[dict[str, Any]] = [
        {
            "level": level, "training": name, "copies": copies, "exposure": 1.0 + copies,
            "exposure_low": 0.5, "exposure_high": 3.0, "shuffled": 0.4,
        }
        for level in (200.0, 100.0)
        for name in ("unmitigated", "triplet")
        for copies in (1, 4)
    ]  # fmt: skip
    svg = exposure_chart([*rows, {"level": 50.0, "training": "triplet", "seeds": 0}])
    assert svg.startswith("<svg")
    assert "exposure in bits" in svg
    assert re.search(r">100<", svg)
    assert not re.search(r">50<", svg)


def test_every_method_and_seed_is_a_training_of_its_own(tmp_path: Path) -> None:
    trials = plan_of(SMOKE, tmp_path, None, exposure_rows).trials
    assert len(trials) == len(METHODS) * len(SMOKE.seeds)
    assert len({trial.directory for trial in trials}) == len(trials)
    assert len({trial.key for trial in trials}) == len(trials)
    named = {trial.directory.relative_to(tmp_path).as_posix(): trial for trial in trials}
    noisy = named["dp/1"]
    assert (noisy.config.optimizer, noisy.config.batching) == ("sgd", "poisson")
    assert (noisy.config.seed, noisy.config.learning_rate) == (1, 20.0)
    dropped = named["dropout-0.5/0"]
    assert (dropped.shape.dropout_in, dropped.shape.dropout_out) == (0.5, 0.5)
    plain = named["unmitigated/0"]
    assert plain.config == replace(SMOKE.training, seed=0, batching="users")
    assert plain.levels == SMOKE.levels


def test_every_control_is_undefended_in_the_same_kind_of_batches(tmp_path: Path) -> None:
    made = Comparison(SMOKE, None, tmp_path)  # type: ignore[arg-type]
    for method in METHODS:
        control = made.control(method)
        assert control.control == control.name
        if method.name != "dp":  # whose sampled batches have no undefended counterpart
            assert control.batching == method.batching
    assert made.plain.name == "unmitigated"
