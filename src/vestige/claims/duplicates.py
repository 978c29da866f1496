"""Near-duplicates of texts: groups of them count as one independent unit.

Broder (1997), "On the Resemblance and Containment of Documents": two texts are near-duplicates
where the Jaccard similarity of their sets of word triples (shingles) is at least 0.5.

Differs: no sketches. Two such sets share one of the rarer half of their shingles (Chaudhuri, Ganti
and Kaushik 2006, "A Primitive Operator for Similarity Joins in Data Cleaning": prefix filter).
Those that do are compared exactly, so that all are found, but for shingles of over `MOST` texts.
"""

import re
import unicodedata
from collections import Counter, defaultdict
from collections.abc import Sequence
from math import ceil
from typing import Any

import numpy as np
from numpy.typing import NDArray

from vestige.claims.claim import Check
from vestige.metrics.tests import FEWEST as FEWEST

ALIKE = 0.5
"""Jaccard similarity from which on two texts are near-duplicates."""

WORDS = 3
LETTERS = 5
"""Words of a shingle, and letters of one in a text of few words."""

MOST = 100
"""Texts with one of the rarer shingles that others are compared with."""

_WORD = re.compile(r"\w+")


def normalized(text: str) -> list[str]:
    """Words of a text without case, punctuation and compatibility forms."""
    return _WORD.findall(unicodedata.normalize("NFKC", text).casefold())


def shingles(text: str) -> frozenset[int]:
    """Hashes of the runs of three words, or of five letters in a text of fewer than five words."""
    words, width = normalized(text), WORDS
    if len(words) < WORDS + 2:
        words, width = list("".join(words)), LETTERS
    return frozenset(
        hash(tuple(words[place : place + width])) for place in range(max(1, len(words) - width + 1))
    )


def near_duplicates(texts: Sequence[str], *, alike: float = ALIKE) -> NDArray[np.int64]:
    """(n,) the group of each text: the place of one member.

    Near-duplicates of near-duplicates are in one group.

    Example:
        >>> near_duplicates(["the cat sat on a mat", "The cat sat on a mat!", "no"]).tolist()
        [0, 0, 2]
    """
    sets = [shingles(text) for text in texts]
    root = list(range(len(texts)))

    def leader(place: int) -> int:
        while root[place] != place:
            root[place] = root[root[place]]
            place = root[place]
        return place

    counts = Counter(one for own in sets for one in own)
    same: dict[frozenset[int], int] = {}
    holders: dict[int, list[int]] = defaultdict(list)
    for place, own in enumerate(sets):
        if (first := same.setdefault(own, place)) != place:
            root[place] = leader(first)
            continue
        rarest = sorted(own, key=lambda one: (counts[one], one))
        rarest = rarest[: len(own) - ceil(alike * len(own)) + 1]
        for other in sorted({seen for one in rarest for seen in holders[one]}):
            if leader(place) == leader(other):
                continue
            common = len(own & sets[other])
            if common >= alike * (len(own) + len(sets[other]) - common):
                root[leader(place)] = leader(other)
        for one in rarest:
            if len(holders[one]) < MOST:
                holders[one].append(place)
    return np.array([leader(place) for place in range(len(texts))], dtype=np.int64)


def joined(*labels: Sequence[object] | NDArray[np.int64]) -> NDArray[np.int64]:
    """(n,) the finest grouping in which texts with an equal label of any kind are together.

    For authors beside near-duplicates: `joined(authors, near_duplicates(texts))`.

    Example:
        >>> joined(["ann", "ann", "bob", "eve"], [0, 1, 1, 3]).tolist()
        [0, 0, 0, 1]
    """
    from scipy.sparse import coo_matrix
    from scipy.sparse.csgraph import connected_components

    codes, total = [], len(labels[0])
    for kind in labels:
        _, code = np.unique(np.asarray([str(one) for one in kind]), return_inverse=True)
        codes.append(code + total)
        total += int(code.max(initial=-1)) + 1
    texts = np.tile(np.arange(len(labels[0])), len(labels))
    ends = np.concatenate(codes)
    graph = coo_matrix((np.ones(ends.size), (texts, ends)), shape=(total, total))
    _, found = connected_components(graph, directed=False)
    _, groups = np.unique(found[: len(labels[0])], return_inverse=True)
    return groups.astype(np.int64)


def independent(
    units: NDArray[Any],
    reference: NDArray[Any],
    *,
    removed: int = 0,
    needed: int = FEWEST,
    of: str = "texts",
) -> Check:
    """Whether both lists hold enough independent units.

    Args:
        units: (n,) the unit of each audited text.
        reference: (m,) of each reference text.
        removed: reference texts that were left out as near-duplicates of audited ones.
        needed: units on each side.
        of: what was listed, in the plural.
    """
    counts = [np.unique(side).size for side in (units, reference)]
    sentence = (
        f"Independent units: {counts[0]:,} of {units.size:,} {of}, "
        f"{counts[1]:,} of {reference.size:,} reference {of}."
    )
    if removed:
        sentence += f" Removed as near-duplicates of audited ones: {removed:,} reference {of}."
    if min(counts) < needed:
        return Check("independent", "failed", f"{sentence} Needed: {needed} on each side.")
    return Check("independent", "passed", sentence)
