"""Encoder-decoder for translations and dialogues.

Sutskever et al. (2014), "Sequence to Sequence Learning with Neural Networks", arXiv:1409.3215:
the decoder begins with the state that the encoder ends with. Luong et al. (2015), "Effective
Approaches to Attention-based Neural Machine Translation", arXiv:1508.04025, sections 3.1 and 4:
global attention with the "general" score. Song and Shmatikov (2019), "Auditing Data Provenance in
Text-Generation Models", KDD, arXiv:1811.00513, appendix B.1, use both.

Differs from the paper: Luong et al. feed the attention's output into the next step's input. Ours
does not, so that the decoder reads a whole target at once. They read sources backwards; a source
ends with `<eos>` here and is read as it stands.
"""

from dataclasses import dataclass, replace
from typing import Any, ClassVar, Literal, Self, cast, get_args

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional

from vestige import _validate
from vestige.data.encoded import EncodedCorpus
from vestige.data.vocabulary import Vocabulary
from vestige.memory import WIDEST
from vestige.models.behind import Context, Ids
from vestige.models.protocols import Network, require_evaluation, require_read
from vestige.models.recurrent_network import Layers, RecurrentState, read_on

Cell = Literal["lstm", "gru"]
LAYERS: dict[str, type[Layers]] = {"lstm": nn.LSTM, "gru": nn.GRU}


@dataclass(frozen=True)
class Seq2SeqConfig:
    """The shape of an encoder-decoder; both have one layer.

    Attributes:
        cell: recurrent cell of encoder and decoder.
        attention: the decoder looks at all that the encoder said, and not at its last state only.
        embedding_size: width of a token's vector, in both languages.
        hidden_size: width of a state.
        dropout_in: probability of dropping a unit of an embedding.
        dropout_out: the same for every hidden layer: what encoder, decoder and attention say.
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
        _validate.whole(1, WIDEST, embedding_size=self.embedding_size, hidden_size=self.hidden_size)
        _validate.positive(initial_range=self.initial_range)
        _validate.finite(initial_range=self.initial_range)
        _validate.fraction(dropout_in=self.dropout_in, dropout_out=self.dropout_out)


class Seq2SeqModel(Network):
    """Encoder, decoder, linear head and optional attention.

    Args:
        source_vocabulary: of source ids.
        vocabulary: of target ids.
        config: sizes, dropout, cells, attention.

    Attributes:
        source_embedding: (v_source, embedding_size) token vectors.
        embedding: (v, embedding_size) token vectors.
        encoder: reads a source, batch first.
        decoder: reads a target, batch first.
        score: W_a of h_t^T W_a h_s, transposed; only with attention.
        mix: W_c of tanh(W_c [c_t; h_t]); only with attention.
        head: hidden_size -> v.
    """

    architecture: ClassVar[str] = "seq2seq"

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
        wide, size = self.config.embedding_size, self.config.hidden_size
        kind = LAYERS[self.config.cell]
        self.source_embedding = nn.Embedding(len(source_vocabulary), wide)
        self.embedding = nn.Embedding(self.vocab_size, wide)
        self.encoder, self.decoder = (kind(wide, size, batch_first=True) for _ in range(2))
        if self.config.attention:
            self.score = nn.Linear(size, size, bias=False)
            self.mix = nn.Linear(2 * size, size, bias=False)
        self.head = nn.Linear(size, self.vocab_size)
        reach = self.config.initial_range
        for parameter in self.parameters():
            nn.init.uniform_(parameter, -reach, reach)

    @property
    def device(self) -> torch.device:
        return self.head.bias.device

    @property
    def first_token(self) -> int:
        """Token before a target's first."""
        return self.vocabulary.eos_id

    def forward(self, sources: Tensor, tokens: Tensor) -> Tensor:
        """Logits (b, t, v) after each of the tokens.

        Args:
            sources: (b, s) int64: b sources of one length, each with its `<eos>`.
            tokens: (b, t) int64: the first token, then the target. What stands behind a target's
                last token changes nothing before it.
        """
        return self.predict(self.body(sources, tokens))

    def body(self, sources: Tensor, tokens: Tensor) -> Tensor:
        """Hidden vectors (b, t, hidden_size) after each token."""
        return self.reading(sources).body(tokens)[0]

    def predict(self, hidden: Tensor) -> Tensor:
        """Logits (..., v) of hidden vectors."""
        logits: Tensor = self.head(hidden)
        return logits

    def reading(self, sources: Tensor) -> "GivenSource":
        """Decoder state after b sources (b, s) of one length, in the graph."""
        return self._read(sources, drops=self.training)

    @torch.no_grad()
    def given(self, source: str) -> "GivenSource":
        """Language model of targets, given one source text.

        Example:
            >>> from vestige.data.vocabulary import WordVocabulary
            >>> words = WordVocabulary(("<unk>", "<eos>", "oui", "yes"))
            >>> answer = Seq2SeqModel(words, words).given("oui oui")
            >>> answer.log_probs(answer.start(2)).shape
            torch.Size([2, 4])
        """
        ids = [*self.source_vocabulary.encode(source), self.source_vocabulary.eos_id]
        return self._read(torch.tensor([ids], device=self.device), drops=False)

    def _read(self, sources: Tensor, *, drops: bool) -> "GivenSource":
        inputs = functional.dropout(self.source_embedding(sources), self.config.dropout_in, drops)
        outputs, state = read_on(self.encoder, inputs)
        memory = None
        if self.config.attention:
            memory = functional.dropout(outputs, self.config.dropout_out, drops)
        return GivenSource(self, memory, state, drops)


