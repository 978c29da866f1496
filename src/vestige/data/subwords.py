"""Vocabularies of Hugging Face tokenizers.

Byte-level BPE: Radford et al. (2019), "Language Models are Unsupervised Multitask Learners".
`transformers` and `tokenizers` are imported when first needed: they take seconds.
"""

import hashlib
import json
from bisect import bisect_left
from collections.abc import Mapping, Sequence
from itertools import accumulate
from pathlib import Path
from typing import Any, Self

from vestige import _validate
from vestige.data.corpus import Corpus
from vestige.data.files import read_object
from vestige.data.tokenizer_file import MOST_TOKENS, REMEDY, no_panics, require_sound
from vestige.errors import DataError

FILE = "tokenizer.json"
SETTINGS = ("tokenizer_config.json", "special_tokens_map.json", "added_tokens.json")
END_OF_TEXT = "<|endoftext|>"
_ALPHABET = 256  # a byte-level BPE begins with one token for each byte


class SubwordVocabulary:
    """Vocabulary of a fast Hugging Face tokenizer.

    Args:
        tokenizer: a `transformers.PreTrainedTokenizerFast` with an end-of-text token. Where it
            puts another token before every text, documents begin with that (`bos_id`).

    Attributes:
        largest: the largest id.

    Raises:
        DataError: the tokenizer is a slow one, or has no end-of-text token.
    """

    def __init__(self, tokenizer: Any) -> None:
        if not getattr(tokenizer, "is_fast", False):
            raise DataError(
                f"the tokenizer {type(tokenizer).__name__} has no fast version",
                remedy="Convert it to a tokenizer.json first.",
            )
        if tokenizer.eos_token_id is None:
            raise DataError(
                "the tokenizer has no end-of-text token",
                remedy='Set "eos_token" in tokenizer_config.json.',
            )
        with no_panics("the tokenizer"):
            largest = max(tokenizer.get_vocab().values(), default=0)
        if largest >= MOST_TOKENS:
            raise DataError(f"the tokenizer has an id of {largest:,}", remedy=REMEDY)
        self.tokenizer = tokenizer
        self.largest = largest
        self.eos_id: int = int(tokenizer.eos_token_id)
        bos = tokenizer.bos_token_id
        begins = bos not in (None, self.eos_id) and self._begins_with(bos)
        self.bos_id: int | None = int(bos) if begins else None
        unk = tokenizer.unk_token_id
        # Byte-level tokenizers name their end-of-text token as <unk> too, and never use it.
        self.unk_id: int | None = None if unk in (None, self.eos_id) else int(unk)

    @classmethod
    def from_pretrained(cls, source: str | Path) -> Self:
        """The tokenizer of a model folder or of a model on the hub.

        Raises:
            DataError: there is none, or it cannot be read.
        """
        return cls(read_tokenizer(source))

    @classmethod
    def train_bpe(cls, corpus: Corpus, *, size: int) -> Self:
        """A byte-level BPE tokenizer learnt from a corpus.

        Args:
            corpus: read as a stream.
            size: tokens at most, the 256 bytes and the end-of-text token counted.

        Raises:
            ValueError: size is below 257.
            DataError: the corpus is empty.
        """
        from tokenizers import ByteLevelBPETokenizer
        from transformers import PreTrainedTokenizerFast

        _validate.at_least(_ALPHABET + 1, size=size)
        if not len(corpus):
            raise DataError(
                "an empty corpus cannot train subwords", remedy="Pass a corpus with documents."
            )
        bpe = ByteLevelBPETokenizer()
        bpe.train_from_iterator(
            corpus.batches(),
            vocab_size=size,
            special_tokens=[END_OF_TEXT],
            show_progress=False,
            length=len(corpus),
        )
        return cls(
            PreTrainedTokenizerFast(
                tokenizer_object=bpe._tokenizer, bos_token=END_OF_TEXT, eos_token=END_OF_TEXT
            )
        )

    def __len__(self) -> int:
        return len(self.tokenizer)

    def encode_batch(self, texts: Sequence[str]) -> list[list[int]]:
        backend = self.tokenizer.backend_tokenizer
        with no_panics("the text"):
            encodings = backend.encode_batch_fast(list(texts), add_special_tokens=False)
        return [encoding.ids for encoding in encodings]

    def encode(self, text: str) -> list[int]:
        return self.encode_batch([text])[0]

    def decode(self, ids: Sequence[int]) -> str:
        return str(
            self.tokenizer.decode(
                [int(token) for token in ids],
                skip_special_tokens=False,
                clean_up_tokenization_spaces=False,
            )
        )

    def piece(self, token: int) -> str:
        raw = self.tokenizer.convert_ids_to_tokens(int(token))
        if raw is None:  # model heads are often padded beyond the tokenizer
            return f"<{int(token)}>"
        # SentencePiece marks the space so; decoding a single token would drop it.
        return raw.replace("▁", " ") if "▁" in raw else self.decode([token])

    def texts(self) -> Sequence[str]:
        ids = range(max(len(self), self.largest + 1))
        raw = self.tokenizer.convert_ids_to_tokens(list(ids))
        return ["" if token is None else token for token in raw]

    def settings(self) -> Mapping[str, object]:
        content, named = self._content(), self.tokenizer.convert_ids_to_tokens
        model = content.pop("model")
        model.pop("vocab", None)
        return {
            "end-of-text token": named(self.eos_id),
            "begin-of-text token": None if self.bos_id is None else named(self.bos_id),
            "the tokenizer's merges": model.pop("merges", None),
            **{f"the tokenizer's {name.replace('_', ' ')}": part for name, part in content.items()},
            "the tokenizer's model": model,
        }

    def _content(self) -> dict[str, Any]:
        """Tokenizer as JSON, without truncation and padding settings."""
        content: dict[str, Any] = json.loads(self.tokenizer.backend_tokenizer.to_str())
        for setting in ("truncation", "padding", "post_processor"):
            content.pop(setting, None)
        return content

    def _begins_with(self, token: int) -> bool:
        """Whether the tokenizer begins every text with a token, as Llama's does."""
        return bool(self.tokenizer.backend_tokenizer.encode("a").ids[:1] == [token])

    def save(self, directory: Path) -> None:
        Path(directory).mkdir(parents=True, exist_ok=True)
        self.tokenizer.save_pretrained(str(directory))

    def fingerprint(self) -> str:
        canonical = json.dumps([self._content(), self.eos_id], sort_keys=True)
        return hashlib.sha256(canonical.encode()).hexdigest()


def read_tokenizer(source: str | Path) -> Any:
    """The tokenizer of a model folder or of a model on the hub, as transformers reads it.

    Raises:
        DataError: there is none, or it cannot be read.
    """
    from transformers import AutoTokenizer

    folder = Path(source)
    packed = {}
    if folder.suffix == ".gguf":  # which holds its tokenizer, too
        folder, packed = folder.parent, {"gguf_file": folder.name}
    for name in SETTINGS if not packed else ():
        if (folder / name).exists():
            read_object(folder / name, error=DataError, remedy=REMEDY)
    if (folder / FILE).exists() and not packed:
        require_sound(folder / FILE)
    with no_panics(f"the tokenizer in {source}"):
        address = str(folder) if packed else str(source)
        return AutoTokenizer.from_pretrained(address, trust_remote_code=False, **packed)


def word_pieces(
    vocabulary: SubwordVocabulary, utterances: Sequence[Sequence[str]]
) -> list[list[list[int]]]:
    """The pieces of each word of each utterance, without special tokens.

    An utterance is read as one text, its words with a blank between them, so that a word has the
    pieces that it has in running text: in a byte-level BPE all words but the first carry the
    blank before them. A word of which the tokenizer leaves nothing, such as a control character,
    has none.
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
