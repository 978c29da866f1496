"""A tiny text and the tiny models that learn it, on one thread."""

import importlib.util
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch

from vestige.data.encoded import EncodedCorpus
from vestige.data.vocabulary import WordVocabulary
from vestige.models.protocols import LanguageModel
from vestige.models.recurrent_network import GRUConfig, LSTMConfig
from vestige.models.transformer import TransformerConfig
from vestige.training.new_models import new_model

SIZE = 12
SHAPES = {
    "lstm": LSTMConfig(layers=2, embedding_size=6, hidden_size=6, dropout_in=0.2, dropout_out=0.2),
    "tied lstm": LSTMConfig(
        layers=1, embedding_size=6, hidden_size=6, dropout_in=0.2, dropout_out=0.2, tied=True
    ),
    "gru": GRUConfig(layers=2, embedding_size=6, hidden_size=6, dropout_in=0.2, dropout_out=0.2),
    "transformer": TransformerConfig(
        layers=1, heads=2, hidden_size=8, feed_forward=16, max_length=16, dropout=0.2
    ),
}

MakeModel = Callable[..., LanguageModel]
MakeText = Callable[..., EncodedCorpus]


@pytest.fixture(autouse=True)
def _one_thread():
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@pytest.fixture
def make_model():
    """A fresh model of an architecture, its weights decided by a seed."""
    vocabulary = WordVocabulary(("<unk>", "<eos>", *(f"w{i}" for i in range(2, SIZE))))

    def make(architecture="lstm", *, seed=0):
        return new_model(vocabulary, SHAPES[architecture], seed=seed)

    return make


@pytest.fixture
def make_text():
    """Words of which each mostly follows the one before it in the vocabulary."""

    def make(tokens=121, *, seed=0):
        rng = np.random.default_rng(seed)
        steps = np.where(rng.random(tokens) < 0.8, 1, rng.integers(SIZE, size=tokens))
        ids = (np.cumsum(steps) % SIZE).astype(np.int32)
        return EncodedCorpus(ids, np.array([0, tokens]))

    return make


@pytest.fixture(scope="session")
def numbers():
    """The small pairs of `numbers_in_two_languages.py`."""
    path = Path(__file__).with_name("numbers_in_two_languages.py")
    spec = importlib.util.spec_from_file_location(path.stem, path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module
