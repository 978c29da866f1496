"""Encoded pairs of source and target texts."""

from dataclasses import dataclass

import pyarrow as pa

from vestige.data.corpus import Corpus
from vestige.data.encoded import EncodedCorpus, encode
from vestige.data.vocabulary import Vocabulary
from vestige.errors import DataError


@dataclass(frozen=True)
class EncodedPairs:
    """p pairs; target i answers or translates source i.

    Attributes:
        sources: ids of the sources, each with its end-of-text token.
        targets: ids of the targets, likewise, and whose each is.

    Raises:
        ValueError: they are not as many.
    """

    sources: EncodedCorpus
    targets: EncodedCorpus

    def __post_init__(self) -> None:
        if len(self.sources) != len(self.targets):
            raise ValueError(
                f"sources must be as many as targets, {len(self.targets)}, got {len(self.sources)}"
            )

    def __len__(self) -> int:
        return len(self.targets)


def encode_pairs(
    corpus: Corpus, source_vocabulary: Vocabulary, vocabulary: Vocabulary
) -> EncodedPairs:
    """Encode a corpus with sources, in memory.

    Args:
        corpus: its documents are the targets.
        source_vocabulary: of the sources' ids.
        vocabulary: of the targets' ids.

    Raises:
        DataError: the corpus is empty or has no sources.

    Example:
        >>> from vestige.data.vocabulary import WordVocabulary
        >>> french, english = (WordVocabulary(("<unk>", "<eos>", w)) for w in ("oui", "yes"))
        >>> corpus = Corpus.from_texts(["yes", "no"], sources=["oui oui", "non"])
        >>> pairs = encode_pairs(corpus, french, english)
        >>> pairs.sources.tokens.tolist(), pairs.targets.tokens.tolist()
        ([2, 2, 1, 0, 1], [2, 1, 0, 1])
    """
    return EncodedPairs(encode(sources_of(corpus), source_vocabulary), encode(corpus, vocabulary))


def sources_of(corpus: Corpus) -> Corpus:
    """The sources of a corpus as documents.

    Raises:
        DataError: it has none.
    """
    if "source" not in corpus.table.column_names:
        raise DataError(
            "the corpus has no source texts",
            remedy="Pass their column with --source.",
        )
    return Corpus(pa.table({"text": corpus.table["source"]}))
