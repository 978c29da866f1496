"""Selection of queries: texts or words of each user by chance, rarity or expected information.

Song and Shmatikov (2019), "Auditing Data Provenance in Text-Generation Models", section 4.3 and
Algorithm 1: texts at random, or those whose words have the smallest sum of frequencies.

Differs from the paper: a query may also be a single word after its context (`calls`). The smallest
sum of frequencies picks short texts; `rare` takes the smallest mean unless asked for the paper's.
Rare words are wrong where the service shows few words, since none is ever among them: `informative`
takes what a reference model, which never saw the user, ranks between k / 10 and 4 k, where a model
that knows the text can make the difference.
"""

from typing import get_args

import numpy as np
from numpy.typing import ArrayLike, NDArray

from vestige import _validate
from vestige.attacks.membership.query_policy import Selection
from vestige.data.token_queries import TokenQueries

Mask = NDArray[np.bool_]


def select_texts(
    asked: TokenQueries, how: Selection, limit: int, *, worth: ArrayLike, seed: int = 0
) -> Mask:
    """The words of at most `limit` texts of each user.

    Args:
        asked: w words.
        how: "all" (no limit), "random", or by worth.
        limit: texts of a user.
        worth: (w,) value of each word, see `value_of`; ignored for "random".
        seed: of random selection.

    Returns:
        (w,) True for words to ask.

    Raises:
        ValueError: an argument is out of range.
    """
    _validate.at_least(1, limit=limit)
    _validate.one_of(get_args(Selection), how=how)
    texts, first, inverse = np.unique(asked.texts, return_index=True, return_inverse=True)
    if how == "random":
        value = np.random.default_rng(seed).random(len(texts))
    else:
        sums = np.bincount(inverse, np.asarray(worth, np.float64), minlength=len(texts))
        words = np.bincount(inverse, minlength=len(texts))
        value = np.asarray(sums if how == "rare-sum" else sums / words, dtype=np.float64)
    if how == "all":
        return np.ones(len(asked), dtype=bool)
    best: Mask = _best_of_each(asked.users[first], value, limit)[inverse]
    return best


def select_calls(
    asked: TokenQueries, how: Selection, limit: int, *, worth: ArrayLike, seed: int = 0
) -> Mask:
    """At most `limit` words of each user, each to be asked by itself; see `select_texts`."""
    _validate.at_least(1, limit=limit)
    _validate.one_of(get_args(Selection), how=how)
    if how == "all":
        return np.ones(len(asked), dtype=bool)
    lots = np.random.default_rng(seed).random(len(asked))
    return _best_of_each(asked.users, lots if how == "random" else np.asarray(worth), limit)


def value_of(
    asked: TokenQueries,
    how: Selection,
    *,
    frequency: ArrayLike,
    reference_ranks: ArrayLike | None = None,
    k: int | None = None,
) -> NDArray[np.float64]:
    """The value of querying each word.

    Args:
        asked: w words.
        how: "rare" and "rare-sum": less the more frequent; "informative": the closer the
            reference's rank is to k, on a log scale, with one half from k / 10 to 4 k.
        frequency: (v,) public counts of the words.
        reference_ranks: (w,) under a model that never saw the users; "informative" needs it.
        k: words that the service shows; "informative" needs it.

    Returns:
        (w,) numbers whose order counts.

    Raises:
        ValueError: "informative" without ranks or k.
    """
    counts = np.asarray(frequency, dtype=np.float64)
    if how != "informative":
        return -counts[asked.tokens]
    if reference_ranks is None or k is None:
        raise ValueError(
            "informative needs reference_ranks and k, got "
            f"reference_ranks={reference_ranks!r} and k={k!r}"
        )
    ranks = np.log(np.asarray(reference_ranks, dtype=np.float64))
    low, high = np.log(max(k / 10, 1.0)), np.log(4.0 * k)
    outside = np.maximum(low - ranks, 0) + np.maximum(ranks - high, 0)
    nearness = 1 - np.abs(ranks - np.log(k + 1.0)) / (high - low + 1)
    return np.asarray(np.where(outside > 0, -outside, nearness), dtype=np.float64)


def _best_of_each(owners: ArrayLike, value: ArrayLike, limit: int) -> Mask:
    """True for the `limit` largest values of each owner; equal ones in their order."""
    owned, values = np.asarray(owners), np.asarray(value)
    order = np.lexsort((-values, owned))
    begins = np.flatnonzero(np.diff(owned[order], prepend=owned[order[:1]] - 1))
    sizes = np.diff(np.append(begins, len(order)))
    within = np.arange(len(order)) - np.repeat(begins, sizes)
    chosen = np.zeros(len(order), dtype=bool)
    chosen[order[within < limit]] = True
    return chosen
