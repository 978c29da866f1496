"""Token positions that an audit queries, with their users.

Words that the vocabulary lacks are left out: in a vocabulary of the training text, they alone would
reveal its users.
"""

from dataclasses import dataclass, fields, replace
from typing import Self

import numpy as np
from numpy.typing import ArrayLike, NDArray

from vestige.data.encoded import EncodedCorpus
from vestige.data.vocabulary import Vocabulary
from vestige.errors import DataError

Indices = NDArray[np.int32]


@dataclass(frozen=True, kw_only=True)
class TokenQueries:
    """w words of the texts of some users, in the order of the corpus.

    Attributes:
        users: (w,) index of each word's user in `names`.
        texts: (w,) index of its document.
        positions: (w,) its position there, from 0.
        tokens: (w,) its id.
        previous: (w,) the previous id; the end-of-text token for the first word of a text.
        names: the users, all different.
    """

    users: Indices
    texts: Indices
    positions: Indices
    tokens: Indices
    previous: Indices
    names: tuple[str, ...]

    def __len__(self) -> int:
        return len(self.tokens)

    def take(self, chosen: ArrayLike) -> Self:
        """Selected words, by a mask (w,) or by indices; `names` stay the same."""
        index = np.asarray(chosen)
        columns = [field.name for field in fields(self) if field.name != "names"]
        return replace(self, **{name: getattr(self, name)[index] for name in columns})

    def counts(self) -> NDArray[np.int64]:
        """(u,) words of each user."""
        return np.bincount(self.users, minlength=len(self.names))

    def mean_by_user(self, values: ArrayLike) -> NDArray[np.float64]:
        """(u,) mean of the words' values (w,); NaN for a user without words."""
        sums = np.bincount(self.users, np.asarray(values, np.float64), minlength=len(self.names))
        counts = self.counts()
        means = np.full(len(counts), np.nan)
        np.divide(sums, counts, out=means, where=counts > 0)
        return means


def token_queries(data: EncodedCorpus, vocabulary: Vocabulary) -> TokenQueries:
    """Positions of all words of a corpus with users that the vocabulary has.

    Example:
        >>> from vestige.data.corpus import Corpus
        >>> from vestige.data.encoded import encode
        >>> from vestige.data.vocabulary import WordVocabulary
        >>> corpus = Corpus.from_texts(["to be", "be ?"], users=["ann", "bob"])
        >>> vocabulary = WordVocabulary(("<unk>", "<eos>", "to", "be"))
        >>> queries = token_queries(encode(corpus, vocabulary), vocabulary)
        >>> queries.tokens.tolist(), queries.previous.tolist(), queries.users.tolist()
        ([2, 3, 3], [1, 2, 1], [0, 0, 1])
    """
    if data.users is None:
        raise DataError("the texts have no users", remedy="Pass the user column with --user.")
    texts = np.repeat(np.arange(len(data), dtype=np.int32), np.diff(data.offsets))
    positions = (np.arange(len(data.tokens)) - data.offsets[texts]).astype(np.int32)
    tokens = np.array(data.tokens)
    previous = np.where(positions == 0, vocabulary.eos_id, np.roll(tokens, 1)).astype(np.int32)
    in_vocabulary = (tokens != vocabulary.eos_id) & (tokens != vocabulary.unk_id)
    if not in_vocabulary.any():
        raise DataError(
            "the vocabulary knows no word of the texts",
            remedy="Pass texts in the language of the model, split into words as it splits them.",
        )
    texts = texts[in_vocabulary]
    return TokenQueries(
        users=data.users[texts],
        texts=texts,
        positions=positions[in_vocabulary],
        tokens=tokens[in_vocabulary],
        previous=previous[in_vocabulary],
        names=data.names,
    )
