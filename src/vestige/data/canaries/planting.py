"""What every planting needs: random positions, counts of phrases, and a sealed record.

A record is JSON with a SHA-256 over its whole content, however it is laid out.
"""

import hashlib
import json
import re
from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from os import PathLike
from pathlib import Path
from typing import Any, ClassVar, Self

import numpy as np
import pyarrow.compute as pc
from numpy.typing import NDArray

from vestige.data.corpus import Corpus
from vestige.data.files import read_object
from vestige.data.sources import MANIFEST
from vestige.data.writing import write_text
from vestige.errors import DataError, ManifestError

REMEDY = "Restore the file of `vestige plant`, or plant again."

MOST = 10**6
"""Copies of all canaries together."""

_AT_ONCE = 2**16
"""Letters of phrases that one expression looks for: those of a thousand long ones are too many."""

_BLANK = r"\s+"
_ARROW_BLANK = r"[\s\v\x1c-\x1f\x{85}\p{Z}]+"
"""The same blanks for Arrow's expressions, whose \\s knows those of ASCII only."""


class Copied:
    """A canary: planted some number of times, or never (a control)."""

    copies: int

    @property
    def planted(self) -> bool:
        """Whether it is planted."""
        return self.copies > 0

    @property
    def control(self) -> bool:
        """Whether it is a control."""
        return not self.planted

    @property
    def name(self) -> str:
        """What messages call it, before its number: the text is secret."""
        return "control" if self.control else "canary"


class Record(ABC):
    """Sealed record of a planting."""

    FORMAT: ClassVar[str]
    canaries: tuple[Any, ...]

    @abstractmethod
    def content(self) -> dict[str, Any]:
        """`format`, `canaries` (a dictionary each) and anything else that JSON can hold."""

    @classmethod
    @abstractmethod
    def _of(cls, content: dict[str, Any], path: Path) -> Self:
        """The record with this content, without its format."""

    @abstractmethod
    def _parts(self) -> Sequence[Sequence[tuple[int, ...]]]:
        """For each part of the corpus, positions of the copies of each canary."""

    def _fault(self) -> str | None:
        """Why the content contradicts itself."""
        parts = self._parts()
        for number, (one, *own) in enumerate(zip(self.canaries, *parts, strict=True), 1):
            if one.copies != (found := sum(map(len, own))):
                return f"canary {number} has {one.copies} copies and {found} positions"
        for part in parts:
            every = [place for own in part for place in own]
            if len(set(every)) < len(every):
                return "two copies have one position"
        return None

    @property
    def sha256(self) -> str:
        """The seal: SHA-256 (hex) over the canonical content."""
        return checksum(self.content())

    def save(self, path: Path) -> None:
        """Write the sealed record as JSON, whole or not at all."""
        content = self.content()
        sealed = {**content, "sha256": checksum(content)}
        write_text(Path(path), json.dumps(sealed, indent=2, ensure_ascii=False) + "\n")

    @classmethod
    def load(cls, path: Path) -> Self:
        """Read a record and check its seal.

        Raises:
            ManifestError: the file is missing, malformed, of another format, or was changed.
        """
        content = read_object(Path(path), error=ManifestError, remedy=REMEDY)
        if content.get("format") != cls.FORMAT:
            raise ManifestError(
                f'{path} is no canary manifest: its "format" is not "{cls.FORMAT}"', remedy=REMEDY
            )
        entries = content.get("canaries")
        if not isinstance(entries, list) or not all(isinstance(entry, dict) for entry in entries):
            raise inconsistent(path, '"canaries" is no list of objects')
        for entry in entries:
            entry.pop("sha256", None)  # which earlier versions wrote for each canary, too
        if content.pop("sha256", None) != checksum(content):
            raise ManifestError(
                f"{path} was changed after it was written: its checksum differs", remedy=REMEDY
            )
        del content["format"]
        record = cls._of(content, Path(path))
        if fault := record._fault():
            raise inconsistent(path, fault)
        return record


def checksum(content: dict[str, Any]) -> str:
    """SHA-256 (hex) over content that JSON can hold, however it is laid out."""
    canonical = json.dumps(content, sort_keys=True, ensure_ascii=True, separators=(",", ":"))
    return hashlib.sha256(canonical.encode()).hexdigest()


