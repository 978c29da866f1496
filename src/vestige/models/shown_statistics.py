r"""Per-token statistics of texts from a server that shows a part of them.

Hidden values are NaN, id -1 or rank 0: means and deviations always, ranks beyond the most probable
tokens, and tokens that the server's tokenizer splits differently.

A server that shows only its most probable tokens K leaves the mass :math:`1 - \sum_{v \in K} p(v)`
to the hidden tokens. It is divided as the base q divides it (`with_expected`):

.. math:: \ln \hat p(w) = \ln \Big(1 - \sum_{v \in K} p(v)\Big) + \ln q(w)
    - \ln \Big(1 - \sum_{v \in K} q(v)\Big)

for a hidden token w, and at most the least shown probability. Only the most probable tokens of q
are known.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import fields, replace
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from vestige.data.subwords import SubwordVocabulary
from vestige.models.remote.openai import ShownToken
from vestige.models.remote.tokens import align_tokens, token_starts
from vestige.models.token_statistics import TokenStatistics, first_tokens

BASE_LIKELIEST = 100
"""Most probable tokens of a base, used to estimate hidden tokens."""

LEAST_MASS = 1e-6
"""Lower bound of the mass outside the shown tokens, because of rounding."""

Mask = NDArray[np.bool_]


def shown_statistics(
    texts: Sequence[str],
    shown: Sequence[Sequence[ShownToken] | None],
    cuts: Sequence[Sequence[int]],
    *,
    ids: Sequence[Sequence[int]],
    vocabulary: SubwordVocabulary | None = None,
    likeliest: int = 20,
) -> TokenStatistics:
    """Statistics of given tokens of texts, from what a server shows.

    Args:
        shown: the server's tokens of each text; None: no answer.
        cuts: where the tokens of each text end, in characters.
        ids: of the tokens of each text.
        vocabulary: gives the ids of the most probable tokens; without it they are -1.
        likeliest: k, columns for the most probable tokens.
    """
    tokens = [token for text_ids in ids for token in text_ids]
    hidden = np.full(len(tokens), np.nan, np.float32)
    result = TokenStatistics(
        offsets=np.cumsum([0, *map(len, ids)], dtype=np.int64),
        tokens=np.array(tokens, np.int32),
        log_probs=hidden.copy(),
        ranks=np.zeros(len(tokens), np.int32),
        means=hidden.copy(),
        deviations=hidden.copy(),
        likeliest=np.full((len(tokens), likeliest), -1, np.int32),
        likeliest_log_probs=np.full((len(tokens), likeliest), np.nan, np.float32),
    )
    ids_by_text = {} if vocabulary is None else _ids_by_text(vocabulary)
    for first, text, server_tokens, ends in zip(
        result.offsets[:-1].tolist(), texts, shown, cuts, strict=True
    ):
        if server_tokens is None:
            continue
        for position, (log_prob, token) in enumerate(
            align_tokens(text, server_tokens, ends), start=first
        ):
            result.log_probs[position] = log_prob
            if token is not None:
                _fill(result, position, token, ids_by_text)
    return result


def server_pieces(
    texts: Sequence[str], shown: Sequence[Sequence[ShownToken]]
) -> tuple[list[list[int]], list[list[int]]]:
    """Where the server's tokens end in texts, and their ids: equal pieces of text have one id."""
    cuts = [
        sorted(set(token_starts(text, tokens)) - {0})
        for text, tokens in zip(texts, shown, strict=True)
    ]
    ids: dict[str, int] = {}
    return cuts, [
        [ids.setdefault(text[a:b], len(ids)) for a, b in pairwise([0, *text_cuts])]
        for text, text_cuts in zip(texts, cuts, strict=True)
    ]


def _ids_by_text(vocabulary: SubwordVocabulary) -> dict[str, int]:
    """Ids of tokens by their text, without texts that several tokens share."""
    ids: dict[str, int] = {}
    repeated = set()
    for token in range(len(vocabulary)):
        text = vocabulary.piece(token)
        if text in ids:
            repeated.add(text)
        ids[text] = token
    return {text: token for text, token in ids.items() if text not in repeated}


