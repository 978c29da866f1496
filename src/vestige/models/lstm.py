"""The recurrent language model of the update papers: embedding, LSTM, linear head.

Zanella-Béguelin et al. (2020), "Analyzing Information Leakage of Updates to Natural
Language Models", CCS, arXiv:1912.07942, section 3.2, which follows Zaremba et al. (2014),
"Recurrent Neural Network Regularization", arXiv:1409.2329.
"""

from dataclasses import dataclass
from typing import ClassVar, Self

import torch
from torch import Tensor, nn
from torch.nn import functional

from vestige import _validate
from vestige.data.vocabulary import Vocabulary
from vestige.models.protocols import LanguageModel, require_read


@dataclass(frozen=True)
class LSTMConfig:
    """The shape of an LSTM language model.

    Attributes:
        layers: stacked LSTM layers.
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
        _validate.positive(
            layers=self.layers,
            embedding_size=self.embedding_size,
            hidden_size=self.hidden_size,
            initial_range=self.initial_range,
        )
        _validate.fraction(dropout_in=self.dropout_in, dropout_out=self.dropout_out)
        if self.tied and self.embedding_size != self.hidden_size:
            raise ValueError(
                "tied needs embedding_size == hidden_size, "
                f"got {self.embedding_size} and {self.hidden_size}"
            )


@dataclass(frozen=True)
class LSTMState:
    """What n rows have read.

    Attributes:
        hidden: (layers, n, hidden_size).
        cell: (layers, n, hidden_size).
        has_read: False before the first token of a text entered anywhere.
    """

    hidden: Tensor
    cell: Tensor
    has_read: bool = True

    def __len__(self) -> int:
        return self.hidden.shape[1]

    def __getitem__(self, index: Tensor | slice) -> Self:
        return type(self)(self.hidden[:, index], self.cell[:, index], self.has_read)

    def detach(self) -> Self:
        """The same numbers, cut from the graph: truncated back-propagation ends here."""
        return type(self)(self.hidden.detach(), self.cell.detach(), self.has_read)


class LSTMLanguageModel(LanguageModel):
    """Embedding, stacked LSTM and linear head, with dropout on input and output.

    Args:
        vocabulary: what the ids mean.
        config: sizes and dropout.

    Attributes:
        embedding: (v, embedding_size) token vectors.
        lstm: the recurrent layers, batch first.
        head: hidden_size -> v.
    """

    architecture: ClassVar[str] = "lstm"
    carries_state: ClassVar[bool] = True
    separate_head: bool = True

    def __init__(self, vocabulary: Vocabulary, config: LSTMConfig | None = None) -> None:
        super().__init__()
        self.vocabulary, self.config = vocabulary, config or LSTMConfig()
        self.vocab_size = len(vocabulary)
        shape = self.config
        self.embedding = nn.Embedding(self.vocab_size, shape.embedding_size)
        self.lstm = nn.LSTM(
            shape.embedding_size, shape.hidden_size, num_layers=shape.layers, batch_first=True
        )
        self.head = nn.Linear(shape.hidden_size, self.vocab_size)
        if shape.tied:
            self.head.weight = self.embedding.weight
        for parameter in self.parameters():
            nn.init.uniform_(parameter, -shape.initial_range, shape.initial_range)

    @property
    def device(self) -> torch.device:
        return self.head.bias.device

    def forward(self, tokens: Tensor, state: LSTMState | None = None) -> tuple[Tensor, LSTMState]:
        """Logits after each token of a batch.

        Args:
            tokens: (b, t) int64.
            state: b rows from the window before; None reads on from zeros.

        Returns:
            (b, t, v) logits and the state after the last token, still in the graph.
        """
        hidden, after = self.body(tokens, state)
        return self.predict(hidden), after

    def body(self, tokens: Tensor, state: LSTMState | None = None) -> tuple[Tensor, LSTMState]:
        """What the head reads after each token, (b, t, hidden_size), and the state."""
        inputs = functional.dropout(self.embedding(tokens), self.config.dropout_in, self.training)
        before = None if state is None else (state.hidden, state.cell)
        outputs, (hidden, cell) = self.lstm(inputs, before)
        outputs = functional.dropout(outputs, self.config.dropout_out, self.training)
        return outputs, LSTMState(hidden, cell)

    def predict(self, hidden: Tensor) -> Tensor:
        """Logits (..., v) of what `body` gives."""
        logits: Tensor = self.head(hidden)
        return logits

    @torch.no_grad()
    def start(self, n: int, *, anywhere: bool = False) -> LSTMState:
        """n rows at the beginning of a document: zeros that have read `<eos>`.

        In a training stream each document follows the `<eos>` of another.
        """
        zeros = torch.zeros(
            self.config.layers, 1, self.config.hidden_size, dtype=self.head.weight.dtype
        ).to(self.device)
        state = LSTMState(zeros, zeros, has_read=False)
        if not anywhere:
            eos = torch.tensor([self.vocabulary.eos_id], device=self.device)
            state = self.advance(state, eos)
        return state[torch.zeros(n, dtype=torch.int64, device=self.device)]

    @torch.no_grad()
    def advance(self, state: LSTMState, tokens: Tensor) -> LSTMState:
        """The n states after each has read one more token; tokens is int64 (n,)."""
        before = (state.hidden.contiguous(), state.cell.contiguous())
        _, (hidden, cell) = self.lstm(self.embedding(tokens)[:, None], before)
        return LSTMState(hidden, cell)

    @torch.no_grad()
    def logits(self, state: LSTMState) -> Tensor:
        """(n, v) unnormalised float32 log-probabilities of the next token."""
        require_read(state)
        return functional.linear(state.hidden[-1], self.head.weight, self.head.bias).float()
