"""Recurrent language models, LSTM and GRU: embedding, layers, head, state.

The LSTM is that of the update papers: Zanella-Béguelin et al. (2020), "Analyzing Information
Leakage of Updates to Natural Language Models", CCS, arXiv:1912.07942, section 3.2, after Zaremba et
al. (2014), "Recurrent Neural Network Regularization", arXiv:1409.2329. The GRU: Cho et al. (2014),
arXiv:1406.1078, section 2.3. Song and Shmatikov (2019), "Auditing Data Provenance in
Text-Generation Models", KDD, arXiv:1811.00513, appendix B.2, use it for shadow models of an LSTM of
unknown size.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import torch
from torch import Tensor, nn
from torch.nn import functional

from vestige import _validate
from vestige.data.vocabulary import Vocabulary
from vestige.memory import MOST_LAYERS, WIDEST
from vestige.models.protocols import BodyAndHead, LanguageModel

Layers = nn.LSTM | nn.GRU


@dataclass(frozen=True)
class RecurrentConfig:
    """The shape of a recurrent language model.

    Attributes:
        embedding_size: width of a token's vector.
        hidden_size: width of each layer's state.
        dropout_in: probability of dropping a unit of the embedding (1 - the keep rate).
        dropout_out: the same for the input of the head.
        tied: head and embedding share their weight; both sizes must be equal.
        initial_range: all parameters start uniform in [-initial_range, initial_range].
    """

    layers: int = 2
    embedding_size: int = 200
    hidden_size: int = 200
    dropout_in: float = 0.0
    dropout_out: float = 0.0
    tied: bool = False
    initial_range: float = 0.1

    def __post_init__(self) -> None:
        _validate.whole(1, MOST_LAYERS, layers=self.layers)
        check_widths(self)
        if self.tied and self.embedding_size != self.hidden_size:
            raise ValueError(
                "tied needs embedding_size == hidden_size, "
                f"got {self.embedding_size} and {self.hidden_size}"
            )


def check_widths(config: Any) -> None:
    """Raise ValueError for invalid sizes, dropout rates or initial range."""
    _validate.whole(1, WIDEST, embedding_size=config.embedding_size, hidden_size=config.hidden_size)
    _validate.positive(initial_range=config.initial_range)
    _validate.finite(initial_range=config.initial_range)
    _validate.fraction(dropout_in=config.dropout_in, dropout_out=config.dropout_out)


@dataclass(frozen=True)
class LSTMConfig(RecurrentConfig):
    """The shape of an LSTM language model; see `RecurrentConfig`."""


@dataclass(frozen=True)
class GRUConfig(RecurrentConfig):
    """The shape of a GRU language model; see `RecurrentConfig`."""


@dataclass(frozen=True)
class RecurrentState:
    """State of n sequences.

    Attributes:
        hidden: (layers, n, hidden_size).
        cell: the same for an LSTM; None for a GRU.
        has_read: False before the first token after `start(anywhere=True)`.
    """

    hidden: Tensor
    cell: Tensor | None = None
    has_read: bool = True

    @property
    def nbytes(self) -> int:
        return self.hidden.nbytes + (0 if self.cell is None else self.cell.nbytes)

    def __len__(self) -> int:
        return self.hidden.shape[1]

    def __getitem__(self, index: Tensor | slice) -> "RecurrentState":
        return self._map(lambda tensor: tensor[:, index])

    def detach(self) -> "RecurrentState":
        """State without its graph, for truncated back-propagation."""
        return self._map(torch.Tensor.detach)

    def _map(self, function: Callable[[Tensor], Tensor]) -> "RecurrentState":
        cell = None if self.cell is None else function(self.cell)
        return replace(self, hidden=function(self.hidden), cell=cell)


def run_layers(
    layers: Layers, inputs: Tensor, state: RecurrentState | None = None
) -> tuple[Tensor, RecurrentState]:
    """Outputs (b, t, hidden_size) of layers for inputs (b, t, d), and the state after the last.

    The state has b rows; None: zeros.
    """
    initial: Any = None
    if state is not None:
        tensors = [
            tensor.contiguous() for tensor in (state.hidden, state.cell) if tensor is not None
        ]
        initial = tensors[0] if isinstance(layers, nn.GRU) else tuple(tensors)
    outputs, after = layers(inputs, initial)
    return outputs, RecurrentState(*after) if isinstance(after, tuple) else RecurrentState(after)


class RecurrentLanguageModel(BodyAndHead, LanguageModel):
    """Embedding, stacked recurrent layers and linear head, with dropout on input and output.

    Attributes:
        kind: class of the layers; the architecture names their attribute.
        shape: class of the configuration.
        embedding: (v, embedding_size) token vectors.
        head: hidden_size -> v.
    """

    kind: ClassVar[type[Layers]]
    shape: ClassVar[type[RecurrentConfig]]
    carries_state: ClassVar[bool] = True
    config: RecurrentConfig

    def __init__(self, vocabulary: Vocabulary, config: RecurrentConfig | None = None) -> None:
        super().__init__()
        self.vocabulary, self.config = vocabulary, (config := config or self.shape())
        self.vocab_size = len(vocabulary)
        self.embedding = nn.Embedding(self.vocab_size, config.embedding_size)
        layers = self.kind(
            config.embedding_size, config.hidden_size, num_layers=config.layers, batch_first=True
        )
        self.add_module(self.architecture, layers)
        self.head = nn.Linear(config.hidden_size, self.vocab_size)
        if config.tied:
            self.head.weight = self.embedding.weight
        for parameter in self.parameters():
            nn.init.uniform_(parameter, -config.initial_range, config.initial_range)

    @property
    def device(self) -> torch.device:
        return self.head.bias.device

    @property
    def recurrent(self) -> Layers:
        """The recurrent layers, batch first."""
        layers: Layers = getattr(self, self.architecture)
        return layers

    def body(
        self, tokens: Tensor, state: RecurrentState | None = None
    ) -> tuple[Tensor, RecurrentState]:
        """Hidden vectors (b, t, hidden_size) after each token, and the state, both in the graph."""
        inputs = functional.dropout(self.embedding(tokens), self.config.dropout_in, self.training)
        outputs, after = run_layers(self.recurrent, inputs, state)
        return functional.dropout(outputs, self.config.dropout_out, self.training), after

    def unread(self, n: int) -> RecurrentState:
        zeros = self.head.weight.new_zeros(self.config.layers, n, self.config.hidden_size)
        cell = zeros if isinstance(self.recurrent, nn.LSTM) else None
        return RecurrentState(zeros, cell, has_read=False)

    @torch.no_grad()
    def read(self, state: RecurrentState, tokens: Tensor) -> RecurrentState:
        if not tokens.shape[1]:
            return state
        return run_layers(self.recurrent, self.embedding(tokens), state)[1]

    def hidden_of(self, state: RecurrentState) -> Tensor:
        return state.hidden[-1]


class LSTMLanguageModel(RecurrentLanguageModel):
    """Stacked LSTM layers, in the attribute `lstm`; see `RecurrentLanguageModel`."""

    architecture: ClassVar[str] = "lstm"
    kind = nn.LSTM
    shape = LSTMConfig
    lstm: nn.LSTM


class GRULanguageModel(RecurrentLanguageModel):
    """Stacked GRU layers, in the attribute `gru`; see `RecurrentLanguageModel`."""

    architecture: ClassVar[str] = "gru"
    kind = nn.GRU
    shape = GRUConfig
    gru: nn.GRU
