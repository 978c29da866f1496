"""Recurrent language models, LSTM and GRU: embedding, layers, head, state.

An LSTM and a GRU differ in their layers and in what a state holds, and in nothing else; the
encoder and the decoder of a sequence-to-sequence model are read on by the same function.

The LSTM is that of the update papers: Zanella-Béguelin et al. (2020), "Analyzing Information
Leakage of Updates to Natural Language Models", CCS, arXiv:1912.07942, section 3.2, which follows
Zaremba et al. (2014), "Recurrent Neural Network Regularization", arXiv:1409.2329. The GRU: Cho et
al. (2014), "Learning Phrase Representations using RNN Encoder-Decoder for Statistical Machine
Translation", arXiv:1406.1078, section 2.3; Song and Shmatikov (2019), "Auditing Data Provenance in
Text-Generation Models", KDD, arXiv:1811.00513, appendix B.2, use it for shadow models of an LSTM
of unknown shape.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass, fields, replace
from typing import Any, ClassVar, Self, cast

import torch
from torch import Tensor, nn
from torch.nn import functional

from vestige import _validate
from vestige.data.vocabulary import Vocabulary
from vestige.memory import MOST_LAYERS, WIDEST
from vestige.models.protocols import LanguageModel, require_read

Layers = nn.LSTM | nn.GRU


@dataclass(frozen=True)
class RecurrentConfig:
    """The shape of a recurrent language model.

    Attributes:
        layers: stacked recurrent layers.
        embedding_size: width of a token's vector.
        hidden_size: width of each layer's state.
        dropout_in: probability of dropping a unit of the embedding (1 - the keep rate).
        dropout_out: the same for what the head reads.
        tied: the head's weight is the embedding's; the two sizes must then be equal.
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
        _validate.whole(1, WIDEST, embedding_size=self.embedding_size, hidden_size=self.hidden_size)
        _validate.positive(initial_range=self.initial_range)
        _validate.finite(initial_range=self.initial_range)
        _validate.fraction(dropout_in=self.dropout_in, dropout_out=self.dropout_out)
        if self.tied and self.embedding_size != self.hidden_size:
            raise ValueError(
                "tied needs embedding_size == hidden_size, "
                f"got {self.embedding_size} and {self.hidden_size}"
            )


@dataclass(frozen=True)
class LSTMConfig(RecurrentConfig):
    """The shape of an LSTM language model; see `RecurrentConfig`."""


@dataclass(frozen=True)
class GRUConfig(RecurrentConfig):
    """The shape of a GRU language model; see `RecurrentConfig`."""


class RecurrentState(ABC):
    """Recurrent state of n sequences.

    Attributes:
        hidden: (layers, n, hidden_size).
        has_read: False before the first token of a text entered anywhere.
    """

    hidden: Tensor
    has_read: bool

    @property
    @abstractmethod
    def carried(self) -> Any:
        """State as the layers take it, in contiguous memory."""

    @property
    def nbytes(self) -> int:
        held = (getattr(self, field.name) for field in fields(cast("Any", self)))
        return sum(value.nbytes for value in held if isinstance(value, Tensor))

    def __len__(self) -> int:
        return self.hidden.shape[1]

    def __getitem__(self, index: Tensor | slice) -> Self:
        return self._each(lambda tensor: tensor[:, index])

    def detach(self) -> Self:
        """State detached from the graph, for truncated back-propagation."""
        return self._each(torch.Tensor.detach)

    def _each(self, change: Callable[[Tensor], Tensor]) -> Self:
        held: Any = self
        values = {field.name: getattr(self, field.name) for field in fields(held)}
        tensors = {name: change(v) for name, v in values.items() if isinstance(v, Tensor)}
        changed: Self = replace(held, **tensors)
        return changed


@dataclass(frozen=True)
class LSTMState(RecurrentState):
    """State of LSTM layers; `cell` has the shape of `hidden`."""

    hidden: Tensor
    cell: Tensor
    has_read: bool = True

    @property
    def carried(self) -> tuple[Tensor, Tensor]:
        return self.hidden.contiguous(), self.cell.contiguous()


@dataclass(frozen=True)
class GRUState(RecurrentState):
    """State of GRU layers."""

    hidden: Tensor
    has_read: bool = True

    @property
    def carried(self) -> Tensor:
        return self.hidden.contiguous()


