"""The kind of WHAT, and the options that go with each kind."""

import json
from collections.abc import Mapping
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

_SEARCH = ("search_budget", "rank_sample")
OPTIONS: dict[Kind, tuple[str, ...]] = {
    "canaries": ("prefix", "beam"),
    "secrets": ("question", "beam"),
    "texts": (
        *("prefix", "suffix", "reference", "samples", "probability", "top_k", "temperature"),
        *("statistics", "remote", "format", "text", "author", "limit"),
    ),
    "utterances": ("controls", *_SEARCH),
    "pattern": ("pattern", "intent", "slot", "candidates", "truth", *_SEARCH),
}
"""Options of each kind; all other options go with every kind."""


def recognize(what: Any, as_: ReadAs) -> Kind:
    """The kind of WHAT.

    A manifest, or a folder with one, is recognized by its format. A .txt file or a list holds one
    secret per line; any other file or folder holds texts. `as_` overrides this.

    Raises:
        ValueError: `as_` does not fit an object.
        ManifestError: the manifest is missing.
    """
    from vestige.data.canaries.texts import Manifest
    from vestige.data.canaries.utterances import SecretManifest
    from vestige.data.corpus import Corpus

    objects: dict[type, Kind] = {
        Corpus: "texts", Manifest: "canaries", SecretManifest: "utterances"
    }  # fmt: skip
    for type_, kind in objects.items():
        if isinstance(what, type_):
            if as_ not in ("auto", kind):
                raise ValueError(f"`as_` {as_} does not fit `what`, which is {KINDS[kind]}")
            return kind
    if as_ != "auto":
        return as_
    if not isinstance(what, str | PathLike):
        return "secrets"
    path = Path(what)
    if path.is_dir():
        manifest = path / MANIFEST
        return _manifest_kind(manifest) if manifest.exists() else "texts"
    if _is_manifest(path):
        return _manifest_kind(path)
    return "secrets" if path.suffix == ".txt" or (path.is_file() and not path.suffix) else "texts"


def _is_manifest(path: Path) -> bool:
    """Whether a path names a manifest, or a JSON file other than a table of one object a line."""
    if path.name == MANIFEST or path.suffix != ".json":
        return path.name == MANIFEST
    try:
        with path.open("rb") as file:
            first = json.loads(file.readline(2**20))
    except (OSError, ValueError, RecursionError):
        return True
    return not isinstance(first, dict) or "canaries" in first


def _manifest_kind(file: Path) -> Kind:
    from vestige.data.canaries.planting import REMEDY, format_of
    from vestige.data.canaries.utterances import SecretManifest
    from vestige.data.files import require_regular

    require_regular(file, error=ManifestError, remedy=REMEDY)
    return "utterances" if format_of(file) == SecretManifest.FORMAT else "canaries"


def reject_other_options(
    kind: Kind, arguments: Mapping[str, Any], defaults: Mapping[str, Any]
) -> None:
    """Raise ValueError for an option that was given and does not go with WHAT."""
    for name, value in arguments.items():
        kinds = [option_kind for option_kind, names in OPTIONS.items() if name in names]
        default = defaults[name]
        if not kinds or kind in kinds or value == default or not (value or default):
            continue
        if name == "remote":
            value.reject_for_local()
        needed = " or ".join(map(KINDS.__getitem__, kinds))
        may_be_texts = kind == "secrets" and "texts" in kinds
        hint = ". Pass `as_` texts if it is a corpus" if may_be_texts else ""
        raise ValueError(f"`{name}` needs {needed}, and `what` is {KINDS[kind]}{hint}")
