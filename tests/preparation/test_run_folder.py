"""The record of a training, and its last lines in the log."""

from types import SimpleNamespace

import pytest

from tests.preparation.trainings import session
from vestige import results
from vestige.preparation.run_training import log_result, save
from vestige.preparation.trained import RUN, Trained, repeats
from vestige.preparation.training_setup import TrainingSetup
from vestige.results import Result
from vestige.training.history import StopAtPerplexity, TrainingHistory
from vestige.training.word_frequencies import useless_model, useless_training


def test_a_run_records_the_call_and_further_entries(tmp_path, monitor):
    result = Result(kind="Sums", summary={"number": 3}, rows=[{"row": 1}, {"row": 2}])
    entries = {"configuration": {"epochs": 2}, "division": {"held_out_documents": 5}}
    save(session(tmp_path, monitor, seed=4), result, **entries)
    run = results.load(tmp_path / RUN)
    assert run.run.items() >= {"verb": "train", "seed": 4, **entries}.items()
    assert (run.summary, list(run.rows)) == ({"number": 3}, [{"row": 1}, {"row": 2}])
    history = TrainingHistory(epochs=(), best_epoch=0, stopped=False)
    loaded = Trained.load(tmp_path, history)
    assert loaded.summary == {"model": str(tmp_path / "model"), "number": 3}
    assert loaded.record["configuration"] == {"epochs": 2}
    assert loaded.history is history
    assert useless_model(tmp_path) is None  # it has no word frequencies


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
def test_a_model_no_better_than_word_frequencies_is_useless(tmp_path, monitor, change, useless):
    names = ("word_frequency_perplexity", "validation_perplexity", "perplexity")
    summary = {**dict.fromkeys(names, 7.0), **change}
    assert (useless_training(summary) is not None) == useless
    result = Result(kind="Sums", summary=summary, rows=[])
    save(session(tmp_path, monitor), result, configuration={})
    for path in (tmp_path, str(tmp_path)):
        warning = useless_model(path)
        assert (warning is not None) == useless
        assert warning is None or warning.startswith("The model predicts no better")
    for other in (tmp_path / "nowhere", object()):
        assert useless_model(other) is None


def test_only_directories_of_seeds_are_repeats(tmp_path):
    for name in ("seed-2", "seed-10", "seed-x", "seed-", "run"):
        (tmp_path / name).mkdir()
    assert repeats(str(tmp_path)) == (str(tmp_path / "seed-2"), str(tmp_path / "seed-10"))
    assert repeats(str(tmp_path / "run")) == (str(tmp_path / "run"),)


RANDOM = "That is worse than a random guess"


@pytest.mark.parametrize(
    ("change", "stop", "expected"),
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
        # The report has the warning of a model that is no better than word frequencies.
        ({"word_frequency_perplexity": 7.0, "judged_by": "validation"}, None, ["Epoch 2 kept"]),
    ],
)
def test_the_chosen_epoch_is_logged_with_advice(monitor, change, stop, expected):
    summary = {"epoch": 2.0, "steps": 1200, "stopped": False, "perplexity": 9.0}
    model = SimpleNamespace(vocabulary=range(100))
    setup = TrainingSetup(
        kind="DefendedTraining", model=model, stop=stop, task=None, config=None, measure=dict
    )
    log_result({**summary, "validation_perplexity": 8.0, **change}, setup, monitor)
    for line, start in zip(monitor.lines, expected, strict=True):
        assert line.startswith(start)
