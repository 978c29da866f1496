"""Lists of texts that are compared: near-duplicates, independent units, and which texts count.

Near-duplicates are not independent. Broder (1997), "On the Resemblance and Containment of
Documents": two texts are near-duplicates where the Jaccard similarity of their sets of word triples
(shingles) is at least 0.5. Differs: no sketches. Two such sets share one of the rarer half of their
shingles (Chaudhuri, Ganti and Kaushik 2006, "A Primitive Operator for Similarity Joins in Data
Cleaning": prefix filter). Those that do are compared exactly, so that all are found, except by
shingles of over `MOST` texts.

Two rules: `independent_texts` leaves near-duplicates out, and each text that is left counts by
itself. `listed_texts` keeps all audited texts, since each is reported with its own row, and a group
of near-duplicates is one unit.
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
"""Jaccard similarity from which on two texts are near-duplicates."""

WORDS = 3
LETTERS = 5
"""Words of a shingle, and letters of one in a text of few words."""

MOST = 100
"""Texts with one of the rarer shingles that others are compared with."""

Whole = NDArray[np.int64]

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


def near_duplicates(texts: Sequence[str], *, alike: float = ALIKE) -> Whole:
    """(n,) the group of each text: the place of one member. Groups are closed under similarity."""
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


def joined(*labels: Sequence[object] | Whole) -> Whole:
    """(n,) the finest grouping in which texts with an equal label of any kind are together."""
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


def require_lists(lists: Mapping[str, Corpus]) -> None:
    """Refuse lists (DataError) of which one has no text, or two share a text."""
    for name, corpus in lists.items():
        if not len(corpus):
            raise DataError(f"`{name}` has no text", remedy="Pass a file with one text per row.")
    for name, other in combinations(lists, 2):
        if both := len(set(lists[name]) & set(lists[other])):
            are = "text is" if both == 1 else "texts are"
            raise DataError(
                f"{both:,} {are} in both `{name}` and `{other}`",
                remedy=f"Remove {'it' if both == 1 else 'them'} from one.",
            )


def independent_texts(lists: Mapping[str, Corpus]) -> tuple[dict[str, Whole], Check]:
    """Leave out near-duplicates, within a list and of a text on an earlier one.

    The choice depends on the texts alone, so it does not bias their scores. If both the audited
    list and the reference have authors, these are the units of the check.

    Returns:
        By list, the audited first, the positions of the texts that count: of near-duplicates only
        the first. The check "independent".
    """
    groups = near_duplicates([text for corpus in lists.values() for text in corpus])
    _, first, places = np.unique(groups, return_index=True, return_inverse=True)
    original, owners = first[places], _owners(lists)
    starts = np.cumsum([0, *map(len, lists.values())]).tolist()
    kept, units = {}, {}
    for (name, corpus), start in zip(lists.items(), starts, strict=False):
        here = np.arange(start, start + len(corpus))
        here = here[original[here] >= start]  # no near-duplicates of earlier lists
        kept[name] = here[original[here] == here] - start
        units[name] = owners[original[here]]
    removed = len(lists[REFERENCE]) - len(units[REFERENCE])
    return kept, independent(units[next(iter(lists))], units[REFERENCE], removed=removed)


def _owners(lists: Mapping[str, Corpus]) -> NDArray[np.str_]:
    """The unit of each text of all lists: its author if both sides have authors, or itself."""
    named = all(lists[name].users is not None for name in (next(iter(lists)), REFERENCE))
    found: list[str] = []
    for name, corpus in lists.items():
        by = corpus.users if named else None
        found += by or [f"{name} {place}" for place in range(len(corpus))]
    return np.array(found)


@dataclass(frozen=True)
class ListedTexts:
    """Audited texts and their reference, without near-duplicates of audited texts, by name.

    `units`: (n,) the independent unit of each of these texts; `removed`: texts left out.
    """

    compared: dict[str, Corpus]
    units: dict[str, Whole]
    removed: int
    check: Check


def listed_texts(lists: Mapping[str, Corpus], *, author: str | None) -> ListedTexts:
    """Check two lists and group their texts into independent units: near-duplicates, or authors.

    Args:
        lists: the audited texts by the name of their parameter, then "reference" if there is one.
        author: column with the author, whose texts are one unit.

    Raises:
        DataError: a list is empty, both share a text or an author, a list has no authors, or no
            reference text is left.
    """
    require_lists(lists)
    for role, corpus in lists.items():
        if author is not None and corpus.users is None:
            raise DataError(
                f"`{role}` has no authors",
                remedy="Pass texts with a column of authors, or omit `author`.",
            )
    name, own = next(iter(lists.items()))
    rest = lists.get(REFERENCE, own.take([]))
    by_author = own.users is not None and rest.users is not None
    if by_author and (both := set(own.users or ()) & set(rest.users or ())):
        raise DataError(
            f"{len(both)} authors have texts in both lists",
            remedy="Remove their texts from one list, or leave out `author`.",
        )
    groups = near_duplicates([*own, *rest])
    copies = np.isin(groups[len(own) :], groups[: len(own)])
    if REFERENCE in lists and copies.all():
        raise DataError(
            f"every text of `{REFERENCE}` is a near-duplicate of a text of `{name}`",
            remedy="Pass a reference of other texts.",
        )
    rest = rest.take(np.flatnonzero(~copies))
    units = np.concatenate([groups[: len(own)], groups[len(own) :][~copies]])
    if by_author:
        units = joined([*(own.users or ()), *(rest.users or ())], units)
    of_own, of_rest = units[: len(own)], units[len(own) :]
    removed = int(copies.sum())
    return ListedTexts(
        compared={one: own if one == name else rest for one in lists},
        units={one: of_own if one == name else of_rest for one in lists},
        removed=removed,
        check=independent(of_own, of_rest, removed=removed),
    )
