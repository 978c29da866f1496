"""Vocabularies: token ids and their texts.

A `WordVocabulary` is a list of words. A `SubwordVocabulary` is a Hugging Face tokenizer with the
same methods, in its own module so that only its users import `transformers`.
"""

import hashlib
import json
import re
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Annotated, Literal, Protocol, Self, get_args, runtime_checkable

import numpy as np
from numpy.typing import NDArray
from pydantic import Field

from vestige import _validate
from vestige.data.corpus import Corpus
from vestige.data.files import Schema, read_json
from vestige.data.writing import write_text
from vestige.errors import DataError

UNK, EOS = "<unk>", "<eos>"
FILE_NAME = "vocabulary.json"
_WORDS = re.compile(r"<unk>|<eos>|\w+(?:['’-]\w+)*|[^\w\s]")

Tokenise = Literal["whitespace", "words"]


@runtime_checkable
class Vocabulary(Protocol):
    """Interface of every vocabulary; its length is v, and ids lie in [0, v).

    Texts are encoded without special tokens. `eos_id` ends every document; `bos_id` begins it
    (None: the previous `eos_id` does); `unk_id` stands for unknown text (None: it has no id).
    """

    @property
    def eos_id(self) -> int: ...

    @property
    def bos_id(self) -> int | None: ...

    @property
    def unk_id(self) -> int | None: ...

    def __len__(self) -> int: ...

    def encode_batch(self, texts: Sequence[str]) -> list[list[int]]: ...

    def encode(self, text: str) -> list[int]: ...

    def decode(self, ids: Sequence[int]) -> str: ...

    def piece(self, token: int) -> str:
        """Text of one token, with its leading space if it has one."""
        ...

    def texts(self) -> Sequence[str]:
        """Text of each id up to the largest, as the vocabulary writes it; "" for an unused id."""
        ...

    def settings(self) -> Mapping[str, object]:
        """Other settings of the encoding, by name."""
        ...

    def save(self, directory: Path) -> None:
        """Write the vocabulary into a folder, for `load_vocabulary`."""
        ...

    def fingerprint(self) -> str:
        """SHA-256 (hex), equal for vocabularies that encode all texts in the same way."""
        ...


@dataclass(frozen=True)
class WordVocabulary:
    """Words by descending count, with `<unk>` for all others and `<eos>` after each document.

    Attributes:
        words: the word of each id, all different, with `<unk>` and `<eos>`.
        lowercase: convert texts to lower case first.
        tokenise: "whitespace" splits at blanks only, for tokenised corpora; "words" also splits
            off punctuation.

    Example:
        >>> vocabulary = WordVocabulary.build(Corpus.from_texts(["to be or not to be"]), size=4)
        >>> vocabulary.words
        ('<unk>', '<eos>', 'be', 'to')
        >>> vocabulary.encode("to be is to do"), vocabulary.decode([3, 2])
        ([3, 2, 0, 3, 0], 'to be')
    """

    words: tuple[str, ...]
    lowercase: bool = False
    tokenise: Tokenise = "whitespace"

    def __post_init__(self) -> None:
        _validate.one_of(get_args(Tokenise), tokenise=self.tokenise)
        if len(self._index) != len(self.words):
            # The index has the last id of a repeated word.
            first = next(id for id, word in enumerate(self.words) if self._index[word] != id)
            raise ValueError(
                f"words must be all different, got number {first} again as number "
                f"{self._index[self.words[first]]}"
            )
        if UNK not in self._index or EOS not in self._index:
            raise ValueError(f"words must hold {UNK} and {EOS}, got {len(self.words)} others")

    @classmethod
    def build(
        cls,
        corpus: Corpus,
        *,
        size: int | None = None,
        min_count: int = 1,
        lowercase: bool = False,
        tokenise: Tokenise = "whitespace",
        keep: Iterable[str] = (),
    ) -> Self:
        """The most frequent words of a corpus; equal counts are in alphabetical order.

        Args:
            corpus: read once, as a stream.
            size: largest number of tokens, `<unk>` and `<eos>` included.
            min_count: least count of a word.
            lowercase, tokenise: see the class.
            keep: texts whose words are kept at any count, instead of the rarest others.

        Raises:
            DataError: no word is left, or `keep` has too many words for `size`.
        """
        _validate.at_least(3, size=3 if size is None else size)
        _validate.at_least(1, min_count=min_count)
        counts: Counter[str] = Counter()
        split = splitter(lowercase, tokenise)
        for text in corpus:
            counts.update(split(text))
        ranked = sorted(
            (w for w, n in counts.items() if n >= min_count and w not in (UNK, EOS)),
            key=lambda word: (-counts[word], word),
        )
        if not ranked:
            raise DataError(
                f"no word of the corpus ({len(corpus)} documents) occurs {min_count} times",
                remedy="Pass more text, or a smaller min_count.",
            )
        required = {word for text in keep for word in split(text)} - {UNK, EOS}
        if size is not None and len(required) > size - 2:
            raise DataError(
                f"{len(required)} words are required; a vocabulary of {size} has room for "
                f"{size - 2}",
                remedy="Use a larger vocabulary, or fewer canaries.",
            )
        room = None if size is None else size - 2 - len(required)
        others = [word for word in ranked if word not in required][:room]
        words = sorted([*others, *required], key=lambda word: (-counts[word], word))
        return cls((UNK, EOS, *words), lowercase, tokenise)

    @property
    def eos_id(self) -> int:
        return self._index[EOS]

    @property
    def bos_id(self) -> None:
        return None

    @property
    def unk_id(self) -> int:
        return self._index[UNK]

    def __len__(self) -> int:
        return len(self.words)

    def __contains__(self, word: str) -> bool:
        return word in self._index

    def split(self, text: str) -> list[str]:
        """The words of a text, also those that the vocabulary lacks."""
        return splitter(self.lowercase, self.tokenise)(text)

    def encode_batch(self, texts: Sequence[str]) -> list[list[int]]:
        split = splitter(self.lowercase, self.tokenise)
        get, unk = self._index.get, self.unk_id
        return [[get(word, unk) for word in split(text)] for text in texts]

    def encode(self, text: str) -> list[int]:
        return self.encode_batch([text])[0]

    def decode(self, ids: Sequence[int]) -> str:
        return " ".join(self.words[int(token)] for token in ids)

    def piece(self, token: int) -> str:
        return self.words[int(token)]

    def texts(self) -> Sequence[str]:
        return self.words

    def settings(self) -> Mapping[str, object]:
        return {"lower case": self.lowercase, "splitting": self.tokenise}

    def save(self, directory: Path) -> None:
        write_text(Path(directory) / FILE_NAME, json.dumps(self._content(), ensure_ascii=False))

    def fingerprint(self) -> str:
        canonical = json.dumps(self._content(), ensure_ascii=True, sort_keys=True)
        return hashlib.sha256(canonical.encode()).hexdigest()

    @cached_property
    def _index(self) -> dict[str, int]:
        return {word: token for token, word in enumerate(self.words)}

    def _content(self) -> dict[str, object]:
        return {
            "format": "vestige-words-1",
            "lowercase": self.lowercase,
            "tokenise": self.tokenise,
            "words": list(self.words),
        }


