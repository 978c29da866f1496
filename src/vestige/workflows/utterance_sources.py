"""Where `plant` and `train` get labelled utterances from, and which of them validate."""

from dataclasses import dataclass
from os import PathLike, fspath
from pathlib import Path
from typing import TYPE_CHECKING, Any

from vestige.data.sources import MANIFEST

if TYPE_CHECKING:
    from vestige.data.secret_manifest import SecretManifest
    from vestige.data.utterances import Utterances, UtteranceSplits

HOLD_OUT = 0.1
"""What stands for `--hold-out` where nobody says which utterances validate."""


@dataclass(frozen=True, kw_only=True)
class Sources:
    """Where the utterances are; None where an option was not given."""

    data: "str | PathLike[str] | Utterances"
    format: str = "auto"
    columns: tuple[str, str, str] = ("tokens", "tags", "intent")
    limit: int | None = None
    validation: "str | PathLike[str] | Utterances | None" = None
    hold_out: float | None = None


def secrets_of(source: object) -> "SecretManifest | None":
    """The manifest of a directory of `vestige plant --task nlu`; None where DATA is another.

    Raises:
        ValueError: DATA is a directory in which canaries of text were planted.
        ManifestError: the manifest was changed.
    """
    from vestige.data.checksum import format_of
    from vestige.data.secret_manifest import FORMAT, SecretManifest

    if not isinstance(source, str | PathLike):
        return None
    file = Path(source) / MANIFEST
    if not file.is_file():
        return None
    if format_of(file) not in (FORMAT, None):
        raise ValueError(
            f"DATA must be planted with --task nlu too, got {source}, whose {MANIFEST} tells of "
            "something else"
        )
    return SecretManifest.load(file)


def read_parts(
    sources: Sources, seed: int, *, planted: "SecretManifest | None" = None
) -> "tuple[Utterances, Utterances, Utterances | None]":
    """The utterances to train, to validate and, where DATA has some, to test on.

    Raises:
        ValueError: two options or DATA say both which utterances validate.
        DataError: something cannot be read.
    """
    names = zip(("tokens_column", "tags_column", "intent_column"), sources.columns, strict=True)
    columns = dict(names)
    found = read(sources.data, format=sources.format, limit=sources.limit, **columns)
    file, fraction = sources.validation, sources.hold_out
    if file is not None and fraction is not None:
        raise ValueError("`validation` and `hold_out` must not be given together: choose one")
    if found.validation is not None:
        if file is not None or fraction is not None:
            name = "hold_out" if file is None else "validation"
            raise ValueError(f"`{name}` must be left out: DATA has a validation part of its own")
        return found.train, found.validation, found.test
    if file is not None:
        return found.train, read(file, **columns).train, found.test
    # A canary is learnt as often as its manifest says.
    canaries = [place for own in planted.train_positions for place in own] if planted else []
    train, validation = found.train.split(
        HOLD_OUT if fraction is None else fraction,
        seed=seed,
        keep=[place for place in canaries if place < len(found.train)],
    )
    return train, validation, found.test


def read(source: "str | PathLike[str] | Utterances", **options: Any) -> "UtteranceSplits":
    """Utterances that are loaded as a training part, or see `read_utterances`."""
    from vestige.data.loaders.utterances import read_utterances
    from vestige.data.utterances import UtteranceSplits

    if isinstance(source, str | PathLike):
        return read_utterances(fspath(source), **options)
    return UtteranceSplits(train=source, validation=None, test=None)
