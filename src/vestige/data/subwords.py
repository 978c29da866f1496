"""Vocabularies of Hugging Face tokenizers, and checks of a tokenizer.json before it is loaded.

Byte-level BPE: Radford et al. (2019), "Language Models are Unsupervised Multitask Learners".
`transformers` and `tokenizers` are imported when first needed: they take seconds.

The library that reads a tokenizer.json is written in Rust. On some files it panics (in Python, a
BaseException), allocates as much memory as a number in the file says, or ends the process. So
`require_sound` checks sizes and patterns, and then loads the file in another process with limits on
memory and time.
"""

import base64
import binascii
import hashlib
import json
import math
import subprocess
import sys
from bisect import bisect_left
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import lru_cache
from itertools import accumulate
from pathlib import Path
from typing import Any, Self

from vestige import _validate
from vestige.data.corpus import Corpus
from vestige.data.files import read_object
from vestige.data.regular_expressions import slow_reason
from vestige.errors import DataError

FILE = "tokenizer.json"
SETTINGS = ("tokenizer_config.json", "special_tokens_map.json", "added_tokens.json")
END_OF_TEXT = "<|endoftext|>"
_BYTES = 256  # a byte-level BPE has a token for each byte
_REMEDY = "Download the tokenizer again from its source. If the error remains, do not use it."


