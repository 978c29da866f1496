"""Natural canaries: the most perplexing training text of each user.

Mireshghallah et al. (2021), arXiv:2103.07567, appendix A.5, "real canaries": the training text
of each user that an undefended model finds most perplexing, which is likeliest to hold something
that belongs to this user alone.

Differs from the paper: texts of a given length only, since attacks compare texts of like length;
texts with words that the vocabulary lacks are left out, since no model can say them; synthetic
canaries in the same corpus are left out by name; and no text is taken for two users.
"""

from collections import Counter
from collections.abc import Collection

import numpy as np
from numpy.typing import ArrayLike, NDArray

from vestige import _validate
from vestige.data.canaries.texts import Canary
from vestige.data.encoded import EncodedCorpus
from vestige.data.vocabulary import Vocabulary
from vestige.errors import DataError

PATTERN = "real"


def real_canaries(
    data: EncodedCorpus,
    vocabulary: Vocabulary,
    *,
    loss: ArrayLike,
    tokens: ArrayLike,
    shortest: int = 5,
    longest: int = 20,
    without: Collection[str] = (),
) -> tuple[Canary, ...]:
    """Each user's text with the highest perplexity, exp(loss / tokens).

    Args:
        data: the training text, with users.
        vocabulary: what its ids mean.
        loss: (d,) summed nats of each document under an undefended model (`score_documents`).
        tokens: (d,) tokens over which it was summed.
        shortest: tokens of a canary at least, its end not counted; `longest` at most.
        without: texts that are never taken: the phrases of planted canaries.

    Returns:
        a canary of the pattern "real" for each user with such a text, in order of `data.names`.

    Raises:
        ValueError: the arrays do not fit the documents, or the lengths are out of order.
        DataError: the documents have no users, or none is eligible.

    Example:
        >>> from vestige import Corpus, WordVocabulary
        >>> from vestige.data.encoded import encode
        >>> corpus = Corpus.from_texts(["to be", "or not"], users=["ann", "ann"])
        >>> data = encode(corpus, words := WordVocabulary.build(corpus))
        >>> real_canaries(data, words, loss=[3, 9], tokens=[3, 3], shortest=2)[0].phrase
        'or not'
    """
    _check(data, shortest, longest)
    surprise = _surprise(len(data), loss, tokens)
    lengths = np.diff(data.offsets) - 1
    texts = _texts(data, np.flatnonzero((lengths >= shortest) & (lengths <= longest)))
    order = sorted(texts, key=lambda place: (-surprise[place], place))
    barred = {np.asarray(vocabulary.encode(text), np.int32).tobytes() for text in without}
    chosen = _first_of_each(data, {place: texts[place] for place in order}, vocabulary, barred)
    if not chosen:
        raise DataError(
            f"no document of {shortest} to {longest} known words has a user",
            remedy="Allow other lengths, or use a larger vocabulary.",
        )
    standing, counts = Counter(texts.values()), np.bincount(data.tokens)
    read = ((owner, np.frombuffer(chosen[owner], np.int32)) for owner in sorted(chosen))
    return tuple(
        Canary(
            phrase=vocabulary.decode(ids.tolist()),
            pattern=PATTERN,
            frequencies=tuple(counts[ids].tolist()),
            copies=standing[chosen[owner]],
            ids=tuple(ids.tolist()),
            user=data.names[owner],
        )
        for owner, ids in read
    )


def _check(data: EncodedCorpus, shortest: int, longest: int) -> None:
    _validate.at_least(1, shortest=shortest)
    _validate.at_least(shortest, longest=longest)
    if data.users is None:
        raise DataError(
            "the documents have no users; every real canary needs one",
            remedy="Pass the user column with --user.",
        )


def _first_of_each(
    data: EncodedCorpus, texts: dict[int, bytes], vocabulary: Vocabulary, barred: set[bytes]
) -> dict[int, bytes]:
    """The first text of each user that is not barred and has known words only; none twice."""
    chosen: dict[int, bytes] = {}
    users, taken = np.asarray(data.users), set(barred)
    for place, text in texts.items():
        owner = int(users[place])
        if owner in chosen or not data.names[owner] or text in taken:
            continue
        if vocabulary.unk_id not in np.frombuffer(text, np.int32):
            chosen[owner] = text
            taken.add(text)
    return chosen


def _surprise(documents: int, loss: ArrayLike, tokens: ArrayLike) -> NDArray[np.float64]:
    """(d,) nats per token, checked."""
    summed, number = np.asarray(loss, np.float64), np.asarray(tokens, np.float64)
    for name, values in (("loss", summed), ("tokens", number)):
        if values.shape != (documents,):
            raise ValueError(
                f"{name} must hold one number for each of {documents} documents, "
                f"got the shape {values.shape}"
            )
    if not np.isfinite(summed).all():
        raise ValueError(f"loss must be finite, got {summed[~np.isfinite(summed)][0]}")
    if not (number > 0).all():
        raise ValueError(f"tokens must be positive, got {number.min()}")
    surprise: NDArray[np.float64] = summed / number
    return surprise


def _texts(data: EncodedCorpus, places: NDArray[np.int64]) -> dict[int, bytes]:
    """Documents without their end-of-text token, as bytes that can be compared at once."""
    begins, ends = data.offsets[places].tolist(), (data.offsets[places + 1] - 1).tolist()
    spans = zip(places.tolist(), begins, ends, strict=True)
    return {place: data.tokens[begin:end].tobytes() for place, begin, end in spans}
