"""Checksums of JSON records and of their entries.

A record is sealed with SHA-256 over its canonical JSON, and each of its canaries with a seal of
its own, so that a reader learns not only that the record was changed but where.
"""

import hashlib
import json
from abc import ABC, abstractmethod
from pathlib import Path
from typing import Any, TypeVar

from vestige.data.atomic_write import write_text
from vestige.data.files import Schema, Sha256, conform, read_object
from vestige.errors import ManifestError

REMEDY = "Restore the file of `vestige plant`, or plant again."
_CHECKSUM, _ENTRIES = "sha256", "canaries"


class Checksummed(Schema):
    """Record or entry with a checksum over its other fields."""

    sha256: Sha256


AnyRecord = TypeVar("AnyRecord", bound=Checksummed)


def checksum(content: dict[str, Any]) -> str:
    """SHA-256 (hex) over content that JSON can hold, however it is laid out.

    Example:
        >>> checksum({"a": 1, "b": 2}) == checksum({"b": 2, "a": 1})
        True
    """
    canonical = json.dumps(content, sort_keys=True, ensure_ascii=True, separators=(",", ":"))
    return hashlib.sha256(canonical.encode()).hexdigest()


def write_record(path: Path, content: dict[str, Any]) -> None:
    """Write a record with its checksums as JSON, atomically.

    Args:
        path: of the file.
        content: `format`, `canaries` (a dictionary each) and anything else.
    """
    entries = [{**entry, _CHECKSUM: checksum(entry)} for entry in content[_ENTRIES]]
    sealed = {**content, _ENTRIES: entries, _CHECKSUM: checksum(content)}
    write_text(path, json.dumps(sealed, indent=2, ensure_ascii=False) + "\n")


def read_record(path: Path, schema: type[AnyRecord], *, format: str) -> AnyRecord:
    """Read a record, and verify its checksums and its schema.

    Args:
        path: a file of `write_record`.
        schema: what a record of this format has; its `canaries` are sealed, too.
        format: which format it must have.

    Raises:
        ManifestError: the file is missing, malformed, or was changed (naming which canary by its
            number: the text may be what somebody wants to keep).
    """
    content = read_object(path, error=ManifestError, remedy=REMEDY)
    if content.get("format") != format:
        raise ManifestError(
            f'{path} is no canary manifest: its "format" is not "{format}"', remedy=REMEDY
        )
    entries = content.get(_ENTRIES)
    if not isinstance(entries, list) or not all(isinstance(entry, dict) for entry in entries):
        raise malformed(path, f'"{_ENTRIES}" is no list of objects')
    _check(path, content, entries)
    return conform(content, schema, path, error=ManifestError, remedy=REMEDY)


class Sealed(ABC):
    """Record of a planting, as an object."""

    @property
    def sha256(self) -> str:
        """The seal: SHA-256 (hex) over the canonical content."""
        return checksum(self._content())

    def save(self, path: Path) -> None:
        """Write the sealed record as JSON, whole or not at all."""
        write_record(Path(path), self._content())

    @abstractmethod
    def _content(self) -> dict[str, Any]:
        """Content for `write_record`."""


def malformed(path: Path, reason: str) -> ManifestError:
    """Error for a record whose content does not follow its format."""
    return ManifestError(f"{path} is inconsistent: {reason}", remedy=REMEDY)


def not_there(problem: str) -> ManifestError:
    """Error for a corpus other than the one that a record describes."""
    return ManifestError(problem, remedy="Pass the corpus planted with this manifest, unchanged.")


def format_of(path: Path) -> str | None:
    """Format number of a record; None where no such record can be read."""
    try:
        named = read_object(path, error=ManifestError, remedy=REMEDY).get("format")
    except ManifestError:
        return None
    return named if isinstance(named, str) else None


def _check(path: Path, content: dict[str, Any], entries: list[dict[str, Any]]) -> None:
    bare = [_without_checksum(entry) for entry in entries]
    if content.get(_CHECKSUM) == checksum(_without_checksum({**content, _ENTRIES: bare})):
        return
    changed = [
        f"canary {number}"
        for number, (entry, own) in enumerate(zip(entries, bare, strict=True), 1)
        if entry.get(_CHECKSUM) != checksum(own)
    ]
    what = ", ".join(changed) or "its settings, or which canaries it lists"
    raise ManifestError(f"{path} was changed after it was written: {what}", remedy=REMEDY)


def _without_checksum(content: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in content.items() if name != _CHECKSUM}
