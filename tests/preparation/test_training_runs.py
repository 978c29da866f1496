"""What directories of trainings say of themselves, and what all trainings record."""

import json
from types import SimpleNamespace

import numpy as np
import pytest

from tests.preparation.jobs import Told, job
from vestige import results
from vestige.data.encoded import EncodedCorpus
from vestige.preparation.prepared import Prepared, _word_frequencies
from vestige.preparation.privacy import clip_advice
from vestige.preparation.run_training import log_epoch, save
from vestige.preparation.trained import (
    RUN,
    Trained,
    repeats,
)
from vestige.results import Result
from vestige.training.history import StopAtPerplexity, TrainingHistory
from vestige.training.word_frequencies import (
    frequency_perplexity,
    useless_model,
    useless_training,
)


def saved(out, **more):
    measured = Result(kind="Sums", summary={"number": 3}, rows=[{"row": 1}, {"row": 2}])
    save(job(out, seed=4), measured, configuration={"epochs": 2}, **more)


def made(kind, model=None, stop=None):
    """What a task prepared, as far as the last lines read it."""
    nothing = {"task": None, "config": None, "scores": dict}
    return Prepared(kind=kind, model=model, stop=stop, **nothing)


def encoded(*ids):
    return EncodedCorpus(np.array(ids, np.int32), np.array([0, len(ids)]))


@pytest.fixture
def summary():
    """A training as good as the frequencies of words, whatever judged it."""
    return {"word_frequency_perplexity": 7.0, "validation_perplexity": 7.0, "perplexity": 7.0}


def test_a_run_records_the_call_its_settings_and_what_else_it_is_told(tmp_path):
    saved(tmp_path, division={"held_out_documents": 5})
    run = results.load(tmp_path / RUN)
    assert run.run["verb"] == "train"
    assert run.run["seed"] == 4
    assert run.run["configuration"] == {"epochs": 2}
    assert run.run["division"] == {"held_out_documents": 5}
    assert run.summary == {"number": 3}
    assert list(run.rows) == [{"row": 1}, {"row": 2}]


def test_a_finished_training_is_what_its_directory_says(tmp_path):
    saved(tmp_path)
    history = TrainingHistory(epochs=(), best_epoch=0, stopped=False)
    found = Trained.in_folder(tmp_path, history)
    assert found.summary == {"model": str(tmp_path / "model"), "number": 3}
    assert found.record["configuration"] == {"epochs": 2}
    assert found.history is history


def test_a_directory_says_that_its_model_is_too_weak_and_nothing_else_does(tmp_path, summary):
    measured = Result(kind="Sums", summary={**summary, "judged_by": "validation"}, rows=[])
    save(job(tmp_path / "weak"), measured, configuration={})
    saved(tmp_path / "trained")
    for where in (tmp_path / "weak", str(tmp_path / "weak")):
        assert useless_model(where).startswith("The model predicts no better")
    for where in (tmp_path / "trained", tmp_path, object()):
        assert useless_model(where) is None


def test_word_frequencies_are_judged_by_the_validation_text_if_there_is_some():
    text, held = encoded(0, 0, 0, 1, 2, 2), encoded(3, 1)
    for judge, name in ((None, "training"), (held, "validation")):
        assert _word_frequencies(text, judge, 4) == {
            "word_frequency_perplexity": frequency_perplexity(text, judge or text, size=4),
            "judged_by": name,
        }


@pytest.mark.parametrize(
    ("judged_by", "change", "useless"),
    [
        ("validation", {}, True),
        ("validation", {"validation_perplexity": 3.0}, False),
        ("training", {"validation_perplexity": None}, True),
        ("training", {"perplexity": 3.0, "validation_perplexity": None}, False),
        ("validation", {"perplexity": 3.0}, True),
    ],
)
def test_a_training_is_judged_by_the_text_that_it_names(summary, judged_by, change, useless):
    sentence = useless_training({**summary, "judged_by": judged_by, **change})
    assert (sentence is not None) == useless
    assert sentence is None or sentence.startswith("The model ")


def test_a_training_that_counted_no_words_is_not_judged(summary):
    del summary["word_frequency_perplexity"]
    assert useless_training(summary) is None


def test_only_directories_of_seeds_are_repeats(tmp_path):
    for name in ("seed-2", "seed-10", "seed-x", "seed-", "run"):
        (tmp_path / name).mkdir()
    assert repeats(str(tmp_path)) == (str(tmp_path / "seed-2"), str(tmp_path / "seed-10"))
    assert repeats(str(tmp_path / "run")) == (str(tmp_path / "run"),)


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
        (
            {},
            StopAtPerplexity(5.0),
            ["Perplexity 5 was not reached. Train longer", "Epoch"],
        ),
        (
            {"validation_perplexity": 5e7},
            None,
            [
                "Epoch 2 kept, validation perplexity 5e+07",
                "That is worse than a random guess",
            ],
        ),
        (
            {"validation_perplexity": None, "perplexity": None},
            None,
            ["Epoch 2 kept, without a finite perplexity", "That is worse than a random guess"],
        ),
        (
            {"word_frequency_perplexity": 7.0, "judged_by": "validation"},
            None,
            ["Epoch 2 kept"],  # its report warns
        ),
    ],
)
def test_the_kept_epoch_is_told_with_what_to_change(change, stop, lines):
    usual = {
        "epoch": 2.0, "steps": 1200, "stopped": False, "perplexity": 9.0,
        "validation_perplexity": 8.0,
    }  # fmt: skip
    told = Told()
    model = SimpleNamespace(vocabulary=range(100))
    log_epoch({**usual, **change}, made("DefendedTraining", model, stop), told)
    assert len(told.lines) == len(lines)
    for line, begin in zip(told.lines, lines, strict=True):
        assert line.startswith(begin)


def test_a_clipping_norm_that_nothing_reaches_gets_advice(tmp_path):
    log = tmp_path / "log.jsonl"

    def write(*shares):
        lines = [{"step": n, "clipped": c, "median_norm": 0.3} for n, c in enumerate(shares)]
        log.write_text("".join(json.dumps(line) + "\n" for line in lines))

    write(0.0, 0.05)
    assert "--clip 0.3, near the median norm" in clip_advice(log)
    write(0.0, 0.5)
    assert clip_advice(log) is None
    log.write_text(json.dumps({"step": 1}) + "\n")
    assert clip_advice(log) is None
