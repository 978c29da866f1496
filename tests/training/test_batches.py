"""Batches: what is cut, what comes together, in which order and how often."""

import math
from collections import Counter
from itertools import pairwise
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from tests.training import worlds
from tests.training.worlds import CPU
from vestige.data.encoded import EncodedCorpus, EncodedPairs
from vestige.data.utterances import EncodedUtterances, Labels
from vestige.errors import TrainingError
from vestige.training.batches import IGNORED, EqualLengths, Windows
from vestige.training.config import TrainingConfig
from vestige.training.sequences import SequenceBatches, Sequences
from vestige.training.tasks import PairTask
from vestige.training.utterances import UtteranceTask

FIRST = 1
windows = st.builds(
    lambda tokens, rows, length, carries: Windows(counted(tokens), rows, length, carries, CPU),
    st.integers(30, 120), st.integers(1, 7), st.integers(1, 9), st.booleans(),
)  # fmt: skip


def counted(tokens):
    return np.arange(tokens, dtype=np.int32)


# Windows of a stream


@given(windows, st.integers(0, 3), st.integers(0, 20))
def test_windows_read_a_stream_once_row_after_row_or_in_an_order_of_their_epoch(made, epoch, first):
    tokens, rows, length = len(made.tokens), made.batch_size, made.sequence_length
    batches = list(made.epoch(5, epoch))
    assert len(batches) == len(made)
    assert all(batch.targets.equal(batch.inputs + 1) for batch in batches)
    if made.carries:
        read = torch.cat([batch.inputs for batch in batches], dim=1)
        size = (tokens - 1) // rows
        assert read.tolist() == [list(range(r * size, (r + 1) * size)) for r in range(rows)]
    else:
        read = torch.cat([batch.inputs for batch in batches])
        assert sorted(read[:, 0].tolist()) == list(range(0, tokens - length, length))
    late = [batch.inputs.tolist() for batch in made.epoch(5, epoch, first=first)]
    assert late == [batch.inputs.tolist() for batch in batches][first:]


def test_a_memory_mapped_stream_is_read_without_being_changed(tmp_path):
    np.save(tmp_path / "tokens.npy", counted(50))
    mapped = np.load(tmp_path / "tokens.npy", mmap_mode="r")
    batch = next(Windows(mapped, 2, 5, True, CPU).epoch(0, 0))
    assert batch.inputs.dtype == torch.int64
    assert batch.inputs.tolist() == [[0, 1, 2, 3, 4], [24, 25, 26, 27, 28]]


@pytest.mark.parametrize(("carries", "tokens"), [(True, 20), (False, 35)])
def test_a_text_too_short_for_one_batch_is_refused_with_the_remedy(carries, tokens):
    with pytest.raises(TrainingError, match=r"too few.*smaller batch_size"):
        Windows(counted(tokens), 20, 35, carries, CPU)
    Windows(counted(tokens + 1), 20, 35, carries, CPU)


# Documents


def corpus(lengths, users=None):
    """Documents whose tokens are all different, so that each can be found again."""
    offsets = np.cumsum([0, *lengths])
    tokens = np.arange(100, 100 + offsets[-1], dtype=np.int32)
    owners = None if users is None else np.array(users, np.int32)
    return EncodedCorpus(tokens, offsets, owners, ("a", "b", "c")[: len(set(users or []))])


def make(lengths, users=None, *, length=4, size=2, draw="documents"):
    return SequenceBatches(Sequences.of(corpus(lengths, users), length=length), size, draw, 1, CPU)


def read(batch):
    """The targets of each row, without padding."""
    return [[t for t in row if t != IGNORED] for row in batch.targets.tolist()]


@given(st.lists(st.integers(1, 12), min_size=1, max_size=12), st.integers(1, 6))
def test_documents_are_cut_into_pieces_each_read_after_the_token_before_it(lengths, length):
    data = corpus(lengths)
    pieces, documents = [], []
    for index in range(len(data)):
        text = data.document(index).tolist()
        if len(text) > 1:  # one token is the end of an empty text
            cut = [text[i : i + length] for i in range(0, len(text), length)]
            pieces += cut
            documents += [index] * len(cut)
    if not pieces:
        with pytest.raises(TrainingError, match=r"No document has a word.*more text"):
            Sequences.of(data, length=length)
        return
    sequences = Sequences.of(data, length=length)
    batch = sequences.batch(np.arange(len(sequences)), FIRST, CPU)
    assert read(batch) == pieces
    assert sequences.documents.tolist() == documents
    assert batch.lengths.tolist() == [len(piece) for piece in pieces]
    assert batch.padding == int((batch.targets == IGNORED).sum())
    assert batch.tokens == sum(map(len, pieces))
    for row, piece, document, start in zip(
        batch.inputs.tolist(), pieces, documents, sequences.starts.tolist(), strict=True
    ):
        before = FIRST if start == data.offsets[document] else data.tokens[start - 1]
        assert row[: len(piece)] == [before, *piece[:-1]]
        assert set(row[len(piece) :]) <= {FIRST}


