"""Ranks of the words of some texts under a model, given the words before.

Song and Shmatikov (2019), "Auditing Data Provenance in Text-Generation Models", KDD,
arXiv:1811.00513, section 3. Every text is read from its beginning, once, whatever the number of
its words that are asked. The end of a text is left out: an outsider cannot ask for it.

Models with a body and a linear head are read whole and their ranks counted while the head's
product is made (`ranks`); all others are read a token at a time and asked for logits in slices.
"""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray
from torch import Tensor, nn

from vestige import _validate
from vestige.data.corpus import Corpus
from vestige.data.encoded import EncodedCorpus, encode
from vestige.models.protocols import NextToken, TwoParts, require_evaluation
from vestige.models.ranks import RankCounter, Ranked, ranks_by

Count = Callable[[Tensor, Tensor], Ranked]
"""(what was read before n words, the n words) -> their ranks."""

Progress = Callable[[int, int], None]

_TOKENS = 8192
_ROWS, _FEWEST_ROWS = 256, 16
_CELLS = 2**24


@dataclass(frozen=True)
class Read:
    """What a model has read before each of m words.

    Attributes:
        output: (m, h) what its head reads, or (m, v) its logits.
        truth: (m,) int64 the words that follow, on the same device.
        places: (m,) where they stand in the data's tokens.
    """

    output: Tensor
    truth: Tensor
    places: NDArray[np.int64]


@dataclass(frozen=True, kw_only=True)
class WordRanks:
    """The ranks of w words, in the order of the texts.

    Attributes:
        texts: (w,) int64 the document that each word stands in.
        positions: (w,) int64 its place there, from 0.
        tokens: (w,) int32 its id.
        ranks: (w,) int32 in [1, v]; 1 is the likeliest.
        log_probs: (w,) float32 natural logarithms; None where nobody asked.
    """

    texts: NDArray[np.int64]
    positions: NDArray[np.int64]
    tokens: NDArray[np.int32]
    ranks: NDArray[np.int32]
    log_probs: NDArray[np.float32] | None = None

    @classmethod
    def of(cls, data: EncodedCorpus, places: NDArray[np.int64], found: Ranked) -> "WordRanks":
        """Ranks, on the CPU, of the words at some places of the data."""
        texts = np.searchsorted(data.offsets, places, side="right") - 1
        return cls(
            texts=texts.astype(np.int64),
            positions=places - data.offsets[texts],
            tokens=np.asarray(data.tokens[places], np.int32),
            ranks=found.ranks.numpy().astype(np.int32),
            log_probs=None if found.log_probs is None else found.log_probs.numpy(),
        )

    def __len__(self) -> int:
        return len(self.ranks)


def word_ranks(
    model: NextToken,
    texts: Corpus | EncodedCorpus,
    *,
    where: ArrayLike | None = None,
    ends: bool = False,
    log_probs: bool = False,
    tokens_at_once: int = _TOKENS,
    progress: Progress | None = None,
) -> WordRanks:
    """The rank of every word of some texts among all words that the model could have said.

    Args:
        model: any model of next tokens, in evaluation mode.
        texts: a corpus, or its ids by the model's own vocabulary.
        where: what to ask, as places in the ids of all texts (document i begins at
            `offsets[i]`) or as a mask over them; None: every word.
        ends: ask the ends of texts as well.
        log_probs: give these too, from the same pass.
        tokens_at_once: read together; bounds memory.
        progress: told (words done, words in all).

    Raises:
        ValueError: the model is in training mode, `where` does not fit, or an id is none of its.
        ModelError: a logit is not a number.

    Example:
        >>> from vestige.models.table import TableModel
        >>> model = TableModel([0.1, 0.2, 0.7], [[0.2, 0.3, 0.5]] * 3)
        >>> word_ranks(model, Corpus.from_texts(["w2 w2", "nobody"])).ranks
        array([1, 1, 2], dtype=int32)
    """
    data = encode(texts, model.vocabulary) if isinstance(texts, Corpus) else texts
    places = asked_places(data, where=where, ends=ends)
    reads = read_before(model, data, places, tokens_at_once=tokens_at_once)
    found = collect(reads, counter(model, log_probs=log_probs), places, progress=progress)
    return WordRanks.of(data, places, found)


