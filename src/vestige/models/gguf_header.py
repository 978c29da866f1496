"""Headers of GGUF files, checked before a library reads them.

A GGUF file says how many settings, texts and numbers it holds, and libraries believe it: a count
that the file cannot fill is followed for ever. So the header is walked first, within the bounds of
the file, by the format's description (github.com/ggml-org/ggml, docs/gguf.md, version 3).
"""

import struct
from collections import Counter
from dataclasses import dataclass, field
from math import prod
from pathlib import Path
from typing import BinaryIO

from vestige.data.files import require_regular
from vestige.errors import ModelError
from vestige.memory import MOST_LAYERS, WIDEST

REMEDY = "Download the file again, or pass the model's folder of safetensors."
_MAGIC, _VERSIONS = b"GGUF", (2, 3)
_TEXT, _LIST = 8, 9
_NUMBERS = dict(enumerate("BbHhIif?")) | {10: "Q", 11: "q", 12: "d"}
_MOST_SETTINGS, _MOST_TENSORS, _MOST_DIMENSIONS = 10_000, 1_000_000, 4
_LONGEST_NAME = 1_000
PACKED = "packed"
_FLOATS = {0: "F32", 1: "F16", 30: "BF16"}
"""Types of tensors that are not quantised, by their number."""
_BOUNDS = {
    "block_count": MOST_LAYERS,
    "context_length": 2**24,
    "expert_count": 1_000,
} | dict.fromkeys(
    (
        *("embedding_length", "feed_forward_length", "attention.head_count"),
        *("attention.head_count_kv", "attention.key_length", "attention.value_length"),
    ),
    WIDEST,
)


@dataclass
class Header:
    """What a GGUF file says of itself.

    Attributes:
        settings: numbers and texts by name; of a list its length.
        held: how many weights there are, by their type ("F32", ...; `PACKED` for any packed one).
    """

    settings: dict[str, int | float | str] = field(default_factory=dict)
    held: Counter[str] = field(default_factory=Counter)


def read_header(file: Path) -> Header:
    """Read and check a file's header.

    Raises:
        ModelError: it is no GGUF file, is cut short, or names sizes that no model has.
    """
    size = require_regular(file, error=ModelError, remedy=REMEDY)
    try:
        with file.open("rb") as stream:
            header = _Walk(stream, size).header()
    except (ValueError, OSError) as error:
        raise ModelError(f"{file} is not a valid GGUF file: {error}", remedy=REMEDY) from error
    family = header.settings.get("general.architecture")
    for name, most in _BOUNDS.items():
        told = header.settings.get(f"{family}.{name}", 1)
        if not isinstance(told, int) or not 0 <= told <= most:
            raise _unsound(file, f"{name} is {str(told)[:40]!r}; at most {most:,} is possible")
    return header


def _unsound(file: Path, reason: str) -> ModelError:
    return ModelError(f"{file} is not a valid GGUF file: {reason}", remedy=REMEDY)


class _Walk:
    """A walk over a file that never leaves it."""

    def __init__(self, stream: BinaryIO, size: int) -> None:
        self.stream, self.left = stream, size

    def header(self) -> Header:
        if self.take(4) != _MAGIC:
            raise ValueError("it does not begin with GGUF")
        if (version := self.number("I")) not in _VERSIONS:
            raise ValueError(f"version {version}; 2 or 3 is needed")
        tensors, settings = self.number("Q"), self.number("Q")
        if tensors > _MOST_TENSORS or settings > _MOST_SETTINGS:
            raise ValueError(f"{tensors:,} tensors and {settings:,} settings")
        header = Header()
        for _ in range(settings):
            name = self.text(_LONGEST_NAME)
            header.settings[name] = self.value(self.number("I"))
        for _ in range(tensors):
            self.text(_LONGEST_NAME)
            dimensions = self.number("I")
            if dimensions > _MOST_DIMENSIONS:
                raise ValueError(f"a tensor of {dimensions:,} dimensions")
            shape = [self.number("Q") for _ in range(dimensions)]
            header.held[_FLOATS.get(self.number("I"), PACKED)] += prod(shape)
            self.number("Q")
        if (numbers := header.held.total()) > 8 * self.left:  # no weight takes less than a bit
            raise ValueError(f"{numbers:,} weights in {self.left:,} bytes")
        return header

    def take(self, length: int) -> bytes:
        if length > self.left:
            raise ValueError("it is incomplete")
        self.left -= length
        return self.stream.read(length)

    def number(self, form: str) -> int:
        found: int = struct.unpack(f"<{form}", self.take(struct.calcsize(f"<{form}")))[0]
        return found

    def text(self, longest: int | None = None) -> str:
        length = self.number("Q")
        if longest is not None and length > longest:
            raise ValueError(f"a name of {length:,} bytes")
        return self.take(length).decode("utf-8", "replace")

    def value(self, kind: int) -> int | float | str:
        """A setting's value; of a list its length."""
        if kind == _TEXT:
            return self.text()
        if kind in _NUMBERS:
            return self.number(_NUMBERS[kind])
        if kind != _LIST:
            raise ValueError(f"a setting of unknown type {kind}")
        inner, length = self.number("I"), self.number("Q")
        if inner in _NUMBERS:
            self.take(length * struct.calcsize(f"<{_NUMBERS[inner]}"))
        elif inner == _TEXT:
            if 8 * length > self.left:  # each text has a length of its own
                raise ValueError("it is incomplete")
            for _ in range(length):
                self.take(self.number("Q"))
        else:
            raise ValueError(f"a list of unknown type {inner}")
        return length