def test_rows_selected_from_a_batch_keep_their_users_and_lose_the_columns_that_none_needs():
    sequences = Sequences.of(corpus([3, 9, 1, 5], [0, 1, 1, 2]), length=9)
    assert sequences.documents.tolist() == [0, 1, 3]
    batch = sequences.batch(np.arange(3), FIRST, CPU).select(torch.tensor([2, 0]))
    assert read(batch) == [list(range(113, 118)), [100, 101, 102]]
    assert batch.inputs.shape == (2, 5)
    assert (batch.padding, batch.lengths.tolist(), batch.users.tolist()) == (2, [5, 3], [2, 0])


@given(st.lists(st.integers(2, 13), min_size=1, max_size=12), st.integers(1, 5), st.integers(0, 3))
def test_an_epoch_of_documents_reads_each_sequence_once(lengths, size, epoch):
    batches = make(lengths, size=size)
    drawn = [row for batch in batches.epoch(0, epoch) for row in read(batch)]
    everything = batches.sequences.batch(np.arange(len(batches.sequences)), FIRST, CPU)
    assert sorted(drawn) == sorted(read(everything))
    assert len(list(batches.epoch(0, epoch))) == len(batches)


def test_batches_of_a_user_hold_nobody_elses_and_come_mixed():
    users = [0] * 5 + [1] * 3 + [2]
    batches = make([3] * 9, users, size=2, draw="users")
    assert len(batches) == 3 + 2 + 1
    seen, orders = Counter(), set()
    for epoch in range(20):
        owners = []
        for batch in batches.epoch(0, epoch):
            [owner] = set(batch.users.tolist())
            owners.append(owner)
            for [first, *_] in read(batch):
                assert users[(first - 100) // 3] == owner
                seen[first] += 1
        assert Counter(owners) == {0: 3, 1: 2, 2: 1}
        orders.add(tuple(owners))
    assert set(seen.values()) == {20}
    assert len(seen) == 9
    assert len(orders) > 5


def test_an_auxiliary_batch_is_one_users_as_often_as_they_have_sequences():
    users = [0] * 6 + [1] * 3 + [2]
    batches = make([3] * 10, users, size=2, draw="users")
    torch.manual_seed(0)
    owners = Counter()
    for _ in range(400):
        batch = batches.auxiliary(4)
        [owner] = set(batch.users.tolist())
        owners[owner] += 1
        assert len(batch.inputs) == min(4, users.count(owner))
        assert len({tuple(row) for row in read(batch)}) == len(batch.inputs)
    for owner, share in ((0, 0.6), (1, 0.3), (2, 0.1)):
        assert owners[owner] == pytest.approx(400 * share, abs=4 * math.sqrt(400 * share))


def test_an_auxiliary_batch_follows_torchs_generator_and_mixes_users():
    batches = make([3] * 9, [0, 1, 2] * 3, size=2)
    torch.manual_seed(5)
    one, other = batches.auxiliary(6), batches.auxiliary(6)
    torch.manual_seed(5)
    assert batches.auxiliary(6).inputs.equal(one.inputs)
    assert not one.inputs.equal(other.inputs)
    assert len(set(one.users.tolist())) > 1
    assert len(batches.auxiliary(99).inputs) == 9


# Rows of one length


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


ORDERED = {
    "windows": Windows(counted(500), 4, 5, False, CPU),
    "equal lengths": EqualLengths(np.arange(500) % 7, 4, lambda chosen: chosen.tolist()),
    **{draw: make([5] * 12, [0, 1, 2] * 4, draw=draw)
       for draw in ("documents", "users", "poisson", "poisson-users")},
}  # fmt: skip


@pytest.mark.parametrize("batches", ORDERED.values(), ids=ORDERED)
def test_seed_and_epoch_decide_the_order(batches):
    def order(seed, epoch):
        drawn = batches.epoch(seed, epoch)
        return [b if isinstance(b, list) else b.targets.tolist() for b in drawn]

    assert order(0, 0) == order(0, 0)
    orders = [order(*moment) for moment in ((0, 0), (0, 1), (1, 1), (1, 0), (0, 1))]
    assert all(a != b for a, b in pairwise(orders))


# Pairs and utterances

LENGTHS = np.array([(1, 3), (3, 2), (2, 5), (3, 3), (3, 9), (1, 2), (2, 2), (3, 4), (3, 2), (4, 2)])


def numbered_pairs(batch_size, length):
    """Batches of pairs that hold nothing but their number: source and target of LENGTHS."""
    sides = []
    for side in LENGTHS.T:
        ids = np.repeat(np.arange(len(side)), side).astype(np.int32)
        sides.append(EncodedCorpus(ids, np.cumsum([0, *side]).astype(np.int64)))
    return batches_of(PairTask(EncodedPairs(*sides), None), batch_size, length)


def batches_of(task, batch_size, length=100, first=77):
    config = TrainingConfig(seed=1, batch_size=batch_size, sequence_length=length)
    return task.batches(SimpleNamespace(first_token=first, device=CPU), config)


@pytest.mark.parametrize("batch_size", [1, 2, 4, 100])
def test_an_epoch_holds_every_pair_once_in_batches_of_one_source_length(batch_size):
    batches = numbered_pairs(batch_size, 100)
    assert not batches.carries
    result, seen, tokens = list(batches.epoch(7, 1)), [], 0
    assert len(result) == len(batches)
    for batch in result:
        rows, length = batch.sources.shape
        assert rows <= batch_size
        numbers = batch.sources[:, 0].tolist()
        assert (LENGTHS[numbers, 0] == length).all()
        assert (batch.sources == batch.sources[:, :1]).all()
        assert batch.inputs[:, 0].tolist() == [77] * rows
        assert batch.targets[:, 0].tolist() == numbers
        assert batch.lengths.tolist() == LENGTHS[numbers, 1].tolist()
        seen, tokens = seen + numbers, tokens + batch.tokens
    assert sorted(seen) == list(range(len(LENGTHS)))
    assert tokens == LENGTHS[:, 1].sum()


def test_long_pairs_are_cut_and_never_in_pieces():
    result = list(numbered_pairs(100, 2).epoch(0, 0))
    assert {batch.sources.shape[1] for batch in result} == {1, 2}
    assert sum(batch.tokens for batch in result) == np.minimum(LENGTHS[:, 1], 2).sum()
    assert sum(len(batch.sources) for batch in result) == len(LENGTHS)


def test_a_pair_without_a_word_to_predict_is_left_out():
    pairs = worlds.of_texts([("un", "one"), ("deux", ""), ("", "two")])
    result = list(batches_of(PairTask(pairs, None), 100).epoch(0, 0))
    assert sorted(batch.sources.tolist() for batch in result) == [[[1]], [[2, 1]]]
    nothing = PairTask(worlds.of_texts([("un", ""), ("deux", "")]), None)
    with pytest.raises(TrainingError, match="No document has a word"):
        batches_of(nothing, 100)


@pytest.mark.parametrize("batch_size", [1, 4, 100])
def test_an_epoch_holds_every_utterance_once_in_batches_of_one_length(batch_size):
    lengths = np.array([1, 3, 2, 3, 3, 1, 2, 3, 3, 4, 3])
    tokens = [[number] * length for number, length in enumerate(lengths)]
    tags = [["O"] * length for length in lengths]
    data = EncodedUtterances.of(tokens, tags, ["Go"] * 11, Labels(("Go",), ("O",)))
    batches = batches_of(UtteranceTask(data, None), batch_size)
    result = list(batches.epoch(7, 2))
    assert len(result) == len(batches)
    for batch in result:
        rows, length = batch.inputs.shape
        assert rows <= batch_size
        assert (batch.tags.shape, batch.intents.shape) == ((rows, length), (rows,))
        assert batch.tokens == rows * length
        assert (lengths[batch.inputs[:, 0]] == length).all()
    seen = [number for batch in result for number in batch.inputs[:, 0].tolist()]
    assert sorted(seen) == list(range(11))


def test_utterances_that_cannot_be_learnt_are_refused():
    labels = Labels(("Go",), ("O",))
    nothing = EncodedUtterances.of([], [], [], labels)
    lacking = EncodedUtterances.of([[1], [2]], [["O"], ["B-city"]], ["Go", "Go"], labels)
    for data, message in (
        (nothing, "There are no utterances"),
        (lacking, "1 of 2 utterances have an intent or tag that the model lacks"),
    ):
        with pytest.raises(TrainingError, match=message):
            batches_of(UtteranceTask(data, None), 2)
