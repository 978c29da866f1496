"""Measurements during a training: when they are written, and after a kill."""

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
from reproduction.regularization.measured_training import (
    MEASURED_BELOW,
    REFERENCES,
    Measures,
    at_level,
    level_folder,
)
from reproduction.regularization.methods import METHODS
from reproduction.regularization.user_texts import Users
from reproduction.stages import Call, Work
from vestige.models.predictions import text_log_probs
from vestige.models.protocols import LanguageModel
from vestige.training.history import EpochRecord
from vestige.training.new_models import new_model

SMOKE = replace(settings_of("regularization", "table1", "smoke")["comparison"], seeds=(0,))
HIGH, LOW = SMOKE.levels


@pytest.fixture(scope="module")
def users() -> Users:
    return SMOKE.users(Work(Path()))


@pytest.fixture(scope="module")
def call(users: Users) -> Call:
    """The undefended training of the smallest scale."""
    return SMOKE.call(users, METHODS[0], 0)


@pytest.fixture
def measures(users: Users, tmp_path: Path) -> Measures:
    return Measures(users, SMOKE.training, SMOKE.levels, tmp_path)


@pytest.fixture
def model(users: Users) -> LanguageModel:
    return new_model(users.vocabulary, SMOKE.shape, seed=0)


def record(step: int, perplexity: float) -> EpochRecord:
    return EpochRecord(
        epoch=step / 10, step=step, learning_rate=0.1, perplexity=300.0,
        validation_perplexity=perplexity, validation_accuracy=0.1,
    )  # fmt: skip


def test_perplexities_far_above_the_first_level_are_not_measured(measures, model) -> None:
    measures.observe(model, record(10, MEASURED_BELOW * HIGH + 1))
    assert measures.watched() == []
    measures.observe(model, record(20, MEASURED_BELOW * HIGH - 1))
    assert [evaluation["step"] for evaluation in measures.watched()] == [20]
    assert measures.at(HIGH) is None


@pytest.mark.slow
def test_a_level_is_measured_once_and_a_repeated_step_writes_the_same(measures, model) -> None:
    measures.observe(model, record(10, HIGH))
    assert measures.at(HIGH)["step"] == 10
    assert "probe_accuracy" not in measures.at(HIGH)
    measures.observe(model, record(20, (HIGH + LOW) / 2))
    assert measures.at(HIGH)["step"] == 10
    assert measures.at(LOW) is None
    measures.observe(model, record(30, LOW))
    assert (measures.at(HIGH)["step"], measures.at(LOW)["step"]) == (10, 30)
    assert "probe_accuracy" in measures.at(LOW)
    file = level_folder(measures.folder, LOW) / "measures.json"
    content = file.read_text()
    file.write_text(json.dumps({"step": 30}))  # a kill after this step would repeat it
    measures.observe(model, record(30, LOW))
    assert file.read_text() == content


def test_exposure_follows_its_definition(measures, model, users) -> None:
    """log2 of the number of references minus log2 of the rank among them, by canary."""
    exposures, references = measures.exposures(model), measures.references
    assert references.shape == (REFERENCES, len(users.canaries[0].ids))
    assert all(len(set(row)) == len(row) for row in references[:50].tolist())
    with torch.no_grad():
        losses = -text_log_probs(model, references.tolist())
        for copies in {canary.copies for canary in users.canaries}:
            ids = [canary.ids for canary in users.canaries if canary.copies == copies]
            ranks = [1 + int((losses <= loss).sum()) for loss in -text_log_probs(model, ids)]
            expected = [math.log2(REFERENCES) - math.log2(min(r, REFERENCES)) for r in ranks]
            assert exposures["canary"][str(copies)] == pytest.approx(np.mean(expected), abs=0.02)
    assert set(exposures["shuffled"]) == set(exposures["canary"]) == set(exposures["at_ceiling"])


@pytest.mark.slow
def test_a_training_killed_after_its_first_level_resumes(call, tmp_path, monkeypatch) -> None:
    expected = Work(tmp_path / "whole")(call).value
    work, observe = Work(tmp_path / "killed"), Measures.observe

    class Killed(Exception):
        pass

    def killed(self, model, record):
        observe(self, model, record)
        if self.at(HIGH) is not None:
            raise Killed

    with monkeypatch.context() as patched:
        patched.setattr(Measures, "observe", killed)
        with pytest.raises(Killed):
            work(call)
    assert not work.is_intact(call)
    resumed = work(call).value
    for name in ("watched", "levels"):
        assert resumed[name] == expected[name]
    assert set(resumed["levels"]) == {f"{level:g}" for level in SMOKE.levels}
    assert resumed["seconds"] > 0


@given(st.lists(st.floats(10, 1000), min_size=2, max_size=8, unique=True), st.floats(10, 1000))
@example([10.0, math.nextafter(10.0, 11.0)], 10.0)  # their logarithms are equal
@example([100.0, 25.0], 50.0)
def test_exposure_is_interpolated_between_evaluations(perplexities, level) -> None:
    falling = sorted(perplexities, reverse=True)
    evaluations = [
        {"perplexity": p, "step": i, "exposure": {"canary": {"1": float(i)}}}
        for i, p in enumerate(falling)
    ]
    result = at_level(evaluations, level)
    if level < falling[-1]:
        assert result is None
        return
    after = next(i for i, p in enumerate(falling) if p <= level)
    value = result["exposure"]["canary"]["1"]
    assert max(after - 1, 0) <= value <= after
    if after and falling[after - 1] > falling[after] * (1 + 1e-6):
        share = math.log(falling[after - 1] / level) / math.log(falling[after - 1] / falling[after])
        assert value == pytest.approx(after - 1 + share)
    if after:
        assert result["perplexity"] == level
