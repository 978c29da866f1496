"""Documents as padded sequences: what is cut, what comes together, and how often."""

import math
from collections import Counter

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from vestige.data.encoded import EncodedCorpus
from vestige.errors import TrainingError
from vestige.training.batches import IGNORED
from vestige.training.sequences import SequenceBatches, Sequences

CPU = torch.device("cpu")
FIRST = 1
sizes = st.lists(st.integers(1, 12), min_size=1, max_size=12)


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


@given(sizes, st.integers(1, 6))
def test_documents_are_cut_into_pieces_each_of_which_begins_as_a_text_does(lengths, length):
    data = corpus(lengths)
    pieces, documents = [], []
    for index in range(len(data)):
        text = data.document(index).tolist()
        if len(text) > 1:
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


@pytest.mark.slow
@pytest.mark.parametrize("draw", ["poisson", "poisson-users"])
@given(sizes=sizes, length=st.integers(1, 5), data=st.data())
def test_by_lot_a_token_is_read_by_one_sequence_alone(draw, sizes, length, data):
    sizes = [size + 1 for size in sizes]
    plain = corpus(sizes, [0] * len(sizes))
    changed = corpus(sizes, [0] * len(sizes))
    changed.tokens[data.draw(st.integers(0, len(plain.tokens) - 1))] = 99
    size = 1 if draw == "poisson-users" else len(Sequences.of(plain, length=length))
    rows = []
    for read_of in (plain, changed):
        sequences = Sequences.of(read_of, length=length)
        [batch] = SequenceBatches(sequences, size, draw, FIRST, CPU).epoch(0, 0)
        rows.append(torch.cat([batch.inputs, batch.targets], 1))
    assert (rows[0] != rows[1]).any(1).sum() == 1  # every sequence is drawn: q = 1
    assert (batch.inputs[:, 0] == FIRST).all()


@given(sizes, st.integers(1, 5), st.integers(0, 3))
def test_an_epoch_of_documents_reads_each_sequence_once(lengths, size, epoch):
    batches = make([n + 1 for n in lengths], size=size)
    drawn = [row for batch in batches.epoch(0, epoch) for row in read(batch)]
    everything = batches.sequences.batch(np.arange(len(batches.sequences)), FIRST, CPU)
    assert sorted(drawn) == sorted(read(everything))
    assert len(list(batches.epoch(0, epoch))) == len(batches)


@pytest.mark.parametrize("draw", ["documents", "users", "poisson", "poisson-users"])
def test_seed_and_epoch_decide_the_order(draw):
    batches = make([5] * 12, [0, 1, 2] * 4, size=2, draw=draw)

    def drawn(seed, epoch):
        return [read(batch) for batch in batches.epoch(seed, epoch)]

    assert drawn(0, 0) == drawn(0, 0)
    assert drawn(0, 0) != drawn(0, 1) != drawn(1, 1)
    assert drawn(1, 0) != drawn(0, 1)


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


def test_a_lot_for_users_brings_all_that_is_theirs():
    users = [0, 1, 2, 0, 1, 0]
    batches = make([3, 9, 2, 4, 3, 2], users, size=1, draw="poisson-users")
    assert (batches.unit, batches.units, len(batches)) == ("user", 3, 3)
    assert batches.sample_rate == pytest.approx(1 / 3)
    own = Counter(batches.sequences.users.tolist())
    assert own == {0: 3, 1: 4, 2: 1}
    times = Counter()
    for epoch in range(100):
        for batch in batches.epoch(0, epoch):
            drawn = Counter(batch.users.tolist())
            assert all(count == own[user] for user, count in drawn.items())
            times.update(drawn.keys())
    for user in range(3):
        assert times[user] == pytest.approx(100, abs=4 * math.sqrt(300 * 2 / 9))


