"""Copies of canaries at random positions of a corpus, and where phrases occur in it."""

import re
from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from vestige.data.corpus import Corpus
from vestige.data.manifest import Canary, Manifest
from vestige.data.vocabulary import Vocabulary
from vestige.errors import DataError

MOST = 10**6
"""Copies of all canaries together."""

_AT_ONCE = 2**16
"""Letters of phrases that one expression looks for: those of a thousand long ones are too many."""


def plant(
    corpus: Corpus,
    canaries: Sequence[Canary],
    *,
    seed: int,
    vocabulary: Vocabulary | None = None,
    user: str = "",
) -> tuple[Corpus, Manifest]:
    """Put each canary's copies into a corpus, each copy as a document of its own.

    Args:
        corpus: stays as it is.
        canaries: planted ones and controls, no phrase twice.
        seed: decides the positions.
        vocabulary: to record the canaries' ids.
        user: whose the copies of a canary without a user are, in a corpus with users.

    Returns:
        (the corpus with the copies at random positions, the record).

    Raises:
        ValueError: there is nothing to plant, or a phrase comes twice.
        DataError: the corpus already holds one of the phrases, or the vocabulary lacks a word.
    """
    phrases = [canary.phrase for canary in canaries]
    _check_plantable(corpus, canaries, phrases)
    copies = [canary.copies for canary in canaries]
    order, positions = scatter(len(corpus), copies, np.random.default_rng(seed))
    recorded = []
    for number, (canary, own) in enumerate(zip(canaries, positions, strict=True), 1):
        ids = canary.ids if vocabulary is None else _ids(canary, number, vocabulary)
        recorded.append(replace(canary, ids=ids, positions=own))
    unknown = [""] * len(phrases)
    columns = {"text": phrases, "user": [canary.user or user for canary in canaries]}
    columns |= {"label": unknown, "source": unknown}
    documents = Corpus(pa.table({name: columns[name] for name in corpus.table.column_names}))
    planted = (corpus + documents).take(order)
    return planted, Manifest(
        seed=seed,
        corpus=corpus.fingerprint(),
        planted=planted.fingerprint(),
        vocabulary=None if vocabulary is None else vocabulary.fingerprint(),
        canaries=tuple(recorded),
    )


def _ids(canary: Canary, number: int, vocabulary: Vocabulary) -> tuple[int, ...]:
    ids = tuple(vocabulary.encode(canary.phrase))
    if vocabulary.unk_id in ids:
        raise DataError(
            f"the vocabulary lacks word {ids.index(vocabulary.unk_id) + 1} of canary {number}",
            remedy="Make the canaries with this vocabulary, or choose other phrases.",
        )
    return ids


def _check_plantable(corpus: Corpus, canaries: Sequence[Canary], phrases: Sequence[str]) -> None:
    if not any(canary.planted for canary in canaries):
        raise ValueError(f"canaries must hold one with copies, got {len(phrases)} without")
    if len(set(phrases)) < len(phrases):
        raise ValueError(
            f"canaries must be all different, got {len(set(phrases))} phrases in {len(phrases)}"
        )
    for number, count in enumerate(occurrences(corpus, phrases), 1):
        if count:
            raise DataError(
                f"the corpus already contains the phrase of canary {number} ({count} times)",
                remedy="Make the canaries for this corpus before planting in it.",
            )


def scatter(
    size: int, copies: Sequence[int], generator: np.random.Generator
) -> tuple[NDArray[np.int64], tuple[tuple[int, ...], ...]]:
    """Random places for copies among documents, every set of places alike.

    Args:
        size: number of documents.
        copies: (k,) how many copies of each canary go among them.
        generator: decides the places.

    Returns:
        (order, places): with the k canaries behind the documents, taking them in `order` puts
        every copy in its place and keeps the order of the documents; `places` says for each
        canary where its copies then stand.

    Raises:
        ValueError: more than `MOST` copies in all.

    Example:
        >>> order, places = scatter(2, [1], np.random.default_rng(0))
        >>> order, places
        (array([0, 1, 2]), ((2,),))
    """
    if sum(copies) > MOST:
        raise ValueError(f"`copies` must be at most {MOST:,} in all, got {sum(copies):,}")
    owner = np.repeat(np.arange(len(copies)), copies)
    total = size + owner.size
    drawn = generator.choice(total, size=owner.size, replace=False)
    order = np.empty(total, dtype=np.int64)
    is_copy = np.zeros(total, dtype=bool)
    is_copy[drawn] = True
    order[~is_copy] = np.arange(size)
    order[drawn] = size + owner
    places = (tuple(sorted(drawn[owner == index].tolist())) for index in range(len(copies)))
    return order, tuple(places)


def occurrences(corpus: Corpus, phrases: Sequence[str]) -> list[int]:
    """Occurrences of each phrase in a corpus, whatever its case and its blanks.

    A phrase counts where no letter or digit touches its ends, inside longer texts too.

    Returns:
        one count for each phrase.

    Example:
        >>> occurrences(Corpus.from_texts(["Hot tea!", "hot team", "so hot  tea"]), ["hot tea"])
        [2]
    """
    shapes = [_BLANK.join(re.escape(word) for word in phrase.split()) for phrase in phrases]
    counts: list[int] = []
    while len(counts) < len(shapes):
        counts += _counted(corpus, _first(shapes[len(counts) :]))
    return counts


_BLANK = r"\s+"
_ARROW_BLANK = r"[\s\v\x1c-\x1f\x{85}\p{Z}]+"
"""The same blanks for Arrow's expressions, whose \\s knows those of ASCII only."""


def _first(shapes: Sequence[str]) -> list[str]:
    """As many of the first expressions as are looked for at once."""
    letters, number = 0, 0
    while number < len(shapes) and (not number or letters + len(shapes[number]) <= _AT_ONCE):
        letters += len(shapes[number])
        number += 1
    return list(shapes[:number])


def _counted(corpus: Corpus, shapes: Sequence[str]) -> list[int]:
    """Occurrences of each expression: one pass over all the text, then Python where one stands."""
    any_of_them = "|".join(f"(?:{shape.replace(_BLANK, _ARROW_BLANK)})" for shape in shapes)
    texts = corpus.table["text"]
    found = texts.filter(pc.match_substring_regex(texts, any_of_them, ignore_case=True))
    patterns = [re.compile(rf"(?<!\w){shape}(?!\w)", re.IGNORECASE) for shape in shapes]
    return [sum(len(pattern.findall(text)) for text in found.to_pylist()) for pattern in patterns]
