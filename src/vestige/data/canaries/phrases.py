"""Canary phrases by word frequency, of random words, or from the user, with their controls.

Zanella-Béguelin et al. (2020), "Analyzing Information Leakage of Updates to Natural Language
Models", section 3.2: grammatical phrases of five words that do not occur in the corpus and whose
words follow one of four frequency patterns.

Differs from the paper: it shows two phrases and no word list; ours is in `word_list`. Every set has
control canaries, sampled in the same way and never planted. Phrases of one set share no words, so
that all of them can be planted in one corpus.
"""

from collections import Counter
from collections.abc import Callable, Sequence
from functools import partial

import numpy as np

from vestige import _validate
from vestige.data.canaries.planting import occurrences
from vestige.data.canaries.texts import Canary, require_known_words
from vestige.data.corpus import Corpus
from vestige.data.lexicon import LEVELS, TEMPLATES, WORDS_BY_ROLE, Lexicon
from vestige.data.vocabulary import Vocabulary, WordVocabulary
from vestige.errors import DataError

RANDOM = "random"
PATTERNS = ("all-low", "low-to-high", "mixed", "high-to-low")

LONGEST = 1000
"""Words of a given phrase: a canary is a sentence, not a document."""

_ATTEMPTS = 100
_FIFTHS = (
    *("least frequent", "second least frequent", "middle"),
    *("second most frequent", "most frequent"),
)
_VOCABULARY_SIZE = 10_000  # of the paper's vocabularies for Penn Treebank and Reddit


def frequency_canaries(
    corpus: Corpus,
    vocabulary: WordVocabulary | None = None,
    *,
    patterns: Sequence[str] = PATTERNS,
    copies: int,
    controls: int = 1,
    length: int = 5,
    seed: int,
) -> tuple[Canary, ...]:
    """One canary of `length` words for each pattern, then the controls, all of different words.

    Args:
        vocabulary: of the words and quintiles; None: the corpus's 10,000 most frequent words.
        patterns: some of `PATTERNS`, or "random" for words of all frequencies; may repeat.
        controls: control canaries for each pattern. More of them leave the rest unchanged.

    Raises:
        ValueError: a pattern is unknown, or the length is below 2.
        DataError: the corpus has too few words.
    """
    for pattern in patterns:
        _validate.one_of((*PATTERNS, RANDOM), pattern=pattern)
    _validate.at_least(2, length=length)
    sampler = _PhraseSampler(lexicon_of(corpus, vocabulary), corpus, seed)
    sampler.require_words([*patterns, *list(patterns) * controls], length)
    copies_by_pattern = [(pattern, copies) for pattern in patterns]
    copies_by_pattern += [(pattern, 0) for pattern in patterns] * controls
    return tuple(
        sampler.canary(partial(sampler.by_pattern, pattern, length), pattern, pattern_copies)
        for pattern, pattern_copies in copies_by_pattern
    )


def given_canaries(
    phrases: Sequence[str],
    corpus: Corpus,
    vocabulary: Vocabulary | None = None,
    *,
    copies: int,
    controls: int = 1,
    seed: int,
) -> tuple[Canary, ...]:
    """Canaries of given phrases, then the controls: other words of the same quintiles.

    Args:
        phrases: to plant; runs of blanks count as one.
        vocabulary: of the model. A word vocabulary must have every word.
        controls: control canaries for each phrase.

    Raises:
        ValueError: a phrase is empty, or part of another one.
        DataError: a phrase occurs in the corpus, or has words that the vocabulary lacks.
    """
    phrases = [" ".join(phrase.split()) for phrase in phrases]
    _require_given(phrases, corpus)
    word_vocabulary = vocabulary if isinstance(vocabulary, WordVocabulary) else None
    if word_vocabulary is not None:
        for number, phrase in enumerate(phrases, 1):
            ids = word_vocabulary.encode(phrase)
            require_known_words(ids, f"phrase {number}", word_vocabulary)
    lexicon = Lexicon.of(corpus, word_vocabulary or WordVocabulary.build(corpus))
    sampler = _PhraseSampler(lexicon, corpus, seed)
    words_by_phrase = [lexicon.vocabulary.split(phrase) for phrase in phrases]
    sampler.used.update(*words_by_phrase)
    planted = [
        Canary(phrase, "given", frequencies(words, lexicon), copies)
        for phrase, words in zip(phrases, words_by_phrase, strict=True)
    ]
    control_canaries = [
        sampler.canary(partial(sampler.similar, words), "given", 0)
        for words in words_by_phrase * controls
    ]
    return (*planted, *control_canaries)