class GivenSource:
    """Decoder with a given source, as a language model.

    Its states are those of the decoder. `body` reads as many rows as there are sources, with the
    model's dropout while it is trained; `start`, `advance` and `logits` need one source, whose
    rows are as many as one likes, and never drop anything.

    Attributes:
        vocabulary: of target ids.
        vocab_size: v.
        head: hidden_size -> v.
    """

    separate_head: bool = True
    carries_state: bool = True

    def __init__(
        self, model: Seq2SeqModel, memory: Tensor | None, begin: RecurrentState, drops: bool
    ) -> None:
        self.vocabulary, self.vocab_size, self.head = model.vocabulary, model.vocab_size, model.head
        self.first_token = model.first_token
        self._model, self._memory, self._drops = model, memory, drops
        self._begin: RecurrentState = replace(cast("Any", begin), has_read=False)

    @property
    def device(self) -> torch.device:
        return self._model.device

    @property
    def training(self) -> bool:
        """Whether `body` drops units."""
        return self._drops

    def __call__(
        self, tokens: Tensor, state: RecurrentState | None = None
    ) -> tuple[Tensor, RecurrentState]:
        """Logits (b, t, v) after each of the tokens (b, t), and the state after the last."""
        hidden, after = self.body(tokens, state)
        return self.predict(hidden), after

    def body(
        self, tokens: Tensor, state: RecurrentState | None = None
    ) -> tuple[Tensor, RecurrentState]:
        """Hidden vectors (b, t, hidden_size) after each token, and the state.

        Args:
            tokens: (b, t) int64, a row for each source; of one source, any number of rows.
            state: b rows; None has read the sources and no token.
        """
        if state is None:
            state = self._rows(len(tokens))
        model, rates = self._model, self._model.config
        inputs = functional.dropout(model.embedding(tokens), rates.dropout_in, self._drops)
        outputs, after = read_on(model.decoder, inputs, state)
        outputs = functional.dropout(outputs, rates.dropout_out, self._drops)
        if self._memory is None:
            return outputs, after
        mixed = self._attend(outputs, self._memory)
        return functional.dropout(mixed, rates.dropout_out, self._drops), after

    def predict(self, hidden: Tensor) -> Tensor:
        """Logits (..., v) of hidden vectors."""
        return self._model.predict(hidden)

    @torch.no_grad()
    def start(self, n: int, *, anywhere: bool = False) -> RecurrentState:
        """n rows at the beginning of a target, the source read.

        Raises:
            ValueError: there are several sources.
        """
        if len(self._begin) != 1:
            raise ValueError(f"start needs one source, got {len(self._begin)}: use given(source)")
        state = self._begin
        if not anywhere:
            state = self.advance(state, torch.tensor([self.first_token], device=self.device))
        return state[torch.zeros(n, dtype=torch.int64, device=self.device)]

    @torch.no_grad()
    def advance(self, state: RecurrentState, tokens: Tensor) -> RecurrentState:
        """The n states after each has read one more token; tokens is int64 (n,)."""
        return self.read(state, tokens[:, None])

    @torch.no_grad()
    def read(self, state: RecurrentState, tokens: Tensor) -> RecurrentState:
        """The n states after each has read t more tokens, (n, t), in one call."""
        if not tokens.shape[1]:
            return state
        return read_on(self._model.decoder, self._model.embedding(tokens), state)[1]

    @torch.no_grad()
    def logits(self, state: RecurrentState) -> Tensor:
        """(n, v) unnormalised float32 log-probabilities of the next token."""
        require_read(state)
        hidden = state.hidden[-1]
        if self._memory is not None:
            hidden = self._attend(hidden[None], self._memory)[0]
        return self.predict(hidden).float()

    @torch.no_grad()
    def log_probs(self, state: RecurrentState) -> Tensor:
        """(n, v) natural-log probabilities of the next token."""
        return torch.log_softmax(self.logits(state), dim=-1)

    def _rows(self, n: int) -> RecurrentState:
        if len(self._begin) not in (1, n):
            raise ValueError(
                f"tokens must have a row for each of {len(self._begin)} sources, got {n}"
            )
        few = len(self._begin) < n
        return self._begin[torch.zeros(n, dtype=torch.int64)] if few else self._begin

    def _attend(self, hidden: Tensor, memory: Tensor) -> Tensor:
        """tanh(W_c [c_t; h_t]) of (b, t, h) states over what one or b sources, (., s, h), said."""
        if len(memory) < len(hidden):
            return self._attend(hidden.flatten(0, 1)[None], memory).view_as(hidden)
        shares = torch.bmm(self._model.score(hidden), memory.mT).softmax(-1)  # (b, t, s)
        context = torch.bmm(shares, memory)
        mixed: Tensor = self._model.mix(torch.cat([context, hidden], -1)).tanh()
        return mixed


