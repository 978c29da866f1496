"""Word frequencies of a corpus, in quintiles.

Zanella-Béguelin et al. (2020), "Analyzing Information Leakage of Updates to Natural Language
Models", section 3.2: the quintiles are fifths of the vocabulary's words by frequency.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Self

from vestige.data.corpus import Corpus
from vestige.data.vocabulary import EOS, UNK, WordVocabulary, alphabetic_words, word_counts

LEVELS = 5


@dataclass(frozen=True)
class Lexicon:
    """The words of a vocabulary that occur in a corpus, with their counts.

    Attributes:
        vocabulary: decides how text is taken apart.
        counts: each word's count, least frequent first, equal counts in alphabetical order;
            without `<unk>` and `<eos>`.

    Example:
        >>> corpus = Corpus.from_texts(["one two two six six six ten ten ten ten"])
        >>> lexicon = Lexicon.of(corpus, WordVocabulary.build(corpus))
        >>> lexicon.counts["six"], lexicon.level("one"), lexicon.level("ten")
        (3, 0, 3)
    """

    vocabulary: WordVocabulary
    counts: Mapping[str, int]

    @classmethod
    def of(cls, corpus: Corpus, vocabulary: WordVocabulary) -> Self:
        """Count the words of a vocabulary in a corpus."""
        numbers = word_counts(corpus, vocabulary).tolist()
        pairs = [
            (count, word)
            for word, count in zip(vocabulary.words, numbers, strict=True)
            if count and word not in (UNK, EOS)
        ]
        return cls(vocabulary, {word: count for count, word in sorted(pairs)})

    def level(self, word: str) -> int:
        """Quintile of a word: 0 for the least frequent fifth, 4 for the most frequent."""
        return self._levels.get(word, 0)

    def listed(self, words: Iterable[str], level: int) -> list[str]:
        """Words that belong to a quintile."""
        return [word for word in words if self._levels.get(word) == level]

    def alphabetic(self, level: int | None = None) -> list[str]:
        """The words of a quintile, or of all, that consist of three letters or more."""
        words = alphabetic_words(self.counts)
        return words if level is None else self.listed(words, level)

    @cached_property
    def _levels(self) -> dict[str, int]:
        total = len(self.counts)
        return {word: LEVELS * rank // total for rank, word in enumerate(self.counts)}
