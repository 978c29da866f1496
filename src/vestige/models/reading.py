"""One pass over texts: what a model has read before each of the tokens that are wanted.

Each text is read once, from its beginning and no further than to its last wanted token. Texts of
similar length are read together, padded on the right, where a causal model never looks. A text
longer than the model's limit is cut into pieces of that length, and a later piece begins with the
token before it, as in training. A recurrent model reads long texts in windows that pass on its
state. Logits are made later, in slices (`predictions`).
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
from vestige.models.prefix import Context, PrefixedModel
from vestige.models.protocols import TwoParts, require_evaluation

Ids = NDArray[np.int64]

BATCH_TOKENS = 4096
"""Tokens of one forward pass on a CPU, with padding and context."""

LOGITS = 2**23
"""Logits of one forward pass on a CPU, for models that give nothing else."""

ON_GPU = 8
"""Times as many of both on a GPU."""

RECURRENT_ROWS = 64
"""Fewest texts that a recurrent model reads together: fewer waste the product."""


NO_CONTEXT = Context(None)
"""Texts from the middle of others: their first token is read and not predicted."""


@dataclass(frozen=True)
class Span:
    """What was read before m tokens.

    Attributes:
        hidden: (m, h), the input of the model's head (`head_of`): hidden vectors, logits or states.
        targets: (m,) int64 ids of the tokens.
        places: (m,) positions of the tokens in `EncodedCorpus.tokens`.
    """

    hidden: Any
    targets: Tensor
    places: Ids


@torch.no_grad()
def read(
    model: Any,
    texts: EncodedCorpus,
    positions: ArrayLike | None = None,
    *,
    context: Context | None = None,
    max_length: int | None = None,
    batch_tokens: int | None = None,
) -> Iterator[Span]:
    """What a model has read before each wanted token, each token once, in any order.

    Args:
        model: any model of next tokens; one with dropout in evaluation mode.
        texts: ids of the model's own vocabulary.
        positions: of the wanted tokens, see `places_of`.
        context: read before each text. None: nothing, or the prefix of a `PrefixedModel`.
        max_length: tokens of a piece, if fewer than the model's limit.
        batch_tokens: tokens read together, which bounds memory; None: by device.

    Raises:
        ValueError: the model is in training mode, a position or an id is out of range, or the
            context leaves no room for a text.
    """
    factor = 1 if model.device.type == "cpu" else ON_GPU
    batch_tokens = factor * BATCH_TOKENS if batch_tokens is None else batch_tokens
    places = np.unique(places_of(texts, positions, context=context))
    if not len(places):
        return
    require_ids(model.vocab_size, texts=texts)
    if isinstance(model, PrefixedModel) and context is None and isinstance(model.model, TwoParts):
        max_length = _least(max_length, model.longest)
        context, model = model.context, model.model
    if isinstance(model, TwoParts) or context is not None:
        require_evaluation(model)
    if isinstance(model, TwoParts):
        context = Context(model.first_token) if context is None else context
        if not model.separate_head:
            batch_tokens = min(batch_tokens, max(1, factor * LOGITS // model.vocab_size))
    limit = _limit(model, context, max_length, batch_tokens)
    recurrent = isinstance(model, TwoParts) and model.carries_state
    pieces = _cut(texts, places, context, limit)
    wanted = np.zeros(len(texts.tokens), dtype=bool)
    wanted[places] = True
    before = 0 if context is None else context.length
    for batch in _batches(pieces, batch_tokens, before, RECURRENT_ROWS if recurrent else 1):
        if isinstance(model, TwoParts) and context is not None:
            window = max(1, batch_tokens // len(batch)) if recurrent else int(batch.lengths[0])
            yield from _read_whole(model, texts.tokens, wanted, batch, context, window)
        else:
            yield from _read_stepwise(model, texts.tokens, wanted, batch, context)


def head_of(model: Any) -> Callable[[Any], Tensor]:
    """The function from a span's `hidden` to logits (m, v)."""
    inner = unprefixed(model)
    head: Callable[[Any], Tensor] = inner.predict if isinstance(inner, TwoParts) else inner.logits
    return head