def asked_places(
    data: EncodedCorpus, *, where: ArrayLike | None = None, ends: bool = False
) -> NDArray[np.int64]:
    """Places in `data.tokens`, ascending and each once; see `word_ranks`."""
    total = len(data.tokens)
    asked = np.ones(total, dtype=bool)
    if where is not None:
        given = np.asarray(where)
        if given.dtype == bool and given.shape == (total,):
            asked = given.copy()
        elif given.ndim == 1 and (given.dtype.kind in "iu" or not given.size):
            if given.size and not 0 <= given.min() <= given.max() < total:
                raise ValueError(
                    f"where must be places in [0, {total}), got {given.min()} to {given.max()}"
                )
            asked = np.zeros(total, dtype=bool)
            asked[given.astype(np.int64)] = True
        else:
            raise ValueError(
                f"where must be a mask of shape ({total},) or whole numbers (w,), "
                f"got {given.dtype} of shape {given.shape}"
            )
    if not ends:
        asked[data.offsets[1:][np.diff(data.offsets) > 0] - 1] = False
    return np.flatnonzero(asked)


def require_ids(size: int, **texts: EncodedCorpus) -> None:
    """Require texts, named as in messages, whose ids are below a size."""
    for name, data in texts.items():
        if len(data.tokens) and int(data.tokens.max()) >= size:
            raise ValueError(
                f"{name} must hold ids below {size}, got {int(data.tokens.max())}: encode them "
                "with the model's own vocabulary"
            )


def counter(model: NextToken, *, log_probs: bool = False) -> Count:
    """How the ranks of what `read_before` gives are counted."""
    head: Any = getattr(model, "head", None)
    # A subclass, such as an adapter's, may do more than a product.
    plain = type(head) is nn.Linear and head.weight.dtype == torch.float32
    if _is_apart(model) and plain:
        return RankCounter(head, log_probs=log_probs)
    return ranks_by(to_logits(model), model.vocab_size, log_probs=log_probs)


def to_logits(model: NextToken) -> Callable[[Tensor], Tensor]:
    """How the output of a `Read`, (m, ...), becomes float32 logits (m, v)."""
    parts: Any = model
    predict = parts.predict if _is_apart(model) else (lambda logits: logits)
    return lambda output: predict(output).float()


def collect(
    reads: Iterable[Read],
    count: Count,
    places: NDArray[np.int64],
    *,
    progress: Progress | None = None,
) -> Ranked:
    """The ranks of what was read in any order, in the order of the places, on the CPU.

    Args:
        reads: what a model has read before the words at all these places.
        count: counts their ranks.
        places: (w,) ascending.
        progress: told (words done, words in all).
    """
    ranks, log_probs = torch.zeros(len(places), dtype=torch.int64), None
    done = 0
    for read in reads:
        found = count(read.output, read.truth)
        index = torch.from_numpy(np.searchsorted(places, read.places))
        ranks[index] = found.ranks.cpu()
        if found.log_probs is not None:
            log_probs = torch.zeros(len(places)) if log_probs is None else log_probs
            log_probs[index] = found.log_probs.cpu()
        done += len(index)
        if progress is not None:
            progress(done, len(places))
    return Ranked(ranks=ranks, log_probs=log_probs)


