"""Documents of users by their number and length, as the papers choose them."""

from collections.abc import Sequence

import numpy as np

from vestige import _validate
from vestige.data.corpus import Corpus
from vestige.data.users import fits_length
from vestige.errors import DataError


def of_length(corpus: Corpus, *, shortest: int = 1, longest: int | None = None) -> Corpus:
    """The documents of `shortest` to `longest` words between blanks, in order."""
    return corpus.take(np.flatnonzero(fits_length(corpus, shortest, longest)))


def documents_of(
    corpus: Corpus,
    names: Sequence[str],
    *,
    each: int,
    seed: int,
    fewest: int | None = None,
    shortest: int = 1,
    longest: int | None = None,
) -> Corpus:
    """Random documents of every named user, `each` of them, in the order of the corpus.

    The documents of a user do not depend on the other names.

    Args:
        corpus: with users.
        names: different users.
        each: documents of a user.
        seed: of the choice.
        fewest: documents that a user must have (None: `each`); a user with fewer than `each` has
            all of them.
        shortest, longest: words of a document; None for any number.

    Raises:
        DataError: the corpus has no users, or some of them have too few such documents.
    """
    _validate.all_different(names=names)
    _validate.positive(each=each)
    (every, owner), wanted = corpus.user_indices(), set(names)
    chosen = np.array([name in wanted for name in every], dtype=bool)
    fit = np.flatnonzero(chosen[owner] & fits_length(corpus, shortest, longest))
    counts = np.bincount(owner[fit], minlength=len(every))
    fewest = each if fewest is None else fewest
    lacking = int((counts[chosen] < fewest).sum()) + len(names) - int(chosen.sum())
    if lacking:
        raise DataError(
            f"{lacking} of {len(names)} users have fewer than {fewest} documents of the right "
            "length",
            remedy="Choose users with more documents, ask for fewer documents or other lengths.",
        )
    random = np.random.default_rng(seed).random(len(corpus))[fit]
    drawn = fit[np.lexsort((random, owner[fit]))]  # by user, each user's in random order
    starts = np.cumsum(counts) - counts
    turn = np.arange(len(drawn)) - starts[owner[drawn]]  # 0 for a user's first
    return corpus.take(np.sort(drawn[turn < each]))
