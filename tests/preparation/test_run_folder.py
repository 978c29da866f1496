"""The record of a training, and its last lines in the log."""

from types import SimpleNamespace

import pytest

from tests.preparation.trainings import job
from vestige import results
from vestige.preparation.run_training import log_result, save
from vestige.preparation.trained import RUN, Trained, repeats
from vestige.preparation.training_setup import TrainingSetup
from vestige.results import Result
from vestige.training.history import StopAtPerplexity, TrainingHistory
from vestige.training.word_frequencies import useless_model, useless_training

AS_GOOD = {"word_frequency_perplexity": 7.0, "validation_perplexity": 7.0, "perplexity": 7.0}
"""A training as good as the frequencies of words, whatever judged it."""


def test_a_run_records_the_call_and_further_entries(tmp_path, told):
    measured = Result(kind="Sums", summary={"number": 3}, rows=[{"row": 1}, {"row": 2}])
    more = {"configuration": {"epochs": 2}, "division": {"held_out_documents": 5}}
    save(job(tmp_path, told, seed=4), measured, **more)
    run = results.load(tmp_path / RUN)
    assert run.run.items() >= {"verb": "train", "seed": 4, **more}.items()
    assert (run.summary, list(run.rows)) == ({"number": 3}, [{"row": 1}, {"row": 2}])
    history = TrainingHistory(epochs=(), best_epoch=0, stopped=False)
    found = Trained.load(tmp_path, history)
    assert found.summary == {"model": str(tmp_path / "model"), "number": 3}
    assert found.record["configuration"] == {"epochs": 2}
    assert found.history is history
    assert useless_model(tmp_path) is None  # it counted no words


@pytest.mark.parametrize(
    ("change", "useless"),
    [
        ({"judged_by": "validation"}, True),
        ({"judged_by": "validation", "perplexity": 3.0}, True),
        ({"judged_by": "validation", "validation_perplexity": 3.0}, False),
        ({"judged_by": "training", "validation_perplexity": None}, True),
        ({"judged_by": "training", "validation_perplexity": None, "perplexity": 3.0}, False),
    ],
)
def test_a_training_is_judged_by_its_recorded_text(tmp_path, told, change, useless):
    summary = {**AS_GOOD, **change}
    assert (useless_training(summary) is not None) == useless
    save(job(tmp_path, told), Result(kind="Sums", summary=summary, rows=[]), configuration={})
    for where in (tmp_path, str(tmp_path)):
        found = useless_model(where)
        assert (found is not None) == useless
        assert found is None or found.startswith("The model predicts no better")
    for nothing in (tmp_path / "nowhere", object()):
        assert useless_model(nothing) is None


def test_only_directories_of_seeds_are_repeats(tmp_path):
    for name in ("seed-2", "seed-10", "seed-x", "seed-", "run"):
        (tmp_path / name).mkdir()
    assert repeats(str(tmp_path)) == (str(tmp_path / "seed-2"), str(tmp_path / "seed-10"))
    assert repeats(str(tmp_path / "run")) == (str(tmp_path / "run"),)


RANDOM = "That is worse than a random guess"


@pytest.mark.parametrize(
    ("change", "stop", "lines"),
    [
        ({}, None, ["Epoch 2 kept, validation perplexity 8.0"]),
        ({"validation_perplexity": None}, None, ["Epoch 2 kept, perplexity 9.0"]),
        (
            {"stopped": True},
            StopAtPerplexity(9.0),
            ["Stopped after 1,200 steps (--stop-at-perplexity)", "Epoch 2 kept, valid"],
        ),
        ({}, StopAtPerplexity(5.0), ["Perplexity 5 was not reached. Train longer", "Epoch"]),
        (
            {"validation_perplexity": 5e7},
            None,
            ["Epoch 2 kept, validation perplexity 5e+07", RANDOM],
        ),
        (
            {"validation_perplexity": None, "perplexity": None},
            None,
            ["Epoch 2 kept, without a finite perplexity", RANDOM],
        ),
        # its report warns of a model as good as word frequencies
        ({"word_frequency_perplexity": 7.0, "judged_by": "validation"}, None, ["Epoch 2 kept"]),
    ],
)
def test_the_chosen_epoch_is_logged_with_advice(told, change, stop, lines):
    usual = {"epoch": 2.0, "steps": 1200, "stopped": False, "perplexity": 9.0}
    model = SimpleNamespace(vocabulary=range(100))
    made = TrainingSetup(
        kind="DefendedTraining", model=model, stop=stop, task=None, config=None, measure=dict
    )
    log_result({**usual, "validation_perplexity": 8.0, **change}, made, told)
    assert [line.startswith(begin) for line, begin in zip(told.lines, lines, strict=True)] == [
        True
    ] * len(lines)
