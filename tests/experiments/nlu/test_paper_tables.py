"""Canary extraction at its smallest: trained once, attacked once, and found again."""

import json
from dataclasses import replace

import pytest
import torch

from vestige.errors import RunError
from vestige.experiments.nlu.paper_tables import PAPER_DEFENDED, SMOKE, run
from vestige.experiments.nlu.secret_extractions import Cell, attack_cell, found
from vestige.experiments.nlu.table_rows import Lines
from vestige.experiments.nlu.trial_plans import DEFENCES, Trials, all_three
from vestige.experiments.nlu.trials import BEST, LAST, SCORES, run_trial, scores, train_trials
from vestige.models.checkpoints import load_intent_slot


@pytest.fixture(scope="module")
def home(tmp_path_factory):
    return tmp_path_factory.mktemp("nlu")


@pytest.fixture(scope="module")
def trials(home):
    return Trials(SMOKE, home / "trials", None)


@pytest.fixture(scope="module")
def cell(home, trials):
    made = trials.cell(all_three(2), 20)
    train_trials(made)
    return Cell(
        directory=home / "extractions",
        trials=tuple(made),
        pattern="pin:2",
        weights=LAST,
        attack="auto",
    )


def test_a_trial_has_the_secret_of_its_seed_and_one_that_is_never_planted(trials):
    first, second = trials.cell(all_three(2), 20)
    assert first.canary("pin:2").secret != second.canary("pin:2").secret
    assert [canary.copies for canary in first.canaries] == [20, 0] * 3
    assert first.canary("pin:2").secret == trials.cell(("pin:2",), 1)[0].canary("pin:2").secret


def test_early_stopping_keeps_the_epoch_that_was_best_before_patience_ended(cell):
    for trial in cell.trials:
        made = scores(trial)
        losses = [record["validation_perplexity"] for record in made["history"]]
        assert made[LAST]["epoch"] == len(losses)
        assert losses[made[BEST]["epoch"] - 1] == min(losses[: made[BEST]["epoch"] + 2])


def test_a_trial_gives_the_same_bits_again(cell, tmp_path):
    trial = cell.trials[0]
    again = replace(trial, directory=tmp_path / "again")
    run_trial(again)
    for weights in (LAST, BEST):
        one, other = (
            load_intent_slot(made.directory / weights).state_dict() for made in (trial, again)
        )
        assert all(torch.equal(one[name], other[name]) for name in one)


def test_a_finished_trial_is_not_trained_again_and_another_is_refused(cell):
    trial = cell.trials[0]
    before = (trial.directory / SCORES).stat().st_mtime_ns
    train_trials([trial])
    assert (trial.directory / SCORES).stat().st_mtime_ns == before
    with pytest.raises(RunError, match="holds a trial of another configuration"):
        train_trials([replace(trial, copies=21)])


def test_known_digits_are_told_and_the_rest_is_asked_for(home, cell):
    told = replace(cell, known=1)
    attack_cell(told)
    rows = found(told).rows
    for row, trial in zip(rows, cell.trials, strict=True):
        secret = trial.canary("pin:2").secret
        assert row["pattern"] == f"my pin code is {secret[0]} _"
        assert row["truth"] == secret[1]
        assert 1 <= row["rank"] <= 10


def test_what_was_found_under_other_settings_is_refused(cell):
    attack_cell(cell)
    content = json.loads(cell.path.read_text("utf-8"))
    assert [row["truth"] for row in content["rows"]] == [
        " ".join(trial.canary("pin:2").secret) for trial in cell.trials
    ]
    cell.path.write_text(json.dumps(content | {"identity": {}}), "utf-8")
    with pytest.raises(RunError, match="was made with other settings"):
        found(cell)
    cell.path.unlink()


def test_every_defence_of_the_paper_has_its_row(home, trials):
    lines = list(Lines(trials, home).defended(PAPER_DEFENDED))
    assert {line.names["defence"] for line in lines} == set(DEFENCES)
    assert {line.cell.weights for line in lines if "ES" in line.names["defence"]} == {BEST}
    assert {line.cell.weights for line in lines if "ES" not in line.names["defence"]} == {LAST}
    assert {(defence) for _, defence, _ in PAPER_DEFENDED} < set(DEFENCES)


@pytest.mark.slow
def test_a_table_is_filled_once_and_found_again(home, cell):
    told = []
    tables = run(SMOKE, home, tables=["table2", "utility"], say=told.append)
    assert {table.name: len(table.entries) for table in tables} == {"table2": 9, "utility": 1}
    assert "nan" not in (home / "tables.md").read_text("utf-8").lower()
    assert run(SMOKE, home, tables=["table2"], say=told.append)[0] == next(
        table for table in tables if table.name == "table2"
    )
    assert told.count("filling table2") == 1
