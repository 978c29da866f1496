"""Which words of each user are queried: one rule for everybody.

Importing this module imports no array library: a command line reads its choices.
"""

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal, get_args

from vestige import _validate

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from vestige.attacks.membership.expected_rank import WordCounts
    from vestige.attacks.membership.reference_models import References
    from vestige.data.token_queries import TokenQueries

Selection = Literal["all", "random", "rare", "rare-sum", "informative"]


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
        self, asked: "TokenQueries", counts: "WordCounts", references: "References | None" = None
    ) -> "NDArray[np.bool_]":
        """(w,) True for the words to query.

        Args:
            asked: w words.
            counts: public counts of words.
            references: models that never saw the users; needed for "informative".
        """
        from vestige.attacks.membership.query_selection import value_of

        ranks = None
        if self.how == "informative" and references is not None:
            ranks = references.typical_ranks(asked, seed=self.seed)
        value = value_of(asked, self.how, frequency=counts.words, reference_ranks=ranks, k=self.k)
        return self._best(asked, value)

    def most(self, asked: "TokenQueries") -> "NDArray[np.int64]":
        """(u,) words of each user that can be selected at most, before references answer."""
        import numpy as np

        if self.calls is not None:
            return np.minimum(asked.counts(), self.calls)
        if self.queries is None or self.how == "random":
            return asked.counts()
        _, inverse, counts = np.unique(asked.texts, return_inverse=True, return_counts=True)
        longest = np.asarray(counts[inverse], dtype=np.float64)
        return asked.take(self._best(asked, longest)).counts()

    def _best(self, asked: "TokenQueries", value: "NDArray[np.float64]") -> "NDArray[np.bool_]":
        from vestige.attacks.membership.query_selection import select_calls, select_texts

        if self.queries is not None:
            return select_texts(asked, self.how, self.queries, worth=value, seed=self.seed)
        limit = self.calls or len(asked)
        return select_calls(asked, self.how, limit, worth=value, seed=self.seed)


def usual_selection(*, queries: int | None, calls: int | None, shadows: int) -> Selection:
    """The selection where none is given.

    Texts of informative words are short ones: whole texts are best drawn at random.

    Example:
        >>> usual_selection(queries=None, calls=20, shadows=4)
        'informative'
    """
    if queries is None and calls is None:
        return "all"
    return "informative" if shadows and calls else "random"
