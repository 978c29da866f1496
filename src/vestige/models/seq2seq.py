"""Encoder-decoder for translations and dialogues.

Sutskever et al. (2014), "Sequence to Sequence Learning with Neural Networks", arXiv:1409.3215:
the decoder starts from the last state of the encoder. Luong et al. (2015), "Effective Approaches to
Attention-based Neural Machine Translation", arXiv:1508.04025, sections 3.1 and 4: global attention
with the "general" score. Song and Shmatikov (2019), "Auditing Data Provenance in Text-Generation
Models", KDD, arXiv:1811.00513, appendix B.1, use both.

Differs from the papers: Luong et al. feed the output of attention into the next input. Ours does
not, so that the decoder reads a whole target at once. They read sources backwards; here a source
is read forwards and ends with `<eos>`.
"""

from dataclasses import dataclass, replace
from typing import ClassVar, Literal, Self, get_args

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional

from vestige import _validate
from vestige.data.encoded import EncodedCorpus
from vestige.data.vocabulary import Vocabulary
from vestige.models.prefix import Ids, ReadContext
from vestige.models.protocols import BodyAndHead, Network, require_evaluation
from vestige.models.recurrent_network import Layers, RecurrentState, check_widths, run_layers

Cell = Literal["lstm", "gru"]
LAYERS: dict[str, type[Layers]] = {"lstm": nn.LSTM, "gru": nn.GRU}


@dataclass(frozen=True)
class Seq2SeqConfig:
    """The shape of an encoder-decoder; both have one layer.

    Attributes:
        cell: recurrent cell of encoder and decoder.
        attention: the decoder attends to all outputs of the encoder, not only to its last state.
        embedding_size: width of a token's vector, in both languages.
        hidden_size: width of a state.
        dropout_in: probability of dropping a unit of an embedding.
        dropout_out: the same for the outputs of encoder, decoder and attention.
        initial_range: all parameters start uniform in [-initial_range, initial_range].
    """

    cell: Cell = "lstm"
    attention: bool = True
    embedding_size: int = 128
    hidden_size: int = 128
    dropout_in: float = 0.0
    dropout_out: float = 0.5
    initial_range: float = 0.1

    def __post_init__(self) -> None:
        _validate.one_of(get_args(Cell), cell=self.cell)
        check_widths(self)


class Seq2SeqModel(Network):
    """Encoder, decoder, linear head and optional attention.

    Args:
        source_vocabulary: of source ids.
        vocabulary: of target ids.

    Attributes:
        source_embedding, embedding: token vectors of sources and targets.
        encoder, decoder: batch first.
        score: W_a of h_t^T W_a h_s, transposed; only with attention.
        mix: W_c of tanh(W_c [c_t; h_t]); only with attention.
        head: hidden_size -> v.
    """

    architecture: ClassVar[str] = "seq2seq"
    config: Seq2SeqConfig

    def __init__(
        self,
        source_vocabulary: Vocabulary,
        vocabulary: Vocabulary,
        config: Seq2SeqConfig | None = None,
    ) -> None:
        super().__init__()
        self.source_vocabulary, self.vocabulary = source_vocabulary, vocabulary
        self.config = config or Seq2SeqConfig()
        self.vocab_size = len(vocabulary)
        width, size = self.config.embedding_size, self.config.hidden_size
        kind = LAYERS[self.config.cell]
        self.source_embedding = nn.Embedding(len(source_vocabulary), width)
        self.embedding = nn.Embedding(self.vocab_size, width)
        self.encoder, self.decoder = (kind(width, size, batch_first=True) for _ in range(2))
        if self.config.attention:
            self.score = nn.Linear(size, size, bias=False)
            self.mix = nn.Linear(2 * size, size, bias=False)
        self.head = nn.Linear(size, self.vocab_size)
        limit = self.config.initial_range
        for parameter in self.parameters():
            nn.init.uniform_(parameter, -limit, limit)

    @property
    def device(self) -> torch.device:
        return self.head.bias.device

    @property
    def first_token(self) -> int:
        """Token before the first token of a target."""
        return self.vocabulary.eos_id

    def forward(self, sources: Tensor, tokens: Tensor) -> Tensor:
        """Logits (b, t, v) after each of the tokens.

        Args:
            sources: (b, s) int64: b sources of one length, each with its `<eos>`.
            tokens: (b, t) int64: the first token, then the target, padded on the right.
        """
        return self.reading(sources)(tokens)[0]

    def predict(self, hidden: Tensor) -> Tensor:
        """Logits (..., v) of hidden vectors."""
        logits: Tensor = self.head(hidden)
        return logits

    def reading(self, sources: Tensor) -> "Decoder":
        """The decoder after b sources (b, s) of one length, in the graph."""
        return Decoder(self, self.encoded(sources, drops=self.training), drops=self.training)

    @torch.no_grad()
    def given(self, source: str) -> "Decoder":
        """Language model of targets, given one source text.

        Example:
            >>> from vestige.data.vocabulary import WordVocabulary
            >>> words = WordVocabulary(("<unk>", "<eos>", "oui", "yes"))
            >>> answer = Seq2SeqModel(words, words).given("oui oui")
            >>> answer.log_probs(answer.start(2)).shape
            torch.Size([2, 4])
        """
        ids = [*self.source_vocabulary.encode(source), self.source_vocabulary.eos_id]
        return Decoder(self, self.encoded(torch.tensor([ids], device=self.device)))

    def encoded(self, sources: Tensor, *, drops: bool = False) -> "DecoderState":
        """Decoder state after b sources (b, s) of one length."""
        inputs = functional.dropout(self.source_embedding(sources), self.config.dropout_in, drops)
        outputs, state = run_layers(self.encoder, inputs)
        memory = None
        if self.config.attention:
            memory = functional.dropout(outputs, self.config.dropout_out, drops)
        return DecoderState(replace(state, has_read=False), memory)


