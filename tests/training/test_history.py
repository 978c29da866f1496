"""What a history says of a training, and when a perplexity ends one."""

import math
from dataclasses import replace

import pytest

from vestige.training.history import EpochRecord, StopAtPerplexity, TrainingHistory, best_epoch


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