@torch.no_grad()
def beginning(model: Any) -> tuple[Context | None, Tensor]:
    """The context of the later tokens of texts, and the logits (1, v) of all first tokens.

    What is before the texts is read once. No context for a model that is read token by token.
    """
    state = model.start(1)
    logits: Tensor = model.logits(state)
    if not isinstance(unprefixed(model), TwoParts):
        return None, logits
    zero = torch.zeros(1, dtype=torch.int64, device=model.device)
    length = int(getattr(state, "length", 0))
    return Context(None, lambda texts: state[zero.expand(len(texts))], length), logits


def unprefixed(model: Any) -> Any:
    return model.model if isinstance(model, PrefixedModel) else model


def pack(texts: Sequence[Sequence[int] | NDArray[np.int32]]) -> EncodedCorpus:
    """Texts of ids as one array."""
    offsets = np.cumsum([0, *map(len, texts)], dtype=np.int64)
    tokens = [np.asarray(ids, dtype=np.int32) for ids in texts]
    return EncodedCorpus(np.concatenate([np.empty(0, np.int32), *tokens]), offsets)


def places_of(
    texts: EncodedCorpus, positions: ArrayLike | None = None, *, context: Context | None = None
) -> Ids:
    """(m,) positions in `texts.tokens`, in the order given: a mask, whole numbers, or all.

    With `NO_CONTEXT`, the first token of a text cannot be predicted: ValueError.
    """
    total = len(texts.tokens)
    first = np.zeros(total, dtype=bool)
    if context is not None and context.token is None:
        first[texts.offsets[:-1][np.diff(texts.offsets) > 0]] = True
    if positions is None:
        return np.flatnonzero(~first)
    given = np.asarray(positions)
    given = np.flatnonzero(given) if given.dtype == bool else given.astype(np.int64)
    if first[given].any():
        raise ValueError("positions must leave out the first token of a text without context")
    return given


def word_places(texts: EncodedCorpus) -> Ids:
    """Positions of all tokens but the last of each text, its end."""
    words = np.ones(len(texts.tokens), dtype=bool)
    words[texts.offsets[1:][np.diff(texts.offsets) > 0] - 1] = False
    return np.flatnonzero(words)


def texts_at(texts: EncodedCorpus, places: Ids) -> Ids:
    """(m,) numbers of the texts that hold some positions."""
    return np.asarray(np.searchsorted(texts.offsets, places, side="right") - 1, dtype=np.int64)


def require_ids(size: int, **texts: EncodedCorpus) -> None:
    """Raise ValueError for texts, named as in messages, with ids outside [0, size)."""
    for name, data in texts.items():
        if len(data.tokens) and not 0 <= int(data.tokens.min()) <= int(data.tokens.max()) < size:
            raise ValueError(
                f"{name} must hold ids below {size}, got {int(data.tokens.min())} to "
                f"{int(data.tokens.max())}: encode them with the model's own vocabulary"
            )


def require_uncut(model: Any, texts: EncodedCorpus) -> None:
    """Raise ValueError for a text that the model does not read as a whole."""
    longest = getattr(model, "longest", None)
    most = int(np.diff(texts.offsets).max(initial=0))
    if longest is not None and most > longest:
        raise ValueError(
            f"a text must have at most {longest} tokens (its beginning counts as one), "
            f"got {most + 1}"
        )


