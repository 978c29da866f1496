"""Subword pieces of each word of an utterance.

An utterance is read as one text, its words with a blank between them, so that a word has the
pieces that it has in running text: in a byte-level BPE (Radford et al. 2019, "Language Models are
Unsupervised Multitask Learners") all words but the first carry the blank before them.
"""

from bisect import bisect_left
from collections.abc import Sequence
from itertools import accumulate

from vestige.data.subwords import SubwordVocabulary
from vestige.errors import DataError


def word_pieces(
    vocabulary: SubwordVocabulary, utterances: Sequence[Sequence[str]]
) -> list[list[list[int]]]:
    """The pieces of each word of each utterance, without special tokens.

    A word of which the tokenizer leaves nothing, such as a control character, has none.
    """
    if not utterances:
        return []
    found = vocabulary.tokenizer(
        [" ".join(words) for words in utterances],
        add_special_tokens=False,
        return_offsets_mapping=True,
        verbose=False,
    )
    columns = found["input_ids"], found["offset_mapping"]
    return [
        _by_word(words, ids, [end for _, end in places])
        for words, ids, places in zip(utterances, *columns, strict=True)
    ]


def _by_word(
    words: Sequence[str], ids: Sequence[int], piece_ends: Sequence[int]
) -> list[list[int]]:
    """Pieces by the word in which they end; a blank belongs to the next word."""
    ends = list(accumulate(len(word) + 1 for word in words))
    pieces: list[list[int]] = [[] for _ in words]
    for id, end in zip(ids, piece_ends, strict=True):
        pieces[bisect_left(ends, end + 1)].append(id)
    return pieces


def special_tokens(vocabulary: SubwordVocabulary) -> tuple[list[int], list[int]]:
    """Special tokens before and after a text.

    Raises:
        DataError: it also reads the text in another way then.
    """
    tokenizer = vocabulary.tokenizer
    inner = tokenizer("a", add_special_tokens=False)["input_ids"]
    whole = tokenizer("a")["input_ids"]
    for first in range(len(whole) - len(inner) + 1):
        if whole[first : first + len(inner)] == inner:
            return whole[:first], whole[first + len(inner) :]
    raise DataError(
        "the tokenizer changes a text when it adds special tokens",
        remedy="Pass an encoder whose tokenizer puts them before and after a text.",
    )
