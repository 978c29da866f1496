"""Planted folders and labelled utterances as DATA of a verb.

The readers and manifests are imported when first needed, so that commands start quickly.
"""

from itertools import chain
from os import PathLike, fspath
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

if TYPE_CHECKING:
    from vestige.data.canaries.texts import Manifest
    from vestige.data.canaries.utterances import SecretManifest
    from vestige.data.utterances import Utterances, UtteranceSplits

    Source: TypeAlias = str | PathLike[str] | Utterances

CORPUS, MANIFEST = "corpus.jsonl", "manifest.json"
"""The files in a directory of `vestige plant`."""
TRAIN, VALIDATION, TEST = "train.jsonl", "validation.jsonl", "test.jsonl"
"""The parts in a directory of `vestige plant --task nlu`; the last two may be missing."""
HOLD_OUT = 0.1
"""Default share of the utterances for validation."""


def planted_manifest(source: str) -> "Manifest | None":
    """The manifest of a planted directory; None for any other source."""
    from vestige.data.canaries.texts import Manifest

    file = Path(source) / MANIFEST
    return Manifest.load(file) if file.is_file() else None


def planted_secrets(source: object) -> "SecretManifest | None":
    """The manifest of a folder of `vestige plant --task nlu`; None for any other source.

    Raises:
        ValueError: the folder holds running text with canaries.
        ManifestError: the manifest was changed.
    """
    from vestige.data.canaries.planting import format_of
    from vestige.data.canaries.utterances import SecretManifest

    file = Path(source) / MANIFEST if isinstance(source, str | PathLike) else None
    if file is None or not file.is_file():
        return None
    if format_of(file) not in (SecretManifest.FORMAT, None):
        raise ValueError(
            f"{source} is text with canaries, not labelled utterances. Plant with --task nlu"
        )
    return SecretManifest.load(file)


def read_parts(source: "Source", **reading: Any) -> "UtteranceSplits":
    """The parts of a file or folder; loaded utterances are a training part."""
    from vestige.data.formats.utterances import read_utterances
    from vestige.data.utterances import UtteranceSplits

    if isinstance(source, str | PathLike):
        return read_utterances(fspath(source), **reading)
    return UtteranceSplits(train=source)


def utterance_parts(
    data: "Source",
    *,
    validation: "Source | None" = None,
    hold_out: float | None = None,
    seed: int,
    planted: "SecretManifest | None" = None,
    **reading: Any,
) -> "tuple[Utterances, Utterances, Utterances | None]":
    """(training, validation, test) utterances; test is None if DATA has none.

    Args:
        data: a path, or utterances.
        validation: validation utterances, if DATA has no such part.
        hold_out: share of DATA for validation otherwise; None: a tenth.
        seed: random seed of the choice of that share.
        planted: its canaries stay in the training part.
        **reading: format, limit and columns of `read_utterances`.

    Raises:
        ValueError: the validation part is given twice.
    """
    parts = read_parts(data, **reading)
    if validation is not None and hold_out is not None:
        raise ValueError("`validation` and `hold_out` must not be given together: choose one")
    if parts.validation is not None:
        if validation is not None or hold_out is not None:
            name = "hold_out" if validation is None else "validation"
            raise ValueError(f"`{name}` must be left out: DATA has its own validation part")
        return parts.train, parts.validation, parts.test
    if validation is not None:
        columns = {name: value for name, value in reading.items() if name.endswith("_column")}
        return parts.train, read_parts(validation, **columns).train, parts.test
    copies = chain.from_iterable(planted.train_positions) if planted else ()
    keep = [index for index in copies if index < len(parts.train)]
    share = HOLD_OUT if hold_out is None else hold_out
    return *parts.train.split(share, seed=seed, keep=keep), parts.test
