"""Open-box access to intent-and-slot models.

Parikh, Dupuy and Gupta (2022), "Canary Extraction in Natural Language Understanding Models",
section 3: the adversary knows architecture, parameters, loss, labels and word vectors.
"""

from abc import abstractmethod
from collections.abc import Sequence
from typing import NamedTuple, Protocol, runtime_checkable

import torch
from torch import Tensor

from vestige.data.utterances import EncodedUtterances, Utterances
from vestige.models.protocols import Network


class Losses(NamedTuple):
    """Losses (b,) of utterances, in nats: of the intent, and of all tags together."""

    intent: Tensor
    tags: Tensor

    @property
    def joint(self) -> Tensor:
        """(b,) joint loss, the objective of training."""
        return self.intent + self.tags


@runtime_checkable
class WhiteBox(Protocol):
    """Open-box access: embeddings, and losses that are differentiable by them.

    The rows of one call have the same number of tokens.

    Attributes:
        intents: labels of utterances, in the order of their ids.
        tags: labels of words, in the order of their ids.
    """

    intents: tuple[str, ...]
    tags: tuple[str, ...]

    @property
    def device(self) -> torch.device: ...

    def read(self, words: Sequence[str]) -> list[tuple[int, ...]]:
        """The token ids of each word of an utterance; an empty tuple for an unknown word."""
        ...

    def embed(self, tokens: Tensor) -> Tensor:
        """Embeddings (b, t, d) of tokens (b, t), int64."""
        ...

    def losses(self, vectors: Tensor, intents: Tensor, tags: Tensor) -> Losses:
        """Differentiable losses of utterances from their embeddings (b, t, d).

        `tags` (b, t): `data.utterances.IGNORED` for a token that does not begin a word.
        """
        ...


class IntentSlotNetwork(Network):
    """Network with `forward` and `predict` for training and `WhiteBox` for attacks."""

    intents: tuple[str, ...]
    tags: tuple[str, ...]

    @abstractmethod
    def encode(self, utterances: Utterances) -> EncodedUtterances: ...

    @abstractmethod
    def read(self, words: Sequence[str]) -> list[tuple[int, ...]]: ...

    @abstractmethod
    def embed(self, tokens: Tensor) -> Tensor: ...

    @abstractmethod
    def losses(self, vectors: Tensor, intents: Tensor, tags: Tensor) -> Losses: ...

    @abstractmethod
    def predict(self, tokens: Tensor) -> tuple[Tensor, Tensor]:
        """The most probable intents (b,) and tags (b, t) of tokens (b, t)."""

    def forward(self, tokens: Tensor, intents: Tensor, tags: Tensor) -> Losses:
        """Losses of utterances of tokens (b, t), in nats."""
        return self.losses(self.embed(tokens), intents, tags)
