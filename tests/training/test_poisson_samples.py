"""Poisson samples: independent, as likely as they say, and all that is theirs at once."""

import math
from collections import Counter

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from tests.training.test_batches import FIRST, corpus, make, read
from tests.training.worlds import CPU
from vestige.errors import TrainingError
from vestige.training.sequences import SequenceBatches, Sequences


def drawn_units(batches, epochs, seed=0):
    """(batches, units) who came into each batch."""
    samples = [chosen for epoch in range(epochs) for chosen in batches._plan(seed, epoch)]
    drawn = np.zeros((len(samples), batches.units), bool)
    for position, chosen in enumerate(samples):
        drawn[position, chosen] = True
    return drawn


@pytest.mark.slow
@pytest.mark.parametrize("draw", ["poisson", "poisson-users"])
@given(
    sizes=st.lists(st.integers(2, 13), min_size=1, max_size=12),
    length=st.integers(1, 5),
    data=st.data(),
)
def test_a_token_is_read_by_one_sampled_sequence_alone(draw, sizes, length, data):
    plain, changed = (corpus(sizes, [0] * len(sizes)) for _ in range(2))
    changed.tokens[data.draw(st.integers(0, len(plain.tokens) - 1))] = 99
    size = 1 if draw == "poisson-users" else len(Sequences.of(plain, length=length))
    rows = []
    for text in (plain, changed):
        sequences = Sequences.of(text, length=length)
        [batch] = SequenceBatches(sequences, size, draw, FIRST, CPU).epoch(0, 0)
        rows.append(torch.cat([batch.inputs, batch.targets], 1))
    assert (rows[0] != rows[1]).any(1).sum() == 1  # every sequence is drawn: q = 1
    assert (batch.inputs[:, 0] == FIRST).all()


def test_a_sampled_user_brings_all_that_is_theirs():
    batches = make([3, 9, 2, 4, 3, 2], [0, 1, 2, 0, 1, 0], size=1, draw="poisson-users")
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


def test_samples_are_independent_and_as_likely_as_they_say():
    batches = make([3] * 20, size=5, draw="poisson")
    assert (batches.unit, batches.units, batches.sample_rate) == ("sequence", 20, 0.25)
    drawn = np.zeros((800, 20))
    for position, batch in enumerate(b for e in range(200) for b in batches.epoch(0, e)):
        for [first, *_] in read(batch):
            drawn[position, (first - 100) // 3] += 1
    assert drawn.max() == 1
    assert np.abs(drawn.mean(0) - 0.25).max() < 4.5 * math.sqrt(0.25 * 0.75 / 800)
    together = np.corrcoef(drawn.T)[np.triu_indices(20, 1)]
    assert np.abs(together).max() < 5 / math.sqrt(800)
    assert np.abs(np.corrcoef(drawn[:-1, 0], drawn[1:, 0])[0, 1]) < 4 / math.sqrt(800)


def test_samples_are_distributed_as_opacus_draws_them():
    """Sizes by Kolmogorov-Smirnov's two samples, units by their frequencies."""
    samplers = pytest.importorskip("opacus.utils.uniform_sampler")
    from scipy.stats import binom, chi2, ks_2samp, kstest

    batches = make([3] * 60, size=9, draw="poisson")
    rate, mine = batches.sample_rate, drawn_units(batches, 500)
    theirs = np.zeros_like(mine)
    generator = torch.Generator().manual_seed(0)
    sampler = samplers.UniformWithReplacementSampler(
        num_samples=60, sample_rate=rate, generator=generator, steps=len(mine)
    )
    for position, chosen in enumerate(sampler):
        theirs[position, chosen] = True
    assert ks_2samp(mine.sum(1), theirs.sum(1)).pvalue > 1e-3
    law = binom(60, rate)

    def smooth(x):
        """The distribution function of a count plus a uniform number in (-1/2, 1/2)."""
        whole = np.floor(x + 0.5)
        return law.cdf(whole - 1) + law.pmf(whole) * (x + 0.5 - whole)

    spread = np.random.default_rng(0).uniform(-0.5, 0.5, len(mine))  # a count is no continuum
    assert kstest(mine.sum(1) + spread, smooth).pvalue > 1e-3
    expected = len(mine) * rate
    for drawn in (mine, theirs):
        statistic = ((drawn.sum(0) - expected) ** 2 / (expected * (1 - rate))).sum()
        assert chi2.sf(statistic, 60) > 1e-3


def test_each_bit_of_a_long_secret_decides_the_samples():
    batches, secret = make([3] * 60, size=9, draw="poisson"), 2**255 + 12345
    first, again, *others = (
        drawn_units(batches, 1, seed) for seed in (secret, secret, secret ^ 2**254, secret ^ 1)
    )
    assert (first == again).all()
    assert all((first != other).any() for other in others)


def test_a_sample_rate_of_one_draws_everybody_and_a_small_one_sometimes_nobody():
    assert drawn_units(make([3] * 7, size=7, draw="poisson"), 20).all()
    batches = make([3] * 8, size=1, draw="poisson")
    empty = [b for epoch in range(5) for b in batches.epoch(0, epoch) if not len(b.inputs)]
    assert empty
    assert all((b.tokens, b.padding, len(b.lengths)) == (0, 0, 0) for b in empty)


REFUSED = {
    "users": ("users", None, 2, r"a user for each document.*--user"),
    "sampled users": ("poisson-users", None, 2, r"a user for each document.*--user"),
    "sequences": ("poisson", [0, 1, 2] * 2, 7, r"7 exceeds the \d sequences.*smaller batch_size"),
    "fewer users": ("poisson-users", [0, 1, 2] * 2, 7, r"7 exceeds the \d users.*smaller"),
}


@pytest.mark.parametrize(("draw", "users", "size", "message"), REFUSED.values(), ids=REFUSED)
def test_users_must_be_known_and_no_more_drawn_than_there_are(draw, users, size, message):
    with pytest.raises(TrainingError, match=message):
        make([3] * 6, users, size=size, draw=draw)


def test_only_samples_by_poisson_have_a_rate():
    with pytest.raises(ValueError, match="only Poisson sampling amplifies privacy"):
        _ = make([3] * 6).sample_rate
