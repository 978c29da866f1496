"""Lists of texts to compare: near-duplicates and independent units.

Near-duplicates are not independent. Broder (1997), "On the Resemblance and Containment of
Documents": two texts are near-duplicates if the Jaccard similarity of their sets of word triples
(shingles) is at least 0.5. Differs: no sketches. Two such sets share one of the rarer half of their
shingles (Chaudhuri, Ganti and Kaushik 2006, "A Primitive Operator for Similarity Joins in Data
Cleaning": prefix filter). All pairs that do are compared exactly, except for shingles of more than
`MAX_TEXTS` texts.

`independent_texts` removes near-duplicates, and each remaining text is a unit. `listed_texts` keeps
all audited texts, because each has a row in the result; a group of near-duplicates is one unit.
"""

import re
import unicodedata
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations
from math import ceil
from typing import Any

import numpy as np
from numpy.typing import NDArray

from vestige.claims.claim import Check
from vestige.data.corpus import Corpus
from vestige.errors import DataError
from vestige.metrics.tests import FEWEST

REFERENCE = "reference"

ALIKE = 0.5
"""Least Jaccard similarity of near-duplicates."""

WORDS = 3
LETTERS = 5
"""Words of a shingle; letters of a shingle of a text with few words."""

MAX_TEXTS = 100
"""Texts with the same rare shingle that other texts are compared with."""

Integers = NDArray[np.int64]

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
        hash(tuple(words[start : start + width])) for start in range(max(1, len(words) - width + 1))
    )


def near_duplicates(texts: Sequence[str]) -> Integers:
    """(n,) the group of each text: the index of one member. Groups are closed under similarity."""
    sets = [shingles(text) for text in texts]
    parent = list(range(len(texts)))

    def root(index: int) -> int:
        while parent[index] != index:
            parent[index] = parent[parent[index]]
            index = parent[index]
        return index

    counts = Counter(shingle for own in sets for shingle in own)
    first_with: dict[frozenset[int], int] = {}
    texts_with: dict[int, list[int]] = defaultdict(list)
    for index, own in enumerate(sets):
        if (first := first_with.setdefault(own, index)) != index:
            parent[index] = root(first)
            continue
        rarest = sorted(own, key=lambda shingle: (counts[shingle], shingle))
        rarest = rarest[: len(own) - ceil(ALIKE * len(own)) + 1]
        candidates = {other for shingle in rarest for other in texts_with[shingle]}
        for other in sorted(candidates):
            if root(index) == root(other):
                continue
            common = len(own & sets[other])
            if common >= ALIKE * (len(own) + len(sets[other]) - common):
                parent[root(index)] = root(other)
        for shingle in rarest:
            if len(texts_with[shingle]) < MAX_TEXTS:
                texts_with[shingle].append(index)
    return np.array([root(index) for index in range(len(texts))], dtype=np.int64)


def joined(*labels: Sequence[object] | Integers) -> Integers:
    """(n,) the finest grouping in which texts with an equal label of any kind are together."""
    from scipy.sparse import coo_matrix
    from scipy.sparse.csgraph import connected_components

    nodes, total = [], len(labels[0])
    for column in labels:
        _, codes = np.unique(np.asarray([str(label) for label in column]), return_inverse=True)
        nodes.append(codes + total)
        total += int(codes.max(initial=-1)) + 1
    texts = np.tile(np.arange(len(labels[0])), len(labels))
    label_nodes = np.concatenate(nodes)
    edges = np.ones(label_nodes.size)
    graph = coo_matrix((edges, (texts, label_nodes)), shape=(total, total))
    _, components = connected_components(graph, directed=False)
    _, groups = np.unique(components[: len(labels[0])], return_inverse=True)
    return groups.astype(np.int64)


def independent(
    units: NDArray[Any],
    reference: NDArray[Any],
    *,
    removed: int = 0,
    of: str = "texts",
) -> Check:
    """Whether both lists have enough independent units.

    Args:
        units: (n,) the unit of each audited text.
        reference: (m,) the unit of each reference text.
        removed: reference texts that were removed as near-duplicates of audited ones.
        of: the noun for a list, in the plural.
    """
    counts = [np.unique(side).size for side in (units, reference)]
    sentence = (
        f"Independent units: {counts[0]:,} of {units.size:,} {of}, "
        f"{counts[1]:,} of {reference.size:,} reference {of}."
    )
    if removed:
        sentence += f" Removed as near-duplicates of audited ones: {removed:,} reference {of}."
    if min(counts) < FEWEST:
        return Check("independent", "failed", f"{sentence} Needed: {FEWEST} on each side.")
    return Check("independent", "passed", sentence)