@contextmanager
def evaluation_mode(model: Any) -> Iterator[None]:
    """A model without dropout, for a while."""
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
        starts: position of its first predicted token.
        lengths: predicted tokens.
        fresh: whether the context is read before it.
        groups: only pieces of one group share a batch.
    """

    texts: Ids
    starts: Ids
    lengths: Ids
    fresh: NDArray[np.bool_]
    groups: Ids

    def __len__(self) -> int:
        return len(self.starts)

    def take(self, rows: Ids) -> "_Pieces":
        return _Pieces(*(column[rows] for column in vars(self).values()))


def _limit(
    model: Any, context: Context | None, max_length: int | None, batch_tokens: int
) -> int | None:
    """Predicted tokens of a piece at most."""
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
    return _least(longest, max_length)


def _least(*limits: int | None) -> int | None:
    return min((n for n in limits if n is not None), default=None)


def _cut(texts: EncodedCorpus, places: Ids, context: Context | None, limit: int | None) -> _Pieces:
    owner = texts_at(texts, places)
    begins = texts.offsets[owner] + (context is not None and context.token is None)
    starts = begins if limit is None else places - (places - begins) % limit
    starts, first = np.unique(starts, return_index=True)
    last = np.append(first[1:], len(places)) - 1
    owner, fresh = owner[first], starts == begins[first]
    groups = np.zeros(len(starts), np.int64)
    if context is not None and context.groups is not None:
        groups = context.groups[owner]
    if context is None or context.state is not None:  # rows of a batch begin in one way
        groups = 2 * groups + ~fresh
    return _Pieces(owner, starts, places[last] - starts + 1, fresh, groups)


def _batches(
    pieces: _Pieces, batch_tokens: int, before: int, fewest_rows: int
) -> Iterator[_Pieces]:
    """Pieces of one group that are read together, the longest first."""
    order = np.lexsort((pieces.starts, -pieces.lengths, pieces.groups))
    while len(order):
        first = order[0]
        fits = batch_tokens // (before + int(pieces.lengths[first]))
        rows = order[: max(fewest_rows, fits)]
        rows = rows[pieces.groups[rows] == pieces.groups[first]]
        yield pieces.take(rows)
        order = order[len(rows) :]


def _read_whole(
    model: Any,
    tokens: NDArray[np.int32],
    wanted: NDArray[np.bool_],
    batch: _Pieces,
    context: Context,
    window: int,
) -> Iterator[Span]:
    """Read a batch with the model's body, window after window; pieces that have ended drop out."""
    longest = int(batch.lengths[0])
    state = context.state(batch.texts) if context.state and batch.fresh[0] else None
    for begin in range(0, longest, window):
        rows = np.count_nonzero(batch.lengths > begin)
        starts, columns = batch.starts[:rows, None], np.arange(begin, min(begin + window, longest))
        inside = columns < batch.lengths[:rows, None]
        places = np.where(inside, starts + columns, starts)
        inputs = tokens[places - 1].astype(np.int64)
        if begin == 0 and context.token is not None:
            inputs[batch.fresh, 0] = context.token
        before = None if state is None else state[:rows]
        hidden, state = model.body(torch.from_numpy(inputs).to(model.device), before)
        chosen = inside & wanted[places]
        if chosen.any():
            rows_read = hidden[torch.from_numpy(chosen).to(hidden.device)]
            yield _span(rows_read, tokens, places[chosen], rows_read.device)


def _read_stepwise(
    model: Any,
    tokens: NDArray[np.int32],
    wanted: NDArray[np.bool_],
    batch: _Pieces,
    context: Context | None,
) -> Iterator[Span]:
    """Read a batch token by token; hidden vectors are the model's states."""
    begins = context is None and bool(batch.fresh[0])
    state = model.start(len(batch), anywhere=not begins)
    for column in range(int(batch.lengths[0])):
        rows = np.count_nonzero(batch.lengths > column)
        places = batch.starts[:rows] + column
        state = state[:rows]
        if column or not begins:
            inputs = tokens[places - 1].astype(np.int64)
            if column == 0 and context is not None and context.token is not None:
                inputs[batch.fresh] = context.token
            state = model.advance(state, torch.from_numpy(inputs).to(model.device))
        rows_wanted = np.flatnonzero(wanted[places])
        if len(rows_wanted):
            index = torch.from_numpy(rows_wanted).to(model.device)
            yield _span(state[index], tokens, places[rows_wanted], model.device)


def _span(hidden: Any, tokens: NDArray[np.int32], places: Ids, device: torch.device) -> Span:
    targets = torch.from_numpy(tokens[places].astype(np.int64)).to(device)
    return Span(hidden, targets, places)