def differences(first: Vocabulary, second: Vocabulary) -> tuple[str, ...]:
    """Differences between two vocabularies, as text; ValueError if an id has two texts."""
    if first.fingerprint() == second.fingerprint():
        return ()
    first_texts, second_texts = first.texts(), second.texts()
    if len(first_texts) != len(second_texts):
        raise ValueError(f"{len(first_texts)} tokens and {len(second_texts)} tokens")
    for token, (text, other_text) in enumerate(zip(first_texts, second_texts, strict=True)):
        if text != other_text:
            raise ValueError(f"token {token} has two texts")
    return setting_differences(first, second)


def setting_differences(first: Vocabulary, second: Vocabulary) -> tuple[str, ...]:
    """Different settings of two vocabularies, as text."""
    first_settings, second_settings = first.settings(), second.settings()
    descriptions = []
    for name in dict.fromkeys((*first_settings, *second_settings)):
        values = first_settings.get(name), second_settings.get(name)
        if values[0] != values[1]:
            short = all(isinstance(value, str | bool | int | None) for value in values)
            descriptions.append(f"{name} ({values[0]!r} and {values[1]!r})" if short else name)
    return tuple(descriptions)


def splitter(lowercase: bool, tokenise: Tokenise) -> Callable[[str], list[str]]:
    """Function that splits a text into words."""
    split: Callable[[str], list[str]] = str.split if tokenise == "whitespace" else _WORDS.findall
    return (lambda text: split(text.lower())) if lowercase else split


def word_counts(corpus: Corpus, vocabulary: Vocabulary) -> NDArray[np.int64]:
    """(v,) token counts of a corpus, without end-of-text tokens."""
    counts = np.zeros(len(vocabulary), dtype=np.int64)
    for texts in corpus.batches(10_000):
        rows = vocabulary.encode_batch(texts)
        ids = np.fromiter((token for row in rows for token in row), dtype=np.int64)
        counts += np.bincount(ids, minlength=len(vocabulary))
    return counts


def load_vocabulary(directory: Path) -> Vocabulary:
    """Read `vocabulary.json`, or a Hugging Face tokenizer; DataError if there is none."""
    directory = Path(directory)
    if (directory / FILE_NAME).is_file():
        return _load_words(directory / FILE_NAME)
    if (directory / "tokenizer.json").is_file() or (directory / "tokenizer_config.json").is_file():
        from vestige.data.subwords import SubwordVocabulary

        return SubwordVocabulary.from_pretrained(directory)
    raise DataError(
        f"{directory} has no vocabulary",
        remedy=f"Pass the folder of a saved model, with {FILE_NAME} or tokenizer.json.",
    )


class _File(Schema):
    """Schema of a word vocabulary's file."""

    format: Literal["vestige-words-1"]
    lowercase: bool
    tokenise: Tokenise
    words: Annotated[list[str], Field(max_length=2**24)]


def _load_words(path: Path) -> WordVocabulary:
    remedy = "Restore it from its run, or train again."
    content = read_json(path, _File, error=DataError, remedy=remedy)
    try:
        return WordVocabulary(tuple(content.words), content.lowercase, content.tokenise)
    except ValueError as error:
        raise DataError(
            f"{path} is not a word vocabulary: a word occurs twice, or {UNK} or {EOS} is missing",
            remedy=remedy,
        ) from error


def alphabetic_words(words: Iterable[str]) -> list[str]:
    """Words of at least three letters, for canaries.

    Example:
        >>> alphabetic_words(["<unk>", "to", "two", "2nd"])
        ['two']
    """
    return [word for word in words if word.isalpha() and len(word) >= 3]