def read_on(
    layers: Layers, inputs: Tensor, state: RecurrentState | None = None
) -> tuple[Tensor, LSTMState | GRUState]:
    """Outputs (b, t, hidden_size) of recurrent layers, and the state after the last input.

    Args:
        layers: batch first.
        inputs: (b, t, d).
        state: b rows; None begins with zeros.
    """
    outputs, carried = layers(inputs, None if state is None else state.carried)
    return outputs, LSTMState(*carried) if isinstance(carried, tuple) else GRUState(carried)


class RecurrentLanguageModel(LanguageModel):
    """Embedding, stacked recurrent layers and linear head, with dropout on input and output.

    Args:
        vocabulary: of the token ids.
        config: sizes and dropout.

    Attributes:
        kind: class of the layers, an attribute named after the architecture.
        embedding: (v, embedding_size) token vectors.
        head: hidden_size -> v.
    """

    kind: ClassVar[type[Layers]]
    carries_state: ClassVar[bool] = True
    separate_head: bool = True

    def __init__(self, vocabulary: Vocabulary, config: RecurrentConfig) -> None:
        super().__init__()
        self.vocabulary, self.config = vocabulary, config
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

    def forward(
        self, tokens: Tensor, state: RecurrentState | None = None
    ) -> tuple[Tensor, RecurrentState]:
        """Logits after each token of a batch.

        Args:
            tokens: (b, t) int64.
            state: b rows from the window before; None reads on from zeros.

        Returns:
            (b, t, v) logits and the state after the last token, still in the graph.
        """
        hidden, after = self.body(tokens, state)
        return self.predict(hidden), after

    def body(
        self, tokens: Tensor, state: RecurrentState | None = None
    ) -> tuple[Tensor, RecurrentState]:
        """Hidden vectors (b, t, hidden_size) after each token, and the state."""
        inputs = functional.dropout(self.embedding(tokens), self.config.dropout_in, self.training)
        outputs, after = read_on(self.recurrent, inputs, state)
        return functional.dropout(outputs, self.config.dropout_out, self.training), after

    def predict(self, hidden: Tensor) -> Tensor:
        """Logits (..., v) of hidden vectors."""
        logits: Tensor = self.head(hidden)
        return logits

    @torch.no_grad()
    def start(self, n: int, *, anywhere: bool = False) -> RecurrentState:
        """State of n sequences at the beginning of a document: zeros after `<eos>`.

        In a training stream each document follows the `<eos>` of another.
        """
        state = self.nothing_read()
        if not anywhere:
            eos = torch.tensor([self.vocabulary.eos_id], device=self.device)
            state = self.advance(state, eos)
        return state[torch.zeros(n, dtype=torch.int64, device=self.device)]

    def nothing_read(self) -> RecurrentState:
        """One row of zeros."""
        zeros = torch.zeros(
            self.config.layers, 1, self.config.hidden_size, dtype=self.head.weight.dtype
        ).to(self.device)
        if isinstance(self.recurrent, nn.LSTM):
            return LSTMState(zeros, zeros, has_read=False)
        return GRUState(zeros, has_read=False)

    @torch.no_grad()
    def advance(self, state: RecurrentState, tokens: Tensor) -> RecurrentState:
        """The n states after each has read one more token; tokens is int64 (n,)."""
        return self.read(state, tokens[:, None])

    @torch.no_grad()
    def read(self, state: RecurrentState, tokens: Tensor) -> RecurrentState:
        """The n states after each has read t more tokens, (n, t), in one call."""
        if not tokens.shape[1]:
            return state
        return read_on(self.recurrent, self.embedding(tokens), state)[1]

    @torch.no_grad()
    def logits(self, state: RecurrentState) -> Tensor:
        """(n, v) unnormalised float32 log-probabilities of the next token."""
        require_read(state)
        return functional.linear(state.hidden[-1], self.head.weight, self.head.bias).float()


class LSTMLanguageModel(RecurrentLanguageModel):
    """Stacked LSTM layers, in the attribute `lstm`; see `RecurrentLanguageModel`."""

    architecture: ClassVar[str] = "lstm"
    kind: ClassVar[type[Layers]] = nn.LSTM
    lstm: nn.LSTM

    def __init__(self, vocabulary: Vocabulary, config: LSTMConfig | None = None) -> None:
        super().__init__(vocabulary, config or LSTMConfig())


class GRULanguageModel(RecurrentLanguageModel):
    """Stacked GRU layers, in the attribute `gru`; see `RecurrentLanguageModel`."""

    architecture: ClassVar[str] = "gru"
    kind: ClassVar[type[Layers]] = nn.GRU
    gru: nn.GRU

    def __init__(self, vocabulary: Vocabulary, config: GRUConfig | None = None) -> None:
        super().__init__(vocabulary, config or GRUConfig())
