"""The probe of authors on states with known information about the author."""

import numpy as np
import pytest
import torch
from torch import nn

from reproduction.regularization.author_probe import last_states, probe_authors
from vestige.data.encoded import EncodedCorpus
from vestige.data.vocabulary import WordVocabulary
from vestige.metrics.estimates import clopper_pearson
from vestige.training.batches import IGNORED
from vestige.training.sequences import Sequences

WORDS, USERS = 40, 4
VOCABULARY = WordVocabulary(("<unk>", "<eos>", *(f"w{i}" for i in range(2, WORDS))))


def corpus(documents=240, *, distinct=True):
    """Documents of six tokens; if `distinct`, each user has their own words."""
    rng = np.random.default_rng(0)
    owners = (np.arange(documents) % USERS).astype(np.int32)
    texts = rng.integers(2, 10, (documents, 6)) + (8 * owners[:, None] if distinct else 0)
    texts[:, -1] = 1
    return EncodedCorpus(
        texts.flatten().astype(np.int32),
        np.arange(documents + 1) * 6,
        owners,
        tuple(f"u{i}" for i in range(USERS)),
    )


class FakeModel(nn.Module):
    """A model whose states are those of the user, noise, or constant."""

    vocabulary, vocab_size, first_token, device = VOCABULARY, WORDS, 1, torch.device("cpu")
    carries_state, separate_head, predict = False, True, nn.Identity()

    def __init__(self, kind, scale):
        super().__init__()
        self.kind, self.scale = kind, scale

    def body(self, tokens):
        generator = torch.Generator().manual_seed(int(tokens.sum()))
        noise = torch.randn(*tokens.shape, 5, generator=generator)
        if self.kind == "noise":
            return noise, None
        if self.kind == "constant":
            return torch.zeros(*tokens.shape, 5), None
        user = nn.functional.one_hot((tokens - 2).clamp(min=0) // 8, 5)
        return self.scale * (user + 0.1 * noise), None


def probe(kind, data, *, scale=1.0, **settings):
    options = {"sequence_length": 6, "epochs": 5, "seed": 0, **settings}
    return probe_authors(FakeModel(kind, scale), data, **options)


@pytest.mark.parametrize("scale", [1.0, 1e-5])
def test_states_with_the_author_are_recognized_at_any_scale(scale):
    result = probe("user", corpus(), scale=scale)
    assert result.accuracy > 0.95
    assert result.low > result.chance
    assert result.bag_of_words > 0.95
    assert result.users == USERS


@pytest.mark.parametrize("kind", ["noise", "constant"])
def test_states_without_the_author_are_classified_at_chance(kind):
    result = probe(kind, corpus())
    assert result.low <= 1 / USERS <= result.high
    assert result.bag_of_words > 0.95


def test_words_without_the_author_are_classified_at_chance():
    result = probe("noise", corpus(1200, distinct=False))
    correct = round(result.bag_of_words * result.sequences)
    low, high = clopper_pearson(correct, result.sequences, confidence=0.999)
    assert low <= 1 / USERS <= high


def test_results_are_those_of_documents_held_out():
    data = corpus()
    result = probe("user", data, held_out=0.3)
    held = np.random.default_rng(0).random(len(data)) < 0.3
    assert result.sequences == held.sum()
    assert result.chance == np.bincount(data.users[held]).max() / held.sum()
    correct = round(result.accuracy * result.sequences)
    assert (result.low, result.high) == clopper_pearson(correct, result.sequences)
    summary = result.summary()
    assert summary["probe_accuracy"] == result.accuracy
    assert all(name.startswith("probe_") for name in summary)


def test_the_seed_determines_the_result_without_the_global_generator():
    data, before = corpus(distinct=False), torch.get_rng_state()
    results = [probe("user", data, seed=seed) for seed in (1, 1, 2)]
    assert results[0] == results[1] != results[2]
    assert torch.get_rng_state().equal(before)


@pytest.mark.parametrize("architecture", ["lstm", "transformer"])
def test_states_are_those_after_the_last_token_of_each_sequence(
    tiny_model, tiny_data, architecture
):
    model = tiny_model(architecture, dropout=0.5).train()
    sequences = Sequences.of(tiny_data(20), length=5)
    states = last_states(model, sequences, rows=6)
    assert model.training
    model.eval()
    whole = sequences.batch(np.arange(len(sequences)), 1, torch.device("cpu"))
    for row, state in enumerate(states):
        n = int((whole.targets[row] != IGNORED).sum())
        hidden, _ = model.body(whole.inputs[row : row + 1, :n])
        torch.testing.assert_close(state, hidden[0, -1], rtol=1e-4, atol=1e-6)
    assert not states.requires_grad


def test_all_sequences_of_a_document_are_held_out_together():
    rng = np.random.default_rng(0)
    halves = rng.integers(2, WORDS, (100, 5))
    tokens = np.concatenate([halves, halves], 1).astype(np.int32).flatten()
    owners = rng.integers(0, 2, 100).astype(np.int32)
    data = EncodedCorpus(tokens, np.arange(101) * 10, owners, ("a", "b"))
    result = probe("user", data, sequence_length=5)
    held = np.random.default_rng(0).random(100) < 0.3
    assert result.sequences == 2 * held.sum()
