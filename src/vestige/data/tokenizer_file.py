"""Checks of a tokenizer.json from elsewhere before it is loaded.

The library that reads a tokenizer.json is written in Rust. On some files it panics, which Python
sees as an exception that is no Exception; takes the memory that a number in the file asks for; or
ends the process. So sizes and patterns are checked first. Then another process, with bounds on
memory and time, reads the file before this one does.
"""

import base64
import binascii
import math
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from functools import lru_cache
from hashlib import sha256
from pathlib import Path
from typing import Any

from vestige.data.files import read_object
from vestige.data.patterns import slow_reason
from vestige.errors import DataError

MOST_TOKENS = 2**24
_SIZES = (
    *("id", "Fixed", "pad_to_multiple_of", "max_length", "stride"),
    "max_input_chars_per_word",
)
_WIDEST = 2**20  # tokens that a text may be filled up with
_ADDED = 1000  # letters of a replacement, tokens that a template adds
_GROWTH = 1000  # times that a text may grow
_LONGEST = 20_000  # letters of a regular expression
_SECONDS = 120
_MEMORY = 2**32  # bytes, and so many more for each byte of the file:
_FOR_EACH_BYTE = 64
REMEDY = "Download the tokenizer again from its source. If the error remains, do not use it."

_PROBE = """
import resource, sys
path, memory, seconds = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
bounds = {resource.RLIMIT_AS: memory, resource.RLIMIT_CPU: seconds, resource.RLIMIT_CORE: 0}
for what, most in bounds.items():
    hard = resource.getrlimit(what)[1]  # which nobody may raise
    most = most if hard == resource.RLIM_INFINITY else min(most, hard)
    resource.setrlimit(what, (most, most))
from tokenizers import Tokenizer
tokenizer = Tokenizer.from_file(path)
texts = ["a", "The quick brown fox, 12345!", "h\\u00e9llo \\ufb01 \\u2460", "\\n\\t ", "a" * 40]
for ids in tokenizer.encode_batch(texts):
    tokenizer.decode(ids.ids)
"""


@contextmanager
def no_panics(what: object) -> Iterator[None]:
    """Turn any error of the tokenizer library into a DataError.

    Raises:
        DataError: naming `what`.
    """
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
            f"{what} cannot be used: the tokenizer library failed", remedy=REMEDY
        ) from None


def require_sound(file: Path) -> None:
    """Require a tokenizer.json that loads in bounded time and memory, without a panic.

    Raises:
        DataError: it cannot, or asks for sizes that no tokenizer has.
    """
    content = read_object(file, error=DataError, remedy=REMEDY)
    problem = next(filter(None, map(_fault, _objects(content))), None)
    problem = problem or _tried(str(file), sha256(file.read_bytes()).hexdigest())
    if problem is not None:
        raise DataError(f"{file} cannot be used: {problem}", remedy=REMEDY)


def _objects(value: Any) -> Iterator[dict[str, Any]]:
    """All objects in JSON, outer ones first."""
    if isinstance(value, dict):
        yield value
    for inner in value.values() if isinstance(value, dict) else value:
        if isinstance(inner, dict | list):
            yield from _objects(inner)


def _fault(part: dict[str, Any]) -> str | None:
    """Fault of an object in a tokenizer.json, by the fields that decide on sizes."""
    for name in _SIZES:
        number = part.get(name)
        most = MOST_TOKENS if name == "id" else _WIDEST
        if isinstance(number, int | float) and not 0 <= number <= most:
            return f'a "{name}" in it is larger than {most:,}, or negative'
    pattern = part.get("Regex")
    slow = slow_reason(pattern, longest=_LONGEST) if isinstance(pattern, str) else None
    if slow is not None:
        return f"a regular expression in it may not terminate: {slow}"
    return _growth(part) or _template(part) or _charsmap(part.get("precompiled_charsmap"))


def _growth(part: dict[str, Any]) -> str | None:
    """Fault of replacements, which can make texts far longer than they are."""
    for name in ("content", "prepend"):
        text = part.get(name)
        added = len(text) if isinstance(text, str) else 0
        if part.get("type") in ("Replace", "Prepend") and added > _ADDED:
            return f"it replaces text by more than {_ADDED} letters"
    sequence = part.get("normalizers") or part.get("decoders")
    steps = [one for one in sequence if isinstance(one, dict)] if isinstance(sequence, list) else []
    texts = [step.get("content") for step in steps if step.get("type") == "Replace"]
    grows = [len(text) for text in texts if isinstance(text, str) and len(text) > 2]
    if math.prod(grows) > _GROWTH:
        return "its replacements in sequence make texts far longer"
    return None


def _template(part: dict[str, Any]) -> str | None:
    """Fault of a template, which adds tokens to every text."""
    if part.get("type") != "TemplateProcessing":
        return None
    special = part.get("special_tokens")
    tokens = special.values() if isinstance(special, dict) else ()
    ids = [one.get("ids") for one in tokens if isinstance(one, dict)]
    longest = max((len(one) for one in ids if isinstance(one, list)), default=1)
    sides = [part.get(side) for side in ("single", "pair")]
    pieces = max((len(side) for side in sides if isinstance(side, list)), default=0)
    if pieces * longest > _ADDED:
        return f"it adds more than {_ADDED} tokens to every text"
    return None


def _charsmap(text: Any) -> str | None:
    """Fault of SentencePiece's normalisation, which states its own size."""
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
def _tried(path: str, _: str) -> str | None:
    """Outcome of loading a file in another process; cached by content."""
    if not sys.platform.startswith("linux"):
        return None
    memory = _MEMORY + _FOR_EACH_BYTE * Path(path).stat().st_size
    words = [sys.executable, "-c", _PROBE, path, str(memory), str(_SECONDS)]
    try:
        done = subprocess.run(
            words, capture_output=True, timeout=2 * _SECONDS, check=False, stdin=subprocess.DEVNULL
        )
    except subprocess.TimeoutExpired:
        return f"reading it takes more than {2 * _SECONDS} seconds"
    if done.returncode == 0:
        return None
    ended = "ends the process" if done.returncode < 0 else "fails"
    return f"the tokenizer library {ended} on it (memory limit {memory / 2**30:.1f} GiB)"
