"""A few tiny documents of three users, and the tiny models that learn them, on one thread."""

from collections.abc import Callable, Iterator
from dataclasses import replace

import numpy as np
import pytest
import torch

from vestige.data.encoded import EncodedCorpus
from vestige.data.vocabulary import WordVocabulary
from vestige.models.protocols import LanguageModel
from vestige.models.recurrent_network import LSTMConfig
from vestige.models.table import TableModel
from vestige.models.transformer import TransformerConfig
from vestige.training.batches import Batch
from vestige.training.new_models import new_model
from vestige.training.secret import Secret
from vestige.training.sequences import Sequences
from vestige.training.steps import plain_step

SIZE, LENGTH, USERS = 12, 7, ("ann", "bob", "cy")
VOCABULARY = WordVocabulary(("<unk>", "<eos>", *(f"w{i}" for i in range(2, SIZE))))
SHAPES = {
    "lstm": LSTMConfig(layers=2, embedding_size=6, hidden_size=8),
    "tied lstm": LSTMConfig(layers=1, embedding_size=8, hidden_size=8, tied=True),
    "transformer": TransformerConfig(
        layers=1, heads=2, hidden_size=8, feed_forward=16, max_length=16, dropout=0.0
    ),
}

MakeModel = Callable[..., LanguageModel]
MakeData = Callable[..., EncodedCorpus]
MakeBatch = Callable[..., Batch]


@pytest.fixture(autouse=True)
def _one_thread() -> Iterator[None]:
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@pytest.fixture
def tiny_model() -> MakeModel:
    """A fresh model of an architecture, without dropout unless it is asked for."""

    def make(architecture: str = "lstm", *, dropout: float = 0.0) -> LanguageModel:
        shape = SHAPES[architecture]
        if isinstance(shape, LSTMConfig):
            shape = replace(shape, dropout_in=dropout, dropout_out=dropout)
        else:
            shape = replace(shape, dropout=dropout)
        return new_model(VOCABULARY, shape, seed=0).train()

    return make


@pytest.fixture
def tiny_data() -> MakeData:
    """Documents of two to seven tokens in which words repeat, each user with words of their own."""

    def make(documents: int = 12, *, users: bool = True, seed: int = 0) -> EncodedCorpus:
        rng = np.random.default_rng(seed)
        sizes = rng.integers(2, LENGTH + 1, documents)
        owners = (np.arange(documents) % len(USERS)).astype(np.int32)
        texts = [
            np.append(rng.integers(2 + 3 * owner, 5 + 3 * owner, size - 1), 1)
            for size, owner in zip(sizes, owners, strict=True)
        ]
        tokens = np.concatenate(texts).astype(np.int32)
        offsets = np.concatenate([[0], np.cumsum(sizes)])
        return EncodedCorpus(tokens, offsets, *((owners, USERS) if users else ()))

    return make


@pytest.fixture
def tiny_batch(tiny_data: MakeData) -> MakeBatch:
    """All documents in one padded batch."""

    def make(documents: int = 12, *, users: bool = True) -> Batch:
        sequences = Sequences.of(tiny_data(documents, users=users), length=LENGTH)
        return sequences.batch(np.arange(len(sequences)), 1, torch.device("cpu"))

    return make


class PlainButPrivate:
    """A plain step that says it is private, so that its batches are those of a private one."""

    settings: dict[str, object] = {}  # noqa: RUF012

    def __call__(self, model, batch, state):
        return plain_step()(model, batch, state)

    def draw_from(self, secret: Secret, step: int) -> None:
        """It draws nothing."""


@pytest.fixture
def plain_but_private() -> PlainButPrivate:
    return PlainButPrivate()


@pytest.fixture
def table() -> LanguageModel:
    """A model without a head of its own."""
    uniform = torch.full((SIZE, SIZE), 1 / SIZE)
    return TableModel(uniform[0], uniform, VOCABULARY)
