"""Words of texts with a model's ranks, their groups by frequency, and sums over groups by unit.

Song and Shmatikov (2019), "Auditing Data Provenance in Text-Generation Models", KDD,
arXiv:1811.00513, section 5. Unknown words and the ends of texts are omitted. Words of one user or
text are not independent, so intervals resample units (users or texts) with all their words.
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
    """w words of texts, with a model's scores.

    Attributes:
        tokens: (w,) ids.
        log_probs: (w,) natural logarithms.
        ranks: (w,) from 1; or (o, s, w) by order and share of silent units.
        units: (w,) the user or text of each word, numbered from 0 without gaps.
        texts: (w,) the text of each word.
        indices: (w,) index of each word in the ids of all texts.
    """

    tokens: Ids
    log_probs: Floats
    ranks: NDArray[np.integer]
    units: Ids
    texts: Ids
    indices: Ids

    def __len__(self) -> int:
        return len(self.tokens)

    @property
    def n(self) -> int:
        """Number of units."""
        return int(self.units.max()) + 1

    def take(self, chosen: NDArray[Any]) -> Self:
        """Some of the words, by a mask (w,) or by indices."""
        names = ("tokens", "log_probs", "texts", "indices")
        columns = {name: getattr(self, name)[chosen] for name in names}
        units = np.unique(self.units[chosen], return_inverse=True)[1]
        return replace(self, **columns, ranks=self.ranks[..., chosen], units=units)

    def halves(self, generator: np.random.Generator) -> tuple[Ids, Ids]:
        """The indices of the words of two random halves of the units."""
        in_first = np.zeros(self.n, dtype=bool)
        in_first[generator.permutation(self.n)[: self.n // 2]] = True
        mask = in_first[self.units]
        return np.flatnonzero(mask), np.flatnonzero(~mask)

    def sample_texts(self, words: int, generator: np.random.Generator) -> Self:
        """Complete texts, drawn at random until they have `words` words; all if there are fewer."""
        counts = np.bincount(self.texts)
        order = generator.permutation(np.flatnonzero(counts))
        words_before = np.cumsum(counts[order]) - counts[order]
        return self.take(np.isin(self.texts, order[words_before < words]))


def encode_texts(model: Any, corpus: Corpus) -> Texts:
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
    indices = np.flatnonzero(is_known(data, model.vocabulary))
    if not len(indices):
        raise DataError(
            f"{name} has no word that the model's vocabulary knows",
            remedy="Pass text in the language of the model, split into words as it splits them.",
        )
    scores = word_ranks(model, texts, indices, progress=progress)
    impossible = int((~np.isfinite(scores.log_probs)).sum())
    if impossible:
        raise ModelError(
            f"the model predicts {impossible} words of {name} with probability 0",
            remedy="Pass a model that gives every word some probability.",
        )
    text_ids = texts_at(data, indices)
    units = data.users[text_ids] if by_user and data.users is not None else text_ids
    return ScoredWords(
        tokens=data.tokens[indices].astype(np.int64),
        log_probs=scores.log_probs.astype(np.float64),
        ranks=scores.ranks.astype(np.int64),
        units=np.unique(units, return_inverse=True)[1],
        texts=text_ids,
        indices=indices,
    )


def targets_of(texts: Texts) -> EncodedCorpus:
    """The texts with scored words: of pairs, the targets."""
    return texts.targets if isinstance(texts, EncodedPairs) else texts


def is_known(data: EncodedCorpus, vocabulary: Vocabulary) -> NDArray[np.bool_]:
    """(n,) whether each token is a word of the vocabulary."""
    excluded = [i for i in (vocabulary.eos_id, vocabulary.unk_id) if i is not None]
    return np.isin(data.tokens, excluded, invert=True)


def positions_by_frequency(tokens: ArrayLike, others: Ids, vocab_size: int) -> Ids:
    """(v,) the position of each id in a table by frequency, 1 for the most frequent.

    Args:
        tokens: ids to count; equal counts are in the order of their ids.
        others: ids that are in the table even if they are not counted.
        vocab_size: v; ids that are not in the table have position 0.

    Example:
        >>> positions_by_frequency([1, 2, 2], np.array([0]), 4).tolist()
        [3, 2, 1, 0]
    """
    counts = np.bincount(np.asarray(tokens, dtype=np.int64), minlength=vocab_size)
    in_table = counts > 0
    in_table[others] = True
    ids = np.flatnonzero(in_table)
    positions = np.zeros(vocab_size, dtype=np.int64)
    positions[ids[np.argsort(-counts[ids], kind="stable")]] = np.arange(1, len(ids) + 1)
    return positions


class Group(NamedTuple):
    """Words with positions by frequency from `start` to `stop`.

    In a `matched` group, words count only as often as in both texts.
    """

    name: str
    start: int
    stop: int
    matched: bool = False

    def contains(self, positions: Ids) -> NDArray[np.bool_]:
        """Whether each position is in the group."""
        return (positions >= self.start) & (positions <= self.stop)


def frequent_and_rest(size: int, frequent: float) -> list[Group]:
    """All words of a table, the most frequent share of them, and the rest."""
    last = int(np.ceil(round(frequent * size, 6)))
    return [Group("all", 1, size), Group("frequent", 1, last), Group("rest", last + 1, size)]


def equal_bins(size: int, bins: int) -> list[Group]:
    """The positions in bins of equal size, up to rounding."""
    edges = (np.arange(bins + 1) * size // bins).tolist()
    return [Group("bin", a + 1, b) for a, b in pairwise(edges) if b > a]


def group_weights(
    groups: Sequence[Group], words: ScoredWords, other: ScoredWords, positions: Ids
) -> Floats:
    """(g, w) the weight of each word in each group: 0 or 1.

    In a matched group, the words of one id weigh together as much as the smaller of its two counts.
    """
    counts, other_counts = (
        np.bincount(scored.tokens, minlength=len(positions)) for scored in (words, other)
    )
    matched = (np.minimum(counts, other_counts) / np.maximum(counts, 1))[words.tokens]
    position = positions[words.tokens]
    return np.stack(
        [
            np.where(group.contains(position), matched if group.matched else 1.0, 0.0)
            for group in groups
        ]
    )


def unit_sums(words: ScoredWords, weights: Floats, columns: Iterable[ArrayLike]) -> Floats:
    """(n, g, k) weighted sums of k columns (w,) over the words of each unit and group."""
    n = words.n
    members = [np.flatnonzero(weight) for weight in weights]
    sums = [
        [
            np.bincount(words.units[i], weight[i] * np.asarray(column)[i], minlength=n)
            for i, weight in zip(members, weights, strict=True)
        ]
        for column in columns
    ]
    return np.moveaxis(np.array(sums, dtype=np.float64), (0, 1, 2), (2, 1, 0))
