"""The canaries of the verbs that measure a model on what was planted in its training text."""

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from vestige.cli.sources import MANIFEST

if TYPE_CHECKING:
    from vestige.data.canary import Canary
    from vestige.data.manifest import Manifest
    from vestige.data.vocabulary import Vocabulary
    from vestige.models.protocols import NextToken


def load_canaries(path: Path, model: "NextToken") -> "tuple[Manifest, tuple[Canary, ...]]":
    """A sealed record, and its canaries as a model reads them.

    Args:
        path: a manifest, or the directory of `vestige plant` that holds one.
        model: whose ids the canaries shall have.

    Returns:
        (the record, its canaries, all with ids).

    Raises:
        ManifestError: it is missing, malformed, was changed, or holds no canary.
        IncompatibleModels: it was planted for another vocabulary.
        DataError: a canary has words that the model's vocabulary lacks.
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
    read = [
        _read(file, number, canary, vocabulary) for number, canary in enumerate(sealed.canaries, 1)
    ]
    return sealed, tuple(read)


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
