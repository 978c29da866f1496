"""A training that is measured on the way: what is written, when, and by whom it is read."""

import json
import math
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import example, given
from hypothesis import strategies as st

from reproduction.papers import settings_of
from reproduction.regularization.equal_utility import Comparison
from reproduction.regularization.measured_training import (
    FAR,
    REFERENCES,
    MeasuredTraining,
    at_level,
)
from reproduction.regularization.methods import PLAIN
from reproduction.regularization.user_texts import read_users
from reproduction.runner import run_trials
from vestige.models.predictions import text_log_probs
from vestige.training.history import EpochRecord


@pytest.fixture(scope="module")
def trial(tmp_path_factory) -> MeasuredTraining:
    """The undefended training of the smallest scale, not begun."""
    directory = tmp_path_factory.mktemp("measured")
    scale = replace(settings_of("regularization", "table1", "smoke"), seeds=(0,))
    made = Comparison(scale, read_users(scale.text, None), directory).trainings[PLAIN, 0]
    assert isinstance(made, MeasuredTraining)
    return made


def fresh(trial: MeasuredTraining, directory: Path) -> MeasuredTraining:
    return replace(trial, directory=directory)


def record(step: int, perplexity: float | None) -> EpochRecord:
    return EpochRecord(
        epoch=step / 10, step=step, learning_rate=0.1, perplexity=300.0,
        validation_perplexity=perplexity, validation_accuracy=0.1,
    )  # fmt: skip


def test_what_is_far_above_the_first_level_is_not_measured(trial, tmp_path) -> None:
    one = fresh(trial, tmp_path)
    model = one._fresh()
    one.observe(model, record(10, FAR * one.levels[0] + 1))
    assert one.watched() == []
    one.observe(model, record(20, FAR * one.levels[0] - 1))
    assert [seen["step"] for seen in one.watched()] == [20]
    assert one.measures(one.levels[0]) is None
    with pytest.raises(ValueError, match="must have a validation perplexity"):
        one.observe(model, record(30, None))


@pytest.mark.slow
def test_a_level_is_measured_once_and_the_same_step_writes_it_again(trial, tmp_path) -> None:
    one = fresh(trial, tmp_path)
    model = one._fresh()
    high, low = one.levels
    one.observe(model, record(10, high))
    assert one.measures(high)["step"] == 10
    assert "probe_accuracy" not in one.measures(high)
    one.observe(model, record(20, (high + low) / 2))
    assert one.measures(high)["step"] == 10
    assert one.measures(low) is None
    one.observe(model, record(30, low))
    assert (one.measures(high)["step"], one.measures(low)["step"]) == (10, 30)
    assert "probe_accuracy" in one.measures(low)
    file = one.level_folder(low) / "measures.json"
    whole = file.read_text()
    file.write_text(json.dumps({"step": 30}))  # as a kill behind it would have the step repeated
    one.observe(model, record(30, low))
    assert file.read_text() == whole


def test_exposure_is_by_the_definition(trial, tmp_path) -> None:
    """log2 of the references less log2 of the rank among them, canary by canary."""
    model = fresh(trial, tmp_path)._fresh()
    found = trial._exposures(model)
    references = trial._references
    assert references.shape == (REFERENCES, len(trial.canaries[0].ids))
    assert all(len(set(row)) == len(row) for row in references[:50].tolist())
    with torch.no_grad():
        against = -text_log_probs(model, references.tolist())
        for copies in {canary.copies for canary in trial.canaries}:
            own = [canary.ids for canary in trial.canaries if canary.copies == copies]
            scores = -text_log_probs(model, own)
            ranks = [1 + int((against <= score).sum()) for score in scores]
            exposures = [math.log2(REFERENCES) - math.log2(min(r, REFERENCES)) for r in ranks]
            assert found["canary"][str(copies)] == pytest.approx(np.mean(exposures), abs=0.02)
    assert set(found["shuffled"]) == set(found["canary"]) == set(found["at_ceiling"])


@pytest.mark.slow
def test_a_training_killed_behind_its_first_level_ends_in_the_same_measures(
    trial, tmp_path, monkeypatch
) -> None:
    run_trials([trial])

    class Killed(Exception):
        pass

    again = fresh(trial, tmp_path / "again")
    observe = MeasuredTraining.observe

    def killed(self, model, seen):
        observe(self, model, seen)
        if self.measures(self.levels[0]) is not None:
            raise Killed

    with monkeypatch.context() as patched:
        patched.setattr(MeasuredTraining, "observe", killed)
        with pytest.raises(Killed):
            run_trials([again])
    assert not again.kept
    run_trials([again])
    assert again.watched() == trial.watched()
    for level in trial.levels:
        assert again.measures(level) == trial.measures(level)


def test_damaged_measures_are_noticed(trial) -> None:
    run_trials([trial])
    assert trial.kept
    file = next((trial.directory / "watched").iterdir())
    whole = file.read_bytes()
    file.write_bytes(whole.replace(b"1", b"2", 1))
    assert not trial.kept
    file.write_bytes(whole)
    assert trial.kept
    assert trial.result()["seconds"] > 0


@given(
    st.lists(st.floats(10, 1000), min_size=2, max_size=8, unique=True),
    st.floats(10, 1000),
)
@example([10.0, math.nextafter(10.0, 11.0)], 10.0)  # whose logarithms are the same
def test_between_evaluations_exposure_lies_between_theirs(perplexities, level) -> None:
    falling = sorted(perplexities, reverse=True)
    seen = [
        {"perplexity": p, "step": i, "exposure": {"canary": {"1": float(i)}}}
        for i, p in enumerate(falling)
    ]
    read = at_level(seen, level)
    if level < falling[-1]:
        assert read is None
        return
    after = next(i for i, p in enumerate(falling) if p <= level)
    value = read["exposure"]["canary"]["1"]
    assert max(after - 1, 0) <= value <= after
    if after and falling[after - 1] > falling[after] * (1 + 1e-6):
        share = math.log(falling[after - 1] / level) / math.log(falling[after - 1] / falling[after])
        assert value == pytest.approx(after - 1 + share)
    if after:
        assert read["perplexity"] == level
