"""Canaries of single users, and canaries that a fair coin plants.

Mireshghallah et al. (2021), "Privacy Regularization: Joint Privacy-Utility Optimization in
Language Models", appendix A.5: every user has canaries of five random words of their own, each
repeated another number of times. Steinke, Nasr and Jagielski (2023), "Privacy Auditing with One
(1) Training Run", section 3: each of many examples is included or left out by a fair coin.

Differs from the paper: the paper's canaries are sequences of any words of the vocabulary, ours of
its alphabetic ones; canaries that were never planted stand beside, as many as are asked for. Two
canaries may share words, since there are more of them than words, but never all of them.
"""

from collections.abc import Sequence
from typing import Literal, get_args

import numpy as np

from vestige import _validate
from vestige.data.canaries import too_few_words
from vestige.data.corpus import Corpus
from vestige.data.lexicon import Lexicon
from vestige.data.manifest import COIN_FLIP, SAMPLED, Canary
from vestige.data.planting import occurrences
from vestige.data.token_canaries import (
    new_token_phrases,
    random_token_phrases,
    repeated_token_phrases,
)
from vestige.data.vocabulary import Vocabulary, WordVocabulary
from vestige.errors import DataError

CanaryKind = Literal["words", "random", "new-token", "repeated-token"]
"""What a coin-flip canary is made of: alphabetic words, any tokens of the vocabulary, a token that
nothing else uses after a prefix that all share, or such a token again and again."""

_DRAWN_BY = {
    "random": random_token_phrases,
    "new-token": new_token_phrases,
    "repeated-token": repeated_token_phrases,
}

MANY_USERS = (1, 2, 5, 6, 20)
"""The paper's repetitions for 10,000 users, who have less text each."""


def user_canaries(
    corpus: Corpus,
    vocabulary: WordVocabulary | None = None,
    *,
    repetitions: Sequence[int] = MANY_USERS,
    controls: int = 100,
    length: int = 5,
    seed: int,
) -> tuple[Canary, ...]:
    """Canaries of random words for every user, one for each number of repetitions.

    Args:
        corpus: with users; no canary occurs in it.
        vocabulary: whose words are drawn, every one alike; None takes the corpus's 10,000
            commonest.
        repetitions: how often each of a user's canaries is to be planted.
        controls: how many never to plant, at least 1.
        length: words in a canary, at least 2.
        seed: decides the words.

    Returns:
        the canaries, user after user in alphabetical order, then the controls.

    Raises:
        ValueError: an argument is out of range.
        DataError: the corpus has no users, or too few words.
    """
    _validate.positive(**{f"repetitions[{i}]": k for i, k in enumerate(repetitions)})
    _validate.at_least(1, repetitions=len(repetitions), controls=controls)
    if corpus.users is None:
        raise DataError(
            "the corpus has no users; every canary needs one",
            remedy="Pass the user column with --user.",
        )
    owners = [name for name in sorted(set(corpus.users)) if name]
    wanted = [(owner, copies) for owner in owners for copies in repetitions]
    drawn = _draw(corpus, vocabulary, len(wanted) + controls, length, [seed])
    planted = [
        Canary(phrase, "random", frequencies, copies, user=owner)
        for (phrase, frequencies), (owner, copies) in zip(drawn, wanted, strict=False)
    ]
    never = [Canary(phrase, "random", counts, 0) for phrase, counts in drawn[len(wanted) :]]
    return (*planted, *never)


def coin_flip_canaries(
    corpus: Corpus,
    vocabulary: Vocabulary | None = None,
    *,
    number: int,
    kind: CanaryKind = "words",
    copies: int = 1,
    length: int = 5,
    seed: int,
) -> tuple[Canary, ...]:
    """Canaries each planted or left out by a fair coin of its own.

    Args:
        corpus: no canary occurs in it.
        vocabulary: whose words or tokens are drawn; None takes the corpus's 10,000 commonest words.
        number: planted and left out together, at least 2.
        kind: see `CanaryKind`; the last two need a vocabulary with tokens that are not used.
        copies: of each that is planted. With more than 1, an audit speaks of groups.
        length: words, or tokens, in a canary, at least 2; of a token that is new, at least 1.
        seed: decides words and coins.

    Returns:
        the planted ones, then those left out, as controls.

    Raises:
        ValueError: an argument is out of range.
        DataError: the corpus has too few words.
    """
    _validate.at_least(2, number=number)
    _validate.positive(copies=copies)
    _validate.one_of(get_args(CanaryKind), kind=kind)
    drawn = _of_kind(kind, corpus, vocabulary, number, length, [seed, 2])
    return _flipped(drawn, COIN_FLIP, copies, seed)


