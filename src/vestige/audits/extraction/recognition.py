"""What WHAT is: canaries, secrets of utterances, secrets of yours, or texts."""

import json
from os import PathLike
from pathlib import Path
from typing import Any, Literal

from vestige.data.sources import MANIFEST
from vestige.errors import ManifestError

Kind = Literal["canaries", "secrets", "texts", "utterances", "pattern"]
ReadAs = Literal["auto", "secrets", "texts"]

KINDS: dict[Kind, str] = {
    "canaries": "a manifest of canaries",
    "secrets": "a file with one secret per line",
    "texts": "texts",
    "utterances": "a manifest of utterances",
    "pattern": "`pattern`",
}
"""Each kind in words, for messages."""

_FIRST = 2**20
"""Bytes of a JSON file that are looked at."""


def recognized(what: Any, as_: ReadAs) -> Kind:
    """The kind of WHAT.

    A manifest, or a folder with one, is recognized by its format. A text file, and a list, hold one
    secret per line; any other file or folder holds texts. `as_` decides where it is given.

    Raises:
        ValueError: `as_` does not fit an object.
        ManifestError: the manifest is missing.
    """
    from vestige.data.corpus import Corpus
    from vestige.data.manifest import Manifest
    from vestige.data.secret_manifest import SecretManifest

    if isinstance(what, Corpus):
        return _as("texts", as_)
    if isinstance(what, Manifest):
        return _as("canaries", as_)
    if isinstance(what, SecretManifest):
        return _as("utterances", as_)
    if as_ != "auto":
        return as_
    if not isinstance(what, str | PathLike):
        return "secrets"
    path = Path(what)
    manifest = _manifest(path)
    if manifest is not None:
        return _of_manifest(manifest)
    return "secrets" if _is_list(path) else "texts"


def _as(kind: Kind, as_: ReadAs) -> Kind:
    if as_ not in ("auto", kind):
        raise ValueError(f"`as_` {as_} does not fit `what`, which is {KINDS[kind]}")
    return kind


def _manifest(path: Path) -> Path | None:
    """The manifest that a path names, or that lies in a folder; None for anything else."""
    if path.is_dir():
        file = path / MANIFEST
        return file if file.exists() else None
    named = path.name == MANIFEST or (path.suffix == ".json" and not _is_table(path))
    return path if named else None


def _of_manifest(file: Path) -> Kind:
    from vestige.data.checksum import REMEDY, format_of
    from vestige.data.regular_file import require_regular
    from vestige.data.secret_manifest import FORMAT

    require_regular(file, error=ManifestError, remedy=REMEDY)
    return "utterances" if format_of(file) == FORMAT else "canaries"


def _is_list(path: Path) -> bool:
    """Whether a path names a plain text file: `.txt`, or a name without an ending."""
    return path.suffix == ".txt" or (path.is_file() and not path.suffix)


def _is_table(file: Path) -> bool:
    """Whether a JSON file holds a table, one object per line; a manifest spans several lines."""
    try:
        with file.open("rb") as opened:
            first = json.loads(opened.readline(_FIRST))
    except (OSError, ValueError, RecursionError):
        return False
    return isinstance(first, dict) and "canaries" not in first