def read_before(
    model: NextToken,
    data: EncodedCorpus,
    places: NDArray[np.int64],
    *,
    tokens_at_once: int = _TOKENS,
) -> Iterator[Read]:
    """What a model has read before each of some words, texts of like length side by side.

    A text that is longer than the model reads is cut into pieces of that length; a later piece
    begins with the token before it, as in training.

    Args:
        model: any model of next tokens.
        data: ids by the model's own vocabulary.
        places: (w,) ascending places in `data.tokens`.
        tokens_at_once: read together, padding counted.

    Raises:
        ValueError: the model is in training mode, or an id is none of its.
    """
    _validate.at_least(1, tokens_at_once=tokens_at_once)
    if not len(places):
        return
    require_ids(model.vocab_size, texts=data)
    apart = _is_apart(model)
    if apart:
        require_evaluation(model)
    longest = getattr(model, "longest", None)
    if longest is None and apart and not getattr(model, "carries_state", True):
        longest = tokens_at_once
    asked = np.zeros(len(data.tokens), dtype=bool)
    asked[places] = True
    read = _read_whole if apart else _read_on
    carries = apart and longest is None
    pieces = _Pieces.of(data, places, longest)
    for batch in _batches(pieces, tokens_at_once, fewest=_FEWEST_ROWS if carries else 1):
        window = max(1, tokens_at_once // len(batch)) if carries else int(batch.lengths.max())
        yield from read(model, data, asked, batch, window)


@dataclass(frozen=True)
class _Pieces:
    """Texts, or pieces of them, up to the last word that is asked.

    Attributes:
        starts: (p,) where each one's first token stands.
        lengths: (p,) its tokens.
        fresh: (p,) whether it begins a text.
    """

    starts: NDArray[np.int64]
    lengths: NDArray[np.int64]
    fresh: NDArray[np.bool_]

    @classmethod
    def of(cls, data: EncodedCorpus, places: NDArray[np.int64], longest: int | None) -> "_Pieces":
        texts = np.searchsorted(data.offsets, places, side="right") - 1
        within = (places - data.offsets[texts]) // (longest or max(1, len(data.tokens)))
        starts = data.offsets[texts] + within * (longest or 0)
        unique, first = np.unique(starts, return_index=True)
        last = np.append(first[1:], len(places)) - 1
        return cls(unique, places[last] - unique + 1, within[first] == 0)

    def __len__(self) -> int:
        return len(self.starts)

    def take(self, chosen: NDArray[np.int64]) -> "_Pieces":
        return _Pieces(self.starts[chosen], self.lengths[chosen], self.fresh[chosen])


def _batches(pieces: _Pieces, tokens_at_once: int, *, fewest: int) -> Iterator[_Pieces]:
    """Pieces side by side, the longest first; beginnings of texts never beside later pieces."""
    order = np.lexsort((pieces.starts, -pieces.lengths, ~pieces.fresh))
    begin = 0
    while begin < len(order):
        first = order[begin]
        fits = max(fewest, tokens_at_once // int(pieces.lengths[first]))
        batch = order[begin : begin + min(_ROWS, fits)]
        batch = batch[pieces.fresh[batch] == pieces.fresh[first]]
        yield pieces.take(batch)
        begin += len(batch)


@torch.no_grad()
def _read_whole(
    model: Any, data: EncodedCorpus, asked: NDArray[np.bool_], pieces: _Pieces, window: int
) -> Iterator[Read]:
    """A batch read by the model's body, a window after the other where it carries a state."""
    tokens, state = data.tokens, None
    for begin in range(0, int(pieces.lengths.max()), window):
        left = np.count_nonzero(pieces.lengths > begin)
        lengths, starts = pieces.lengths[:left, None], pieces.starts[:left, None]
        columns = np.arange(begin, min(begin + window, int(lengths.max())))
        inside = columns < lengths
        places = np.where(inside, starts + columns, starts)
        inputs = np.asarray(tokens[places - 1], np.int64)
        if begin == 0:
            inputs[pieces.fresh[:left], 0] = model.first_token
        state = state[:left] if state is not None else None
        hidden, state = model.body(torch.from_numpy(inputs).to(model.device), state)
        chosen = inside & asked[places]
        if chosen.any():
            found = places[chosen]
            output = hidden[torch.from_numpy(chosen).to(hidden.device)]
            yield Read(output, _ids(tokens, found, output.device), found)


@torch.no_grad()
def _read_on(
    model: NextToken, data: EncodedCorpus, asked: NDArray[np.bool_], pieces: _Pieces, window: int
) -> Iterator[Read]:
    """A batch read token by token; logits are asked in slices of rows."""
    step = max(1, _CELLS // model.vocab_size)
    fresh = bool(pieces.fresh[0])
    state = model.start(len(pieces), anywhere=not fresh)
    for position in range(window):
        left = np.count_nonzero(pieces.lengths > position)
        places = pieces.starts[:left] + position
        state = state[:left]
        if position or not fresh:
            state = model.advance(state, _ids(data.tokens, places - 1, model.device))
        rows = np.flatnonzero(asked[places])
        for some in np.split(rows, range(step, len(rows), step)) if len(rows) else ():
            logits = model.logits(state[torch.from_numpy(some).to(model.device)])
            yield Read(logits, _ids(data.tokens, places[some], logits.device), places[some])


def _ids(tokens: NDArray[np.int32], places: NDArray[np.int64], device: torch.device) -> Tensor:
    return torch.from_numpy(np.asarray(tokens[places], np.int64)).to(device)


def _is_apart(model: NextToken) -> bool:
    return isinstance(model, TwoParts) and model.separate_head