def sampled_canaries(
    corpus: Corpus, phrases: Sequence[str], *, copies: int = 1, seed: int
) -> tuple[Canary, ...]:
    """Texts sampled from a language model, each planted or left out by a fair coin of its own.

    Args:
        corpus: before planting; it holds none of them.
        phrases: at least 2, such as those of `vestige.preparation.sampled_canaries`.
        copies: of each that is planted.
        seed: decides the coins, whatever the phrases are.

    Returns:
        the planted ones, then those left out, as controls.

    Raises:
        ValueError: an argument is out of range.
    """
    _validate.at_least(2, phrases=len(phrases))
    _validate.positive(copies=copies)
    lexicon = Lexicon.of(corpus, WordVocabulary.build(corpus, size=10_000))
    return _flipped([_counted(phrase, lexicon) for phrase in phrases], SAMPLED, copies, seed)


def _flipped(
    drawn: Sequence[tuple[str, tuple[int, ...]]], pattern: str, copies: int, seed: int
) -> tuple[Canary, ...]:
    heads = np.random.default_rng([seed, 1]).random(len(drawn)) < 0.5
    if heads.all() or not heads.any():  # with few coins; the audit needs one of each
        heads[0] = not heads[0]
    order = np.argsort(~heads, kind="stable")
    flips = [(*drawn[i], copies if heads[i] else 0) for i in order]
    return tuple(Canary(phrase, pattern, counts, number) for phrase, counts, number in flips)


def _counted(phrase: str, lexicon: Lexicon) -> tuple[str, tuple[int, ...]]:
    """A phrase, with how often the corpus has its words."""
    return phrase, tuple(lexicon.counts.get(word, 0) for word in phrase.split())


def _of_kind(
    kind: CanaryKind,
    corpus: Corpus,
    vocabulary: Vocabulary | None,
    number: int,
    length: int,
    seed: list[int],
) -> list[tuple[str, tuple[int, ...]]]:
    """Phrases of a kind, with how often the corpus has their words."""
    words = vocabulary if isinstance(vocabulary, WordVocabulary) else None
    if kind == "words":
        return _draw(corpus, words, number, length, seed)
    _validate.at_least(2 if kind == "random" else 1, length=length)
    if kind != "random" and vocabulary is None:
        raise ValueError("`vocabulary` must be given for canaries of unused tokens")
    lexicon = Lexicon.of(corpus, words or WordVocabulary.build(corpus, size=10_000))
    known = vocabulary or lexicon.vocabulary
    drawn = _DRAWN_BY[kind](corpus, known, number=number, length=length, seed=seed)
    return [_counted(phrase, lexicon) for phrase in drawn]


def _draw(
    corpus: Corpus, vocabulary: WordVocabulary | None, number: int, length: int, seed: list[int]
) -> list[tuple[str, tuple[int, ...]]]:
    """Different phrases of different words that the corpus does not hold, with word counts."""
    _validate.at_least(2, length=length)
    lexicon = Lexicon.of(corpus, vocabulary or WordVocabulary.build(corpus, size=10_000))
    words = lexicon.alphabetic()
    if len(words) < 2 * length:
        raise too_few_words(f"{len(words):,} words of three letters or more", 2 * length)
    generator = np.random.default_rng(seed)
    phrases: dict[str, None] = {}
    for _ in range(100):
        missing = number - len(phrases)
        if not missing:
            break
        rows = [generator.choice(len(words), length, replace=False) for _ in range(missing)]
        made = list(dict.fromkeys(" ".join(words[i] for i in row) for row in rows))
        counts = occurrences(corpus, made)
        phrases |= {p: None for p, count in zip(made, counts, strict=True) if not count}
    if len(phrases) < number:
        raise DataError(
            f"only {len(phrases)} of {number} different phrases of {length} words were found",
            remedy="Plant fewer or longer canaries, or pass a larger corpus.",
        )
    return [_counted(phrase, lexicon) for phrase in phrases]
