"""Which findings say the same thing? Near-copies fold into the best of them.

A search returns a strong phrase many times over: begun one token later, ended one token
earlier, with another last word. Fifty rows should show fifty findings.
"""

from collections.abc import Sequence

Tokens = tuple[int, ...]


def fold(phrases: Sequence[Tokens]) -> list[tuple[int, int]]:
    """Leaders among phrases sorted best first, each with the number of its near-copies.

    A phrase is a near-copy when at least half of its n-grams stand in better leaders; n is 3,
    or 2 for phrases of at most five tokens. It counts towards the leader that shares most.

    Args:
        phrases: token ids, best first.

    Returns:
        (index into `phrases`, near-copies folded in), in the order of `phrases`.

    Example:
        >>> fold([(1, 2, 3, 4), (9, 8, 7), (1, 2, 3, 5), (2, 3, 4)])
        [(0, 2), (1, 0)]
    """
    leaders: list[int] = []
    copies: list[int] = []
    owners: dict[Tokens, int] = {}  # n-gram -> the first leader that holds it
    for index, phrase in enumerate(phrases):
        grams = _ngrams(phrase, 3 if len(phrase) > 5 else 2)
        shared = [owners[gram] for gram in grams if gram in owners]
        if grams and 2 * len(shared) >= len(grams):
            copies[max(set(shared), key=lambda owner: (shared.count(owner), -owner))] += 1
            continue
        for gram in _ngrams(phrase, 2) + _ngrams(phrase, 3):
            owners.setdefault(gram, len(leaders))
        leaders.append(index)
        copies.append(0)
    return list(zip(leaders, copies, strict=True))


def is_run(tokens: Sequence[int]) -> bool:
    """Whether a phrase mostly repeats itself: at most half of its tokens are distinct.

    Rules, dots and other repeated characters leave runs of one token in any text; an update
    may well contain them, but they tell nothing. They are counted apart.

    Example:
        >>> is_run([7, 7, 7, 7]), is_run([7, 8, 9])
        (True, False)
    """
    return 2 * len(set(tokens)) <= len(tokens)


def _ngrams(phrase: Tokens, n: int) -> list[Tokens]:
    return [phrase[i : i + n] for i in range(len(phrase) - n + 1)]
