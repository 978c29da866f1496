"""The goldfish loss compared with its hash in Python integers."""

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


def naive(tokens, context, seed):
    """The hash after each token, in integers modulo 2^64."""
    odd = [2 * int(d) + 1 for d in np.random.default_rng(seed).integers(2**62, size=context)]
    hashes = []
    for end in range(1, len(tokens) + 1):
        window = tokens[max(0, end - context) : end][::-1]
        total = sum((token + 1) * factor for token, factor in zip(window, odd, strict=False))
        total %= 2**64
        total ^= total >> 32
        hashes.append((total * 0x2545F4914F6CDD1D % 2**64) >> 33)
    return hashes


@given(
    st.lists(st.integers(0, 50_000), min_size=1, max_size=30), st.integers(1, 16), st.integers(0, 5)
)
def test_the_hash_equals_that_of_python_integers(tokens, context, seed):
    goldfish = GoldfishStep(context=context, seed=seed)
    hashes = goldfish.hashes(torch.tensor([tokens, tokens[::-1]]))
    assert hashes.tolist() == [naive(tokens, context, seed), naive(tokens[::-1], context, seed)]
    assert hashes.min() >= 0
    assert hashes.max() < 2**31


@pytest.mark.parametrize("k", [2, 4, 10])
def test_one_token_in_k_is_dropped(k):
    tokens = torch.from_numpy(np.random.default_rng(0).integers(10_000, size=(200, 50)))
    batch = Batch(tokens, tokens.roll(-1, 1))
    result = GoldfishStep(k=k).drop(batch)
    share = result.padding / tokens.numel()
    assert share == pytest.approx(1 / k, abs=4 * math.sqrt(1 / k * (1 - 1 / k) / tokens.numel()))
    dropped = result.targets == IGNORED
    assert dropped.sum() == result.padding
    assert result.targets[~dropped].equal(batch.targets[~dropped])
    assert dropped.double().mean(0).min() > 0  # at each position, the first included


def test_short_contexts_of_frequent_words_are_dropped_at_the_same_rate():
    """Neighbouring small ids, as frequent words have, fall into all buckets alike."""
    contexts = torch.tensor([[a, b, c] for a in range(15) for b in range(15) for c in range(15)])
    hashes = GoldfishStep(context=3, seed=1).hashes(contexts)[:, -1]
    assert len(hashes.unique()) > 0.99 * len(hashes)
    counts = torch.bincount(hashes % 4, minlength=4)
    expected = len(hashes) / 4
    assert ((counts - expected).square() / expected).sum() < 16.3  # chi-squared, 3 df, p = 0.001


def test_all_copies_of_a_document_drop_the_same_tokens():
    rng = np.random.default_rng(0)
    secret = [*rng.integers(2, 99, 8).tolist(), 1]
    texts = [secret, [*rng.integers(2, 99, 20).tolist(), 1], secret, [5, 1], secret]
    offsets = np.cumsum([0, *map(len, texts)])
    tokens = np.concatenate(texts).astype(np.int32)
    sequences = Sequences.of(EncodedCorpus(tokens, offsets), length=32)
    together, alone = (
        GoldfishStep(k=3).drop(sequences.batch(np.array(rows), 1, torch.device("cpu")))
        for rows in ([0, 1, 2, 4], [0])
    )
    for row in (0, 2, 3):
        assert together.targets[row, : len(secret)].equal(alone.targets[0])
    assert 0 < alone.padding < len(secret)


@pytest.mark.parametrize("architecture", ["lstm", "tied lstm", "transformer"])
def test_the_gradient_is_that_of_the_remaining_tokens(tiny_model, tiny_batch, architecture):
    model, batch = tiny_model(architecture), tiny_batch()
    losses = []
    for row, targets in zip(batch.inputs.tolist(), batch.targets.tolist(), strict=True):
        log_probs = torch.log_softmax(model(torch.tensor([row]))[0][0], 1)
        for position, token_hash in enumerate(naive(row, 13, 0)):
            if targets[position] != IGNORED and token_hash % 3:
                losses.append(-log_probs[position, targets[position]])
    assert 0 < len(losses) < batch.tokens
    loss = torch.stack(losses).mean()
    expected = torch.autograd.grad(loss, list(model.parameters()))

    returned, _ = GoldfishStep(k=3)(model, batch, None)

    assert returned.item() == pytest.approx(loss.item(), rel=1e-5)
    for parameter, gradient in zip(model.parameters(), expected, strict=True):
        torch.testing.assert_close(parameter.grad, gradient, rtol=1e-4, atol=1e-6)


def test_dropping_nothing_is_training_without_the_defence(tiny_model, tiny_data):
    """With a k so large that no token of the data is dropped."""
    config = TrainingConfig(
        seed=0, epochs=2, batch_size=4, sequence_length=7, batching="documents",
        learning_rate=0.01, max_grad_norm=1.0, precision="float32",
    )  # fmt: skip
    plain, goldfish = tiny_model(), tiny_model()
    train(plain, tiny_data(), config=config)
    train(goldfish, tiny_data(), config=config, step=GoldfishStep(k=2**30, max_grad_norm=1.0))
    for one, other in zip(plain.parameters(), goldfish.parameters(), strict=True):
        torch.testing.assert_close(one, other, rtol=0, atol=1e-6)


@pytest.mark.slow
def test_a_model_never_learns_a_dropped_word(tiny_model):
    """The last word of the only text is dropped, and remains improbable."""
    text = [2, 3, 4, 5, 6, 7]
    inputs = [1, *text[:-1]]
    seed = next(
        seed
        for seed in range(100)
        if [h % 3 == 0 for h in naive(inputs, 13, seed)] == [False] * 5 + [True]
    )
    batch = Batch(torch.tensor([inputs]), torch.tensor([text]), lengths=torch.tensor([6]))
    probabilities = {}
    for name, step in (
        ("goldfish", GoldfishStep(k=3, seed=seed)),
        ("none", GoldfishStep(k=2**30)),
    ):
        model = tiny_model()
        optimizer = torch.optim.Adam(model.parameters(), lr=0.05)
        for _ in range(100):
            step(model, batch, None)
            optimizer.step()
        probabilities[name] = torch.softmax(model(batch.inputs)[0][0], 1)[range(6), text]
    assert probabilities["goldfish"][:5].min() > 0.7
    assert probabilities["goldfish"][5] < 0.1
    assert probabilities["none"].min() > 0.7


def test_without_a_remaining_token_there_is_no_gradient(tiny_model):
    seed = next(s for s in range(100) if naive([1, 2], 13, s)[0] % 2 == 0)
    model = tiny_model()
    batch = Batch(torch.tensor([[1]]), torch.tensor([[2]]), lengths=torch.tensor([1]))
    assert GoldfishStep(k=2, seed=seed)(model, batch, None) == (0, None)
    assert all(parameter.grad is None for parameter in model.parameters())


def test_the_state_of_a_stream_is_used_by_the_next_batch(tiny_model):
    model = tiny_model()
    tokens = torch.randint(2, 12, (2, 9))
    goldfish = GoldfishStep(k=4)
    _, state = goldfish(model, Batch(tokens[:, :4], tokens[:, 1:5]), None)
    second = Batch(tokens[:, 4:8], tokens[:, 5:])
    loss, _ = goldfish(model, second, state)
    logits, _ = model(tokens[:, :8])
    targets = goldfish.drop(second).targets
    expected = cross_entropy(logits[:, 4:].flatten(0, 1), targets.flatten(), ignore_index=IGNORED)
    torch.testing.assert_close(loss, expected.detach())
