"""What a training says of itself: its records, its costs, and whether it learnt anything."""

import math
import mmap
from collections import Counter
from dataclasses import replace

import numpy as np
import pytest
import torch

from vestige import memory as peak_memory
from vestige.data.encoded import EncodedCorpus
from vestige.memory import PeakMemory
from vestige.training.config import TrainingConfig
from vestige.training.history import EpochRecord, StopAtPerplexity, TrainingHistory, best_epoch
from vestige.training.loop import train
from vestige.training.word_frequencies import (
    frequency_perplexity,
    is_useless,
    token_counts,
    useless_words,
)


def record(number, perplexity, **changes):
    return replace(
        EpochRecord(
            epoch=number,
            step=10 * number,
            learning_rate=0.1,
            perplexity=50.0,
            validation_perplexity=perplexity,
            validation_accuracy=None if perplexity is None else 0.3,
            tokens=100,
            seconds=2.0,
        ),
        **changes,
    )


@pytest.mark.parametrize(
    ("last", "ends"), [(90.1, False), (90.0, True), (12.0, True), (None, False), (math.inf, False)]
)
def test_it_stops_at_the_perplexity_or_below_and_looks_at_the_last_record_alone(last, ends):
    stop = StopAtPerplexity(90.0)
    assert stop([record(1, last)]) is ends
    assert stop([record(1, 20.0), record(2, last)]) is ends


def test_the_best_record_is_the_first_of_the_lowest_perplexity():
    assert best_epoch([record(1, 3.0), record(2, 2.0), record(3, 2.0), record(4, 5.0)]) == 2
    assert best_epoch([record(1, None), record(2, None)]) == 2


def test_costs_are_those_of_the_whole_training():
    records = (record(1, 3.0), record(2, 4.0, epoch=1.5, step=15, tokens=50, seconds=1.0))
    history = TrainingHistory(epochs=records, best_epoch=1, stopped=True, peak_memory_mib=7.0)
    assert history.cost() == {
        "steps": 15,
        "tokens": 150,
        "seconds": 3.0,
        "tokens_per_second": 50.0,
        "seconds_per_epoch": 2.0,
        "peak_memory_mib": 7.0,
    }
    summary = history.summary()
    assert (summary["validation_perplexity"], summary["epoch"]) == (3.0, 1)
    assert (summary["stopped"], summary["tokens"], summary["seconds"]) == (True, 150, 3.0)
    assert history.rows() == [one.row() for one in records]


def test_no_time_at_all_has_no_speed():
    history = TrainingHistory(epochs=(record(1, None, seconds=0.0),), best_epoch=1, stopped=False)
    assert history.cost()["tokens_per_second"] is None
    assert history.cost()["peak_memory_mib"] is None


def test_seconds_and_memory_are_not_what_a_training_is():
    assert record(1, 3.0, seconds=9.0) == record(1, 3.0)
    one, other = (
        TrainingHistory(
            epochs=(record(1, 3.0),), best_epoch=1, stopped=False, peak_memory_mib=memory
        )
        for memory in (1.0, None)
    )
    assert one == other


def text(*tokens):
    return EncodedCorpus(np.array(tokens, np.int32), np.array([0, len(tokens)]))


def naive(training, held, size):
    counts, seen = Counter(training), len(set(training))
    logs = [math.log((counts[w] + seen / size) / (len(training) + seen)) for w in held]
    return math.exp(-sum(logs) / len(held))


def test_it_is_the_definition():
    chance = np.random.default_rng(0)
    training, held = chance.zipf(1.5, 500) % 40, chance.integers(0, 40, 90)
    found = frequency_perplexity(text(*training), text(*held), size=40)
    assert found == pytest.approx(naive(training.tolist(), held.tolist(), 40))


def test_probabilities_sum_to_one():
    training = text(0, 0, 1, 3)
    each = [1 / frequency_perplexity(training, text(w), size=6) for w in range(6)]
    assert sum(each) == pytest.approx(1)


def test_nothing_counted_is_guessing():
    assert frequency_perplexity(text(), text(1, 2), size=8) == pytest.approx(8)


def test_counts_do_not_depend_on_pieces(monkeypatch):
    data = text(*range(10), 3, 3)
    whole = token_counts(data, 12)
    monkeypatch.setattr("vestige.training.word_frequencies._PIECE", 5)
    assert token_counts(data, 12).tolist() == whole.tolist()


@pytest.mark.parametrize(
    ("own", "alone", "useless"),
    [(99.0, 100.0, False), (100.0, 100.0, True), (math.inf, 9.0, True), (None, 9.0, True),
     (math.nan, 9.0, True), (5.0, None, False)],
)  # fmt: skip
def test_a_model_is_useful_only_below(own, alone, useless):
    assert is_useless(own, alone) is useless


@pytest.mark.parametrize(("own", "shown"), [(4631.2, "4,631"), (None, "not finite")])
def test_the_sentence_has_both_numbers(own, shown):
    told = useless_words(own, 512.3, who="gold")
    assert told.startswith("gold predicts no better than word frequencies")
    assert f"perplexity {shown}" in told
    assert "word frequencies 512" in told


CPU = torch.device("cpu")
CONFIG = TrainingConfig(seed=3, epochs=1, batch_size=4, sequence_length=5, checkpoint_every=4)


def pages(mib):
    """Memory that is new to the process: what a library frees, the C library may keep."""
    held = mmap.mmap(-1, mib << 20)
    for start in range(0, len(held), mmap.PAGESIZE):
        held[start] = 1
    return held


@pytest.fixture
def _told():
    if PeakMemory(CPU).mib() is None:
        pytest.skip("this system does not tell how large a process was")


@pytest.mark.usefixtures("_told")
def test_what_came_and_went_is_counted_and_what_was_there_before_is_not():
    before = pages(64)
    memory = PeakMemory(CPU)
    passing = pages(96)
    assert memory.mib() == pytest.approx(96, abs=8)
    passing.close()
    assert memory.mib() == pytest.approx(96, abs=8)
    anew = PeakMemory(CPU)
    assert anew.mib() < 8
    before.close()


def test_where_nobody_tells_it_is_none(tmp_path, monkeypatch):
    monkeypatch.setattr(peak_memory, "_PROCESS", tmp_path / "absent")
    assert PeakMemory(CPU).mib() is None
    (tmp_path / "absent").mkdir()
    (tmp_path / "absent" / "status").write_text("Name:\tpython\n")
    assert PeakMemory(CPU).mib() is None


@pytest.mark.usefixtures("_told")
def test_a_training_says_what_it_took_unless_it_was_resumed(make_model, make_text, tmp_path):
    history = train(make_model(), make_text(), config=CONFIG, directory=tmp_path)
    assert history.peak_memory_mib >= 0
    resumed = train(make_model(), make_text(), config=CONFIG, directory=tmp_path, resume=True)
    assert resumed.peak_memory_mib is None


@pytest.mark.usefixtures("_told")
def test_a_step_that_takes_memory_shows(make_model, make_text):
    from vestige.training.steps import plain_step

    plain = plain_step()

    def wasteful(model, batch, state):
        pages(48).close()
        return plain(model, batch, state)

    history = train(
        make_model(), make_text(), config=replace(CONFIG, max_grad_norm=None), step=wasteful
    )
    assert 40 < history.peak_memory_mib < 80
