"""The probe on states of which is known what they tell."""

import numpy as np
import pytest
import torch
from torch import nn

from reproduction.regularization.author_probe import last_states, probe_authors
from vestige.data.encoded import EncodedCorpus
from vestige.metrics.estimates import clopper_pearson
from vestige.models.protocols import LanguageModel
from vestige.training.batches import IGNORED
from vestige.training.sequences import Sequences

WORDS, USERS = 40, 4


def corpus(documents=240, *, telling):
    """Documents of six tokens; where telling, each user writes words of their own."""
    rng = np.random.default_rng(0)
    owners = (np.arange(documents) % USERS).astype(np.int32)
    texts = rng.integers(2, 10, (documents, 6)) + (8 * owners[:, None] if telling else 0)
    texts[:, -1] = 1
    return EncodedCorpus(
        texts.flatten().astype(np.int32),
        np.arange(documents + 1) * 6,
        owners,
        tuple(f"u{i}" for i in range(USERS)),
    )


class Shown(LanguageModel):
    """A model whose state is made of the token before last: it tells the user, or is noise."""

    architecture, carries_state, separate_head = "shown", False, True

    def __init__(self, vocabulary, kind, scale=1.0):
        super().__init__()
        self.vocabulary, self.vocab_size = vocabulary, len(vocabulary)
        self.kind, self.scale, self.weight = kind, scale, nn.Parameter(torch.zeros(1))

    @property
    def device(self):
        return self.weight.device

    def body(self, tokens, state=None):
        generator = torch.Generator().manual_seed(int(tokens.sum()))
        noise = torch.randn(*tokens.shape, 5, generator=generator)
        if self.kind == "noise":
            return noise, None
        if self.kind == "constant":
            return torch.zeros(*tokens.shape, 5), None
        user = nn.functional.one_hot((tokens - 2).clamp(min=0) // 8, 5)
        return self.scale * (user + 0.1 * noise), None

    def predict(self, hidden):
        return hidden @ torch.zeros(5, self.vocab_size)

    def forward(self, tokens, state=None):
        return self.predict(self.body(tokens)[0]), None

    start = advance = logits = None


Shown.__abstractmethods__ = frozenset()


@pytest.fixture
def words():
    from vestige.data.vocabulary import WordVocabulary

    return WordVocabulary(("<unk>", "<eos>", *(f"w{i}" for i in range(2, WORDS))))


def probe(model, data, **settings):
    return probe_authors(model, data, **{"sequence_length": 6, "epochs": 5, "seed": 0, **settings})


@pytest.mark.parametrize("scale", [1.0, 1e-5])
def test_states_that_tell_the_author_are_found_out_however_small(words, scale):
    found = probe(Shown(words, "user", scale), corpus(telling=True))
    assert found.accuracy > 0.95
    assert found.low > found.chance
    assert found.bag_of_words > 0.95
    assert found.users == USERS


@pytest.mark.parametrize("kind", ["noise", "constant"])
def test_states_that_tell_nothing_stay_at_chance(words, kind):
    found = probe(Shown(words, kind), corpus(telling=True))
    assert found.low <= 1 / USERS <= found.high
    assert found.bag_of_words > 0.95  # there was something to hide


def test_words_that_tell_nothing_leave_nothing_to_hide(words):
    found = probe(Shown(words, "noise"), corpus(1200, telling=False))
    right = round(found.bag_of_words * found.sequences)
    low, high = clopper_pearson(right, found.sequences, confidence=0.999)
    assert low <= 1 / USERS <= high


def test_its_numbers_are_those_of_documents_held_out(words):
    data = corpus(telling=True)
    found = probe(Shown(words, "user"), data, held_out=0.3)
    held = np.random.default_rng(0).random(len(data)) < 0.3
    assert found.sequences == held.sum()
    assert found.chance == np.bincount(data.users[held]).max() / held.sum()
    right = round(found.accuracy * found.sequences)
    assert (found.low, found.high) == clopper_pearson(right, found.sequences)
    summary = found.summary()
    assert summary["probe_accuracy"] == found.accuracy
    assert all(name.startswith("probe_") for name in summary)


def test_the_seed_decides_the_result_and_the_callers_generator_is_not_used(words):
    data, before = corpus(telling=False), torch.get_rng_state()
    results = [probe(Shown(words, "user"), data, seed=seed) for seed in (1, 1, 2)]
    assert results[0] == results[1] != results[2]
    assert torch.get_rng_state().equal(before)


@pytest.mark.parametrize("architecture", ["lstm", "transformer"])
def test_the_states_are_those_after_each_sequences_last_token(tiny_model, tiny_data, architecture):
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


def test_pieces_of_a_document_stay_on_one_side(words):
    """Two identical halves: a probe that saw one would know the other."""
    rng = np.random.default_rng(0)
    halves = rng.integers(2, WORDS, (100, 5))
    tokens = np.concatenate([halves, halves], 1).astype(np.int32).flatten()
    owners = rng.integers(0, 2, 100).astype(np.int32)
    data = EncodedCorpus(tokens, np.arange(101) * 10, owners, ("a", "b"))
    found = probe(Shown(words, "user"), data, sequence_length=5)
    held = np.random.default_rng(0).random(100) < 0.3
    assert found.sequences == 2 * held.sum()
