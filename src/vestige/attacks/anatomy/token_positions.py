"""Scores of the words of some texts, and a table of word frequencies.

Song and Shmatikov (2019), "Auditing Data Provenance in Text-Generation Models", KDD,
arXiv:1811.00513, section 5: words by their rank in a table of frequencies, 1 for the commonest,
which the paper counts in the training text.

Words that the vocabulary lacks and the ends of texts are left out. Words of one person are not
independent, nor are words of one text: a word's unit says what is drawn as a whole.
"""

from dataclasses import dataclass, replace
from typing import Any, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray

from vestige.data.corpus import Corpus
from vestige.data.encoded import EncodedCorpus, encode
from vestige.data.encoded_pairs import EncodedPairs, encode_pairs
from vestige.data.vocabulary import Vocabulary
from vestige.errors import DataError, ModelError
from vestige.models.pair_ranks import pair_ranks
from vestige.models.seq2seq import Seq2SeqModel
from vestige.models.word_ranks import Progress, word_ranks

Ids = NDArray[np.int64]
Texts = EncodedCorpus | EncodedPairs


@dataclass(frozen=True, kw_only=True)
class TokenScores:
    """Scores of w words by a model.

    Attributes:
        tokens: (w,) their ids.
        ranks: (w,) in [1, v]; 1 is the likeliest.
        log_probs: (w,) natural logarithms.
        units: (w,) the person or text that each belongs to, in [0, n).
        n: units with words.
        places: (w,) where they stand in the ids of all texts.
        texts: (w,) the document that each stands in.
    """

    tokens: Ids
    ranks: Ids
    log_probs: NDArray[np.float64]
    units: Ids
    n: int
    places: Ids
    texts: Ids

    def __len__(self) -> int:
        return len(self.tokens)

    def take(self, chosen: ArrayLike) -> Self:
        """Some of the words, by a mask (w,) or by their indices; their units are numbered anew."""
        index = np.asarray(chosen)
        names = ("tokens", "ranks", "log_probs", "places", "texts")
        found, units = np.unique(self.units[index], return_inverse=True)
        parts = {name: getattr(self, name)[index] for name in names}
        return replace(self, **parts, units=units, n=len(found))

    def halves(self, generator: np.random.Generator) -> tuple[Ids, Ids]:
        """The indices of the words of two random halves of the units."""
        side = np.zeros(self.n, dtype=bool)
        side[generator.permutation(self.n)[: self.n // 2]] = True
        first = side[self.units]
        return np.flatnonzero(first), np.flatnonzero(~first)

    def some(self, words: int, generator: np.random.Generator) -> Self:
        """Whole texts, drawn at random, with about so many words; all of them if there are few."""
        counts = np.bincount(self.texts)
        order = generator.permutation(np.flatnonzero(counts))
        before = np.cumsum(counts[order]) - counts[order]
        drawn = np.zeros(len(counts), dtype=bool)
        drawn[order[before < words]] = True
        return self.take(drawn[self.texts])


@dataclass(frozen=True, kw_only=True)
class FrequencyTable:
    """Words in the order of their frequency.

    Attributes:
        ranks: (v,) of each id, 1 for the commonest; equal counts stand in the order of their ids;
            0 for ids that the table lacks.
        size: words in the table.
    """

    ranks: Ids
    size: int

    @classmethod
    def of(cls, counts: ArrayLike, others: ArrayLike) -> Self:
        """The table of all words that were counted, and of others, which stand last.

        Args:
            counts: (v,) how often each id was counted.
            others: ids that shall have a place whether they were counted or not.

        Example:
            >>> FrequencyTable.of([0, 5, 9, 0], others=[0]).ranks.tolist()
            [3, 2, 1, 0]
        """
        numbers = np.asarray(counts, dtype=np.int64)
        listed = numbers > 0
        listed[np.asarray(others, dtype=np.int64)] = True
        ids = np.flatnonzero(listed)
        order = ids[np.argsort(-numbers[ids], kind="stable")]
        ranks = np.zeros(len(numbers), dtype=np.int64)
        ranks[order] = np.arange(1, len(order) + 1)
        return cls(ranks=ranks, size=len(order))


def encoded(model: Any, corpus: Corpus) -> Texts:
    """A corpus by a model's own vocabulary, with its sources where the model reads these.

    Raises:
        DataError: the corpus is empty, or lacks sources that the model needs.
    """
    if isinstance(model, Seq2SeqModel):
        return encode_pairs(corpus, model.source_vocabulary, model.vocabulary)
    return encode(corpus, model.vocabulary)


def read_words(
    model: Any,
    texts: Texts,
    *,
    by_user: bool,
    name: str = "the text",
    progress: Progress | None = None,
) -> TokenScores:
    """Ask a model for every known word of some texts.

    Args:
        model: of next tokens, or an encoder-decoder where the texts are pairs.
        texts: ids by the model's vocabulary.
        by_user: units are users, else texts.
        name: of the texts, for messages.
        progress: told (words done, words in all).

    Raises:
        DataError: no word is known.
        ModelError: the model finds a word that stands there impossible.
    """
    data = texts.targets if isinstance(texts, EncodedPairs) else texts
    where = known(data, model.vocabulary)
    if not where.any():
        raise DataError(
            f"{name} has no word that the model's vocabulary knows",
            remedy="Pass text in the language of the model, split into words as it splits them.",
        )
    if isinstance(texts, EncodedPairs):
        found = pair_ranks(model, texts, where=where, log_probs=True, progress=progress)
    else:
        found = word_ranks(model, texts, where=where, log_probs=True, progress=progress)
    log_probs = np.asarray(found.log_probs, dtype=np.float64)
    if not np.isfinite(log_probs).all():
        raise ModelError(
            f"the model predicts {int((~np.isfinite(log_probs)).sum())} words of {name} with "
            "probability 0",
            remedy="Pass a model that gives every word some probability.",
        )
    owners = data.users if by_user and data.users is not None else np.arange(len(data))
    units, numbers = np.unique(owners[found.texts], return_inverse=True)
    return TokenScores(
        tokens=found.tokens.astype(np.int64),
        ranks=found.ranks.astype(np.int64),
        log_probs=log_probs,
        units=numbers.astype(np.int64),
        n=len(units),
        places=np.asarray(data.offsets[found.texts] + found.positions, dtype=np.int64),
        texts=found.texts,
    )


def known(data: EncodedCorpus, vocabulary: Vocabulary) -> NDArray[np.bool_]:
    """(n,) which tokens are words that the vocabulary knows."""
    tokens = np.asarray(data.tokens)
    words: NDArray[np.bool_] = tokens != vocabulary.eos_id
    return words if vocabulary.unk_id is None else words & (tokens != vocabulary.unk_id)


def word_counts(data: EncodedCorpus, vocabulary: Vocabulary, vocab_size: int) -> Ids:
    """(v,) how often each known word stands in some texts."""
    tokens = np.asarray(data.tokens)[known(data, vocabulary)]
    return np.bincount(tokens, minlength=vocab_size).astype(np.int64)
