"""Planting of canaries: random positions, occurrences in a corpus, and a sealed manifest.

A manifest is JSON with a SHA-256 over its whole content, however it is laid out.
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

MOST_COPIES = 10**6
"""Of all canaries together."""

_LONGEST_EXPRESSION = 2**16  # characters of phrases searched at once
_BLANK = r"\s+"
_ARROW_BLANK = r"[\s\v\x1c-\x1f\x{85}\p{Z}]+"
"""The same blanks for Arrow, whose \\s matches ASCII only."""


class AnyCanary:
    """A text that is planted some number of times, or never (a control)."""

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
        """Its name in messages, before its number: the text is secret."""
        return "control" if self.control else "canary"


class SealedManifest(ABC):
    """Record of a planting, with a checksum in its file."""

    FORMAT: ClassVar[str]
    canaries: tuple[Any, ...]

    @abstractmethod
    def content(self) -> dict[str, Any]:
        """`format`, `canaries` (a dictionary each) and other JSON values."""

    @classmethod
    @abstractmethod
    def _from_content(cls, content: dict[str, Any], path: Path) -> Self:
        """The manifest with this content, which is without its format."""

    @abstractmethod
    def _positions_by_part(self) -> Sequence[Sequence[tuple[int, ...]]]:
        """For each part of the corpus, positions of the copies of each canary."""

    def _fault(self) -> str | None:
        """A contradiction in the content, or None."""
        parts = self._positions_by_part()
        for number, (canary, *positions) in enumerate(zip(self.canaries, *parts, strict=True), 1):
            if canary.copies != (count := sum(map(len, positions))):
                return f"canary {number} has {canary.copies} copies and {count} positions"
        for part in parts:
            part_positions = [position for positions in part for position in positions]
            if len(set(part_positions)) < len(part_positions):
                return "two copies have one position"
        return None

    @property
    def sha256(self) -> str:
        """The seal: SHA-256 (hex) over the canonical content."""
        return checksum(self.content())

    def save(self, path: Path) -> None:
        """Write the sealed manifest as JSON, whole or not at all."""
        sealed = {**self.content(), "sha256": self.sha256}
        write_text(Path(path), json.dumps(sealed, indent=2, ensure_ascii=False) + "\n")

    @classmethod
    def load(cls, path: Path) -> Self:
        """Read a manifest and check its seal.

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
            entry.pop("sha256", None)  # earlier versions also wrote one for each canary
        if content.pop("sha256", None) != checksum(content):
            raise ManifestError(
                f"{path} was changed after it was written: its checksum differs", remedy=REMEDY
            )
        del content["format"]
        manifest = cls._from_content(content, Path(path))
        if fault := manifest._fault():
            raise inconsistent(path, fault)
        return manifest


def checksum(content: dict[str, Any]) -> str:
    """SHA-256 (hex) over JSON content, however it is laid out."""
    canonical = json.dumps(content, sort_keys=True, ensure_ascii=True, separators=(",", ":"))
    return hashlib.sha256(canonical.encode()).hexdigest()


def manifest_file(path: str | PathLike[str]) -> Path:
    """The manifest at a path: the file itself, or the one in a planted directory."""
    return Path(path) / MANIFEST if Path(path).is_dir() else Path(path)


def format_of(path: Path) -> str | None:
    """Format of a manifest; None if the file cannot be read as one."""
    try:
        name = read_object(path, error=ManifestError, remedy=REMEDY).get("format")
    except ManifestError:
        return None
    return name if isinstance(name, str) else None


def inconsistent(path: Path, fault: str) -> ManifestError:
    """Error for a manifest whose content does not follow its format."""
    return ManifestError(f"{path} is inconsistent: {fault}", remedy=REMEDY)


def other_corpus(problem: str) -> ManifestError:
    """Error for a corpus that differs from the manifest's."""
    return ManifestError(problem, remedy="Pass the corpus planted with this manifest, unchanged.")


def require_plantable(
    canaries: Sequence[AnyCanary], texts: Sequence[str], corpus: Corpus, *, what: str
) -> None:
    """Raise an error if no canary has copies, a text occurs twice, or the corpus has one already.

    `what` names a text in messages.
    """
    if not any(canary.planted for canary in canaries):
        raise ValueError(f"canaries must hold one with copies, got {len(texts)} without")
    seen: set[str] = set()
    for number, text in enumerate(texts, 1):
        if text.casefold() in seen:  # a lower-case model reads both alike
            raise ValueError(f"canaries must be all different, got number {number} a second time")
        seen.add(text.casefold())
    for number, count in enumerate(occurrences(corpus, texts), 1):
        if count:
            raise DataError(
                f"the corpus already contains the {what} of canary {number} ({count} times)",
                remedy=f"Pass another --seed, or remove that {what} from the corpus.",
            )


def scatter(
    size: int, copies: Sequence[int], rng: np.random.Generator
) -> tuple[NDArray[np.int64], list[tuple[int, ...]]]:
    """Uniformly random positions for copies among `size` documents.

    Returns:
        (order, positions): taken in this order, the documents followed by the canaries become
        the planted corpus; the documents keep their order. Positions of the copies of each canary.

    Raises:
        ValueError: more than `MOST_COPIES` copies in all.

    Example:
        >>> scatter(2, [1], np.random.default_rng(0))
        (array([0, 1, 2]), [(2,)])
    """
    if sum(copies) > MOST_COPIES:
        raise ValueError(f"`copies` must be at most {MOST_COPIES:,} in all, got {sum(copies):,}")
    canary_of_copy = np.repeat(np.arange(len(copies)), copies)
    total = size + canary_of_copy.size
    position_of_copy = rng.choice(total, size=canary_of_copy.size, replace=False)
    order = np.full(total, -1, dtype=np.int64)
    order[position_of_copy] = size + canary_of_copy
    order[order < 0] = np.arange(size)
    by_canary = np.split(position_of_copy, np.cumsum(copies))[:-1]
    return order, [tuple(sorted(positions.tolist())) for positions in by_canary]


def occurrences(corpus: Corpus, phrases: Sequence[str]) -> list[int]:
    """Occurrences of each phrase in a corpus, ignoring case and the kind of blanks.

    A phrase also counts inside a longer text, unless a letter or digit touches its ends.

    Example:
        >>> occurrences(Corpus.from_texts(["Hot tea!", "hot team", "so hot  tea"]), ["hot tea"])
        [2]
    """
    expressions = [_BLANK.join(map(re.escape, phrase.split())) for phrase in phrases]
    return [count for batch in _batches(expressions) for count in _count_matches(corpus, batch)]


def _batches(expressions: Sequence[str]) -> Iterator[list[str]]:
    batch: list[str] = []
    characters = 0
    for expression in expressions:
        if batch and characters + len(expression) > _LONGEST_EXPRESSION:
            yield batch
            batch, characters = [], 0
        batch.append(expression)
        characters += len(expression)
    if batch:
        yield batch


def _count_matches(corpus: Corpus, expressions: Sequence[str]) -> list[int]:
    """Matches of each expression. Arrow finds the texts with any of them, Python counts there."""
    alternatives = [f"(?:{text.replace(_BLANK, _ARROW_BLANK)})" for text in expressions]
    texts = corpus.table["text"]
    matches = pc.match_substring_regex(texts, "|".join(alternatives), ignore_case=True)
    matching = texts.filter(matches).to_pylist()
    patterns = [re.compile(rf"(?<!\w){text}(?!\w)", re.IGNORECASE) for text in expressions]
    return [sum(len(pattern.findall(text)) for text in matching) for pattern in patterns]