def manifest_file(path: str | PathLike[str]) -> Path:
    """The manifest that a path names: the file itself, or the one in a planted directory."""
    return Path(path) / MANIFEST if Path(path).is_dir() else Path(path)


def format_of(path: Path) -> str | None:
    """Format of a record; None if no such record can be read."""
    try:
        named = read_object(path, error=ManifestError, remedy=REMEDY).get("format")
    except ManifestError:
        return None
    return named if isinstance(named, str) else None


def inconsistent(path: Path, fault: str) -> ManifestError:
    """Error for a record whose content does not follow its format."""
    return ManifestError(f"{path} is inconsistent: {fault}", remedy=REMEDY)


def not_there(problem: str) -> ManifestError:
    """Error for a corpus other than the one that a record describes."""
    return ManifestError(problem, remedy="Pass the corpus planted with this manifest, unchanged.")


def require_plantable(
    canaries: Sequence[Copied], texts: Sequence[str], corpus: Corpus, *, what: str
) -> None:
    """Raise an error if nothing has copies, a text comes twice, or the corpus holds one already."""
    if not any(canary.planted for canary in canaries):
        raise ValueError(f"canaries must hold one with copies, got {len(texts)} without")
    seen: set[str] = set()
    for number, text in enumerate(texts, 1):
        if text.casefold() in seen:  # equal texts may be one to a model
            raise ValueError(f"canaries must be all different, got number {number} a second time")
        seen.add(text.casefold())
    for number, count in enumerate(occurrences(corpus, texts), 1):
        if count:
            raise DataError(
                f"the corpus already contains the {what} of canary {number} ({count} times)",
                remedy=f"Pass another --seed, or remove that {what} from the corpus.",
            )


def scatter(
    size: int, copies: Sequence[int], generator: np.random.Generator
) -> tuple[NDArray[np.int64], list[tuple[int, ...]]]:
    """Random positions for copies among `size` documents, every set of positions alike.

    Returns:
        (order, positions): with the k canaries behind the documents, taking them in `order` puts
        every copy in its position and keeps the order of the documents.

    Raises:
        ValueError: more than `MOST` copies in all.

    Example:
        >>> scatter(2, [1], np.random.default_rng(0))
        (array([0, 1, 2]), [(2,)])
    """
    if sum(copies) > MOST:
        raise ValueError(f"`copies` must be at most {MOST:,} in all, got {sum(copies):,}")
    owner = np.repeat(np.arange(len(copies)), copies)
    total = size + owner.size
    drawn = generator.choice(total, size=owner.size, replace=False)
    order = np.full(total, -1, dtype=np.int64)
    order[drawn] = size + owner
    order[order < 0] = np.arange(size)
    ends = np.cumsum(copies)
    return order, [tuple(sorted(own.tolist())) for own in np.split(drawn, ends)[:-1]]


def occurrences(corpus: Corpus, phrases: Sequence[str]) -> list[int]:
    """Occurrences of each phrase in a corpus, whatever its case and its blanks.

    A phrase counts where no letter or digit touches its ends, inside longer texts too.

    Example:
        >>> occurrences(Corpus.from_texts(["Hot tea!", "hot team", "so hot  tea"]), ["hot tea"])
        [2]
    """
    shapes = [_BLANK.join(re.escape(word) for word in phrase.split()) for phrase in phrases]
    return [count for some in _batches(shapes) for count in _counted(corpus, some)]


def _batches(shapes: Sequence[str]) -> Iterator[list[str]]:
    batch: list[str] = []
    letters = 0
    for shape in shapes:
        if batch and letters + len(shape) > _AT_ONCE:
            yield batch
            batch, letters = [], 0
        batch.append(shape)
        letters += len(shape)
    if batch:
        yield batch


def _counted(corpus: Corpus, shapes: Sequence[str]) -> list[int]:
    """Occurrences of each expression: one pass over all the text, then Python where one stands."""
    any_of_them = "|".join(f"(?:{shape.replace(_BLANK, _ARROW_BLANK)})" for shape in shapes)
    texts = corpus.table["text"]
    found = texts.filter(pc.match_substring_regex(texts, any_of_them, ignore_case=True))
    patterns = [re.compile(rf"(?<!\w){shape}(?!\w)", re.IGNORECASE) for shape in shapes]
    return [sum(len(pattern.findall(text)) for text in found.to_pylist()) for pattern in patterns]
