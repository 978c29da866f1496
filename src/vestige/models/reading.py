"""The reader: one pass over texts gives what a model has read before each wanted token.

Each text is read once, from its beginning to its last wanted token. Texts of similar length are
read together, padded on the right; a causal model never reads the padding. A text longer than the
model's limit is cut into pieces of that length, and each later piece begins with the token before
it, as in training. A recurrent model reads long texts in windows that pass on its state.
`predictions` computes logits from spans, in slices.
"""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray
from torch import Tensor

from vestige.data.encoded import EncodedCorpus
from vestige.models.prefix import PrefixedModel, ReadContext
from vestige.models.protocols import TwoParts, require_evaluation

Ids = NDArray[np.int64]

BATCH_TOKENS = 4096
"""Tokens of one forward pass on a CPU, with padding and context."""

BATCH_LOGITS = 2**23
"""Logits of one forward pass on a CPU, for models whose body returns logits."""

GPU_FACTOR = 8
"""Factor of both on a GPU."""

RECURRENT_ROWS = 64
"""Fewest texts that a recurrent model reads together: smaller products are inefficient."""


NO_CONTEXT = ReadContext(None)
"""For texts from the middle of longer ones: the first token is read and not predicted."""


@dataclass(frozen=True)
class Span:
    """The model's input to the head before m tokens.

    Attributes:
        hidden: (m, h), the input of the model's head (`head_of`): hidden vectors, logits or states.
        targets: (m,) int64 ids of the tokens.
        positions: (m,) of the tokens in `EncodedCorpus.tokens`.
    """

    hidden: Any
    targets: Tensor
    positions: Ids


