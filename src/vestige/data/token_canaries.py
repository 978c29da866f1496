"""Phrases of a vocabulary's tokens for coin-flip canaries: any tokens, or one that is never used.

Panda et al. (2025), "Privacy Auditing of Large Language Models", ICLR, arXiv:2503.06808, section 3:
the strongest canary ends in a token that no other text uses. Its weights are moved by that canary
and by nothing else, so that a private training, too, moves them as far as its clipping allows.

Differs from the paper: one prefix is shared by all canaries, so that their probabilities differ by
their last tokens alone; where the paper adds tokens to the vocabulary, tokens are taken that it has
and the corpus never uses.
"""

from collections.abc import Sequence

import numpy as np

from vestige.data.corpus import Corpus
from vestige.data.planting import occurrences
from vestige.data.vocabulary import Vocabulary
from vestige.errors import DataError

_BEFORE = "the"
_ROUNDS = 100


def random_token_phrases(
    corpus: Corpus, vocabulary: Vocabulary, *, number: int, length: int, seed: Sequence[int]
) -> list[str]:
    """Different phrases of tokens that are drawn from the whole vocabulary, every one alike.

    Args:
        corpus: it holds none of the phrases.
        vocabulary: whose tokens are drawn.
        number: phrases.
        length: tokens in a phrase, no token twice.
        seed: decides the tokens.

    Raises:
        DataError: the vocabulary has too few tokens that are words.
    """
    texts = list(_whole_tokens(vocabulary).values())
    if len(texts) < 2 * length:
        raise DataError(
            f"the vocabulary has {len(texts)} tokens that are whole words, too few for phrases of "
            f"{length}",
            remedy="Plant shorter canaries, or pass another vocabulary.",
        )
    generator = np.random.default_rng(seed)
    phrases: dict[str, None] = {}
    for _ in range(_ROUNDS):
        missing = number - len(phrases)
        if not missing:
            return list(phrases)
        rows = [generator.choice(len(texts), length, replace=False) for _ in range(missing)]
        made = list(dict.fromkeys(" ".join(texts[i] for i in row) for row in rows))
        counts = occurrences(corpus, made)
        phrases |= {p: None for p, count in zip(made, counts, strict=True) if not count}
    raise DataError(
        f"only {len(phrases)} of {number} different phrases of {length} tokens were found",
        remedy="Plant fewer or longer canaries.",
    )


def new_token_phrases(
    corpus: Corpus, vocabulary: Vocabulary, *, number: int, length: int, seed: Sequence[int]
) -> list[str]:
    """Phrases that end in a token each that the corpus never uses, after one prefix for all.

    Args:
        corpus: it holds none of the last tokens.
        vocabulary: whose tokens are drawn.
        number: phrases.
        length: tokens in a phrase; the prefix has one less, of words of the corpus.
        seed: decides prefix and tokens.

    Raises:
        DataError: too few tokens of the vocabulary are left unused, or used.
    """
    used, unused = _tokens_by_use(corpus, vocabulary)
    generator = np.random.default_rng(seed)
    chosen = _choose(unused, number, generator)
    if len(used) < length:
        raise DataError(
            f"the corpus uses {len(used)} tokens that are whole words, too few for a prefix",
            remedy="Plant shorter canaries, or pass a larger corpus.",
        )
    prefix = [used[i] for i in generator.choice(len(used), length - 1, replace=False)]
    return [" ".join((*prefix, token)) for token in chosen]


def repeated_token_phrases(
    corpus: Corpus, vocabulary: Vocabulary, *, number: int, length: int, seed: Sequence[int]
) -> list[str]:
    """Phrases of a token each that the corpus never uses, `length` times; else as above."""
    _, unused = _tokens_by_use(corpus, vocabulary)
    chosen = _choose(unused, number, np.random.default_rng(seed))
    return [" ".join([token] * length) for token in chosen]


def _choose(unused: Sequence[str], number: int, generator: np.random.Generator) -> list[str]:
    if len(unused) < number:
        raise DataError(
            f"the vocabulary has {len(unused)} whole words that the corpus does not use; {number} "
            "are needed",
            remedy=(
                "Plant fewer canaries, or use a vocabulary with more tokens, such as reserved "
                "words."
            ),
        )
    return [unused[i] for i in generator.choice(len(unused), number, replace=False)]


def _tokens_by_use(corpus: Corpus, vocabulary: Vocabulary) -> tuple[list[str], list[str]]:
    """Texts of the tokens that the corpus uses, and of those that it does not in any case."""
    seen: set[int] = set()
    for texts in corpus.batches():
        seen.update(token for ids in vocabulary.encode_batch(texts) for token in ids)
    whole = _whole_tokens(vocabulary)
    used = [text for token, text in whole.items() if token in seen and text.isalpha()]
    kept: dict[str, str] = {}
    for token, text in whole.items():
        if token not in seen:
            kept.setdefault(text.casefold(), text)
    unused = list(kept.values())
    counts = occurrences(corpus, unused)
    return used, [text for text, count in zip(unused, counts, strict=True) if not count]


def _whole_tokens(vocabulary: Vocabulary) -> dict[int, str]:
    """Text of every token that is read as itself after a blank, by its id."""
    special = {vocabulary.eos_id, vocabulary.bos_id, vocabulary.unk_id}
    texts = {token: vocabulary.piece(token).strip() for token in range(len(vocabulary))}
    asked = [
        (token, text)
        for token, text in texts.items()
        if token not in special and text and len(text.split()) == 1
    ]
    before = vocabulary.encode(_BEFORE)
    read = vocabulary.encode_batch([f"{_BEFORE} {text}" for _, text in asked])
    return {
        token: text
        for (token, text), ids in zip(asked, read, strict=True)
        if ids == [*before, token]
    }
