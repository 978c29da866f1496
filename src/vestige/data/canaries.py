"""Canary phrases by frequency pattern, of random words, or as given, with their controls.

Zanella-Béguelin et al. (2020), "Analyzing Information Leakage of Updates to Natural Language
Models", section 3.2: grammatical phrases of five words that do not occur in the corpus and
whose words follow one of four frequency patterns.

Differs from the paper: it shows two phrases and no word list; ours is in `word_list.py`. Every
set has control canaries, made alike and never planted, so that a score has something to be
compared with. Phrases that are made together share no words, so that all of them can be
planted in one corpus.
"""

from collections import Counter
from collections.abc import Callable, Sequence

import numpy as np

from vestige import _validate
from vestige.data.corpus import Corpus
from vestige.data.lexicon import LEVELS, TEMPLATES, WORDS_BY_ROLE, Lexicon
from vestige.data.manifest import Canary, Manifest
from vestige.data.planting import occurrences, plant
from vestige.data.vocabulary import Vocabulary, WordVocabulary
from vestige.errors import DataError

__all__ = [
    "PATTERNS",
    "Canary",
    "Manifest",
    "frequency_canaries",
    "given_canaries",
    "occurrences",
    "plant",
    "random_canaries",
]

PATTERNS = ("all-low", "low-to-high", "mixed", "high-to-low")
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
    """One canary for each frequency pattern, with controls.

    Args:
        corpus: where they will be planted; no phrase occurs in it.
        vocabulary: whose words and quintiles count; None takes the corpus's 10,000 commonest.
        patterns: some of `PATTERNS`; one may come twice.
        copies: how often each is to be planted.
        controls: control canaries for each pattern, at least 1.
        length: words in a phrase, at least 2: any single word of a corpus stands in it.
        seed: decides the words.

    Returns:
        first the canaries in the order of `patterns`, then the controls. More controls leave
        the rest unchanged.

    Raises:
        ValueError: an argument is out of range.
        DataError: the corpus has too few words.
    """
    for pattern in patterns:
        _validate.one_of(PATTERNS, pattern=pattern)
    _validate.positive(copies=copies, controls=controls)
    _validate.at_least(2, length=length)
    kinds = [(pattern, copies) for pattern in patterns]
    kinds += [(pattern, 0) for pattern in list(patterns) * controls]
    return _drawn(corpus, vocabulary, kinds, length, seed)


def random_canaries(
    corpus: Corpus,
    vocabulary: WordVocabulary | None = None,
    *,
    number: int,
    copies: int,
    controls: int = 1,
    length: int = 5,
    seed: int,
) -> tuple[Canary, ...]:
    """Canaries of random words, every word of the vocabulary alike, with controls.

    Args:
        corpus: where they will be planted; no phrase occurs in it.
        vocabulary: whose words are drawn; None takes the corpus's 10,000 commonest.
        number: how many to plant.
        copies: how often each is to be planted.
        controls: how many never to plant, at least 1.
        length: words in a phrase, at least 2: any single word of a corpus stands in it.
        seed: decides the words.

    Returns:
        first the canaries, then the controls; no word comes twice.

    Raises:
        ValueError: an argument is out of range.
        DataError: the corpus has too few words.
    """
    _validate.positive(number=number, copies=copies, controls=controls)
    _validate.at_least(2, length=length)
    kinds = [("random", copies)] * number + [("random", 0)] * controls
    return _drawn(corpus, vocabulary, kinds, length, seed)


LONGEST = 1000
"""Words of a given phrase: a canary is a sentence, not a document."""


