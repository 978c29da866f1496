"""What a model says of every token of some texts: all that membership scores are made of."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, fields
from typing import Any

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray
from torch import Tensor

from vestige import _validate
from vestige.models.largest import largest
from vestige.models.protocols import LanguageModel, TwoParts, require_evaluation

LOGITS = 2**23
"""That statistics are made of at a time: what a processor's cache and memory bear best."""

TOKENS = 2**12
"""Of a batch that a model's body reads, padding included, at most (or those of one text)."""

ON_GPU = 8
"""Times as many of both."""

NOTHING = -200.0
"""Log-probability under which a probability is 0 in float32."""

_MOMENTS = ("means", "deviations")


@dataclass(frozen=True, kw_only=True)
class TokenStatistics:
    """What a model says of every token of n texts, t tokens in all.

    Attributes:
        offsets: (n + 1,) int64; text i has the tokens offsets[i] to offsets[i + 1].
        tokens: (t,) int32 ids.
        log_probs: (t,) float32, natural, of each token given those before it and the beginning.
        ranks: (t,) int32, 0 for the likeliest; ties by id.
        means, deviations: (t,) float32, of the log-probability of the next token under the
            distribution itself.
        likeliest, likeliest_log_probs: (t, k) int32 and float32, the k likeliest tokens.
    """

    offsets: NDArray[np.int64]
    tokens: NDArray[np.int32]
    log_probs: NDArray[np.float32]
    ranks: NDArray[np.int32]
    means: NDArray[np.float32]
    deviations: NDArray[np.float32]
    likeliest: NDArray[np.int32]
    likeliest_log_probs: NDArray[np.float32]


_BY_TOKEN = tuple(one.name for one in fields(TokenStatistics) if one.name != "offsets")


def first_tokens(
    statistics: TokenStatistics,
    places: ArrayLike,
    tokens: ArrayLike | None = None,
    *,
    skipped: int = 0,
) -> TokenStatistics:
    """What a model says of the first tokens of some texts; it had not read on.

    Args:
        statistics: of n texts.
        places: (k,) of the texts, in [0, n).
        tokens: how many of each at most, one number or (k,); None for all.
        skipped: tokens at the beginning of each that are left out, fewer than any has.
    """
    index = np.asarray(places, dtype=np.int64)
    starts, lengths = statistics.offsets[index], np.diff(statistics.offsets)[index]
    starts, lengths = starts + skipped, lengths - skipped
    if tokens is not None:
        lengths = np.minimum(lengths, tokens)
    offsets = np.concatenate([[0], np.cumsum(lengths)]).astype(np.int64)
    read = np.repeat(starts - offsets[:-1], lengths) + np.arange(offsets[-1])
    return TokenStatistics(
        offsets=offsets, **{name: getattr(statistics, name)[read] for name in _BY_TOKEN}
    )


def joined(parts: Sequence[TokenStatistics]) -> TokenStatistics:
    """The statistics of all texts of the parts, one part after the other."""
    lengths = np.concatenate([np.diff(part.offsets) for part in parts])
    return TokenStatistics(
        offsets=np.concatenate([[0], np.cumsum(lengths)]).astype(np.int64),
        **{name: np.concatenate([getattr(part, name) for part in parts]) for name in _BY_TOKEN},
    )


