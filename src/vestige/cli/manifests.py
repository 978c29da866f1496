"""The canaries of the verbs that measure a model on what was planted in its training text."""

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from vestige.cli.terminal import say
from vestige.workflows.sources import MANIFEST

if TYPE_CHECKING:
    from vestige.data.canary import Canary
    from vestige.data.manifest import Manifest
    from vestige.data.vocabulary import Vocabulary
    from vestige.models.protocols import NextToken


def load_canaries(path: Path, model: "NextToken") -> "tuple[Manifest, tuple[Canary, ...]]":
    """A sealed record, and its canaries as a model reads them.

    Controls that the model cannot read are left out, and counted on stderr: which words a
    vocabulary keeps is decided later than which words a control has.

    Args:
        path: a manifest, or the directory of `vestige plant` that holds one.
        model: whose ids the canaries shall have.

    Returns:
        (the record, its readable canaries, all with ids).

    Raises:
        ManifestError: it is missing, malformed, was changed, or holds no canary.
        IncompatibleModels: it was planted for another vocabulary.
        DataError: a planted canary has words that the model's vocabulary lacks, or every control
            has.
    """
    from vestige.data.manifest import Manifest
    from vestige.errors import IncompatibleModels, ManifestError

    file = path / MANIFEST if path.is_dir() else path
    sealed, vocabulary = Manifest.load(file), model.vocabulary
    if not sealed.canaries:
        raise ManifestError(
            f"{file} holds no canaries", remedy="Give a manifest that `vestige plant` wrote."
        )
    if sealed.vocabulary not in (None, vocabulary.fingerprint()):
        raise IncompatibleModels(
            f"{file} is the manifest of another model: its canaries were planted for another "
            "vocabulary than this model's",
            remedy="Give the manifest of the corpus that this model was trained on.",
        )
    controls = [canary for canary in sealed.canaries if canary.control]
    lost = {c.phrase for c in controls if not _is_readable(c, vocabulary)}
    if len(lost) == len(controls):
        lost = set()  # the first of them is then refused, by its number
    if lost:
        say(f"{len(lost)} of {len(controls)} controls have words that the model lacks: left out")
    read = [
        _read(file, number, canary, vocabulary)
        for number, canary in enumerate(sealed.canaries, 1)
        if canary.phrase not in lost
    ]
    return sealed, tuple(read)


def _is_readable(canary: "Canary", vocabulary: "Vocabulary") -> bool:
    ids = vocabulary.encode(canary.phrase)
    return bool(ids) and vocabulary.unk_id not in ids


def _read(file: Path, number: int, canary: "Canary", vocabulary: "Vocabulary") -> "Canary":
    from vestige.errors import DataError

    ids = tuple(vocabulary.encode(canary.phrase))
    unknown = sum(token == vocabulary.unk_id for token in ids)
    if unknown or not ids:  # the phrase itself is a secret
        raise DataError(
            f"canary {number} of {file} cannot be read: the model's vocabulary lacks {unknown} "
            f"of its {len(ids)} tokens",
            remedy="Plant with --vocabulary MODEL, or give the model trained on this planting.",
        )
    return replace(canary, ids=ids)