def given_canaries(
    phrases: Sequence[str],
    corpus: Corpus,
    vocabulary: Vocabulary | None = None,
    *,
    copies: int,
    controls: int = 1,
    seed: int,
) -> tuple[Canary, ...]:
    """Canaries of given phrases; a control has words of the same quintiles in their places.

    Args:
        phrases: what to plant; runs of blanks count as one.
        corpus: where they will be planted; no phrase occurs in it.
        vocabulary: what the model will read them with. A word vocabulary must hold every word.
        copies: how often each is to be planted.
        controls: control canaries for each phrase, at least 1.
        seed: decides the controls' words.

    Returns:
        first the canaries in the order given, then the controls.

    Raises:
        ValueError: a phrase is empty, or stands in another one.
        DataError: a phrase occurs in the corpus, or has words that the vocabulary lacks.
    """
    _validate.positive(copies=copies, controls=controls)
    phrases = [" ".join(phrase.split()) for phrase in phrases]
    _check_given(phrases, corpus)
    if isinstance(vocabulary, WordVocabulary):
        _check_known(phrases, vocabulary)
        lexicon = Lexicon.of(corpus, vocabulary)
    else:
        lexicon = Lexicon.of(corpus, WordVocabulary.build(corpus))
    generator = np.random.default_rng(seed)
    split = [lexicon.vocabulary.split(phrase) for phrase in phrases]
    used = {word for words in split for word in words}
    made = [
        Canary(phrase, "given", _frequencies(words, lexicon), copies)
        for phrase, words in zip(phrases, split, strict=True)
    ]
    for words in split * controls:

        def draw(words: Sequence[str] = words) -> list[str]:
            return _in_place_of(words, lexicon, used, generator)

        control = _absent(corpus, draw)
        used.update(control)
        made.append(_canary(control, "given", lexicon, 0))
    return tuple(made)


def _drawn(
    corpus: Corpus,
    vocabulary: WordVocabulary | None,
    kinds: Sequence[tuple[str, int]],
    length: int,
    seed: int,
) -> tuple[Canary, ...]:
    """A canary for each pattern and number of copies; no word comes twice."""
    lexicon = Lexicon.of(corpus, vocabulary or WordVocabulary.build(corpus, size=_SIZE))
    _check_words(lexicon, [pattern for pattern, _ in kinds], length)
    generator = np.random.default_rng(seed)
    used: set[str] = set()
    made = []
    for pattern, copies in kinds:

        def draw(pattern: str = pattern) -> list[str]:
            if pattern == "random":
                return _choose(lexicon.alphabetic(), length, used, generator)
            return _fill(_levels(pattern, length, generator), lexicon, used, generator)

        words = _absent(corpus, draw)
        used.update(words)
        made.append(_canary(words, pattern, lexicon, copies))
    return tuple(made)


def _check_words(lexicon: Lexicon, patterns: Sequence[str], length: int) -> None:
    """Raise DataError if the words of a quintile, or all words, are fewer than the phrases need."""
    needed: Counter[int | None] = Counter()
    for pattern in patterns:
        random = pattern == "random"
        needed.update([None] * length if random else _levels(pattern, length, None))
    for level, number in needed.items():
        words = len(lexicon.alphabetic(level))
        if words < number:
            fifth = "" if level is None else f" in the {_FIFTHS[level]} fifth of its vocabulary"
            raise too_few_words(f"{words:,} words of three letters or more{fifth}", number)


def too_few_words(found: str, needed: int) -> DataError:
    """An error about a corpus with fewer words of a kind than its canaries need.

    Args:
        found: how many words of what kind the corpus has.
        needed: how many different ones the canaries need.
    """
    return DataError(
        f"the corpus has {found}, and these canaries need {needed:,} different ones",
        remedy="Plant fewer or shorter canaries (--length), or pass a larger corpus.",
    )


def _levels(pattern: str, length: int, generator: np.random.Generator | None) -> list[int]:
    """The quintile of each word of a phrase, 0 for the least frequent.

    Without a generator, the quintiles of a mixed phrase are not shuffled.
    """
    if pattern == "all-low":
        return [0] * length
    rising: list[int] = np.linspace(0, LEVELS - 1, length).round().astype(int).tolist()
    if pattern == "low-to-high":
        return rising
    if pattern == "high-to-low":
        return rising[::-1]
    mixed = list(rising)
    while generator is not None and length > 2 and mixed in (rising, rising[::-1]):
        mixed = [int(level) for level in generator.permutation(rising)]
    return mixed


