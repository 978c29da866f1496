"""Windows against the stream that they were cut from, and rows of one length."""

from itertools import pairwise

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from vestige.errors import TrainingError
from vestige.training.batches import EqualLengths, Windows

CPU = torch.device("cpu")
sizes = st.tuples(st.integers(30, 120), st.integers(1, 7), st.integers(1, 9))


def stream(tokens):
    return np.arange(tokens, dtype=np.int32)


@given(sizes)
def test_rows_read_on_where_the_window_before_ended(drawn):
    tokens, rows, length = drawn
    windows = Windows(stream(tokens), rows, length, True, CPU)
    batches = list(windows.epoch(0, 0))

    read = torch.cat([batch.inputs for batch in batches], dim=1)
    row_length = (tokens - 1) // rows
    expected = [list(range(r * row_length, (r + 1) * row_length)) for r in range(rows)]

    assert read.tolist() == expected
    assert len(batches) == len(windows)
    assert all(batch.targets.equal(batch.inputs + 1) for batch in batches)


@given(sizes, st.integers(0, 3))
def test_independent_windows_are_all_read_once_in_an_order_of_their_epoch(drawn, epoch):
    tokens, rows, length = drawn
    windows = Windows(stream(tokens), rows, length, False, CPU)
    batches = list(windows.epoch(5, epoch))

    read = torch.cat([batch.inputs for batch in batches])

    assert sorted(read[:, 0].tolist()) == list(range(0, tokens - length, length))
    assert len(batches) == len(windows)
    assert all(batch.targets.equal(batch.inputs + 1) for batch in batches)
    again = torch.cat([batch.inputs for batch in windows.epoch(5, epoch)])
    assert read.equal(again)


def test_two_epochs_and_two_seeds_read_in_different_orders():
    windows = Windows(stream(500), 4, 5, False, CPU)
    rows = EqualLengths(np.arange(500) % 7, 4, lambda chosen: chosen.tolist())
    moments = ((0, 0), (0, 1), (1, 0))
    orders = [[b.inputs[:, 0].tolist() for b in windows.epoch(*moment)] for moment in moments]
    assert all(a != b for a, b in pairwise(orders))
    assert all(a != b for a, b in pairwise([list(rows.epoch(*moment)) for moment in moments]))


@given(st.lists(st.integers(1, 5), min_size=1, max_size=30), st.integers(1, 6), st.integers(0, 9))
def test_rows_of_one_length_are_all_read_once_and_an_epoch_entered_late_gives_the_rest(
    drawn, size, first
):
    lengths = np.array(drawn)
    batches = EqualLengths(lengths, size, lambda chosen: chosen.tolist())
    whole = list(batches.epoch(5, 1))
    assert sorted(row for batch in whole for row in batch) == list(range(len(lengths)))
    assert len(whole) == len(batches)
    assert all(len(batch) <= size and len(set(lengths[batch])) == 1 for batch in whole)
    assert list(batches.epoch(5, 1, first=first)) == whole[first:]


@given(sizes, st.booleans(), st.integers(0, 20))
def test_an_epoch_entered_late_gives_the_rest_of_it(drawn, contiguous, first):
    windows = Windows(stream(drawn[0]), drawn[1], drawn[2], contiguous, CPU)
    whole = [batch.inputs.tolist() for batch in windows.epoch(3, 1)]
    assert [batch.inputs.tolist() for batch in windows.epoch(3, 1, first=first)] == whole[first:]


def test_a_memory_mapped_stream_is_read_without_being_changed(tmp_path):
    np.save(tmp_path / "tokens.npy", stream(50))
    mapped = np.load(tmp_path / "tokens.npy", mmap_mode="r")
    batch = next(Windows(mapped, 2, 5, True, CPU).epoch(0, 0))
    assert batch.inputs.dtype == torch.int64
    assert batch.inputs.tolist() == [[0, 1, 2, 3, 4], [24, 25, 26, 27, 28]]


@pytest.mark.parametrize(("contiguous", "tokens"), [(True, 20), (False, 35)])
def test_a_text_too_short_for_one_batch_is_refused_with_the_remedy(contiguous, tokens):
    with pytest.raises(TrainingError, match=r"too few.*smaller batch_size"):
        Windows(stream(tokens), 20, 35, contiguous, CPU)
    Windows(stream(tokens + 1), 20, 35, contiguous, CPU)