@dataclass(frozen=True)
class DecoderState:
    """What a decoder has read in n rows, and the encoder's outputs (n, s, h) of their sources."""

    decoder: RecurrentState
    memory: Tensor | None

    def __getitem__(self, rows: Tensor | slice) -> Self:
        return type(self)(self.decoder[rows], None if self.memory is None else self.memory[rows])


class Decoder:
    """The decoder of an encoder-decoder, for `read` with the context of `after_sources`."""

    separate_head: bool = True
    carries_state: bool = True

    def __init__(self, model: Seq2SeqModel) -> None:
        self.model, self.head = model, model.head
        self.vocab_size, self.first_token = model.vocab_size, model.first_token

    @property
    def device(self) -> torch.device:
        return self.model.device

    @property
    def training(self) -> bool:
        return self.model.training

    def body(self, tokens: Tensor, state: DecoderState) -> tuple[Tensor, DecoderState]:
        """Hidden vectors (b, t, hidden_size) after each token, and the state."""
        given = GivenSource(self.model, state.memory, state.decoder, self.model.training)
        hidden, after = given.body(tokens, state.decoder)
        return hidden, DecoderState(after, state.memory)

    def predict(self, hidden: Tensor) -> Tensor:
        """Logits (..., v) of hidden vectors."""
        return self.model.predict(hidden)


def after_sources(model: Seq2SeqModel, sources: EncodedCorpus) -> tuple[Decoder, Context]:
    """The decoder and its context for targets of these sources.

    Sources of one length are read together, so that nothing is masked.

    Raises:
        ValueError: the model is in training mode, or an id is not in the source vocabulary.
    """
    require_evaluation(model)
    size, most = len(model.source_vocabulary), int(sources.tokens.max(initial=0))
    if most >= size:
        raise ValueError(
            f"sources must hold ids below {size}, got {most}: encode them with the model's own "
            "vocabulary"
        )
    lengths = np.diff(sources.offsets)

    def state(texts: Ids) -> DecoderState:
        places = sources.offsets[texts][:, None] + np.arange(lengths[texts[0]])
        ids = torch.from_numpy(sources.tokens[places].astype(np.int64)).to(model.device)
        given = model.reading(ids)
        return DecoderState(given._begin, given._memory)

    return Decoder(model), Context(model.first_token, state, groups=lengths)
