"""Canary phrases by word frequency, of random words, or as given, with their controls.

Zanella-Béguelin et al. (2020), "Analyzing Information Leakage of Updates to Natural Language
Models", section 3.2: grammatical phrases of five words that do not occur in the corpus and whose
words follow one of four frequency patterns.

Differs from the paper: it shows two phrases and no word list; ours is in `word_list`. Every set has
control canaries, made alike and never planted. Phrases that are made together share no words, so
that all of them can be planted in one corpus.
"""

from collections import Counter
from collections.abc import Callable, Sequence
from functools import partial

import numpy as np

from vestige import _validate
from vestige.data.canaries.planting import occurrences
from vestige.data.canaries.texts import Canary, require_read
from vestige.data.corpus import Corpus
from vestige.data.lexicon import LEVELS, TEMPLATES, WORDS_BY_ROLE, Lexicon
from vestige.data.vocabulary import Vocabulary, WordVocabulary
from vestige.errors import DataError

RANDOM = "random"
PATTERNS = ("all-low", "low-to-high", "mixed", "high-to-low")

LONGEST = 1000
"""Words of a given phrase: a canary is a sentence, not a document."""

_TRIES = 100
_FIFTHS = (
    *("least frequent", "second least frequent", "middle"),
    *("second most frequent", "most frequent"),
)
_SIZE = 10_000  # words of the paper's vocabularies for Penn Treebank and Reddit


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
    """One canary of `length` words for each pattern, then the controls; no word comes twice.

    Args:
        vocabulary: whose words and quintiles count; None takes the corpus's 10,000 commonest.
        patterns: some of `PATTERNS`, or "random" for words of all frequencies; one may come twice.
        controls: control canaries for each pattern. More of them leave the rest unchanged.

    Raises:
        ValueError: a pattern is unknown, or a length below 2: any word of a corpus stands in it.
        DataError: the corpus has too few words.
    """
    for pattern in patterns:
        _validate.one_of((*PATTERNS, RANDOM), pattern=pattern)
    _validate.at_least(2, length=length)
    words = _Words(lexicon_of(corpus, vocabulary), corpus, seed)
    every = [*patterns, *list(patterns) * controls]
    words.require(every, length)
    return tuple(
        words.canary(partial(words.phrase, pattern, length), pattern, copies * (n < len(patterns)))
        for n, pattern in enumerate(every)
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
    """Canaries of given phrases, then the controls, with other words of the same quintiles.

    Args:
        phrases: what to plant; runs of blanks count as one.
        vocabulary: what the model will read them with. A word vocabulary must hold every word.
        controls: control canaries for each phrase.

    Raises:
        ValueError: a phrase is empty, or stands in another one.
        DataError: a phrase occurs in the corpus, or has words that the vocabulary lacks.
    """
    phrases = [" ".join(phrase.split()) for phrase in phrases]
    _require_given(phrases, corpus)
    known = vocabulary if isinstance(vocabulary, WordVocabulary) else None
    if known is not None:
        for number, phrase in enumerate(phrases, 1):
            require_read(known.encode(phrase), f"phrase {number}", known)
    words = _Words(Lexicon.of(corpus, known or WordVocabulary.build(corpus)), corpus, seed)
    split = [words.lexicon.vocabulary.split(phrase) for phrase in phrases]
    words.used |= {word for own in split for word in own}
    made = [
        Canary(phrase, "given", frequencies(own, words.lexicon), copies)
        for phrase, own in zip(phrases, split, strict=True)
    ]
    return (
        *made,
        *(words.canary(partial(words.alike, own), "given", 0) for own in split * controls),
    )


class _Words:
    """Words of a corpus for canaries of which no two share a word."""

    def __init__(self, lexicon: Lexicon, corpus: Corpus, seed: int) -> None:
        self.lexicon, self.used = lexicon, set[str]()
        self._corpus, self._generator = corpus, np.random.default_rng(seed)

    def canary(self, draw: Callable[[], list[str]], pattern: str, copies: int) -> Canary:
        """A canary of words that are drawn until the corpus lacks them."""
        for _ in range(_TRIES):
            words = draw()
            if occurrences(self._corpus, [" ".join(words)]) == [0]:
                self.used |= set(words)
                return Canary(" ".join(words), pattern, frequencies(words, self.lexicon), copies)
        raise DataError(
            f"the corpus contains all {_TRIES} sampled phrases",
            remedy="Plant longer canaries, or pass a corpus with more words.",
        )

    def phrase(self, pattern: str, length: int) -> list[str]:
        """Words of a pattern: by a template where listed words have its frequencies."""
        if pattern == RANDOM:
            return self._choose(self.lexicon.alphabetic(), length, self.used)
        levels = _levels(pattern, length, self._generator)
        templates = TEMPLATES.get(length) or [
            tuple(roles[n % len(roles)] for n in range(length))
            for roles in TEMPLATES[max(TEMPLATES)]
        ]
        candidates = []
        for index in self._generator.permutation(len(templates)):
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

    def alike(self, words: Sequence[str]) -> list[str]:
        """For each word another of its frequency."""
        made: list[str] = []
        for word in words:
            taken = self.used | set(made)
            level = self.lexicon.alphabetic(self.lexicon.level(word))
            free = [other for other in level if other not in taken]
            made += self._choose(free or self.lexicon.alphabetic(), 1, taken)
        return made

    def require(self, patterns: Sequence[str], length: int) -> None:
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
        return [free[index] for index in self._generator.choice(len(free), number, replace=False)]


def _levels(pattern: str, length: int, generator: np.random.Generator | None = None) -> list[int]:
    """The quintile of each word of a phrase, 0 for the least frequent.

    Without a generator, the quintiles of a mixed phrase are not shuffled.
    """
    if pattern == "all-low":
        return [0] * length
    rising: list[int] = np.linspace(0, LEVELS - 1, length).round().astype(int).tolist()
    if pattern != "mixed":
        return rising if pattern == "low-to-high" else rising[::-1]
    mixed = list(rising)
    while generator is not None and length > 2 and mixed in (rising, rising[::-1]):
        mixed = generator.permutation(rising).tolist()
    return mixed


def lexicon_of(corpus: Corpus, vocabulary: WordVocabulary | None) -> Lexicon:
    """Words of a vocabulary, or the corpus's 10,000 commonest, with their counts."""
    return Lexicon.of(corpus, vocabulary or WordVocabulary.build(corpus, size=_SIZE))


def frequencies(words: Sequence[str], lexicon: Lexicon) -> tuple[int, ...]:
    """How often the corpus has each word."""
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
    together = Corpus.from_texts(phrases)
    for number, phrase in enumerate(phrases, 1):
        if len(phrase.split()) > LONGEST:
            raise ValueError(
                f"phrases must have at most {LONGEST:,} words, number {number} has "
                f"{len(phrase.split()):,}"
            )
        if (inside := occurrences(together, [phrase])) != [1]:
            raise ValueError(
                f"phrases must not contain one another, got number {number} {inside[0]} times"
            )
    for number, count in enumerate(occurrences(corpus, phrases), 1):
        if count:
            raise DataError(
                f"the corpus already contains phrase {number} ({count} times)",
                remedy="Choose another phrase, or remove that text from the corpus.",
            )
