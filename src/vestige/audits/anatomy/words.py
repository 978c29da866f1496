"""Words of texts with a model's ranks, their groups by frequency, and sums over groups by unit.

Song and Shmatikov (2019), "Auditing Data Provenance in Text-Generation Models", KDD,
arXiv:1811.00513, section 5. Words that the vocabulary lacks and the ends of texts are left out.
Words of one user or text are not independent, so intervals resample units with all their words.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Any, NamedTuple, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray

from vestige.audits.anatomy.resampling import Floats
from vestige.data.corpus import Corpus
from vestige.data.encoded import EncodedCorpus, EncodedPairs, encode, encode_pairs
from vestige.data.vocabulary import Vocabulary
from vestige.errors import DataError, ModelError
from vestige.models.predictions import Progress, word_ranks
from vestige.models.reading import texts_at
from vestige.models.seq2seq import Seq2SeqModel

Ids = NDArray[np.int64]
Texts = EncodedCorpus | EncodedPairs


@dataclass(frozen=True, kw_only=True)
class ScoredWords:
    """Some words, with a model's scores."""

    tokens: Ids  # (w,)
    log_probs: Floats  # (w,) natural logarithms
    ranks: NDArray[np.integer]  # (w,) from 1; or (o, s, w) by order and share of silent units
    units: Ids  # (w,) the user or text of each, numbered from 0 without gaps
    texts: Ids  # (w,) the document of each
    places: Ids  # (w,) where each lies in the ids of all texts

    def __len__(self) -> int:
        return len(self.tokens)

    @property
    def n(self) -> int:
        """Number of units."""
        return int(self.units.max()) + 1

    def take(self, chosen: NDArray[Any]) -> Self:
        """Some of the words, by a mask (w,) or by indices."""
        names = ("tokens", "log_probs", "texts", "places")
        parts = {name: getattr(self, name)[chosen] for name in names}
        units = np.unique(self.units[chosen], return_inverse=True)[1]
        return replace(self, **parts, ranks=self.ranks[..., chosen], units=units)

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
        return self.take(np.isin(self.texts, order[before < words]))


def encoded(model: Any, corpus: Corpus) -> Texts:
    """A corpus by a model's vocabulary, with sources for a model that reads them."""
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
) -> ScoredWords:
    """Every known word of some texts, with a model's scores; units are users or texts.

    Raises:
        DataError: no word is known.
        ModelError: a word has probability 0.
    """
    data = targets_of(texts)
    places = np.flatnonzero(known(data, model.vocabulary))
    if not len(places):
        raise DataError(
            f"{name} has no word that the model's vocabulary knows",
            remedy="Pass text in the language of the model, split into words as it splits them.",
        )
    found = word_ranks(model, texts, places, progress=progress)
    impossible = int((~np.isfinite(found.log_probs)).sum())
    if impossible:
        raise ModelError(
            f"the model predicts {impossible} words of {name} with probability 0",
            remedy="Pass a model that gives every word some probability.",
        )
    documents = texts_at(data, places)
    units = data.users[documents] if by_user and data.users is not None else documents
    return ScoredWords(
        tokens=data.tokens[places].astype(np.int64),
        log_probs=found.log_probs.astype(np.float64),
        ranks=found.ranks.astype(np.int64),
        units=np.unique(units, return_inverse=True)[1],
        texts=documents,
        places=places,
    )


def targets_of(texts: Texts) -> EncodedCorpus:
    """The texts whose words are scored: those of pairs are their targets."""
    return texts.targets if isinstance(texts, EncodedPairs) else texts


def known(data: EncodedCorpus, vocabulary: Vocabulary) -> NDArray[np.bool_]:
    """(n,) which tokens are words that the vocabulary knows."""
    unknown = [one for one in (vocabulary.eos_id, vocabulary.unk_id) if one is not None]
    return np.isin(data.tokens, unknown, invert=True)


def positions_by_frequency(counted: ArrayLike, others: Ids, vocab_size: int) -> Ids:
    """(v,) the position of each id by how often it is counted, 1 for the commonest.

    Equal counts are in the order of their ids. Ids in `others` have a position even if they were
    not counted; the remaining ones have 0.

    Example:
        >>> positions_by_frequency([1, 2, 2], np.array([0]), 4).tolist()
        [3, 2, 1, 0]
    """
    counts = np.bincount(np.asarray(counted, dtype=np.int64), minlength=vocab_size)
    listed = counts > 0
    listed[others] = True
    ids = np.flatnonzero(listed)
    positions = np.zeros(vocab_size, dtype=np.int64)
    positions[ids[np.argsort(-counts[ids], kind="stable")]] = np.arange(1, len(ids) + 1)
    return positions


class Group(NamedTuple):
    """Words from one position by frequency to another; `matched`: only those of both texts."""

    name: str
    start: int
    stop: int
    matched: bool = False

    def holds(self, positions: Ids) -> NDArray[np.bool_]:
        """Whether each position is in the group."""
        return (positions >= self.start) & (positions <= self.stop)


def frequent_and_rest(size: int, frequent: float) -> list[Group]:
    """All words, the commonest share of them, and the rest."""
    last = int(np.ceil(round(frequent * size, 6)))
    return [Group("all", 1, size), Group("frequent", 1, last), Group("rest", last + 1, size)]


def equal_bins(size: int, bins: int) -> list[Group]:
    """The positions in so many parts, as equal as whole words allow."""
    edges = (np.arange(bins + 1) * size // bins).tolist()
    return [Group("bin", a + 1, b) for a, b in pairwise(edges) if b > a]


def group_weights(
    groups: Sequence[Group], words: ScoredWords, other: ScoredWords, positions: Ids
) -> Floats:
    """(g, w) the weight of each word in each group: 0 or 1.

    In a matched group, each word has the smaller of its two counts in both texts.
    """
    own, others = (np.bincount(one.tokens, minlength=len(positions)) for one in (words, other))
    both = (np.minimum(own, others) / np.maximum(own, 1))[words.tokens]
    at = positions[words.tokens]
    return np.stack([np.where(g.holds(at), both if g.matched else 1.0, 0.0) for g in groups])


def unit_sums(words: ScoredWords, weights: Floats, columns: Iterable[ArrayLike]) -> Floats:
    """(n, g, k) weighted sums of k columns (w,) over the words of each unit and group."""
    n = words.n
    inside = [np.flatnonzero(weight) for weight in weights]
    sums = [
        [
            np.bincount(words.units[own], weight[own] * np.asarray(column)[own], minlength=n)
            for own, weight in zip(inside, weights, strict=True)
        ]
        for column in columns
    ]
    return np.moveaxis(np.array(sums, dtype=np.float64), (0, 1, 2), (2, 1, 0))
