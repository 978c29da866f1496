"""Where `plant` and `train` get labelled utterances from, and which of them validate."""

from collections.abc import Mapping
from os import PathLike, fspath
from pathlib import Path
from typing import TYPE_CHECKING, Any

from vestige.workflows.sources import MANIFEST

if TYPE_CHECKING:
    from vestige.data.secret_manifest import SecretManifest
    from vestige.data.utterances import Utterances, UtteranceSplits

HOLD_OUT = 0.1
"""What stands for `--hold-out` where nobody says which utterances validate."""


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
    given: Mapping[str, Any], *, planted: "SecretManifest | None" = None
) -> "tuple[Utterances, Utterances, Utterances | None]":
    """The utterances to train, to validate and, where DATA has some, to test on.

    Args:
        given: arguments of a verb, by name: where the utterances are, and how they are read.
        planted: tells which are canaries, and are not held out.

    Raises:
        ValueError: two options or DATA say both which utterances validate.
    """
    columns = {name: given[name] for name in ("tokens_column", "tags_column", "intent_column")}
    found = read(given["data"], format=given["format"], limit=given["limit"], **columns)
    file, fraction = given["validation"], given["hold_out"]
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
        seed=given["seed"],
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