class _PhraseSampler:
    """Samples canaries from the words of a corpus; no two canaries share a word."""

    def __init__(self, lexicon: Lexicon, corpus: Corpus, seed: int) -> None:
        self.lexicon, self.used = lexicon, set[str]()
        self._corpus, self._rng = corpus, np.random.default_rng(seed)

    def canary(self, sample: Callable[[], list[str]], pattern: str, copies: int) -> Canary:
        """A canary of sampled words that do not occur together in the corpus."""
        for _ in range(_ATTEMPTS):
            words = sample()
            if occurrences(self._corpus, [" ".join(words)]) == [0]:
                self.used |= set(words)
                return Canary(" ".join(words), pattern, frequencies(words, self.lexicon), copies)
        raise DataError(
            f"the corpus contains all {_ATTEMPTS} sampled phrases",
            remedy="Plant longer canaries, or pass a corpus with more words.",
        )

    def by_pattern(self, pattern: str, length: int) -> list[str]:
        """Words of a pattern, in a grammatical template if listed words have its frequencies."""
        if pattern == RANDOM:
            return self._choose(self.lexicon.alphabetic(), length, self.used)
        levels = _levels(pattern, length, self._rng)
        templates = TEMPLATES.get(length) or [
            tuple(roles[n % len(roles)] for n in range(length))
            for roles in TEMPLATES[max(TEMPLATES)]
        ]
        candidates = []
        for index in self._rng.permutation(len(templates)):
            words: list[str] = []
            fallbacks = 0
            for level, role in zip(levels, templates[index], strict=True):
                taken = self.used | set(words)
                listed = self.lexicon.listed(WORDS_BY_ROLE[role], level)
                free = [word for word in listed if word not in taken]
                fallbacks += not free
                words += self._choose(free or self.lexicon.alphabetic(level), 1, taken)
            candidates.append((fallbacks, words))
        return min(candidates, key=lambda candidate: candidate[0])[1]

    def similar(self, words: Sequence[str]) -> list[str]:
        """For each word another of its frequency."""
        chosen: list[str] = []
        for word in words:
            taken = self.used | set(chosen)
            quintile = self.lexicon.alphabetic(self.lexicon.level(word))
            free = [other for other in quintile if other not in taken]
            chosen += self._choose(free or self.lexicon.alphabetic(), 1, taken)
        return chosen

    def require_words(self, patterns: Sequence[str], length: int) -> None:
        """Raise DataError if a quintile, or all of them, have fewer words than phrases need."""
        needed: Counter[int | None] = Counter()
        for pattern in patterns:
            needed.update([None] * length if pattern == RANDOM else _levels(pattern, length))
        for level, number in needed.items():
            words = len(self.lexicon.alphabetic(level))
            if words < number:
                fifth = "" if level is None else f" in the {_FIFTHS[level]} fifth of its vocabulary"
                raise too_few_words(words, number, fifth)

    def _choose(self, words: Sequence[str], number: int, used: set[str]) -> list[str]:
        free = [word for word in words if word not in used]
        if len(free) < number:
            raise too_few_words(len(words), len(words) - len(free) + number)
        return [free[index] for index in self._rng.choice(len(free), number, replace=False)]


def _levels(pattern: str, length: int, rng: np.random.Generator | None = None) -> list[int]:
    """The quintile of each word of a phrase, 0 for the least frequent.

    Without a random generator, the quintiles of a mixed phrase are not shuffled.
    """
    if pattern == "all-low":
        return [0] * length
    rising: list[int] = np.linspace(0, LEVELS - 1, length).round().astype(int).tolist()
    if pattern != "mixed":
        return rising if pattern == "low-to-high" else rising[::-1]
    mixed = list(rising)
    while rng is not None and length > 2 and mixed in (rising, rising[::-1]):
        mixed = rng.permutation(rising).tolist()
    return mixed


def lexicon_of(corpus: Corpus, vocabulary: WordVocabulary | None) -> Lexicon:
    """Words of a vocabulary, or the corpus's 10,000 most frequent words, with their counts."""
    return Lexicon.of(corpus, vocabulary or WordVocabulary.build(corpus, size=_VOCABULARY_SIZE))


def frequencies(words: Sequence[str], lexicon: Lexicon) -> tuple[int, ...]:
    """The count of each word in the corpus."""
    return tuple(lexicon.counts.get(word, 0) for word in words)


def too_few_words(words: int, needed: int, fifth: str = "") -> DataError:
    """Error about a corpus with fewer words than its canaries need."""
    return DataError(
        f"the corpus has {words:,} words of three letters or more{fifth}, and these canaries need "
        f"{needed:,} different ones",
        remedy="Plant fewer or shorter canaries (--length), or pass a larger corpus.",
    )


def _require_given(phrases: Sequence[str], corpus: Corpus) -> None:
    if not phrases or not all(phrases):
        empty = f"number {phrases.index('') + 1} empty" if phrases else "none"
        raise ValueError(f"phrases must be at least one and none of them empty, got {empty}")
    phrase_corpus = Corpus.from_texts(phrases)
    for number, phrase in enumerate(phrases, 1):
        if len(phrase.split()) > LONGEST:
            raise ValueError(
                f"phrases must have at most {LONGEST:,} words, number {number} has "
                f"{len(phrase.split()):,}"
            )
        if (counts := occurrences(phrase_corpus, [phrase])) != [1]:
            raise ValueError(
                f"phrases must not contain one another, got number {number} {counts[0]} times"
            )
    for number, count in enumerate(occurrences(corpus, phrases), 1):
        if count:
            raise DataError(
                f"the corpus already contains phrase {number} ({count} times)",
                remedy="Choose another phrase, or remove that text from the corpus.",
            )
