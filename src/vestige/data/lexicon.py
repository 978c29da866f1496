"""Words for phrases like English, names of persons, and words of a corpus by frequency.

The word list was written for this project: some hundreds of common and rare words by part of
speech, with some in each frequency quintile of news, forum and encyclopaedia corpora. Nouns are
plural and verbs are in the simple past, so that they agree. Words that could form an insult are
left out. The list of common names was also written for this project.

Zanella-Béguelin et al. (2020), "Analyzing Information Leakage of Updates to Natural Language
Models", section 3.2: the quintiles are fifths of the vocabulary's words by frequency.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Self

from vestige.data.corpus import Corpus
from vestige.data.vocabulary import EOS, UNK, WordVocabulary, alphabetic_words, word_counts

LEVELS = 5


def _sections(name: str) -> dict[str, tuple[str, ...]]:
    """The words of a file in this folder by section; a section begins with "# noun" or so."""
    text = Path(__file__).with_name(name).read_text("utf-8")
    sections = (section.split() for section in text.split("#")[1:])
    return {role: tuple(words) for role, *words in sections}


WORDS_BY_ROLE = _sections("word_list.txt")
_NAMES = _sections("person_names.txt")
GIVEN, FAMILY = _NAMES["given"], _NAMES["family"]

TEMPLATES: dict[int, tuple[tuple[str, ...], ...]] = {
    2: (("noun", "verb"), ("adjective", "noun")),
    3: (("noun", "verb", "noun"), ("noun", "adverb", "verb")),
    4: (("noun", "verb", "adjective", "noun"), ("noun", "adverb", "verb", "noun")),
    5: (
        ("noun", "adverb", "verb", "adjective", "noun"),
        ("noun", "verb", "adverb", "adjective", "noun"),
        ("adjective", "noun", "adverb", "verb", "noun"),
        ("adjective", "noun", "verb", "adjective", "noun"),
    ),
    6: (
        ("adjective", "noun", "adverb", "verb", "adjective", "noun"),
        ("adjective", "noun", "verb", "adverb", "adjective", "noun"),
    ),
}
"""Parts of speech of phrases, by number of words."""


@dataclass(frozen=True)
class Lexicon:
    """The words of a vocabulary that occur in a corpus, with their counts.

    Attributes:
        vocabulary: splits text into words.
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
        counts = word_counts(corpus, vocabulary).tolist()
        pairs = sorted(zip(counts, vocabulary.words, strict=True))
        return cls(vocabulary, {w: count for count, w in pairs if count and w not in (UNK, EOS)})

    def level(self, word: str) -> int:
        """Quintile of a word: 0 for the least frequent fifth, 4 for the most frequent."""
        return self._levels.get(word, 0)

    def listed(self, words: Iterable[str], level: int) -> list[str]:
        """Words that belong to a quintile."""
        return [word for word in words if self._levels.get(word) == level]

    def alphabetic(self, level: int | None = None) -> list[str]:
        """The words of three letters or more, of one quintile or of all."""
        words = alphabetic_words(self.counts)
        return words if level is None else self.listed(words, level)

    @cached_property
    def _levels(self) -> dict[str, int]:
        total = len(self.counts)
        return {word: LEVELS * rank // total for rank, word in enumerate(self.counts)}
