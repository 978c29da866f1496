"""Users of a corpus for an audit, and their documents.

Song and Shmatikov (2019), "Auditing Data Provenance in Text-Generation Models", sections 4.1 and
4.3: users with enough documents, the same number for each, in disjoint random groups; a reference
corpus without users is split among artificial ones. Differs from the paper: documents are also
chosen by their length, since the amount of text alone can reveal membership.
"""

import re
from collections.abc import Sequence
from itertools import accumulate, pairwise

import numpy as np
from numpy.typing import NDArray

from vestige import _validate
from vestige.data.corpus import Corpus
from vestige.errors import DataError

NOT_USERS = ("", "[deleted]", "[removed]", "AutoModerator", "autowikibot", "ubottu")
"""Names of deleted or shared accounts."""

_BOT = re.compile(r"(?:(?<![A-Za-z])[Bb]ot|(?<=[a-z])Bot)(?![a-z])|(?<![A-Z])BOT(?![A-Za-z])")


def is_person(name: str) -> bool:
    """Whether a name may be a person's: not a deleted account, and no "bot" as a word.

    Example:
        >>> [name for name in ("ann", "[deleted]", "RemindMeBot", "Talbot") if is_person(name)]
        ['ann', 'Talbot']
    """
    return name not in NOT_USERS and not _BOT.search(name)


def users_with(
    corpus: Corpus,
    *,
    fewest: int,
    most: int | None = None,
    shortest: int = 1,
    longest: int | None = None,
) -> list[str]:
    """Persons with `fewest` to `most` documents of the right length, in alphabetical order.

    Example:
        >>> corpus = Corpus.from_texts(["a b", "c", "d e"], users=["ann", "ann", "bob"])
        >>> users_with(corpus, fewest=1, shortest=2), users_with(corpus, fewest=2)
        (['ann', 'bob'], ['ann'])
    """
    _validate.positive(fewest=fewest)
    _validate.at_least(fewest, most=fewest if most is None else most)
    names, user_indices = corpus.user_indices()
    chosen = user_indices[fits_length(corpus, shortest, longest)]
    counts = np.bincount(chosen, minlength=len(names))
    enough = (counts >= fewest) & (counts <= (counts.max(initial=0) if most is None else most))
    return sorted(names[index] for index in np.flatnonzero(enough) if is_person(names[index]))


def disjoint_groups(
    names: Sequence[str], sizes: Sequence[int], *, seed: int
) -> tuple[list[str], ...]:
    """Disjoint random groups of users of the given sizes; DataError if there are too few users.

    Example:
        >>> members, others = disjoint_groups(["ann", "bob", "cy"], [1, 2], seed=0)
        >>> len(members), sorted(members + others)
        (1, ['ann', 'bob', 'cy'])
    """
    _validate.all_different(names=names)
    _validate.at_least(0, **{f"sizes[{index}]": size for index, size in enumerate(sizes)})
    if sum(sizes) > len(names):
        raise DataError(
            f"groups of {', '.join(map(str, sizes))} users need {sum(sizes)}; there are "
            f"{len(names)}",
            remedy="Use smaller groups, or fewer documents per user.",
        )
    ordered = sorted(names)
    order = np.random.default_rng(seed).permutation(len(ordered)).tolist()
    ends = [0, *accumulate(sizes)]
    return tuple([ordered[index] for index in order[a:b]] for a, b in pairwise(ends))


def artificial_users(corpus: Corpus, n: int, *, seed: int) -> Corpus:
    """The corpus with n random users, "artificial 000" and so on, of equally many documents."""
    _validate.positive(n=n)
    if n > len(corpus):
        raise DataError(
            f"{len(corpus)} documents cannot be split into {n} users",
            remedy="Use fewer artificial users, or pass a larger corpus.",
        )
    user_indices = np.random.default_rng(seed).permutation(np.arange(len(corpus)) % n)
    width = len(str(n - 1))
    names = [f"artificial {index:0{width}}" for index in user_indices.tolist()]
    return Corpus.from_texts(corpus, users=names, labels=corpus.labels, sources=corpus.sources)


def fits_length(corpus: Corpus, shortest: int, longest: int | None) -> NDArray[np.bool_]:
    """(documents,) whether each has `shortest` to `longest` words."""
    _validate.at_least(0, shortest=shortest)
    _validate.at_least(shortest, longest=shortest if longest is None else longest)
    lengths = np.fromiter((len(text.split()) for text in corpus), np.int64, len(corpus))
    fits = lengths >= shortest
    return fits if longest is None else fits & (lengths <= longest)
