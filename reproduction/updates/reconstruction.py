"""How many tokens of a secret a search found, and which phrases are verbatim in the update.

A token of a secret is found if it is in a fragment of at least three tokens that some phrase
contains. A phrase is verbatim if at least half of its four-grams are in the update and not in the
earlier text: only the update can have taught it.
"""

from collections.abc import Iterable, Sequence

from vestige import _validate

Gram = tuple[int, ...]


def ngrams(tokens: Sequence[int], n: int) -> list[Gram]:
    """All sequences of n adjacent tokens.

    Example:
        >>> ngrams([1, 2, 3], 2)
        [(1, 2), (2, 3)]
    """
    _validate.positive(n=n)
    return [tuple(tokens[i : i + n]) for i in range(len(tokens) - n + 1)]


def tokens_found(secret: Sequence[int], phrases: Iterable[Sequence[int]], *, n: int = 3) -> int:
    """How many of a secret's tokens are in fragments of at least n tokens of the phrases.

    Example:
        >>> tokens_found([1, 2, 3, 4, 5], [[9, 2, 3, 4], [5, 9]])
        3
    """
    grams = {gram for phrase in phrases for gram in ngrams(phrase, n)}
    matches = [gram in grams for gram in ngrams(secret, n)]
    return sum(any(matches[max(0, i - n + 1) : i + 1]) for i in range(len(secret)))


def is_verbatim(phrase: Sequence[int], added: set[Gram], *, n: int = 4) -> bool:
    """Whether at least half of a phrase's n-grams are in `added`; False for shorter phrases.

    Args:
        phrase: token ids.
        added: n-grams of the update that are not in the earlier text.
        n: their length.

    Example:
        >>> is_verbatim([1, 2, 3, 4, 5], {(1, 2, 3, 4)}), is_verbatim([1, 2], set())
        (True, False)
    """
    grams = ngrams(phrase, n)
    return bool(grams) and 2 * sum(gram in added for gram in grams) >= len(grams)
