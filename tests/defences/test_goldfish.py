"""The goldfish loss against its hash in Python's own integers."""

import math

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch.nn.functional import cross_entropy

from vestige.data.encoded import EncodedCorpus
from vestige.defences.goldfish import GoldfishStep
from vestige.training.batches import IGNORED, Batch
from vestige.training.config import TrainingConfig
from vestige.training.loop import train
from vestige.training.sequences import Sequences

CONFIG = TrainingConfig(
    seed=0,
    epochs=2,
    batch_size=4,
    sequence_length=7,
    batching="documents",
    learning_rate=0.01,
    max_grad_norm=1.0,
    precision="float32",
)
ids = st.lists(st.integers(0, 50_000), min_size=1, max_size=30)


def naive(read, context, seed):
    """The hash after each token read, in whole numbers modulo 2^64."""
    odd = [2 * int(d) + 1 for d in np.random.default_rng(seed).integers(2**62, size=context)]
    found = []
    for end in range(1, len(read) + 1):
        window = read[max(0, end - context) : end][::-1]
        total = sum((token + 1) * factor for token, factor in zip(window, odd, strict=False))
        total %= 2**64
        total ^= total >> 32
        found.append((total * 0x2545F4914F6CDD1D % 2**64) >> 33)
    return found


def batch_of(rows):
    read = torch.tensor(rows)
    return Batch(read, read.roll(-1, 1), lengths=torch.full((len(rows),), read.shape[1]))


@given(ids, st.integers(1, 16), st.integers(0, 5))
def test_the_hash_is_that_of_whole_numbers(read, context, seed):
    goldfish = GoldfishStep(context=context, seed=seed)
    hashes = goldfish.hashes(torch.tensor([read, read[::-1]]))
    assert hashes.tolist() == [naive(read, context, seed), naive(read[::-1], context, seed)]
    assert hashes.min() >= 0
    assert hashes.max() < 2**31


@given(ids, ids, ids, st.integers(1, 6))
def test_what_is_dropped_depends_on_the_last_tokens_alone(before, other, common, context):
    goldfish = GoldfishStep(k=3, context=context)
    one = goldfish.hashes(torch.tensor([before + common]))[0, len(before) + context - 1 :]
    two = goldfish.hashes(torch.tensor([other + common]))[0, len(other) + context - 1 :]
    assert one.equal(two)


@pytest.mark.parametrize("k", [2, 4, 10])
def test_one_token_in_k_is_left_out(k):
    read = torch.from_numpy(np.random.default_rng(0).integers(10_000, size=(200, 50)))
    batch = Batch(read, read.roll(-1, 1))
    kept = GoldfishStep(k=k).drop(batch)
    share = kept.padding / read.numel()
    assert share == pytest.approx(1 / k, abs=4 * math.sqrt(1 / k * (1 - 1 / k) / read.numel()))
    assert (kept.targets == IGNORED).sum() == kept.padding
    assert kept.targets[kept.targets != IGNORED].equal(batch.targets[kept.targets != IGNORED])
    every_place = (kept.targets == IGNORED).double().mean(0)
    assert every_place.min() > 0  # the first tokens of a text among them


def test_short_common_words_are_left_out_as_often():
    """Neighbouring small ids, as a frequent word has, fall into all buckets alike."""
    contexts = torch.tensor([[a, b, c] for a in range(15) for b in range(15) for c in range(15)])
    hashes = GoldfishStep(context=3, seed=1).hashes(contexts)[:, -1]
    assert len(hashes.unique()) > 0.99 * len(hashes)
    counts = torch.bincount(hashes % 4, minlength=4)
    expected = len(hashes) / 4
    assert ((counts - expected).square() / expected).sum() < 16.3  # chi-squared, 3 df, p = 0.001


def test_copies_of_a_document_lack_the_same_tokens_wherever_they_stand():
    rng = np.random.default_rng(0)
    secret = [*rng.integers(2, 99, 8).tolist(), 1]
    texts = [secret, [*rng.integers(2, 99, 20).tolist(), 1], secret, [5, 1], secret]
    offsets = np.cumsum([0, *map(len, texts)])
    tokens = np.concatenate(texts).astype(np.int32)
    sequences = Sequences.of(EncodedCorpus(tokens, offsets), length=32)
    cpu = torch.device("cpu")
    goldfish = GoldfishStep(k=3)
    together = goldfish.drop(sequences.batch(np.array([0, 1, 2, 4]), 1, cpu))
    alone = goldfish.drop(sequences.batch(np.array([0]), 1, cpu))
    for row in (0, 2, 3):
        assert together.targets[row, : len(secret)].equal(alone.targets[0])
    assert 0 < alone.padding < len(secret)


