"""Two snapshots that read the same texts, lazily.

A state knows the tokens of its texts and reads them when logits are needed. So states of many rows
are read slice by slice and are never all in memory, and a model reads nothing if a bound already
decides.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple, TypeVar

import torch
from torch import Tensor

from vestige.audits.update.scores import TokenScore
from vestige.data.vocabulary import Vocabulary
from vestige.models.largest import cells_above
from vestige.models.protocols import NextToken, State, length_limit, require_numbers

CELLS_PER_SLICE = 1_280_000  # rows x vocabulary: two such tables stay near the processor's caches
LEAST_ROWS = 64  # per slice: with fewer, a large model spends its time on reading its weights
BLOCK = 256  # texts read in one batch
HELD_BYTES = 128 * 2**20  # largest states of prefixes in memory; larger ones stay lazy

Tokens = tuple[int, ...]


@dataclass
class Reader:
    """A model that counts the tokens it has read."""

    model: NextToken
    tokens: int = 0

    def start(self, tokens: Tensor) -> "ReadState":
        """n texts from the beginning of a document, with their first tokens (n, c)."""
        self.tokens += 1
        return ReadState(self, self.model.start(1), tokens.new_zeros(len(tokens)), tokens)

    def start_anywhere(self, tokens: Tensor) -> "ReadState":
        """n texts with (n, c) tokens from any position of a document.

        A model whose documents begin with a special token reads that token first.
        """
        first = self.model.vocabulary.bos_id
        if first is None:
            return ReadState(self, self.model.start(len(tokens), anywhere=True), None, tokens)
        starts_documents = bool((tokens[:, 0] == first).all())
        return self.start(tokens[:, 1:] if starts_documents else tokens)


class ReadState:
    """n texts in one model: rows of a state, and for each row the tokens not yet read."""

    __slots__ = ("_pending", "_reader", "_rows", "_state")

    def __init__(self, reader: Reader, state: State, rows: Tensor | None, pending: Tensor) -> None:
        self._reader, self._state, self._rows, self._pending = reader, state, rows, pending

    def __len__(self) -> int:
        return len(self._pending)

    def __getitem__(self, index: Tensor | slice) -> "ReadState":
        state, rows = self._state, self._rows
        if rows is not None:
            rows = rows[index]
        elif isinstance(index, slice):
            state = state[index]
        else:
            rows = index
        return ReadState(self._reader, state, rows, self._pending[index])

    def with_next(self, tokens: Tensor) -> "ReadState":
        """The texts with one more token (n,) each, not yet read."""
        pending = torch.cat([self._pending, tokens[:, None]], 1)
        return ReadState(self._reader, self._state, self._rows, pending)

    def read(self) -> "ReadState":
        """This state, with all tokens read."""
        model, tokens = self._reader.model, self._pending
        if self._rows is not None:
            self._state, self._rows = self._state[self._rows], None
        if tokens.shape[1] == 1:
            self._state = model.advance(self._state, tokens[:, 0])
        elif tokens.shape[1]:
            self._state = model.read(self._state, tokens)
        self._reader.tokens += tokens.numel()
        self._pending = tokens[:, :0]
        return self

    def follow(self, rows: Tensor, tokens: Tensor) -> None:
        """Continue with some rows, in place: each reads one more token."""
        state = self.read()._state
        self._pending = self._pending[rows]
        self._state = self._reader.model.advance(state[rows], tokens)
        self._reader.tokens += len(tokens)

    def logits(self) -> Tensor:
        """(n, v) logits of the next token."""
        return self._reader.model.logits(self.read()._state)

    def nbytes(self) -> int:
        """Memory of all rows once they are read; reads one of them."""
        return self[:1].read()._state.nbytes * len(self)


@dataclass(frozen=True)
class PairState:
    """n texts in both models."""

    before: ReadState
    after: ReadState

    def __len__(self) -> int:
        return len(self.after)

    def __getitem__(self, index: Tensor | slice) -> "PairState":
        return PairState(self.before[index], self.after[index])

    def with_next(self, tokens: Tensor) -> "PairState":
        """The texts with one more token (n,) each, not yet read."""
        return PairState(self.before.with_next(tokens), self.after.with_next(tokens))

    def read(self) -> "PairState":
        """This state, with all tokens read by both models."""
        return PairState(self.before.read(), self.after.read())

    def read_if_small(self) -> "PairState":
        """Read if both states fit into `HELD_BYTES`, otherwise still lazy."""
        small = len(self) and self.before.nbytes() + self.after.nbytes() <= HELD_BYTES
        return self.read() if small else self

    def follow(self, rows: Tensor, tokens: Tensor) -> None:
        """Continue with some rows, in place; a model frees its old state before the next reads."""
        self.before.follow(rows, tokens)
        self.after.follow(rows, tokens)


S = TypeVar("S", ReadState, PairState)


class Prediction(NamedTuple):
    """What the later model predicts at each position of a text.

    Attributes:
        log_probs: of each token; 0 for the first, which is context.
        top_tokens: the most probable tokens at each position, best first.
    """

    log_probs: tuple[float, ...]
    top_tokens: tuple[Tokens, ...]

    @property
    def total(self) -> float:
        """Log-probability of the text after its first token."""
        return sum(self.log_probs)


@dataclass(frozen=True)
class Pair:
    """The models before and after an update, over one vocabulary, and the score of a token.

    Pairs with another score share the readers.
    """

    before: Reader
    after: Reader
    score: TokenScore

    @classmethod
    def of(cls, before: NextToken, after: NextToken, score: TokenScore) -> "Pair":
        """A pair of models that have read nothing yet."""
        return cls(Reader(before), Reader(after), score)

    def with_score(self, score: TokenScore) -> "Pair":
        """The same two models with another score."""
        return replace(self, score=score)

    @property
    def vocab_size(self) -> int:
        return self.after.model.vocab_size

    @property
    def vocabulary(self) -> Vocabulary:
        return self.after.model.vocabulary

    @property
    def device(self) -> torch.device:
        return self.after.model.device

    @property
    def beginning(self) -> int:
        """The token before the first one of a document."""
        bos_id = self.vocabulary.bos_id
        return self.vocabulary.eos_id if bos_id is None else bos_id

    @property
    def excluded(self) -> list[int]:
        """Tokens that no phrase contains, except as its context: a document's two ends."""
        return sorted({self.vocabulary.eos_id, self.beginning})

    @property
    def longest(self) -> int | None:
        """The most tokens that both models can read at once; None without a limit."""
        return length_limit(self.before.model, self.after.model)

    @property
    def tokens_read(self) -> tuple[int, int]:
        """By each model."""
        return self.before.tokens, self.after.tokens

    def start(self, tokens: Tensor) -> PairState:
        """n texts from the beginning of a document, with their first tokens (n, c)."""
        return PairState(self.before.start(tokens), self.after.start(tokens))

    def start_anywhere(self, tokens: Tensor | Sequence[Tokens]) -> PairState:
        """n texts with (n, c) tokens from any position of a document."""
        ids = torch.as_tensor(tokens, device=self.device)
        return PairState(self.before.start_anywhere(ids), self.after.start_anywhere(ids))

    def slices(self, n: int) -> Iterator[slice]:
        """Slices of n rows, each of about `CELLS_PER_SLICE` cells."""
        rows = max(LEAST_ROWS, CELLS_PER_SLICE // self.vocab_size)
        return (slice(first, min(first + rows, n)) for first in range(0, n, rows))

    def gains(self, state: PairState) -> Tensor:
        """(n, v) gains of every next token, which must be finite; pass slices of many rows."""
        gains = self.score.gains(state.before.logits(), state.after.logits())
        require_numbers(gains[:, 0])
        return gains

    def gains_above(self, state: PairState, floor: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """(k,) rows, tokens and gains of the next tokens that gain more than a row's floor (n,).

        The earlier model reads only the rows in which the later model makes such a gain possible.
        Pass slices of many rows.
        """
        later = self.score.later(state.after.logits())
        require_numbers(later[:, 0])
        rows = (later.amax(1) - self.score.least > floor).nonzero()[:, 0]
        if not len(rows):
            return rows, rows, floor[:0]
        candidates = slice(None) if len(rows) == len(floor) else rows
        earlier = self.score.earlier(state.before[candidates].logits())
        require_numbers(earlier[:, 0])
        gains = self.score.difference(later[candidates], earlier)
        row, token, gain = cells_above(gains, floor[candidates])
        return rows[row], token, gain

    def token_gains(
        self, texts: Sequence[Tokens], *, context: Tokens | None = None
    ) -> list[tuple[float, ...]]:
        """Gains of each token of n texts after a context; () is the beginning of a document.

        By default the first token of each text is its context and gains 0.
        """
        skip = 1 if context is None else 0
        gains: list[list[float]] = [[0.0] * skip for _ in texts]

        def start(block: list[int]) -> PairState:
            if context is None:
                return self.start_anywhere([texts[i][:1] for i in block])
            tokens = torch.tensor([context], dtype=torch.int64, device=self.device)
            state = (self.start_anywhere(tokens) if context else self.start(tokens)).read()
            return state[tokens.new_zeros(len(block))]

        for block, state, token in self._positions([text[skip:] for text in texts], start):
            token_gains = self.gains(state).gather(1, token)[:, 0].tolist()
            for i, gain in zip(block, token_gains, strict=True):
                gains[i].append(gain)
        return [tuple(text_gains) for text_gains in gains]

    def predictions(self, texts: Sequence[Tokens], *, top: int = 1) -> list[Prediction]:
        """What the later model predicts in texts; the earlier one reads nothing."""
        log_probs: list[list[float]] = [[0.0] for _ in texts]
        top_tokens: list[list[Tokens]] = [[()] for _ in texts]

        def start(block: list[int]) -> ReadState:
            first = torch.tensor([texts[i][:1] for i in block], device=self.device)
            return self.after.start_anywhere(first)

        for block, state, token in self._positions([text[1:] for text in texts], start):
            log_softmax = state.logits().log_softmax(1)
            best = log_softmax.topk(top).indices.tolist()
            for i, log_prob, tokens in zip(
                block, log_softmax.gather(1, token)[:, 0].tolist(), best, strict=True
            ):
                log_probs[i].append(log_prob)
                top_tokens[i].append(tuple(tokens))
        return [
            Prediction(tuple(logs), tuple(tokens))
            for logs, tokens in zip(log_probs, top_tokens, strict=True)
        ]

    def _positions(
        self, texts: Sequence[Tokens], start: Callable[[list[int]], S]
    ) -> Iterator[tuple[list[int], S, Tensor]]:
        """Blocks of texts, the longest first, position by position in slices of rows.

        Yields indices of texts, their state after the tokens so far, and their next tokens (n, 1).
        """
        order = sorted(range(len(texts)), key=lambda i: -len(texts[i]))
        for block in (order[first : first + BLOCK] for first in range(0, len(order), BLOCK)):
            state = start(block)
            for position in range(len(texts[block[0]])):
                block = [i for i in block if len(texts[i]) > position]
                token = torch.tensor([texts[i][position] for i in block], device=self.device)
                state = state[: len(block)].read()
                for part in self.slices(len(block)):
                    yield block[part], state[part], token[part, None]
                state = state.with_next(token)
