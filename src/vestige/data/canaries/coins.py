"""Canaries of single users, and canaries that a fair coin plants.

Sources, and what differs from them:

- Mireshghallah et al. (2021), "Privacy Regularization: Joint Privacy-Utility Optimization in
  Language Models", appendix A.5: every user has canaries of five random words, with different
  numbers of repetitions. Ours have alphabetic words only. Two may share some words.
- Steinke, Nasr and Jagielski (2023), "Privacy Auditing with One (1) Training Run", section 3: each
  of many examples is included or left out by a fair coin.
- Panda et al. (2025), "Privacy Auditing of Large Language Models", arXiv:2503.06808, section 3: the
  strongest canary ends in a token that no other text uses, so that even a private training moves
  its weights by the clipping norm. The paper adds tokens to the vocabulary. Ours repeat one
  token that the corpus never uses, which proves a higher ε than one such token after a shared
  prefix (`docs/reproduction/measured-epsilon.md`).
"""

from collections.abc import Sequence
from typing import Literal, get_args

import numpy as np

from vestige import _validate
from vestige.data.canaries.phrases import RANDOM, frequencies, lexicon_of, too_few_words
from vestige.data.canaries.planting import occurrences
from vestige.data.canaries.texts import COIN_FLIP, Canary
from vestige.data.corpus import Corpus
from vestige.data.lexicon import Lexicon
from vestige.data.vocabulary import Vocabulary, WordVocabulary
from vestige.errors import DataError

CanaryKind = Literal["words", "repeated-token"]
"""Contents of a coin-flip canary: alphabetic words, or repetitions of a token that the corpus never
uses."""

MANY_USERS = (1, 2, 5, 6, 20)
"""The paper's repetitions for 10,000 users, who have less text each."""

_ROUNDS = 100
_PREFIX = "the"


def user_canaries(
    corpus: Corpus,
    vocabulary: WordVocabulary | None = None,
    *,
    repetitions: Sequence[int] = MANY_USERS,
    controls: int = 100,
    length: int = 5,
    seed: int,
) -> tuple[Canary, ...]:
    """Canaries of random words for every user, one for each number of repetitions, then controls.

    Users are in alphabetical order. Words are sampled uniformly from the vocabulary; None: from the
    corpus's 10,000 most frequent words.

    Raises:
        DataError: the corpus has no users, or too few words.
    """
    if corpus.users is None:
        raise DataError(
            "the corpus has no users; every canary needs one",
            remedy="Pass the user column with --user.",
        )
    users = [name for name in sorted(set(corpus.users)) if name]
    planted = [(user, copies) for user in users for copies in repetitions]
    users_and_copies = planted + [("", 0)] * controls
    lexicon = lexicon_of(corpus, vocabulary)
    phrases = _word_phrases(corpus, lexicon, len(users_and_copies), length, [seed])
    return tuple(
        Canary(phrase, RANDOM, frequencies(phrase.split(), lexicon), copies, user=user)
        for phrase, (user, copies) in zip(phrases, users_and_copies, strict=True)
    )


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
    """Canaries that a fair coin plants or leaves out: first the planted ones, then the controls.

    Args:
        vocabulary: of the words or tokens; None: the corpus's 10,000 most frequent words.
        number: of planted canaries and controls together, at least 2.
        kind: see `CanaryKind`; repeated tokens need a vocabulary with unused tokens.
        copies: of each planted canary. With more than 1, an audit measures groups of records.
        length: words in a canary, at least 2; or repetitions of a token.

    Raises:
        ValueError: an argument is out of range.
        DataError: the corpus has too few words, or the vocabulary too few tokens.
    """
    _validate.one_of(get_args(CanaryKind), kind=kind)
    lexicon = lexicon_of(corpus, vocabulary if isinstance(vocabulary, WordVocabulary) else None)
    if kind == "words":
        phrases = _word_phrases(corpus, lexicon, number, length, [seed, 2])
    elif vocabulary is None:
        raise ValueError("`vocabulary` must be given for canaries of unused tokens")
    else:
        phrases = repeated_tokens(corpus, vocabulary, number=number, length=length, seed=[seed, 2])
    heads = np.random.default_rng([seed, 1]).random(len(phrases)) < 0.5
    if heads.all() or not heads.any():  # with few coins; the audit needs one of each
        heads[0] = not heads[0]
    return tuple(
        Canary(
            phrases[index],
            COIN_FLIP,
            frequencies(phrases[index].split(), lexicon),
            copies if heads[index] else 0,
        )
        for index in np.argsort(~heads, kind="stable")
    )


