"""Record hashes: names that follow from the content alone.

What follows from a record's hash (whether it is held out, whether two trainings read it) follows
from that record alone: with one record more or less in the corpus, nothing changes for the others.

The hashes have no key: whoever has a text can look whether its hash is among them. They are as
private as the texts, and never stand in a folder that is released.
"""

import hashlib
from collections.abc import Iterable

import numpy as np
from numpy.typing import NDArray

from vestige.data.corpus import Corpus

BYTES = 16
"""Of a hash: 128 bits, so that no two texts of a corpus share one."""


def record_hashes(corpus: Corpus, *, purpose: bytes = b"") -> NDArray[np.void]:
    """(len(corpus),) hashes of texts, each with its source where the corpus has sources.

    Args:
        corpus: the records.
        purpose: of the hashes, at most 16 bytes; those of two purposes are independent.

    Example:
        >>> hashes = record_hashes(Corpus.from_texts(["to be", "or not", "to be"]))
        >>> len(hashes), len(np.unique(hashes))
        (3, 2)
    """
    texts: Iterable[str] = corpus
    if corpus.sources is not None:
        texts = (f"{len(s)} {s}{t}" for s, t in zip(corpus.sources, corpus, strict=True))
    return hash_texts(texts, purpose=purpose)


def hash_texts(texts: Iterable[str], *, purpose: bytes = b"") -> NDArray[np.void]:
    """(n,) BLAKE2b hashes of BYTES bytes each, of texts or of names; see `record_hashes`."""
    empty = hashlib.blake2b(digest_size=BYTES, person=purpose)
    digests = (_digest(empty, text) for text in texts)
    return np.frombuffer(b"".join(digests), dtype=np.dtype((np.void, BYTES)))


def _digest(empty: hashlib.blake2b, text: str) -> bytes:
    started = empty.copy()
    started.update(text.encode())
    return started.digest()


def uniform(hashes: NDArray[np.void]) -> NDArray[np.float64]:
    """(n,) uniform numbers in [0, 1) that follow from the hashes.

    Example:
        >>> bool((uniform(hash_texts(map(str, range(1000)))) < 0.05).sum() in range(30, 75))
        True
    """
    first = np.frombuffer(hashes.tobytes(), dtype="<u8")[:: BYTES // 8]
    return (first >> np.uint64(11)).astype(np.float64) * 2.0**-53