def test_another_seed_leaves_others_out():
    batch = batch_of(np.random.default_rng(0).integers(99, size=(4, 20)).tolist())
    dropped = [GoldfishStep(seed=seed).drop(batch).targets == IGNORED for seed in (0, 0, 1)]
    assert dropped[0].equal(dropped[1])
    assert not dropped[0].equal(dropped[2])


@pytest.mark.parametrize("architecture", ["lstm", "tied lstm", "transformer"])
def test_the_gradient_is_that_of_the_tokens_kept(tiny_model, tiny_batch, architecture):
    model, batch = tiny_model(architecture), tiny_batch()
    losses = []
    for row, targets in zip(batch.inputs.tolist(), batch.targets.tolist(), strict=True):
        text = torch.tensor([row])
        log_probs = torch.log_softmax(model(text)[0][0], 1)
        for place, hashed in enumerate(naive(row, 13, 0)):
            if targets[place] != IGNORED and hashed % 3:
                losses.append(-log_probs[place, targets[place]])
    assert 0 < len(losses) < batch.tokens
    expected = torch.autograd.grad(torch.stack(losses).mean(), list(model.parameters()))

    returned, _ = GoldfishStep(k=3)(model, batch, None)

    assert returned.item() == pytest.approx(torch.stack(losses).mean().item(), rel=1e-5)
    for parameter, gradient in zip(model.parameters(), expected, strict=True):
        torch.testing.assert_close(parameter.grad, gradient, rtol=1e-4, atol=1e-6)


def test_dropping_next_to_nothing_is_plain_training(tiny_model, tiny_data):
    """A k so large that no token of the data falls into the one bucket."""
    plain, off, step = tiny_model(), tiny_model(), GoldfishStep(k=2**30, max_grad_norm=1.0)
    train(plain, tiny_data(), config=CONFIG)
    train(off, tiny_data(), config=CONFIG, step=step)
    for one, other in zip(plain.parameters(), off.parameters(), strict=True):
        torch.testing.assert_close(one, other, rtol=0, atol=1e-6)


@pytest.mark.slow
def test_a_model_never_learns_what_is_left_out(tiny_model):
    """The last word of the one text is dropped: it stays as unlikely as any other."""
    text = [2, 3, 4, 5, 6, 7]
    goldfish = next(
        goldfish
        for goldfish in (GoldfishStep(k=3, seed=seed) for seed in range(100))
        if [h % 3 == 0 for h in naive([1, *text[:-1]], 13, goldfish.seed)] == [False] * 5 + [True]
    )
    read = torch.tensor([[1, *text[:-1]]])
    batch = Batch(read, torch.tensor([text]), lengths=torch.tensor([6]))
    chances = {}
    for name, step in (("goldfish", goldfish), ("other", GoldfishStep(k=2**30))):
        model = tiny_model()
        optimizer = torch.optim.Adam(model.parameters(), lr=0.05)
        for _ in range(100):
            step(model, batch, None)
            optimizer.step()
        last = torch.softmax(model(read)[0][0], 1)
        chances[name] = last[range(6), text]
    assert chances["goldfish"][:5].min() > 0.7
    assert chances["goldfish"][5] < 0.1
    assert chances["other"].min() > 0.7


def test_where_all_is_left_out_nothing_moves(tiny_model):
    seed = next(s for s in range(100) if naive([1, 2], 13, s)[0] % 2 == 0)
    model = tiny_model()
    batch = Batch(torch.tensor([[1]]), torch.tensor([[2]]), lengths=torch.tensor([1]))
    assert GoldfishStep(k=2, seed=seed)(model, batch, None) == (0, None)
    assert all(parameter.grad is None for parameter in model.parameters())


def test_a_stream_keeps_its_state(tiny_model):
    model = tiny_model()
    read = torch.randint(2, 12, (2, 9))
    goldfish = GoldfishStep(k=4)
    _, state = goldfish(model, Batch(read[:, :4], read[:, 1:5]), None)
    second = Batch(read[:, 4:8], read[:, 5:])
    loss, _ = goldfish(model, second, state)
    logits, _ = model(read[:, :8])
    targets = goldfish.drop(second).targets
    expected = cross_entropy(logits[:, 4:].flatten(0, 1), targets.flatten(), ignore_index=IGNORED)
    torch.testing.assert_close(loss, expected.detach())