def repeated_tokens(
    corpus: Corpus, vocabulary: Vocabulary, *, number: int, length: int, seed: Sequence[int]
) -> list[str]:
    """Phrases that repeat one token each: a whole word that the corpus never uses.

    Raises:
        DataError: the vocabulary has too few such tokens.
    """
    _validate.at_least(1, length=length)
    unused = _unused_words(corpus, vocabulary)
    if len(unused) < number:
        raise DataError(
            f"the vocabulary has {len(unused)} whole words that the corpus does not use; {number} "
            "are needed",
            remedy="Plant fewer canaries, or use a vocabulary with more tokens, such as reserved "
            "words.",
        )
    chosen = np.random.default_rng(seed).choice(len(unused), number, replace=False)
    return [" ".join([unused[index]] * length) for index in chosen]


def _word_phrases(
    corpus: Corpus, lexicon: Lexicon, number: int, length: int, seed: Sequence[int]
) -> list[str]:
    """Different phrases of different alphabetic words, none in the corpus."""
    _validate.at_least(2, length=length)
    words = lexicon.alphabetic()
    if len(words) < 2 * length:
        raise too_few_words(len(words), 2 * length)
    rng = np.random.default_rng(seed)
    phrases: dict[str, None] = {}
    for _ in range(_ROUNDS):
        missing = number - len(phrases)
        if not missing:
            break
        rows = [rng.choice(len(words), length, replace=False) for _ in range(missing)]
        sampled = list(dict.fromkeys(" ".join(words[index] for index in row) for row in rows))
        counts = occurrences(corpus, sampled)
        phrases |= {phrase: None for phrase, n in zip(sampled, counts, strict=True) if not n}
    if len(phrases) < number:
        raise DataError(
            f"only {len(phrases)} of {number} different phrases of {length} words were found, of "
            f"{len(words):,} words",
            remedy="Plant fewer canaries or others, or pass a larger corpus or vocabulary.",
        )
    return list(phrases)


def _unused_words(corpus: Corpus, vocabulary: Vocabulary) -> list[str]:
    """Texts of the whole-word tokens that the corpus does not use in upper or lower case."""
    used: set[int] = set()
    for texts in corpus.batches():
        used.update(token for ids in vocabulary.encode_batch(texts) for token in ids)
    by_lower_case: dict[str, str] = {}
    for token, text in _whole_words(vocabulary).items():
        if token not in used:
            by_lower_case.setdefault(text.casefold(), text)
    unused = list(by_lower_case.values())
    counts = occurrences(corpus, unused)
    return [text for text, count in zip(unused, counts, strict=True) if not count]


def _whole_words(vocabulary: Vocabulary) -> dict[int, str]:
    """Text of each token that its text is encoded as after a blank, by its id."""
    special = {vocabulary.eos_id, vocabulary.bos_id, vocabulary.unk_id}
    texts = {token: vocabulary.piece(token).strip() for token in range(len(vocabulary))}
    words = {t: text for t, text in texts.items() if t not in special and len(text.split()) == 1}
    prefix = vocabulary.encode(_PREFIX)
    rows = vocabulary.encode_batch([f"{_PREFIX} {text}" for text in words.values()])
    pairs = zip(words.items(), rows, strict=True)
    return {token: text for (token, text), ids in pairs if ids == [*prefix, token]}