@torch.no_grad()
def token_statistics(
    model: LanguageModel,
    texts: Sequence[Sequence[int]],
    *,
    likeliest: int = 20,
    progress: Callable[[int, int], object] | None = None,
) -> TokenStatistics:
    """Statistics of every token, texts of like length in one forward pass.

    Args:
        model: in evaluation mode.
        texts: ids of each, at least one, and no more than the model reads at once.
        likeliest: k, of the likeliest tokens; at most as many as there are outputs are kept.
        progress: told (tokens done, tokens in all).

    Raises:
        ValueError: there is no text, one is empty or too long, or dropout is on.
    """
    _validate.at_least(1, likeliest=likeliest, texts=len(texts))
    require_evaluation(model)
    lengths = np.array([len(ids) for ids in texts], dtype=np.int64)
    _validate.at_least(1, **{"tokens of a text": int(lengths.min())})
    apart = isinstance(model, TwoParts) and model.separate_head
    logits = LOGITS * (1 if model.device.type == "cpu" else ON_GPU)
    room = logits * TOKENS // LOGITS if apart else logits // model.vocab_size
    at_once = max(1, logits // model.vocab_size)
    offsets = np.concatenate([[0], np.cumsum(lengths)]).astype(np.int64)
    # Made once: what was kept between batches would pin the heap, which grew without end.
    found = _Columns(int(offsets[-1]), min(likeliest, model.vocab_size))
    done = 0
    for batch in _batches(lengths, room):
        places = np.concatenate([np.arange(offsets[one], offsets[one + 1]) for one in batch])
        slices = _of_batch(model, [texts[one] for one in batch], likeliest, at_once, apart)
        for told in slices:
            found.write(places[: (some := len(told["ranks"]))], told)
            places = places[some:]
            done += some
        if progress is not None:
            progress(done, int(offsets[-1]))
    tokens = np.concatenate([np.asarray(ids, dtype=np.int32) for ids in texts])
    return TokenStatistics(offsets=offsets, tokens=tokens, **found.columns)


class _Columns:
    """Columns (t, ...) of t tokens, which are written in any order."""

    def __init__(self, tokens: int, k: int) -> None:
        self.columns: dict[str, NDArray[Any]] = {
            **{name: np.empty(tokens, dtype=np.float32) for name in ("log_probs", *_MOMENTS)},
            "ranks": np.empty(tokens, dtype=np.int32),
            "likeliest": np.empty((tokens, k), dtype=np.int32),
            "likeliest_log_probs": np.empty((tokens, k), dtype=np.float32),
        }

    def write(self, places: NDArray[np.int64], told: Mapping[str, Tensor]) -> None:
        for name, column in self.columns.items():
            column[places] = told[name].cpu().numpy()


def _of_batch(
    model: Any, texts: Sequence[Sequence[int]], likeliest: int, at_once: int, apart: bool
) -> Iterator[dict[str, Tensor]]:
    """Statistics of the tokens of some texts, one text after the other, slice by slice.

    Args:
        at_once: tokens whose logits are looked at together.
        apart: the model's head can be asked for these alone, and never for padding.
    """
    lengths = torch.tensor([len(ids) for ids in texts])
    rows = torch.full((len(texts), int(lengths.max()) + 1), model.first_token)
    for row, ids in enumerate(texts):
        rows[row, 1 : len(ids) + 1] = torch.as_tensor(ids)
    [places] = (torch.arange(rows.shape[1] - 1) < lengths[:, None]).flatten().nonzero(as_tuple=True)
    rows = rows.to(model.device)
    read = (model.body if apart else model)(rows[:, :-1])[0].flatten(0, 1)
    tokens = rows[:, 1:].flatten()
    for first in range(0, len(places), at_once):
        part = places[first : first + at_once]
        logits = read[part.to(read.device)]
        logits = model.predict(logits) if apart else logits
        own = tokens[part.to(tokens.device)].to(logits.device)
        yield _of_tokens(logits, own, likeliest)


def _of_tokens(logits: Tensor, tokens: Tensor, k: int) -> dict[str, Tensor]:
    """Statistics (t,) of tokens (t,), whose logits are (t, v)."""
    log_probs = torch.log_softmax(logits.float(), dim=-1)
    own = log_probs.gather(1, tokens[:, None])
    chances, known = log_probs.exp(), log_probs.clamp(min=NOTHING)
    means = torch.linalg.vecdot(chances, known)
    spread = torch.linalg.vecdot(chances, known.sub_(means[:, None]).square_())
    first = largest(log_probs, min(k, log_probs.shape[1]))
    return {
        "log_probs": own[:, 0],
        "ranks": _ranks(log_probs, own, tokens),
        "means": means,
        "deviations": spread.sqrt(),
        "likeliest": first.int(),
        "likeliest_log_probs": log_probs.gather(1, first),
    }


def _ranks(log_probs: Tensor, own: Tensor, tokens: Tensor) -> Tensor:
    """Ranks (t,) of tokens, whose own log-probabilities are (t, 1)."""
    ranks = (log_probs > own).sum(1, dtype=torch.int32)
    alike = log_probs == own
    [tied] = (alike.sum(1, dtype=torch.int32) > 1).nonzero(as_tuple=True)
    before = torch.arange(log_probs.shape[1], device=tokens.device) < tokens[tied, None]
    ranks[tied] += (alike[tied] & before).sum(1, dtype=torch.int32)
    return ranks


def _batches(lengths: NDArray[np.int64], room: int) -> list[list[int]]:
    """Places of texts of like length, of which so many tokens fit, padding included."""
    batches: list[list[int]] = []
    for place in np.argsort(lengths, kind="stable").tolist():
        if not batches or (len(batches[-1]) + 1) * int(lengths[place]) > room:
            batches.append([])
        batches[-1].append(place)
    return batches
