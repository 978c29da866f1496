"""Canaries of single users, and canaries that a fair coin plants.

Sources, and what differs from them:

- Mireshghallah et al. (2021), "Privacy Regularization: Joint Privacy-Utility Optimization in
  Language Models", appendix A.5: every user has canaries of five random words, each repeated
  another number of times. Ours are of alphabetic words. Two may share words, but never all.
- Steinke, Nasr and Jagielski (2023), "Privacy Auditing with One (1) Training Run", section 3: each
  of many examples is included or left out by a fair coin.
- Panda et al. (2025), "Privacy Auditing of Large Language Models", arXiv:2503.06808, section 3: the
  strongest canary ends in a token that no other text uses, so that even a private training moves
  its weights as far as its clipping allows. Where the paper adds tokens to the vocabulary, ours are
  tokens that the corpus never uses, repeated: these prove more than one after a shared prefix
  (`docs/reproduction/measured-epsilon.md`).
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
"""What a coin-flip canary is made of: alphabetic words, or a token that nothing else uses, again
and again."""

MANY_USERS = (1, 2, 5, 6, 20)
"""The paper's repetitions for 10,000 users, who have less text each."""

_ROUNDS = 100
_BEFORE = "the"


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

    Users are in alphabetical order. The vocabulary's words are drawn, every one alike; None takes
    the corpus's 10,000 commonest.

    Raises:
        DataError: the corpus has no users, or too few words.
    """
    if corpus.users is None:
        raise DataError(
            "the corpus has no users; every canary needs one",
            remedy="Pass the user column with --user.",
        )
    owners = [name for name in sorted(set(corpus.users)) if name]
    wanted = [(owner, copies) for owner in owners for copies in repetitions] + [("", 0)] * controls
    lexicon = lexicon_of(corpus, vocabulary)
    phrases = _word_phrases(corpus, lexicon, len(wanted), length, [seed])
    return tuple(
        Canary(phrase, RANDOM, frequencies(phrase.split(), lexicon), copies, user=owner)
        for phrase, (owner, copies) in zip(phrases, wanted, strict=True)
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
    """Canaries each planted or left out by a fair coin: first the planted ones, then the controls.

    Args:
        vocabulary: whose words or tokens are drawn; None takes the corpus's 10,000 commonest words.
        number: planted and left out together, at least 2.
        kind: see `CanaryKind`; repeated tokens need a vocabulary with tokens that are not used.
        copies: of each that is planted. With more than 1, an audit speaks of groups.
        length: words in a canary, at least 2; or times that a token is repeated.

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
    flips = [(phrases[i], copies * int(heads[i])) for i in np.argsort(~heads, kind="stable")]
    return tuple(
        Canary(phrase, COIN_FLIP, frequencies(phrase.split(), lexicon), planted)
        for phrase, planted in flips
    )


def repeated_tokens(
    corpus: Corpus, vocabulary: Vocabulary, *, number: int, length: int, seed: Sequence[int]
) -> list[str]:
    """Different tokens that are whole words and that the corpus never uses, each repeated.

    Raises:
        DataError: the vocabulary has too few such tokens.
    """
    _validate.at_least(1, length=length)
    unused = _unused(corpus, vocabulary)
    if len(unused) < number:
        raise DataError(
            f"the vocabulary has {len(unused)} whole words that the corpus does not use; {number} "
            "are needed",
            remedy="Plant fewer canaries, or use a vocabulary with more tokens, such as reserved "
            "words.",
        )
    chosen = np.random.default_rng(seed).choice(len(unused), number, replace=False)
    return [" ".join([unused[place]] * length) for place in chosen]


def _word_phrases(
    corpus: Corpus, lexicon: Lexicon, number: int, length: int, seed: Sequence[int]
) -> list[str]:
    """Different phrases of different alphabetic words that the corpus does not hold."""
    _validate.at_least(2, length=length)
    words = lexicon.alphabetic()
    if len(words) < 2 * length:
        raise too_few_words(len(words), 2 * length)
    generator = np.random.default_rng(seed)
    phrases: dict[str, None] = {}
    for _ in range(_ROUNDS):
        missing = number - len(phrases)
        if not missing:
            break
        rows = [generator.choice(len(words), length, replace=False) for _ in range(missing)]
        made = list(dict.fromkeys(" ".join(words[i] for i in row) for row in rows))
        counts = occurrences(corpus, made)
        phrases |= {p: None for p, count in zip(made, counts, strict=True) if not count}
    if len(phrases) < number:
        raise DataError(
            f"only {len(phrases)} of {number} different phrases of {length} words were found, of "
            f"{len(words):,} words",
            remedy="Plant fewer canaries or others, or pass a larger corpus or vocabulary.",
        )
    return list(phrases)


def _unused(corpus: Corpus, vocabulary: Vocabulary) -> list[str]:
    """Texts of the whole tokens that the corpus does not use in any case."""
    seen: set[int] = set()
    for texts in corpus.batches():
        seen.update(token for ids in vocabulary.encode_batch(texts) for token in ids)
    kept: dict[str, str] = {}
    for token, text in _whole_tokens(vocabulary).items():
        if token not in seen:
            kept.setdefault(text.casefold(), text)
    unused = list(kept.values())
    counts = occurrences(corpus, unused)
    return [text for text, count in zip(unused, counts, strict=True) if not count]


def _whole_tokens(vocabulary: Vocabulary) -> dict[int, str]:
    """Text of every token that is read as itself after a blank, by its id."""
    special = {vocabulary.eos_id, vocabulary.bos_id, vocabulary.unk_id}
    texts = {token: vocabulary.piece(token).strip() for token in range(len(vocabulary))}
    single = {t: text for t, text in texts.items() if t not in special and len(text.split()) == 1}
    before = vocabulary.encode(_BEFORE)
    read = vocabulary.encode_batch([f"{_BEFORE} {text}" for text in single.values()])
    rows = zip(single.items(), read, strict=True)
    return {token: text for (token, text), ids in rows if ids == [*before, token]}
