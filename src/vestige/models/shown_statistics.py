r"""Per-token statistics of texts as far as a server shows them.

What it does not show is NaN, an id -1 or a rank 0: means and deviations always, ranks beyond the
most probable tokens, and tokens that its tokenizer splits otherwise.

A server that shows only its most probable tokens K leaves the mass :math:`1 - \sum_{v \in K} p(v)`,
which is divided as the base q divides it (`with_expected`):

.. math:: \ln \hat p(w) = \ln \Big(1 - \sum_{v \in K} p(v)\Big) + \ln q(w)
    - \ln \Big(1 - \sum_{v \in K} q(v)\Big)

for a hidden token w, at most the least shown one. Of q the most probable tokens are known.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import fields, replace
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from vestige.data.subwords import SubwordVocabulary
from vestige.models.remote.openai import ShownToken
from vestige.models.remote.tokens import by_ours
from vestige.models.token_statistics import TokenStatistics, first_tokens

BASE_LIKELIEST = 100
"""Most probable tokens of a base that hidden tokens are estimated by."""

LEAST_MASS = 1e-6
"""Mass outside the shown tokens, at least: what rounding hides."""

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
    """What a server shows of some texts, over given tokens.

    Args:
        shown: the server's tokens of each; None if it gave no answer.
        cuts: where the tokens of each end, in characters.
        ids: of the tokens.
        vocabulary: names the most probable tokens; without it they are -1.
        likeliest: k, columns for the most probable tokens.
    """
    tokens = [token for own in ids for token in own]
    unknown = np.full(len(tokens), np.nan, np.float32)
    found = TokenStatistics(
        offsets=np.cumsum([0, *map(len, ids)], dtype=np.int64),
        tokens=np.array(tokens, np.int32),
        log_probs=unknown.copy(),
        ranks=np.zeros(len(tokens), np.int32),
        means=unknown.copy(),
        deviations=unknown.copy(),
        likeliest=np.full((len(tokens), likeliest), -1, np.int32),
        likeliest_log_probs=np.full((len(tokens), likeliest), np.nan, np.float32),
    )
    names = {} if vocabulary is None else _ids_by_text(vocabulary)
    for first, text, own, ends in zip(found.offsets[:-1].tolist(), texts, shown, cuts, strict=True):
        if own is None:
            continue
        for place, (log_prob, token) in enumerate(by_ours(text, own, ends), start=first):
            found.log_probs[place] = log_prob
            if token is not None:
                _fill(found, place, token, names)
    return found


def numbered(texts: Sequence[str], cuts: Sequence[Sequence[int]]) -> list[list[int]]:
    """Ids of tokens that have none: equal pieces of text, which end at `cuts`, have the same."""
    number: dict[str, int] = {}
    return [
        [number.setdefault(text[a:b], len(number)) for a, b in pairwise([0, *own])]
        for text, own in zip(texts, cuts, strict=True)
    ]


def _ids_by_text(vocabulary: SubwordVocabulary) -> dict[str, int]:
    """Ids of tokens by their text, if no other token has the same."""
    ids: dict[str, int] = {}
    repeated = set()
    for token in range(len(vocabulary)):
        text = vocabulary.piece(token)
        if text in ids:
            repeated.add(text)
        ids[text] = token
    return {text: token for text, token in ids.items() if text not in repeated}


def _fill(found: TokenStatistics, place: int, token: ShownToken, ids: Mapping[str, int]) -> None:
    """The most probable tokens at a place, ties by id, and the rank of the text's token."""
    ranked = sorted(
        ((-log_prob, ids.get(text, -1), text) for text, log_prob in token.likeliest),
        key=lambda one: one[:2],
    )
    for rank, (loss, number, text) in enumerate(ranked):
        if text == token.text and not math.isnan(token.log_prob):
            found.ranks[place] = rank + 1
        if rank < found.likeliest.shape[1]:
            found.likeliest[place, rank] = number
            found.likeliest_log_probs[place, rank] = -loss


def known_by_all(statistics: Mapping[str, TokenStatistics]) -> Mask:
    """(t,) tokens whose log-probability every model shows."""
    known: Mask = np.all([np.isfinite(one.log_probs) for one in statistics.values()], axis=0)
    return known


def only(statistics: TokenStatistics, known: Mask) -> TokenStatistics:
    """Statistics of some tokens; one that is not among the k most probable has rank k + 1."""
    ranks = np.where(statistics.ranks < 1, statistics.likeliest.shape[1] + 1, statistics.ranks)
    own = {one.name: getattr(statistics, one.name) for one in fields(statistics)} | {"ranks": ranks}
    offsets = np.concatenate([[0], np.cumsum(known)])[own.pop("offsets")].astype(np.int64)
    return replace(statistics, offsets=offsets, **{name: one[known] for name, one in own.items()})


def by_list(
    counts: Mapping[str, int], statistics: Mapping[str, TokenStatistics]
) -> dict[str, dict[str, TokenStatistics]]:
    """Statistics by list, then by model, from the number of texts in each list, in order."""
    found, first = {}, 0
    for name, count in counts.items():
        places = np.arange(first, first + count)
        found[name] = {model: first_tokens(one, places) for model, one in statistics.items()}
        first += count
    return found


def shown_only(
    target: TokenStatistics, base: TokenStatistics, *, likeliest: int
) -> TokenStatistics:
    """Statistics as of a target that shows its `likeliest` most probable tokens only.

    A hidden token has its expected log-probability and rank k + 1, means and deviations are NaN.

    Raises:
        ValueError: the target has fewer of the most probable tokens.
    """
    held = target.likeliest.shape[1]
    if not 1 <= likeliest <= held:
        raise ValueError(f"likeliest must be in [1, {held}], got {likeliest}")
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
    """Statistics with expected log-probabilities of hidden tokens, where any token is shown.

    `base` is of the same texts, all of its tokens; columns of the target are NaN where hidden.
    """
    hidden = np.isnan(target.log_probs) & ~np.isnan(target.likeliest_log_probs).all(1)
    ids, logs = target.likeliest[hidden], target.likeliest_log_probs[hidden].astype(np.float64)
    same = ids[:, :, None] == base.likeliest[hidden][:, None, :]
    taken = (same.any(1) * np.exp(base.likeliest_log_probs[hidden].astype(np.float64))).sum(1)
    rest = _log_rest(np.nansum(np.exp(logs), axis=1))
    expected = rest + (base.log_probs[hidden] - _log_rest(taken))
    log_probs = target.log_probs.copy()
    log_probs[hidden] = np.minimum(expected, np.nanmin(logs, axis=1, initial=0.0))
    return replace(target, log_probs=log_probs)


def _log_rest(mass: NDArray[np.float64]) -> NDArray[np.float64]:
    return np.asarray(np.log(np.maximum(1 - mass, LEAST_MASS)))
