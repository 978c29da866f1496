"""What a training says of itself: its records, when to stop, its costs, whether it learnt."""

import math
import mmap
from collections import Counter
from dataclasses import replace

import numpy as np
import pytest

from tests.training.worlds import CPU, language_model, stream
from vestige import memory as peak_memory
from vestige.data.encoded import EncodedCorpus
from vestige.memory import PeakMemory
from vestige.training.config import TrainingConfig
from vestige.training.history import (
    EarlyStopping,
    EpochRecord,
    StopAtPerplexity,
    TrainingHistory,
    best_epoch,
)
from vestige.training.loop import train
from vestige.training.steps import plain_step
from vestige.training.word_frequencies import (
    frequency_perplexity,
    is_useless,
    token_counts,
    useless_words,
)


def record(number, perplexity, **changes):
    whole = EpochRecord(
        epoch=number,
        step=10 * number,
        learning_rate=0.1,
        perplexity=50.0,
        validation_perplexity=perplexity,
        validation_accuracy=None if perplexity is None else 0.3,
        tokens=100,
        seconds=2.0,
    )
    return replace(whole, **changes)


def records(*perplexities):
    return [record(number, one) for number, one in enumerate(perplexities, 1)]


@pytest.mark.parametrize(
    ("last", "ends"), [(90.1, False), (90.0, True), (12.0, True), (None, False), (math.inf, False)]
)
def test_it_stops_at_the_perplexity_or_below_and_looks_at_the_last_record_alone(last, ends):
    stop = StopAtPerplexity(90.0)
    assert stop(records(last)) is ends
    assert stop(records(20.0, last)) is ends


def test_early_stopping_waits_for_its_patience():
    stop, heights = EarlyStopping(2), [5.0, 4.0, 4.5, 3.0, 3.0, 3.5, 1.0]
    ends = [stop(records(*heights[:number])) for number in range(1, len(heights) + 1)]
    assert ends == [False, False, False, False, False, True, False]


def test_the_best_record_is_the_first_of_the_lowest_perplexity():
    assert best_epoch(records(3.0, 2.0, 2.0, 5.0)) == 2
    assert best_epoch(records(None, None)) == 2


def test_costs_are_those_of_the_whole_training():
    both = (record(1, 3.0), record(2, 4.0, epoch=1.5, step=15, tokens=50, seconds=1.0))
    history = TrainingHistory(epochs=both, best_epoch=1, stopped=True, peak_memory_mib=7.0)
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
    assert history.rows() == [one.row() for one in both]
    timeless = replace(history, epochs=(record(1, None, seconds=0.0),), peak_memory_mib=None)
    assert timeless.cost()["tokens_per_second"] is timeless.cost()["peak_memory_mib"] is None


def test_seconds_and_memory_are_not_what_a_training_is():
    assert record(1, 3.0, seconds=9.0) == record(1, 3.0)
    history = TrainingHistory(epochs=(record(1, 3.0),), best_epoch=1, stopped=False)
    assert replace(history, peak_memory_mib=1.0) == history


# Word frequencies


def text(*tokens):
    return EncodedCorpus(np.array(tokens, np.int32), np.array([0, len(tokens)]))


def test_the_perplexity_of_word_frequencies_is_the_definition(monkeypatch):
    chance, size = np.random.default_rng(0), 40
    training, held = chance.zipf(1.5, 500) % size, chance.integers(0, size, 90)
    counts, seen = Counter(training.tolist()), len(set(training.tolist()))
    logs = [math.log((counts[w] + seen / size) / (500 + seen)) for w in held.tolist()]
    result = frequency_perplexity(text(*training), text(*held), size=size)
    assert result == pytest.approx(math.exp(-sum(logs) / 90))
    monkeypatch.setattr("vestige.training.word_frequencies._PIECE", 7)  # read in pieces
    assert token_counts(text(*training), size).tolist() == [counts[w] for w in range(size)]


def test_probabilities_sum_to_one_and_nothing_counted_is_guessing():
    each = [1 / frequency_perplexity(text(0, 0, 1, 3), text(w), size=6) for w in range(6)]
    assert sum(each) == pytest.approx(1)
    assert frequency_perplexity(text(), text(1, 2), size=8) == pytest.approx(8)


@pytest.mark.parametrize(
    ("own", "alone", "useless"),
    [(99.0, 100.0, False), (100.0, 100.0, True), (math.inf, 9.0, True), (None, 9.0, True),
     (math.nan, 9.0, True), (5.0, None, False)],
)  # fmt: skip
def test_a_model_is_useful_only_below(own, alone, useless):
    assert is_useless(own, alone) is useless


@pytest.mark.parametrize(("own", "shown"), [(4631.2, "4,631"), (None, "not finite")])
def test_the_warning_has_both_numbers(own, shown):
    warning = useless_words(own, 512.3, who="gold")
    assert warning.startswith("gold predicts no better than word frequencies")
    assert f"perplexity {shown}" in warning
    assert "word frequencies 512" in warning


# Memory

CONFIG = TrainingConfig(seed=3, epochs=1, batch_size=4, sequence_length=5, max_grad_norm=None)


def pages(mib):
    """Memory that is new to the process: what a library frees, the C library may keep."""
    held = mmap.mmap(-1, mib << 20)
    for start in range(0, len(held), mmap.PAGESIZE):
        held[start] = 1
    return held


@pytest.fixture
def _measured():
    if PeakMemory(CPU).mib() is None:
        pytest.skip("this system does not tell how large a process was")


@pytest.mark.usefixtures("_measured")
def test_what_came_and_went_is_counted_and_what_was_there_before_is_not():
    before = pages(64)
    memory = PeakMemory(CPU)
    passing = pages(96)
    assert memory.mib() == pytest.approx(96, abs=8)
    passing.close()
    assert memory.mib() == pytest.approx(96, abs=8)
    assert PeakMemory(CPU).mib() < 8
    before.close()


def test_where_the_system_does_not_tell_it_is_none(tmp_path, monkeypatch):
    monkeypatch.setattr(peak_memory, "_PROCESS", tmp_path / "absent")
    assert PeakMemory(CPU).mib() is None
    (tmp_path / "absent").mkdir()
    (tmp_path / "absent" / "status").write_text("Name:\tpython\n")
    assert PeakMemory(CPU).mib() is None


@pytest.mark.usefixtures("_measured")
def test_a_training_says_what_it_took_unless_it_was_resumed(tmp_path):
    plain = plain_step()

    def wasteful(model, batch, state):
        pages(48).close()
        return plain(model, batch, state)

    how = {"config": CONFIG, "step": wasteful, "directory": tmp_path}
    assert 40 < train(language_model(), stream(), **how).peak_memory_mib < 80
    assert train(language_model(), stream(), resume=True, **how).peak_memory_mib is None
