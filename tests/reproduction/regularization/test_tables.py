"""Defences compared at equal perplexity, at the scale of a smoke test, read back and recomputed."""

import json
from pathlib import Path
from statistics import fmean

import numpy as np
import pytest
import torch

from reproduction.papers import reproduce, settings_of
from reproduction.regularization.equal_utility import Comparison
from reproduction.regularization.measured_training import at_level
from reproduction.regularization.methods import METHODS
from reproduction.regularization.user_texts import read_users
from vestige import results
from vestige.data.encoded import encode
from vestige.models.checkpoints import load_model
from vestige.models.predictions import text_log_probs
from vestige.training.evaluate import score_documents

SMOKE = settings_of("regularization", "table1", "smoke")
NAMES = ["figure2", "figure3ab", "figure3c", "table1"]


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A directory in which every figure was made."""
    directory = tmp_path_factory.mktemp("regularization") / "smoke"
    torch.set_num_threads(1)
    assert [table.name for table in reproduce("regularization", "smoke", directory)] == NAMES
    return directory


@pytest.fixture(scope="module")
def trained(made: Path) -> Comparison:
    return Comparison(SMOKE, read_users(SMOKE.text, None), made / "trainings")


def test_every_figure_is_a_run_and_stands_in_the_page(made: Path) -> None:
    page = (made / "tables.md").read_text()
    for name in NAMES:
        run = results.load(made / "results" / name)
        assert {row["training"] for row in run.rows} >= {m.name for m in METHODS[1:]}
        assert run.summary["title"] in page
    assert (made / "figure2.svg").read_text().startswith("<svg")


def test_a_training_ends_where_it_reached_the_last_level(trained: Comparison) -> None:
    for method in METHODS:
        for seed in SMOKE.seeds:
            seen = trained.trainings[method.name, seed].watched()
            *before, last = [one["perplexity"] for one in seen]
            assert last <= SMOKE.levels[-1] < min(before, default=float("inf"))


def test_a_level_keeps_the_model_that_first_reached_it(trained: Comparison) -> None:
    level, method = SMOKE.levels[0], METHODS[0]
    folder = trained.trainings[method.name, 0].level_folder(level)
    measures = json.loads((folder / "measures.json").read_text())
    test = encode(trained.users.test, trained.users.vocabulary)
    scores = score_documents(load_model(folder), test, sequence_length=12).evaluation()
    assert scores.perplexity == pytest.approx(measures["perplexity"], rel=1e-5)
    assert sum(measures["loss"]) / sum(measures["tokens"]) == pytest.approx(
        np.log(scores.perplexity), rel=1e-5
    )


def test_exposure_is_what_the_definition_says(trained: Comparison) -> None:
    """Recounted for the canaries of four copies, with references drawn anew."""
    level = SMOKE.levels[-1]
    folder = trained.trainings[METHODS[0].name, 0].level_folder(level)
    noted = json.loads((folder / "measures.json").read_text())["exposure"]["canary"]["4"]
    model, canaries = load_model(folder), trained.users.canaries
    words = [i for i, word in enumerate(model.vocabulary.words) if word.isalpha() and len(word) > 2]
    rng = np.random.default_rng(5)
    drawn = np.array([rng.choice(words, 5, replace=False) for _ in range(4096)])

    def surprise(ids):
        return -text_log_probs(model, np.asarray(ids).tolist())

    against = np.sort(surprise(drawn))
    own = surprise([c.ids for c in canaries if c.copies == 4])
    ranks = 1 + np.searchsorted(against, own, side="right")
    assert noted == pytest.approx(fmean(12 - np.log2(ranks)), abs=0.25)


def test_between_two_evaluations_all_is_read_in_proportion() -> None:
    seen = [
        {"perplexity": 100.0, "step": 10, "exposure": {"canary": {"1": 2.0}}},
        {"perplexity": 25.0, "step": 30, "exposure": {"canary": {"1": 6.0}}},
    ]
    read = at_level(seen, 50.0)
    assert read == {"perplexity": 50.0, "step": 20.0, "exposure": {"canary": {"1": 4.0}}}
    assert at_level(seen, 10.0) is None
    assert at_level(seen, 100.0) == seen[0]


def test_a_method_is_set_against_the_undefended_one_in_its_own_batches(made: Path) -> None:
    rows = results.load(made / "results" / "figure2").rows

    def means(name: str) -> dict[tuple[float, int], float]:
        return {(r["level"], r["copies"]): r["exposure"] for r in rows if r["training"] == name}

    controls = {"dp": "unmitigated, SGD", "triplet, in-batch": "unmitigated, mixed"}
    for name, control in controls.items():
        undefended, own = means(control), means(name)
        against = {
            (r["level"], r["copies"]): r["against_control"] for r in rows if r["training"] == name
        }
        for key, value in own.items():
            assert against[key] == pytest.approx(value - undefended[key])
    assert all(r["against_control"] is None for r in rows if r["training"] == "unmitigated")


def test_a_second_call_trains_nothing(made: Path) -> None:
    before = {file: file.stat().st_mtime_ns for file in made.rglob("*.safetensors")}
    reproduce("regularization", "smoke", made)
    assert {file: file.stat().st_mtime_ns for file in made.rglob("*.safetensors")} == before