def _fill(
    result: TokenStatistics, position: int, token: ShownToken, ids: Mapping[str, int]
) -> None:
    """Write the most probable tokens of a position, ties by id, and the rank of its token."""
    ranked = sorted(
        ((-log_prob, ids.get(text, -1), text) for text, log_prob in token.likeliest),
        key=lambda row: row[:2],
    )
    for rank, (loss, token_id, text) in enumerate(ranked):
        if text == token.text and not math.isnan(token.log_prob):
            result.ranks[position] = rank + 1
        if rank < result.likeliest.shape[1]:
            result.likeliest[position, rank] = token_id
            result.likeliest_log_probs[position, rank] = -loss


def known_tokens(statistics: Mapping[str, TokenStatistics]) -> Mask:
    """(t,) whether every model shows the log-probability of a token."""
    known: Mask = np.all([np.isfinite(model.log_probs) for model in statistics.values()], axis=0)
    return known


def select_tokens(statistics: TokenStatistics, known: Mask) -> TokenStatistics:
    """Statistics of the known tokens; one outside the k most probable has rank k + 1."""
    ranks = np.where(statistics.ranks < 1, statistics.likeliest.shape[1] + 1, statistics.ranks)
    columns = {field.name: getattr(statistics, field.name) for field in fields(statistics)}
    columns["ranks"] = ranks
    offsets = np.concatenate([[0], np.cumsum(known)])[columns.pop("offsets")].astype(np.int64)
    return replace(
        statistics, offsets=offsets, **{name: values[known] for name, values in columns.items()}
    )


def split_by_list(
    counts: Mapping[str, int], statistics: Mapping[str, TokenStatistics]
) -> dict[str, dict[str, TokenStatistics]]:
    """Statistics by list, then by model; `counts` has the number of texts of each list."""
    result, first = {}, 0
    for name, count in counts.items():
        texts = np.arange(first, first + count)
        result[name] = {model: first_tokens(whole, texts) for model, whole in statistics.items()}
        first += count
    return result


def shown_only(
    target: TokenStatistics, base: TokenStatistics, *, likeliest: int
) -> TokenStatistics:
    """Statistics of a target that shows only its `likeliest` most probable tokens.

    A hidden token gets its expected log-probability and rank k + 1; means and deviations are NaN.

    Raises:
        ValueError: the target has fewer of the most probable tokens.
    """
    columns = target.likeliest.shape[1]
    if not 1 <= likeliest <= columns:
        raise ValueError(f"likeliest must be in [1, {columns}], got {likeliest}")
    unknown = np.full_like(target.means, np.nan)
    hidden = (target.ranks > likeliest) & np.isfinite(target.likeliest_log_probs[:, 0])
    shown = replace(
        target,
        log_probs=np.where(hidden, np.nan, target.log_probs).astype(np.float32),
        ranks=np.minimum(target.ranks, likeliest + 1).astype(np.int32),
        means=unknown,
        deviations=unknown,
        likeliest=target.likeliest[:, :likeliest],
        likeliest_log_probs=target.likeliest_log_probs[:, :likeliest],
    )
    return with_expected(shown, base)


def with_expected(target: TokenStatistics, base: TokenStatistics) -> TokenStatistics:
    """Statistics with estimates for hidden log-probabilities, at positions with any shown token.

    `base` has all tokens of the same texts; the columns of the target are NaN where hidden.
    """
    hidden = np.isnan(target.log_probs) & ~np.isnan(target.likeliest_log_probs).all(1)
    ids, logs = target.likeliest[hidden], target.likeliest_log_probs[hidden].astype(np.float64)
    in_base = ids[:, :, None] == base.likeliest[hidden][:, None, :]
    base_mass = (in_base.any(1) * np.exp(base.likeliest_log_probs[hidden].astype(np.float64))).sum(
        1
    )
    log_rest = _log_rest(np.nansum(np.exp(logs), axis=1))
    expected = log_rest + (base.log_probs[hidden] - _log_rest(base_mass))
    log_probs = target.log_probs.copy()
    log_probs[hidden] = np.minimum(expected, np.nanmin(logs, axis=1, initial=0.0))
    return replace(target, log_probs=log_probs)


def _log_rest(mass: NDArray[np.float64]) -> NDArray[np.float64]:
    return np.asarray(np.log(np.maximum(1 - mass, LEAST_MASS)))
