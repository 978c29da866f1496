"""Natural canaries: the most perplexing training text of each user.

Mireshghallah et al. (2021), arXiv:2103.07567, appendix A.5, "real canaries": the training text
of each user that an undefended model finds most perplexing, which is likeliest to hold something
that belongs to this user alone.

Differs from the paper: texts of a given length only, since attacks compare texts of like length;
texts with words that the vocabulary lacks are left out, since no model can say them; and no text
is taken for two users.
"""

from collections import Counter

import numpy as np
from numpy.typing import ArrayLike

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
) -> tuple[Canary, ...]:
    """For each user with a text of the right length, that with the highest exp(loss / tokens).

    `loss` and `tokens` are (d,) summed nats of the documents under an undefended model, and the
    tokens over which they were summed (`score_documents`). Lengths are without the end of the text.
    DataError if the documents have no users, or none is eligible.

    Example:
        >>> from vestige import Corpus, WordVocabulary
        >>> from vestige.data.encoded import encode
        >>> corpus = Corpus.from_texts(["to be", "or not"], users=["ann", "ann"])
        >>> data = encode(corpus, words := WordVocabulary.build(corpus))
        >>> real_canaries(data, words, loss=[3, 9], tokens=[3, 3], shortest=2)[0].phrase
        'or not'
    """
    if data.users is None:
        raise DataError(
            "the documents have no users; every real canary needs one",
            remedy="Pass the user column with --user.",
        )
    surprise = np.asarray(loss, np.float64) / np.asarray(tokens, np.float64)
    lengths = np.diff(data.offsets) - 1  # without the end of the text
    texts = {
        place: tuple(data.tokens[data.offsets[place] : data.offsets[place + 1] - 1].tolist())
        for place in np.flatnonzero((lengths >= shortest) & (lengths <= longest)).tolist()
    }
    chosen: dict[int, tuple[int, ...]] = {}
    taken: set[tuple[int, ...]] = set()
    for place in sorted(texts, key=lambda place: (-surprise[place], place)):
        owner, text = int(data.users[place]), texts[place]
        free = owner not in chosen and text not in taken
        if free and data.names[owner] and vocabulary.unk_id not in text:
            chosen[owner] = text
            taken.add(text)
    if not chosen:
        raise DataError(
            f"no document of {shortest} to {longest} known words has a user",
            remedy="Allow other lengths, or use a larger vocabulary.",
        )
    copies, counts = Counter(texts.values()), np.bincount(data.tokens)
    return tuple(
        Canary(
            phrase=vocabulary.decode(list(text)),
            pattern=PATTERN,
            frequencies=tuple(counts[list(text)].tolist()),
            copies=copies[text],
            ids=text,
            user=data.names[owner],
        )
        for owner, text in sorted(chosen.items())
    )
