"""What directories of trainings say of themselves, and what all trainings record."""

import math
from dataclasses import dataclass

import numpy as np
import pytest

from tests.preparation.jobs import request
from vestige import results
from vestige.data.encoded import EncodedCorpus
from vestige.result import Result
from vestige.training.history import TrainingHistory
from vestige.training_runs import (
    RUN,
    repeats,
    training_summary,
    useless_model,
    useless_training,
)
from vestige.workflows.training_run import finished, frequencies, save


@dataclass(frozen=True, kw_only=True)
class Sums(Result):
    """A training that came to a number."""

    number: int

    def summary(self):
        return {"number": self.number}

    def rows(self):
        return [{"row": 1}, {"row": 2}]


def saved(out, **more):
    asked = request(out, seed=4)
    save(asked, Sums(number=3), {"epochs": 2}, {"models": {"trained": {}}, "data": {}}, **more)
    return asked


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
    asked, history = saved(tmp_path), TrainingHistory(epochs=(), best_epoch=0, stopped=False)
    found = finished(asked, history)
    assert found.summary == {"model": str(tmp_path / "model"), "number": 3}
    assert found.record["configuration"] == {"epochs": 2}
    assert found.history is history


def test_a_summary_is_read_from_a_directory_and_nothing_from_elsewhere(tmp_path):
    saved(tmp_path / "trained")
    assert training_summary(tmp_path / "trained") == {"number": 3}
    assert training_summary(str(tmp_path / "trained")) == {"number": 3}
    assert training_summary(tmp_path) == {}
    assert training_summary(object()) == {}
    assert useless_model(object()) is None


def test_frequencies_are_those_of_witten_and_bell():
    """p(w) = (c(w) + T / V) / (N + T), with N = 6 tokens of which T = 3 differ, of V = 4."""
    text = encoded(0, 0, 0, 1, 2, 2)
    p = [(count + 3 / 4) / 9 for count in (3, 1, 2, 0)]
    own = math.prod((p[0], p[0], p[0], p[1], p[2], p[2])) ** (-1 / 6)
    assert frequencies(text, None, 4) == {
        "word_frequency_perplexity": pytest.approx(own),
        "judged_by": "training",
    }
    assert frequencies(text, encoded(3, 1), 4) == {
        "word_frequency_perplexity": pytest.approx((p[3] * p[1]) ** (-1 / 2)),
        "judged_by": "validation",
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
    sentence = useless_training({**summary, "judged_by": judged_by, **change}, who="Model 2")
    assert (sentence is not None) == useless
    assert sentence is None or sentence.startswith("Model 2 ")


def test_a_training_that_counted_no_words_is_not_judged(summary):
    del summary["word_frequency_perplexity"]
    assert useless_training(summary) is None


def test_only_directories_of_seeds_are_repeats(tmp_path):
    for name in ("seed-2", "seed-10", "seed-x", "seed-", "run"):
        (tmp_path / name).mkdir()
    assert repeats(str(tmp_path)) == (str(tmp_path / "seed-2"), str(tmp_path / "seed-10"))
