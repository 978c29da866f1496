"""Near-copies among findings, folded into the best of each group.

A search returns a strong phrase many times over: begun one token later, ended one token
earlier, with another last word. Fifty rows should show fifty findings. A near-copy may still
tell something that the better phrase does not: that much of it stays.
"""

from collections.abc import Callable, Iterable, Sequence
from heapq import heapify, heappop, heappush
from itertools import pairwise

from vestige.attacks.update.phrases import Phrase

Tokens = tuple[int, ...]

Rest = Callable[[Phrase, Sequence[bool]], Iterable[Phrase]]
"""What is left of a near-copy, where the flags say which of its tokens better phrases hold."""


def nothing(phrase: Phrase, told: Sequence[bool]) -> Iterable[Phrase]:
    """The rest of phrases that are kept whole or not at all."""
    return ()


def fold(
    phrases: Iterable[Phrase], *, rest: Rest = nothing, long: int = 0, told: Iterable[Phrase] = ()
) -> list[tuple[Phrase, int]]:
    """Leaders among phrases, best first, each with the number of its near-copies.

    A phrase is a near-copy when at least half of its n-grams stand in better leaders; n is 3,
    or 2 for phrases of at most five tokens. It counts towards the leader that shares most, and
    what `rest` leaves of it takes its own place among the phrases.

    Args:
        phrases: of one search.
        rest: what is left of a near-copy: parts shorter than it, none by default.
        long: phrases of at least so many tokens come before all shorter ones, whatever their
            scores, so that these change nothing about which long ones lead.
        told: leaders of another folding, before all of these; they are not returned.

    Returns:
        (leader, near-copies folded in), in order of their scores, the long ones first.

    Example:
        >>> tokens = [(1, 2, 3, 4), (9, 8, 7), (1, 2, 3, 5), (2, 3, 4)]
        >>> phrases = [Phrase(t, (0.0,) * len(t), 9.0 - i) for i, t in enumerate(tokens)]
        >>> [(leader.tokens, copies) for leader, copies in fold(phrases)]
        [((1, 2, 3, 4), 2), ((9, 8, 7), 0)]
    """
    waiting = [_place(phrase, number, long) for number, phrase in enumerate(phrases)]
    heapify(waiting)
    number = len(waiting)  # among equal scores the first comes first
    leaders: list[Phrase] = []
    copies: list[int] = []
    owners: dict[Tokens, int] = {}  # n-gram -> the first leader that holds it
    for phrase in told:
        _own(owners, phrase, len(leaders))
        leaders.append(phrase)
        copies.append(0)
    before = len(leaders)
    while waiting:
        *_, phrase = heappop(waiting)
        n = 3 if len(phrase.tokens) > 5 else 2
        held = [owners.get(gram) for gram in _ngrams(phrase.tokens, n)]
        shared = [owner for owner in held if owner is not None]
        if not shared or 2 * len(shared) < len(held):
            _own(owners, phrase, len(leaders))
            leaders.append(phrase)
            copies.append(0)
            continue
        copies[max(set(shared), key=lambda owner: (shared.count(owner), -owner))] += 1
        held_before = [
            any(owner is not None for owner in held[max(0, i - n + 1) : i + 1])
            for i in range(len(phrase.tokens))
        ]
        for part in rest(phrase, held_before):
            heappush(waiting, _place(part, number, long))
            number += 1
    return list(zip(leaders[before:], copies[before:], strict=True))


def is_run(tokens: Sequence[int]) -> bool:
    """Whether a phrase mostly repeats itself.

    Rules, dots and other repeated characters leave runs of a token or two in any text; an update
    may well contain them, but they tell nothing. They are counted apart. In a run at most half as
    many tokens as it has are distinct, and at most half as many pairs of neighbours: digits with
    spaces between them have few tokens and many pairs.

    Example:
        >>> is_run([7, 7, 7, 7]), is_run([7, 8, 7, 8]), is_run([7, 8, 9])
        (True, True, False)
        >>> is_run([0, 9, 0, 4, 0, 7, 0, 7, 0, 1])
        False
    """
    return 2 * max(len(set(tokens)), len(set(pairwise(tokens)))) <= len(tokens)


def _place(phrase: Phrase, number: int, long: int) -> tuple[bool, float, int, Phrase]:
    """Where a phrase stands in the queue; no two numbers are equal."""
    return len(phrase.tokens) < long, -phrase.score, number, phrase


def _own(owners: dict[Tokens, int], phrase: Phrase, leader: int) -> None:
    """Give a new leader the n-grams that no better one holds."""
    for gram in _ngrams(phrase.tokens, 2) + _ngrams(phrase.tokens, 3):
        owners.setdefault(gram, leader)


def _ngrams(phrase: Tokens, n: int) -> list[Tokens]:
    return [phrase[i : i + n] for i in range(len(phrase) - n + 1)]
