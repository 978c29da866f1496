"""Statistics of every token of some texts: all that membership scores are made of."""

from collections.abc import Sequence
from dataclasses import dataclass, fields

import numpy as np
from numpy.typing import ArrayLike, NDArray

from vestige import _validate
from vestige.models.behind import Context
from vestige.models.predictions import Progress, log_prob, measure, moments, rank, top
from vestige.models.protocols import LanguageModel
from vestige.models.reading import pack, require_uncut


@dataclass(frozen=True, kw_only=True)
class TokenStatistics:
    """Statistics of every token of n texts, t tokens in all.

    Attributes:
        offsets: (n + 1,) int64; text i has the tokens offsets[i] to offsets[i + 1].
        tokens: (t,) int32 ids.
        log_probs: (t,) float32, natural, of each token given those before it and the beginning.
        ranks: (t,) int32, 0 for the most probable; ties by id.
        means, deviations: (t,) float32, of the log-probability of the next token under the
            distribution itself.
        likeliest, likeliest_log_probs: (t, k) int32 and float32, the k most probable tokens.
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


def token_statistics(
    model: LanguageModel,
    texts: Sequence[Sequence[int]],
    *,
    likeliest: int = 20,
    progress: Progress | None = None,
) -> TokenStatistics:
    """Statistics of every token, from one pass.

    Args:
        model: in evaluation mode.
        texts: ids of each, at least one, and no more than the model reads at once.
        likeliest: k, at most as many as the model has outputs are returned.
        progress: called with (tokens done, tokens in all).

    Raises:
        ValueError: there is no text, one is empty or too long, or dropout is on.
    """
    packed = pack(texts)
    lengths = np.diff(packed.offsets)
    _validate.at_least(1, likeliest=likeliest, texts=len(texts))
    _validate.at_least(1, **{"tokens of a text": int(lengths.min())})
    require_uncut(model, packed)
    statistics = [moments, log_prob, rank, top(likeliest)]
    context = Context(model.first_token)
    columns = measure(model, packed, statistics, context=context, progress=progress)
    columns["ranks"] -= 1
    return TokenStatistics(offsets=packed.offsets, tokens=packed.tokens, **columns)


def first_tokens(
    statistics: TokenStatistics,
    places: ArrayLike,
    tokens: ArrayLike | None = None,
    *,
    skipped: int = 0,
) -> TokenStatistics:
    """Statistics of the first tokens of some texts, which are those of the texts cut before.

    Args:
        statistics: of n texts.
        places: (k,) numbers of texts, in [0, n).
        tokens: number of tokens of each at most, one number or (k,); None for all.
        skipped: tokens at the beginning of each that are left out, fewer than any has.
    """
    index = np.asarray(places, dtype=np.int64)
    starts, lengths = statistics.offsets[index], np.diff(statistics.offsets)[index]
    starts, lengths = starts + skipped, lengths - skipped
    if tokens is not None:
        lengths = np.minimum(lengths, tokens)
    offsets = _offsets(lengths)
    read = np.repeat(starts - offsets[:-1], lengths) + np.arange(offsets[-1])
    return TokenStatistics(
        offsets=offsets, **{name: getattr(statistics, name)[read] for name in _BY_TOKEN}
    )


def joined(parts: Sequence[TokenStatistics]) -> TokenStatistics:
    """The statistics of all texts of the parts, one part after the other."""
    return TokenStatistics(
        offsets=_offsets(np.concatenate([np.diff(part.offsets) for part in parts])),
        **{name: np.concatenate([getattr(part, name) for part in parts]) for name in _BY_TOKEN},
    )


def _offsets(lengths: NDArray[np.int64]) -> NDArray[np.int64]:
    return np.concatenate([[0], np.cumsum(lengths)]).astype(np.int64)
