"""Has anybody changed a record since it was written?

A record is sealed with SHA-256 over its canonical JSON, and each of its canaries with a seal of
its own, so that a reader learns not only that the record was changed but where.
"""

import hashlib
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

from vestige.data.whole_file import write_text
from vestige.errors import ManifestError

REMEDY = "Restore the file that `vestige plant` wrote, or plant again."
_SEAL, _ENTRIES = "sha256", "canaries"


def seal(content: dict[str, Any]) -> str:
    """SHA-256 (hex) over content that JSON can hold, however it is laid out.

    Example:
        >>> seal({"a": 1, "b": 2}) == seal({"b": 2, "a": 1})
        True
    """
    canonical = json.dumps(content, sort_keys=True, ensure_ascii=True, separators=(",", ":"))
    return hashlib.sha256(canonical.encode()).hexdigest()


def write_sealed(path: Path, content: dict[str, Any]) -> None:
    """Write a record and its seals as JSON, whole or not at all.

    Args:
        path: where it shall stand.
        content: `format`, `canaries` (a dictionary each) and anything else.
    """
    entries = [{**entry, _SEAL: seal(entry)} for entry in content[_ENTRIES]]
    sealed = {**content, _ENTRIES: entries, _SEAL: seal(content)}
    write_text(path, json.dumps(sealed, indent=2, ensure_ascii=False) + "\n")


def read_sealed(
    path: Path, *, format: str, label: Callable[[dict[str, Any]], str]
) -> dict[str, Any]:
    """The content of a record whose seals hold.

    Args:
        path: what `write_sealed` wrote.
        format: which format it must have.
        label: what to call an entry that was changed.

    Raises:
        ManifestError: the file is missing, malformed, or was changed (naming what).
    """
    content = _read(path, format)
    try:
        whole = content.pop(_SEAL)
        seals = [entry.pop(_SEAL) for entry in content[_ENTRIES]]
        _check(path, content, whole, seals, label)
    except (KeyError, TypeError, AttributeError) as error:
        raise malformed(path, error) from error
    return content


def malformed(path: Path, error: Exception) -> ManifestError:
    """What to raise where a record's content is not what its format says."""
    return ManifestError(
        f"{path} lacks an entry or has one of the wrong kind: {error!r}", remedy=REMEDY
    )


def not_there(problem: str) -> ManifestError:
    """What to raise where a corpus is not the one that a record tells of."""
    return ManifestError(
        problem, remedy="Give the corpus that was planted with this manifest, unchanged."
    )


def format_of(path: Path) -> str | None:
    """Which format a record says it has; None where no such record can be read."""
    try:
        content = json.loads(path.read_bytes())
    except (OSError, ValueError, RecursionError):
        return None
    named = content.get("format") if isinstance(content, dict) else None
    return named if isinstance(named, str) else None


def _read(path: Path, format: str) -> dict[str, Any]:
    try:
        content = json.loads(path.read_bytes())
    except OSError as error:
        raise ManifestError(
            f"{path} cannot be read: {error.strerror}",
            remedy="Name the manifest that `vestige plant` wrote.",
        ) from error
    except (ValueError, RecursionError) as error:
        raise ManifestError(f"{path} is not JSON: {error}", remedy=REMEDY) from error
    if not isinstance(content, dict) or content.get("format") != format:
        raise ManifestError(
            f'{path} is no canary manifest: its "format" is not "{format}"', remedy=REMEDY
        )
    return content


def _check(
    path: Path,
    content: dict[str, Any],
    whole: str,
    seals: list[str],
    label: Callable[[dict[str, Any]], str],
) -> None:
    if seal(content) == whole:
        return
    changed = [
        f"canary {number} ({label(entry)})"
        for number, (entry, own) in enumerate(zip(content[_ENTRIES], seals, strict=True), 1)
        if seal(entry) != own
    ]
    what = ", ".join(changed) or "its settings, or which canaries it lists"
    raise ManifestError(f"{path} was changed after it was sealed: {what}", remedy=REMEDY)