@dataclass(frozen=True)
class DecoderState:
    """Decoder state of n rows, and the encoder's outputs (n or 1, s, h) of their sources."""

    decoder: RecurrentState
    memory: Tensor | None

    @property
    def has_read(self) -> bool:
        return self.decoder.has_read

    @property
    def nbytes(self) -> int:
        return self.decoder.nbytes

    def __len__(self) -> int:
        return len(self.decoder)

    def __getitem__(self, rows: Tensor | slice) -> Self:
        memory = self.memory
        if memory is not None and len(memory) > 1:
            memory = memory[rows]
        return type(self)(self.decoder[rows], memory)


class Decoder(BodyAndHead):
    """The decoder after some sources, as a language model of targets; a `NextToken`.

    With several sources, `body` reads one row per source; with one source, any number of rows.
    `start` needs one source.

    Attributes:
        vocabulary: of target ids.
        training: whether `body` drops units; no other method does.
    """

    carries_state: bool = True

    def __init__(
        self, model: Seq2SeqModel, initial: DecoderState | None = None, *, drops: bool = False
    ) -> None:
        self.vocabulary, self.vocab_size, self.head = model.vocabulary, model.vocab_size, model.head
        self.device, self.first_token, self.training = model.device, model.first_token, drops
        self._model, self._initial = model, initial

    def __call__(
        self, tokens: Tensor, state: DecoderState | None = None
    ) -> tuple[Tensor, DecoderState]:
        """See `forward`."""
        return self.forward(tokens, state)

    def body(
        self, tokens: Tensor, state: DecoderState | None = None
    ) -> tuple[Tensor, DecoderState]:
        """Hidden vectors (b, t, hidden_size) after each of the tokens (b, t), and the state.

        The state has b rows; None: only the sources were read.
        """
        state = self.unread(len(tokens)) if state is None else state
        model, rates = self._model, self._model.config
        inputs = functional.dropout(model.embedding(tokens), rates.dropout_in, self.training)
        outputs, after = run_layers(model.decoder, inputs, state.decoder)
        outputs = functional.dropout(outputs, rates.dropout_out, self.training)
        if state.memory is not None:
            mixed = self._attend(outputs, state.memory)
            outputs = functional.dropout(mixed, rates.dropout_out, self.training)
        return outputs, DecoderState(after, state.memory)

    def unread(self, n: int) -> DecoderState:
        sources = 0 if self._initial is None else len(self._initial)
        if self._initial is None or sources not in (1, n):
            raise ValueError(f"tokens must have a row for each of {sources} sources, got {n}")
        return self._initial if sources == n else self._initial[torch.zeros(n, dtype=torch.int64)]

    @torch.no_grad()
    def read(self, state: DecoderState, tokens: Tensor) -> DecoderState:
        if not tokens.shape[1]:
            return state
        after = run_layers(self._model.decoder, self._model.embedding(tokens), state.decoder)[1]
        return DecoderState(after, state.memory)

    def hidden_of(self, state: DecoderState) -> Tensor:
        hidden = state.decoder.hidden[-1]
        if state.memory is None:
            return hidden
        if len(state.memory) == 1:
            return self._attend(hidden[None], state.memory)[0]
        return self._attend(hidden[:, None], state.memory)[:, 0]

    def _attend(self, hidden: Tensor, memory: Tensor) -> Tensor:
        """tanh(W_c [c_t; h_t]) for states (b, t, h) and outputs (b or 1, s, h) of the encoder."""
        if len(memory) < len(hidden):
            return self._attend(hidden.flatten(0, 1)[None], memory).view_as(hidden)
        weights = torch.bmm(self._model.score(hidden), memory.mT).softmax(-1)  # (b, t, s)
        context = torch.bmm(weights, memory)
        attended: Tensor = self._model.mix(torch.cat([context, hidden], -1)).tanh()
        return attended


def after_sources(model: Seq2SeqModel, sources: EncodedCorpus) -> tuple[Decoder, ReadContext]:
    """The decoder and a context with the sources of targets; equal lengths are read together.

    Raises:
        ValueError: the model is in training mode, or an id is not in the source vocabulary.
    """
    require_evaluation(model)
    size, largest = len(model.source_vocabulary), int(sources.tokens.max(initial=0))
    if largest >= size:
        raise ValueError(
            f"sources must hold ids below {size}, got {largest}: encode them with the model's own "
            "vocabulary"
        )
    lengths = np.diff(sources.offsets)

    def state(texts: Ids) -> DecoderState:
        positions = sources.offsets[texts][:, None] + np.arange(lengths[texts[0]])
        ids = torch.from_numpy(sources.tokens[positions].astype(np.int64)).to(model.device)
        return model.encoded(ids)

    return Decoder(model), ReadContext(model.first_token, state, groups=lengths)