def require_lists(lists: Mapping[str, Corpus]) -> None:
    """Raise DataError if a list has no text, or if two lists share a text."""
    for name, corpus in lists.items():
        if not len(corpus):
            raise DataError(f"`{name}` has no text", remedy="Pass a file with one text per row.")
    for name, other in combinations(lists, 2):
        if shared := len(set(lists[name]) & set(lists[other])):
            subject = "1 text is" if shared == 1 else f"{shared:,} texts are"
            raise DataError(
                f"{subject} in both `{name}` and `{other}`",
                remedy=f"Remove {'it' if shared == 1 else 'them'} from one.",
            )


def independent_texts(lists: Mapping[str, Corpus]) -> tuple[dict[str, Integers], Check]:
    """Remove near-duplicates, within a list and of a text in an earlier list.

    The choice depends on the texts only, so it does not bias their scores. If both the audited list
    and the reference have authors, these are the units of the check.

    Returns:
        By list, the audited one first, the positions of the texts that remain: the first of each
        group of near-duplicates. And the check "independent".
    """
    groups = near_duplicates([text for corpus in lists.values() for text in corpus])
    _, first, inverse = np.unique(groups, return_index=True, return_inverse=True)
    original, units = first[inverse], _unit_names(lists)
    starts = np.cumsum([0, *map(len, lists.values())]).tolist()
    positions, units_by_list = {}, {}
    for (name, corpus), start in zip(lists.items(), starts, strict=False):
        texts = np.arange(start, start + len(corpus))
        texts = texts[original[texts] >= start]  # no near-duplicates of earlier lists
        positions[name] = texts[original[texts] == texts] - start
        units_by_list[name] = units[original[texts]]
    removed = len(lists[REFERENCE]) - len(units_by_list[REFERENCE])
    audited = units_by_list[next(iter(lists))]
    return positions, independent(audited, units_by_list[REFERENCE], removed=removed)


def _unit_names(lists: Mapping[str, Corpus]) -> NDArray[np.str_]:
    """The unit of each text of all lists: its author if both sides have authors, else the text."""
    have_authors = all(lists[name].users is not None for name in (next(iter(lists)), REFERENCE))
    names: list[str] = []
    for name, corpus in lists.items():
        authors = corpus.users if have_authors else None
        names += authors or [f"{name} {index}" for index in range(len(corpus))]
    return np.array(names)


@dataclass(frozen=True)
class ListedTexts:
    """Audited texts, and a reference without near-duplicates of them.

    Attributes:
        compared: the texts of each list by name.
        units: (n,) the independent unit of each of these texts.
        removed: number of reference texts that were removed.
    """

    compared: dict[str, Corpus]
    units: dict[str, Integers]
    removed: int
    check: Check


def listed_texts(lists: Mapping[str, Corpus], *, author: str | None) -> ListedTexts:
    """Check two lists and group their texts into independent units: near-duplicates, or authors.

    Args:
        lists: the audited texts by the name of their parameter, then "reference" if there is one.
        author: column with the author; the texts of an author are one unit.

    Raises:
        DataError: a list is empty, both share a text or an author, a list has no authors, or no
            reference text remains.
    """
    require_lists(lists)
    for role, corpus in lists.items():
        if author is not None and corpus.users is None:
            raise DataError(
                f"`{role}` has no authors",
                remedy="Pass texts with a column of authors, or omit `author`.",
            )
    name, audited = next(iter(lists.items()))
    reference = lists.get(REFERENCE, audited.take([]))
    by_author = audited.users is not None and reference.users is not None
    if by_author and (shared := set(audited.users or ()) & set(reference.users or ())):
        raise DataError(
            f"{len(shared)} authors have texts in both lists",
            remedy="Remove their texts from one list, or leave out `author`.",
        )
    n = len(audited)
    groups = near_duplicates([*audited, *reference])
    copies = np.isin(groups[n:], groups[:n])
    if REFERENCE in lists and copies.all():
        raise DataError(
            f"every text of `{REFERENCE}` is a near-duplicate of a text of `{name}`",
            remedy="Pass a reference of other texts.",
        )
    reference = reference.take(np.flatnonzero(~copies))
    units = np.concatenate([groups[:n], groups[n:][~copies]])
    if by_author:
        units = joined([*(audited.users or ()), *(reference.users or ())], units)
    removed = int(copies.sum())
    return ListedTexts(
        compared={role: audited if role == name else reference for role in lists},
        units={role: units[:n] if role == name else units[n:] for role in lists},
        removed=removed,
        check=independent(units[:n], units[n:], removed=removed),
    )