class SubwordVocabulary:
    """Vocabulary of a fast Hugging Face tokenizer.

    Args:
        tokenizer: a `transformers.PreTrainedTokenizerFast` with an end-of-text token. If it puts
            another token before every text, documents begin with that token (`bos_id`).

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
        with _tokenizer_errors("the tokenizer"):
            largest = max(tokenizer.get_vocab().values(), default=0)
        if largest >= _MOST_TOKENS:
            raise DataError(f"the tokenizer has an id of {largest:,}", remedy=_REMEDY)
        self.tokenizer = tokenizer
        self.largest = largest
        self.eos_id: int = int(tokenizer.eos_token_id)
        bos, unk = tokenizer.bos_token_id, tokenizer.unk_token_id
        begins = bos not in (None, self.eos_id) and (
            tokenizer.backend_tokenizer.encode("a").ids[:1] == [bos]
        )
        self.bos_id: int | None = int(bos) if begins else None
        # Byte-level tokenizers declare the end-of-text token as <unk> too, and never use it.
        self.unk_id: int | None = None if unk in (None, self.eos_id) else int(unk)

    @classmethod
    def from_pretrained(cls, source: str | Path) -> Self:
        """The tokenizer of a model folder or of a model on the hub; see `read_tokenizer`."""
        return cls(read_tokenizer(source))

    @classmethod
    def train_bpe(cls, corpus: Corpus, *, size: int) -> Self:
        """A byte-level BPE tokenizer trained on a corpus, which is read as a stream.

        `size` is the largest number of tokens, with the 256 bytes and the end-of-text token.
        """
        from tokenizers import ByteLevelBPETokenizer
        from transformers import PreTrainedTokenizerFast

        _validate.at_least(_BYTES + 1, size=size)
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
        with _tokenizer_errors("the text"):
            encodings = backend.encode_batch_fast(list(texts), add_special_tokens=False)
        return [encoding.ids for encoding in encodings]

    def encode(self, text: str) -> list[int]:
        return self.encode_batch([text])[0]

    def decode(self, ids: Sequence[int]) -> str:
        plain = {"skip_special_tokens": False, "clean_up_tokenization_spaces": False}
        return str(self.tokenizer.decode([int(token) for token in ids], **plain))

    def piece(self, token: int) -> str:
        raw = self.tokenizer.convert_ids_to_tokens(int(token))
        if raw is None:  # model heads are often padded beyond the tokenizer
            return f"<{int(token)}>"
        # SentencePiece's mark of a space; decoding a single token would drop it.
        return raw.replace("▁", " ") if "▁" in raw else self.decode([token])

    def texts(self) -> Sequence[str]:
        ids = range(max(len(self), self.largest + 1))
        raw = self.tokenizer.convert_ids_to_tokens(list(ids))
        return ["" if token is None else token for token in raw]

    def settings(self) -> Mapping[str, object]:
        content, token_text = self._content(), self.tokenizer.convert_ids_to_tokens
        model = content.pop("model")
        model.pop("vocab", None)
        return {
            "end-of-text token": token_text(self.eos_id),
            "begin-of-text token": None if self.bos_id is None else token_text(self.bos_id),
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

    def save(self, directory: Path) -> None:
        Path(directory).mkdir(parents=True, exist_ok=True)
        self.tokenizer.save_pretrained(str(directory))

    def fingerprint(self) -> str:
        canonical = json.dumps([self._content(), self.eos_id], sort_keys=True)
        return hashlib.sha256(canonical.encode()).hexdigest()


def read_tokenizer(source: str | Path) -> Any:
    """The tokenizer of a model folder or of the hub, as transformers reads it, or DataError."""
    from transformers import AutoTokenizer

    folder = Path(source)
    if folder.suffix == ".gguf":  # the file has the tokenizer, too
        address, arguments = str(folder.parent), {"gguf_file": folder.name}
    else:
        address, arguments = str(source), {}
        for name in SETTINGS:
            if (folder / name).exists():
                read_object(folder / name, error=DataError, remedy=_REMEDY)
        if (folder / FILE).exists():
            require_sound(folder / FILE)
    with _tokenizer_errors(f"the tokenizer in {source}"):
        return AutoTokenizer.from_pretrained(address, trust_remote_code=False, **arguments)


def word_pieces(
    vocabulary: SubwordVocabulary, utterances: Sequence[Sequence[str]]
) -> list[list[list[int]]]:
    """The token ids of each word of each utterance, without special tokens.

    An utterance is encoded as one text, its words separated by blanks, so that a word has the same
    tokens as in running text: in a byte-level BPE, tokens of all words but the first include the
    blank before. A word that the tokenizer removes, such as a control character, has no tokens.
    """
    if not utterances:
        return []
    encoded = vocabulary.tokenizer(
        [" ".join(words) for words in utterances],
        add_special_tokens=False,
        return_offsets_mapping=True,
        verbose=False,
    )
    columns = zip(utterances, encoded["input_ids"], encoded["offset_mapping"], strict=True)
    result = []
    for words, ids, spans in columns:  # a token belongs to the word in which it ends
        ends = list(accumulate(len(word) + 1 for word in words))
        pieces: list[list[int]] = [[] for _ in words]
        for id, (_, end) in zip(ids, spans, strict=True):
            pieces[bisect_left(ends, end + 1)].append(id)
        result.append(pieces)
    return result


def special_tokens(vocabulary: SubwordVocabulary) -> tuple[list[int], list[int]]:
    """Special tokens before and after a text; DataError if they change its encoding."""
    tokenizer = vocabulary.tokenizer
    plain = tokenizer("a", add_special_tokens=False)["input_ids"]
    full = tokenizer("a")["input_ids"]
    for start in range(len(full) - len(plain) + 1):
        if full[start : start + len(plain)] == plain:
            return full[:start], full[start + len(plain) :]
    raise DataError(
        "the tokenizer changes a text when it adds special tokens",
        remedy="Pass an encoder whose tokenizer puts them before and after a text.",
    )


# Checks of a tokenizer.json


_MOST_TOKENS = 2**24
_MOST_PADDING = 2**20  # tokens
_SIZES = ("Fixed", "pad_to_multiple_of", "max_length", "stride", "max_input_chars_per_word")
_MOST_ADDED = 1000  # characters of a replacement, tokens that a template adds
_MOST_GROWTH = 1000  # factor by which replacements may lengthen a text
_LONGEST_PATTERN = 20_000  # characters of a regular expression
_SECONDS = 120
_MEMORY, _MEMORY_PER_BYTE = 2**32, 64  # bytes, and bytes for each byte of the file

_PROBE = """
import resource, sys
path, memory, seconds = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
bounds = {resource.RLIMIT_AS: memory, resource.RLIMIT_CPU: seconds, resource.RLIMIT_CORE: 0}
for kind, limit in bounds.items():
    hard = resource.getrlimit(kind)[1]  # cannot be raised
    limit = limit if hard == resource.RLIM_INFINITY else min(limit, hard)
    resource.setrlimit(kind, (limit, limit))
from tokenizers import Tokenizer
tokenizer = Tokenizer.from_file(path)
texts = ["a", "The quick brown fox, 12345!", "h\\u00e9llo \\ufb01 \\u2460", "\\n\\t ", "a" * 40]
for ids in tokenizer.encode_batch(texts):
    tokenizer.decode(ids.ids)