def _fill(
    levels: Sequence[int], lexicon: Lexicon, used: set[str], generator: np.random.Generator
) -> list[str]:
    """The words of a phrase: listed ones of the wanted quintiles, or any of the quintile."""
    templates = TEMPLATES.get(len(levels)) or _chained(len(levels))
    candidates = []
    for index in generator.permutation(len(templates)):
        words: list[str] = []
        fallbacks = 0
        for level, role in zip(levels, templates[index], strict=True):
            taken = used | set(words)
            listed = [w for w in lexicon.listed(WORDS_BY_ROLE[role], level) if w not in taken]
            fallbacks += not listed
            words += _choose(listed or lexicon.alphabetic(level), 1, taken, generator)
        candidates.append((fallbacks, words))
    return min(candidates, key=lambda candidate: candidate[0])[1]


def _chained(length: int) -> tuple[tuple[str, ...], ...]:
    longest = TEMPLATES[max(TEMPLATES)]
    return tuple(tuple(roles[i % len(roles)] for i in range(length)) for roles in longest)


def _in_place_of(
    words: Sequence[str], lexicon: Lexicon, used: set[str], generator: np.random.Generator
) -> list[str]:
    made: list[str] = []
    for word in words:
        taken = used | set(made)
        same_level = lexicon.alphabetic(lexicon.level(word))
        free = [other for other in same_level if other not in taken]
        made += _choose(free or lexicon.alphabetic(), 1, taken, generator)
    return made


def _choose(
    words: Sequence[str], number: int, used: set[str], generator: np.random.Generator
) -> list[str]:
    free = [word for word in words if word not in used]
    if len(free) < number:
        raise too_few_words(
            f"{len(words):,} words of three letters or more", len(words) - len(free) + number
        )
    return [free[index] for index in generator.choice(len(free), number, replace=False)]


def _absent(corpus: Corpus, draw: Callable[[], list[str]]) -> list[str]:
    """Draw words until they make a phrase that the corpus does not hold."""
    for _ in range(_TRIES):
        words = draw()
        if occurrences(corpus, [" ".join(words)]) == [0]:
            return words
    raise DataError(
        f"the corpus contains all {_TRIES} sampled phrases",
        remedy="Plant longer canaries, or pass a corpus with more words.",
    )


def _canary(words: Sequence[str], pattern: str, lexicon: Lexicon, copies: int) -> Canary:
    return Canary(" ".join(words), pattern, _frequencies(words, lexicon), copies)


def _frequencies(words: Sequence[str], lexicon: Lexicon) -> tuple[int, ...]:
    return tuple(lexicon.counts.get(word, 0) for word in words)


def _check_given(phrases: Sequence[str], corpus: Corpus) -> None:
    if not phrases or not all(phrases):
        empty = f"number {phrases.index('') + 1} empty" if phrases else "none"
        raise ValueError(f"phrases must be at least one and none of them empty, got {empty}")
    for number, phrase in enumerate(phrases, 1):
        if len(phrase.split()) > LONGEST:
            raise ValueError(
                f"phrases must have at most {LONGEST:,} words, number {number} has "
                f"{len(phrase.split()):,}"
            )
    for index, phrase in enumerate(phrases):
        inside = occurrences(Corpus.from_texts(phrases), [phrase])
        if inside != [1]:
            raise ValueError(
                f"phrases must not contain one another, got number {index + 1} {inside[0]} times"
            )
    for number, count in enumerate(occurrences(corpus, phrases), 1):
        if count:
            raise DataError(
                f"the corpus already contains phrase {number} ({count} times)",
                remedy="Choose another phrase, or remove that text from the corpus.",
            )


def _check_known(phrases: Sequence[str], vocabulary: WordVocabulary) -> None:
    for number, phrase in enumerate(phrases, 1):
        words = vocabulary.split(phrase)
        unknown = [str(place) for place, word in enumerate(words, 1) if word not in vocabulary]
        if unknown:
            raise DataError(
                f"phrase {number} has {len(unknown)} words that the vocabulary of "
                f"{len(vocabulary)} words lacks, at {', '.join(unknown)} of {len(words)}",
                remedy="Use other words, a larger vocabulary, or a subword vocabulary.",
            )
