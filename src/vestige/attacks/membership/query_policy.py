"""Which words of each user are queried: at random, by rarity or by expected information.

Song and Shmatikov (2019), "Auditing Data Provenance in Text-Generation Models", section 4.3 and
Algorithm 1: texts at random, or those whose words have the smallest sum of frequencies.

Differs from the paper: a query may also be a single word after its context (`calls`). The smallest
sum of frequencies picks short texts (`rare-sum`); `rare` takes the smallest mean. Rare words are
useless if the service shows few words, since none is ever among them: `informative` takes what a
shadow model, which never saw the user, ranks between k / 10 and 4 k, where a model that knows the
text can make the difference. One rule selects for everybody.
"""

from dataclasses import dataclass
from typing import Literal, get_args

import numpy as np
from numpy.typing import ArrayLike, NDArray

from vestige import _validate
from vestige.attacks.membership.expected_rank import WordCounts
from vestige.attacks.membership.reference_models import References
from vestige.data.token_queries import TokenQueries

Selection = Literal["all", "random", "rare", "rare-sum", "informative"]
Mask = NDArray[np.bool_]


@dataclass(frozen=True, kw_only=True)
class QueryPolicy:
    """A rule that selects the queried words of each user.

    Attributes:
        how: what decides.
        queries: texts of a user at most, every word of them.
        calls: single words of a user at most.
        k: words that the target shows.
        seed: of everything that is drawn at random.

    Raises:
        ValueError: the values contradict each other.
    """

    how: Selection = "all"
    queries: int | None = None
    calls: int | None = None
    k: int
    seed: int = 0

    def __post_init__(self) -> None:
        _validate.one_of(get_args(Selection), select=self.how)
        if self.queries is not None and self.calls is not None:
            raise ValueError(
                f"`calls` must be left out with `queries`, got {self.calls} and {self.queries}: "
                "query whole texts or single words"
            )
        if (self.queries is not None or self.calls is not None) == (self.how == "all"):
            need = "`queries` or `calls`" if self.how != "all" else "another `select`"
            raise ValueError(f"`select` {self.how} must come with {need}")
        if self.how == "rare-sum" and self.calls is not None:
            raise ValueError("`select` rare-sum must come with `queries`: a word has no sum")

    def mask(
        self, words: TokenQueries, counts: WordCounts, references: References | None = None
    ) -> Mask:
        """(w,) True for the words to query.

        Args:
            words: that can be queried, w of them.
            counts: public counts of words.
            references: models that never saw the users; needed for "informative".
        """
        ranks = None
        if self.how == "informative" and references is not None:
            ranks = references.typical_ranks(words, seed=self.seed)
        worth = value_of(words, self.how, frequency=counts.words, reference_ranks=ranks, k=self.k)
        return self._best(words, worth)

    def most(self, words: TokenQueries) -> NDArray[np.int64]:
        """(u,) words of each user that can be selected at most, before references answer."""
        if self.calls is not None:
            return np.minimum(words.counts(), self.calls)
        if self.queries is None or self.how == "random":
            return words.counts()
        _, inverse, counts = np.unique(words.texts, return_inverse=True, return_counts=True)
        longest = np.asarray(counts[inverse], dtype=np.float64)
        return words.take(self._best(words, longest)).counts()

    def _best(self, words: TokenQueries, worth: NDArray[np.float64]) -> Mask:
        if self.queries is not None:
            return select_texts(words, self.how, self.queries, worth=worth, seed=self.seed)
        limit = self.calls or len(words)
        return select_calls(words, self.how, limit, worth=worth, seed=self.seed)


def usual_selection(*, queries: int | None, calls: int | None, shadows: int) -> Selection:
    """The selection if none is given.

    Texts of informative words are short ones: whole texts are best drawn at random.

    Example:
        >>> usual_selection(queries=None, calls=20, shadows=4)
        'informative'
    """
    if queries is None and calls is None:
        return "all"
    return "informative" if shadows and calls else "random"


def select_texts(
    words: TokenQueries, how: Selection, limit: int, *, worth: ArrayLike, seed: int = 0
) -> Mask:
    """The words of at most `limit` texts of each user.

    Args:
        words: that can be queried, w of them.
        how: "all" (no limit), "random", or by worth.
        limit: texts of a user.
        worth: (w,) of each word, see `value_of`; ignored for "random".
        seed: of random selection.

    Returns:
        (w,) True for the words to query.

    Raises:
        ValueError: an argument is out of range.
    """
    _validate.at_least(1, limit=limit)
    _validate.one_of(get_args(Selection), how=how)
    if how == "all":
        return np.ones(len(words), dtype=bool)
    texts, first, inverse = np.unique(words.texts, return_index=True, return_inverse=True)
    if how == "random":
        value = np.random.default_rng(seed).random(len(texts))
    else:
        sums = np.bincount(inverse, np.asarray(worth, np.float64), minlength=len(texts))
        lengths = 1 if how == "rare-sum" else np.bincount(inverse, minlength=len(texts))
        value = np.asarray(sums / lengths, dtype=np.float64)
    best: Mask = _best_of_each(words.users[first], value, limit)[inverse]
    return best


def select_calls(
    words: TokenQueries, how: Selection, limit: int, *, worth: ArrayLike, seed: int = 0
) -> Mask:
    """At most `limit` words of each user, each queried by itself; see `select_texts`."""
    _validate.at_least(1, limit=limit)
    _validate.one_of(get_args(Selection), how=how)
    if how == "all":
        return np.ones(len(words), dtype=bool)
    lots = np.random.default_rng(seed).random(len(words))
    return _best_of_each(words.users, lots if how == "random" else np.asarray(worth), limit)


def value_of(
    words: TokenQueries,
    how: Selection,
    *,
    frequency: ArrayLike,
    reference_ranks: ArrayLike | None = None,
    k: int | None = None,
) -> NDArray[np.float64]:
    """The value of querying each word.

    Args:
        words: that can be queried, w of them.
        how: "informative": the closer the reference's rank is to k, on a log scale, with one half
            from k / 10 to 4 k; any other: less for frequent words.
        frequency: (v,) public counts of the words.
        reference_ranks: (w,) under a model that never saw the users; "informative" needs it.
        k: words that the service shows; "informative" needs it.

    Returns:
        (w,) numbers whose order counts.

    Raises:
        ValueError: "informative" without ranks or k.
    """
    if how != "informative":
        return -np.asarray(frequency, dtype=np.float64)[words.tokens]
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