"""


@contextmanager
def _tokenizer_errors(what: object) -> Iterator[None]:
    """Turn errors and panics of the tokenizer library into a DataError about `what`."""
    try:
        yield
    except Exception as error:  # from KeyError to the library's own
        raise DataError(
            f"{what} cannot be read: {str(error)[:200]}",
            remedy="Pass a folder with tokenizer.json and tokenizer_config.json.",
        ) from error
    except BaseException as error:
        if type(error).__name__ != "PanicException":
            raise
        raise DataError(
            f"{what} cannot be used: the tokenizer library failed", remedy=_REMEDY
        ) from None


def require_sound(file: Path) -> None:
    """DataError unless a tokenizer.json loads in bounded time and memory, and without a panic."""
    content = read_object(file, error=DataError, remedy=_REMEDY)
    problem = next(filter(None, map(_fault, _objects(content))), None)
    problem = problem or _load_elsewhere(str(file), hashlib.sha256(file.read_bytes()).hexdigest())
    if problem is not None:
        raise DataError(f"{file} cannot be used: {problem}", remedy=_REMEDY)


def _objects(value: Any) -> Iterator[dict[str, Any]]:
    """All objects in JSON, outer ones first."""
    if isinstance(value, dict):
        yield value
    for item in value.values() if isinstance(value, dict) else value:
        if isinstance(item, dict | list):
            yield from _objects(item)


def _fault(part: dict[str, Any]) -> str | None:
    """Fault of an object in a tokenizer.json in a field that decides about sizes, or None."""
    for name, most in {"id": _MOST_TOKENS, **dict.fromkeys(_SIZES, _MOST_PADDING)}.items():
        number = part.get(name)
        if isinstance(number, int | float) and not 0 <= number <= most:
            return f'a "{name}" in it is larger than {most:,}, or negative'
    pattern = part.get("Regex")
    slow = slow_reason(pattern, longest=_LONGEST_PATTERN) if isinstance(pattern, str) else None
    if slow is not None:
        return f"a regular expression in it may not terminate: {slow}"
    added = max(len(_text(part.get(name))) for name in ("content", "prepend"))
    if part.get("type") in ("Replace", "Prepend") and added > _MOST_ADDED:
        return f"it replaces text by more than {_MOST_ADDED} letters"
    steps = _objects_in(part.get("normalizers") or part.get("decoders"))
    lengths = [len(_text(step.get("content"))) for step in steps if step.get("type") == "Replace"]
    if math.prod(length for length in lengths if length > 2) > _MOST_GROWTH:
        return "its replacements in sequence make texts far longer"
    if part.get("type") == "TemplateProcessing":
        special = part.get("special_tokens")
        tokens = _objects_in([*special.values()] if isinstance(special, dict) else None)
        id_lists = [token.get("ids") for token in tokens]
        longest = max((len(ids) for ids in id_lists if isinstance(ids, list)), default=1)
        templates = [part.get(name) for name in ("single", "pair")]
        pieces = max((len(pieces) for pieces in templates if isinstance(pieces, list)), default=0)
        if pieces * longest > _MOST_ADDED:
            return f"it adds more than {_MOST_ADDED} tokens to every text"
    return _charsmap_fault(part.get("precompiled_charsmap"))


def _text(value: Any) -> str:
    return value if isinstance(value, str) else ""


def _objects_in(value: Any) -> list[dict[str, Any]]:
    return [item for item in value if isinstance(item, dict)] if isinstance(value, list) else []


def _charsmap_fault(text: Any) -> str | None:
    """Fault of SentencePiece's normalisation table, which states its size."""
    if not isinstance(text, str):
        return None
    try:
        content = base64.b64decode(text, validate=True)
    except (binascii.Error, ValueError):
        return "its precompiled_charsmap is not base64"
    size = int.from_bytes(content[:4], "little")
    if content and (len(content) < 4 or size % 4 or size > len(content) - 4):
        return "its precompiled_charsmap states another size than it has"
    return None


@lru_cache(maxsize=256)
def _load_elsewhere(path: str, _: str) -> str | None:
    """Fault when another process loads the file, or None; cached by the hash of its content."""
    if not sys.platform.startswith("linux"):
        return None
    memory = _MEMORY + _MEMORY_PER_BYTE * Path(path).stat().st_size
    command = [sys.executable, "-c", _PROBE, path, str(memory), str(_SECONDS)]
    try:
        process = subprocess.run(
            command,
            capture_output=True,
            timeout=2 * _SECONDS,
            check=False,
            stdin=subprocess.DEVNULL,
        )
    except subprocess.TimeoutExpired:
        return f"reading it takes more than {2 * _SECONDS} seconds"
    if process.returncode == 0:
        return None
    outcome = "ends the process" if process.returncode < 0 else "fails"
    return f"the tokenizer library {outcome} on it (memory limit {memory / 2**30:.1f} GiB)"