def test_lots_are_independent_and_as_likely_as_they_say():
    batches = make([3] * 20, size=5, draw="poisson")
    assert (batches.unit, batches.units, batches.sample_rate) == ("sequence", 20, 0.25)
    drawn = np.zeros((800, 20))
    for place, batch in enumerate(b for e in range(200) for b in batches.epoch(0, e)):
        for [first, *_] in read(batch):
            drawn[place, (first - 100) // 3] += 1
    assert drawn.max() == 1
    deviation = math.sqrt(0.25 * 0.75 / 800)
    assert np.abs(drawn.mean(0) - 0.25).max() < 4.5 * deviation
    together = np.corrcoef(drawn.T)[np.triu_indices(20, 1)]
    assert np.abs(together).max() < 5 / math.sqrt(800)
    assert np.abs(np.corrcoef(drawn[:-1, 0], drawn[1:, 0])[0, 1]) < 4 / math.sqrt(800)


def lots_of(batches, epochs, seed=0):
    """(lots, units) who came into each lot."""
    lots = [chosen for epoch in range(epochs) for chosen in batches._plan(seed, epoch)]
    drawn = np.zeros((len(lots), batches.units), bool)
    for place, chosen in enumerate(lots):
        drawn[place, chosen] = True
    return drawn


def test_lots_are_distributed_as_opacus_draws_them():
    """Sizes by Kolmogorov-Smirnov's two samples, units by their frequencies."""
    samplers = pytest.importorskip("opacus.utils.uniform_sampler")
    from scipy.stats import binom, chi2, ks_2samp, kstest

    batches = make([3] * 60, size=9, draw="poisson")
    mine = lots_of(batches, 500)
    theirs = np.zeros_like(mine)
    sampler = samplers.UniformWithReplacementSampler(
        num_samples=60,
        sample_rate=batches.sample_rate,
        generator=torch.Generator().manual_seed(0),
        steps=len(mine),
    )
    for place, chosen in enumerate(sampler):
        theirs[place, chosen] = True
    assert ks_2samp(mine.sum(1), theirs.sum(1)).pvalue > 1e-3
    spread = np.random.default_rng(0).uniform(-0.5, 0.5, len(mine))  # a count is no continuum
    law = binom(60, batches.sample_rate)
    assert kstest(mine.sum(1) + spread, lambda x: _smooth(law, x)).pvalue > 1e-3
    expected = len(mine) * batches.sample_rate
    variance = expected * (1 - batches.sample_rate)
    for drawn in (mine, theirs):
        statistic = ((drawn.sum(0) - expected) ** 2 / variance).sum()
        assert chi2.sf(statistic, 60) > 1e-3


def _smooth(law, x):
    """The distribution function of a count plus a uniform number in (-1/2, 1/2)."""
    whole = np.floor(x + 0.5)
    return law.cdf(whole - 1) + law.pmf(whole) * (x + 0.5 - whole)


def test_lots_follow_all_of_a_long_seed():
    """A secret of 256 bits decides with each of them."""
    batches = make([3] * 60, size=9, draw="poisson")
    secret = 2**255 + 12345
    drawn = [lots_of(batches, 1, seed) for seed in (secret, secret, secret ^ 2**254, secret ^ 1)]
    assert (drawn[0] == drawn[1]).all()
    assert (drawn[0] != drawn[2]).any()
    assert (drawn[0] != drawn[3]).any()


def test_a_sample_rate_of_one_draws_everybody():
    assert lots_of(make([3] * 7, size=7, draw="poisson"), 20).all()


def test_an_empty_lot_is_a_batch_without_rows():
    batches = make([3] * 8, size=1, draw="poisson")
    empty = [b for epoch in range(5) for b in batches.epoch(0, epoch) if not len(b.inputs)]
    assert empty
    assert all((b.tokens, b.padding, len(b.lengths)) == (0, 0, 0) for b in empty)


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


def test_rows_selected_from_a_batch_lose_the_columns_that_none_needs():
    sequences = Sequences.of(corpus([3, 9, 5], [0, 1, 2]), length=9)
    batch = sequences.batch(np.arange(3), FIRST, CPU).select(torch.tensor([2, 0]))
    assert read(batch) == [list(range(112, 117)), [100, 101, 102]]
    assert batch.inputs.shape == (2, 5)
    assert (batch.padding, batch.lengths.tolist(), batch.users.tolist()) == (2, [5, 3], [2, 0])


def test_lengths_and_users_of_an_empty_text_are_left_out():
    sequences = Sequences.of(corpus([1, 4, 1], [0, 1, 2]), length=4)
    assert sequences.documents.tolist() == [1]
    assert sequences.users.tolist() == [1]


@pytest.mark.parametrize("draw", ["users", "poisson-users"])
def test_batches_by_user_need_users(draw):
    with pytest.raises(TrainingError, match=r"a user for each document.*--user"):
        make([3] * 4, draw=draw)


@pytest.mark.parametrize(("draw", "what"), [("poisson", "sequences"), ("poisson-users", "users")])
def test_more_than_there_are_cannot_be_drawn(draw, what):
    with pytest.raises(TrainingError, match=rf"7 exceeds the \d {what}.*smaller batch_size"):
        make([3] * 6, [0, 1, 2] * 2, size=7, draw=draw)