@torch.no_grad()
def read(
    model: Any,
    texts: EncodedCorpus,
    positions: ArrayLike | None = None,
    *,
    context: ReadContext | None = None,
    max_length: int | None = None,
    batch_tokens: int | None = None,
) -> Iterator[Span]:
    """Yield spans that have each wanted token once, in any order.

    Args:
        model: any model of next tokens; one with dropout in evaluation mode.
        texts: ids of the model's vocabulary.
        positions: of the wanted tokens, see `target_positions`.
        context: read before each text. None: nothing, or the prefix of a `PrefixedModel`.
        max_length: tokens of a piece, if fewer than the model's limit.
        batch_tokens: tokens read together, which bounds memory; None: depends on the device.

    Raises:
        ValueError: the model is in training mode, a position or an id is out of range, or the
            context leaves no room for a text.
    """
    factor = 1 if model.device.type == "cpu" else GPU_FACTOR
    batch_tokens = factor * BATCH_TOKENS if batch_tokens is None else batch_tokens
    wanted = np.unique(target_positions(texts, positions, context=context))
    if not len(wanted):
        return
    require_ids(model.vocab_size, texts=texts)
    if isinstance(model, PrefixedModel) and context is None and isinstance(model.model, TwoParts):
        max_length = _smallest(max_length, model.longest)
        context, model = model.context, model.model
    if isinstance(model, TwoParts) or context is not None:
        require_evaluation(model)
    if isinstance(model, TwoParts):
        context = ReadContext(model.first_token) if context is None else context
        if not model.separate_head:
            batch_tokens = min(batch_tokens, max(1, factor * BATCH_LOGITS // model.vocab_size))
    limit = _piece_length(model, context, max_length, batch_tokens)
    recurrent = isinstance(model, TwoParts) and model.carries_state
    pieces = _cut_texts(texts, wanted, context, limit)
    is_wanted = np.zeros(len(texts.tokens), dtype=bool)
    is_wanted[wanted] = True
    context_length = 0 if context is None else context.length
    for batch in _batches(pieces, batch_tokens, context_length, RECURRENT_ROWS if recurrent else 1):
        if isinstance(model, TwoParts) and context is not None:
            window = max(1, batch_tokens // len(batch)) if recurrent else int(batch.lengths[0])
            yield from _read_whole(model, texts.tokens, is_wanted, batch, context, window)
        else:
            yield from _read_stepwise(model, texts.tokens, is_wanted, batch, context)


def head_of(model: Any) -> Callable[[Any], Tensor]:
    """The function that maps a span's `hidden` to logits (m, v)."""
    inner = unprefixed(model)
    head: Callable[[Any], Tensor] = inner.predict if isinstance(inner, TwoParts) else inner.logits
    return head


@torch.no_grad()
def read_beginning(model: Any) -> tuple[ReadContext | None, Tensor]:
    """A context for the later tokens of texts, and the logits (1, v) of all first tokens.

    What precedes the texts is read once. A model without `TwoParts` gets no context.
    """
    state = model.start(1)
    logits: Tensor = model.logits(state)
    if not isinstance(unprefixed(model), TwoParts):
        return None, logits
    zero = torch.zeros(1, dtype=torch.int64, device=model.device)
    length = int(getattr(state, "length", 0))
    return ReadContext(None, lambda texts: state[zero.expand(len(texts))], length), logits


def unprefixed(model: Any) -> Any:
    return model.model if isinstance(model, PrefixedModel) else model


def pack(texts: Sequence[Sequence[int] | NDArray[np.int32]]) -> EncodedCorpus:
    """Texts of ids in one array."""
    offsets = np.cumsum([0, *map(len, texts)], dtype=np.int64)
    tokens = [np.asarray(ids, dtype=np.int32) for ids in texts]
    return EncodedCorpus(np.concatenate([np.empty(0, np.int32), *tokens]), offsets)


def target_positions(
    texts: EncodedCorpus, positions: ArrayLike | None = None, *, context: ReadContext | None = None
) -> Ids:
    """(m,) positions in `texts.tokens`, in the given order: from a mask or positions, or all.

    With `NO_CONTEXT`, the first token of a text cannot be predicted: ValueError.
    """
    total = len(texts.tokens)
    is_first = np.zeros(total, dtype=bool)
    if context is not None and context.token is None:
        is_first[texts.offsets[:-1][np.diff(texts.offsets) > 0]] = True
    if positions is None:
        return np.flatnonzero(~is_first)
    chosen = np.asarray(positions)
    chosen = np.flatnonzero(chosen) if chosen.dtype == bool else chosen.astype(np.int64)
    if is_first[chosen].any():
        raise ValueError("positions must leave out the first token of a text without context")
    return chosen


def word_positions(texts: EncodedCorpus) -> Ids:
    """Positions of all tokens except the last of each text, its end."""
    is_word = np.ones(len(texts.tokens), dtype=bool)
    is_word[texts.offsets[1:][np.diff(texts.offsets) > 0] - 1] = False
    return np.flatnonzero(is_word)


def texts_at(texts: EncodedCorpus, positions: Ids) -> Ids:
    """(m,) indices of the texts that contain the positions."""
    return np.asarray(np.searchsorted(texts.offsets, positions, side="right") - 1, dtype=np.int64)


def require_ids(size: int, **texts: EncodedCorpus) -> None:
    """Raise ValueError if a named text has ids outside [0, size)."""
    for name, data in texts.items():
        if len(data.tokens) and not 0 <= int(data.tokens.min()) <= int(data.tokens.max()) < size:
            raise ValueError(
                f"{name} must hold ids below {size}, got {int(data.tokens.min())} to "
                f"{int(data.tokens.max())}: encode them with the model's own vocabulary"
            )


def require_within_limit(model: Any, texts: EncodedCorpus) -> None:
    """Raise ValueError for a text that the model must read in pieces."""
    longest = getattr(model, "longest", None)
    most = int(np.diff(texts.offsets).max(initial=0))
    if longest is not None and most > longest:
        raise ValueError(
            f"a text must have at most {longest} tokens (its beginning counts as one), "
            f"got {most + 1}"
        )


@contextmanager
def evaluation_mode(model: Any) -> Iterator[None]:
    """Turn dropout off inside the block."""
    network = unprefixed(model)
    was_training = getattr(network, "training", False)
    if was_training:
        network.eval()
    try:
        yield
    finally:
        if was_training:
            network.train()


@dataclass(frozen=True)
class _Pieces:
    """p texts, or pieces of them, up to the last wanted token, (p,) each.

    Attributes:
        starts: position of the first predicted token.
        lengths: number of predicted tokens.
        begins_text: whether the context is read first.
        groups: only pieces of one group share a batch.
    """

    texts: Ids
    starts: Ids
    lengths: Ids
    begins_text: NDArray[np.bool_]
    groups: Ids

    def __len__(self) -> int:
        return len(self.starts)

    def take(self, rows: Ids) -> "_Pieces":
        return _Pieces(*(column[rows] for column in vars(self).values()))


def _piece_length(
    model: Any, context: ReadContext | None, max_length: int | None, batch_tokens: int
) -> int | None:
    """Most predicted tokens of a piece; None: no limit."""
    longest: int | None = getattr(model, "longest", None)
    if longest is not None and context is not None:
        longest -= context.length
        if longest < 1:
            raise ValueError(
                f"the context must be shorter than the model's {longest + context.length} tokens, "
                f"got {context.length + 1}"
            )
    if longest is None and isinstance(model, TwoParts) and not model.carries_state:
        longest = batch_tokens
    return _smallest(longest, max_length)


def _smallest(*limits: int | None) -> int | None:
    return min((n for n in limits if n is not None), default=None)


def _cut_texts(
    texts: EncodedCorpus, wanted: Ids, context: ReadContext | None, limit: int | None
) -> _Pieces:
    text = texts_at(texts, wanted)
    text_starts = texts.offsets[text] + (context is not None and context.token is None)
    starts = text_starts if limit is None else wanted - (wanted - text_starts) % limit
    starts, first = np.unique(starts, return_index=True)
    last = np.append(first[1:], len(wanted)) - 1
    text, begins_text = text[first], starts == text_starts[first]
    groups = np.zeros(len(starts), np.int64)
    if context is not None and context.groups is not None:
        groups = context.groups[text]
    if context is None or context.state is not None:
        # Either all pieces of a batch begin a text, or none.
        groups = 2 * groups + ~begins_text
    return _Pieces(text, starts, wanted[last] - starts + 1, begins_text, groups)


def _batches(
    pieces: _Pieces, batch_tokens: int, context_length: int, fewest_rows: int
) -> Iterator[_Pieces]:
    """Batches of pieces of one group, the longest first."""
    order = np.lexsort((pieces.starts, -pieces.lengths, pieces.groups))
    while len(order):
        first = order[0]
        fitting = batch_tokens // (context_length + int(pieces.lengths[first]))
        rows = order[: max(fewest_rows, fitting)]
        rows = rows[pieces.groups[rows] == pieces.groups[first]]
        yield pieces.take(rows)
        order = order[len(rows) :]


def _read_whole(
    model: Any,
    tokens: NDArray[np.int32],
    is_wanted: NDArray[np.bool_],
    batch: _Pieces,
    context: ReadContext,
    window: int,
) -> Iterator[Span]:
    """Read a batch with the model's body, window by window, without pieces that have ended."""
    longest = int(batch.lengths[0])
    state = context.state(batch.texts) if context.state and batch.begins_text[0] else None
    for begin in range(0, longest, window):
        rows = np.count_nonzero(batch.lengths > begin)
        starts, columns = batch.starts[:rows, None], np.arange(begin, min(begin + window, longest))
        is_inside = columns < batch.lengths[:rows, None]
        positions = np.where(is_inside, starts + columns, starts)
        inputs = tokens[positions - 1].astype(np.int64)
        if begin == 0 and context.token is not None:
            inputs[batch.begins_text, 0] = context.token
        state_before = None if state is None else state[:rows]
        hidden, state = model.body(torch.from_numpy(inputs).to(model.device), state_before)
        chosen = is_inside & is_wanted[positions]
        if chosen.any():
            vectors = hidden[torch.from_numpy(chosen).to(hidden.device)]
            yield _span(vectors, tokens, positions[chosen], vectors.device)


def _read_stepwise(
    model: Any,
    tokens: NDArray[np.int32],
    is_wanted: NDArray[np.bool_],
    batch: _Pieces,
    context: ReadContext | None,
) -> Iterator[Span]:
    """Read a batch token by token; the spans hold states of the model."""
    at_text_start = context is None and bool(batch.begins_text[0])
    state = model.start(len(batch), anywhere=not at_text_start)
    for column in range(int(batch.lengths[0])):
        rows = np.count_nonzero(batch.lengths > column)
        positions = batch.starts[:rows] + column
        state = state[:rows]
        if column or not at_text_start:
            inputs = tokens[positions - 1].astype(np.int64)
            if column == 0 and context is not None and context.token is not None:
                inputs[batch.begins_text] = context.token
            state = model.advance(state, torch.from_numpy(inputs).to(model.device))
        wanted_rows = np.flatnonzero(is_wanted[positions])
        if len(wanted_rows):
            index = torch.from_numpy(wanted_rows).to(model.device)
            yield _span(state[index], tokens, positions[wanted_rows], model.device)


def _span(hidden: Any, tokens: NDArray[np.int32], positions: Ids, device: torch.device) -> Span:
    targets = torch.from_numpy(tokens[positions].astype(np.int64)).to(device)
    return Span(hidden, targets, positions)
