"""Arguments of a workflow: a path is read, an object that is loaded stands for itself."""

from collections.abc import Sequence
from os import PathLike, fspath
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

from vestige.data.regular_file import read_lines as read_lines
from vestige.data.sources import read_source

if TYPE_CHECKING:
    from vestige.data.corpus import Corpus
    from vestige.data.manifest import Manifest
    from vestige.data.secret_manifest import SecretManifest
    from vestige.data.utterances import Utterances
    from vestige.data.vocabulary import Vocabulary
    from vestige.models.protocols import LanguageModel
    from vestige.models.white_box import IntentSlotNetwork

    IntentSlotLike: TypeAlias = str | PathLike[str] | IntentSlotNetwork
    IntentSlotModels: TypeAlias = IntentSlotLike | Sequence[IntentSlotLike]
    ManifestLike: TypeAlias = str | PathLike[str] | Manifest
    SecretManifestLike: TypeAlias = str | PathLike[str] | SecretManifest
    TextLike: TypeAlias = str | PathLike[str] | Corpus | Utterances
    VocabularyLike: TypeAlias = str | PathLike[str] | LanguageModel | Vocabulary
    Lines: TypeAlias = str | PathLike[str] | Sequence[str]
    Several: TypeAlias = str | Sequence[str]
else:  # as a command line gives them
    IntentSlotLike = TextLike = str
    IntentSlotModels = Sequence[str]
    ManifestLike = SecretManifestLike = VocabularyLike = Path
    Lines = Path
    """A file with one entry a line, or the entries."""
    Several = Sequence[str]
    """One text, or several."""


def open_model(model: "str | PathLike[str] | LanguageModel", *, device: str) -> "LanguageModel":
    """A language model in evaluation mode."""
    from vestige.models.checkpoints import load_model

    if isinstance(model, str | PathLike):
        return load_model(fspath(model), device=device)
    return model.eval()


def open_generator(model: "str | PathLike[str] | LanguageModel", *, device: str) -> Any:
    """A model of next words, of translation or of dialogue, in evaluation mode.

    Raises:
        ModelError: it cannot be read, or generates no text.
    """
    from vestige.errors import AccessDenied, ModelError
    from vestige.models.checkpoints import load_seq2seq

    try:
        return open_model(model, device=device)
    except AccessDenied as refused:
        try:
            return load_seq2seq(str(model), device=device)
        except ModelError:
            raise refused from None


def open_intent_slot(
    model: "str | PathLike[str] | IntentSlotNetwork", *, device: str
) -> "IntentSlotNetwork":
    """An intent-and-slot model in evaluation mode."""
    from vestige.models.checkpoints import load_intent_slot

    if isinstance(model, str | PathLike):
        return load_intent_slot(fspath(model), device=device)
    return model.eval()


def open_corpus(data: "str | PathLike[str] | Corpus", **columns: Any) -> "Corpus":
    """A corpus; `columns` are the settings of `read_source`, which reads a path."""
    return read_source(fspath(data), **columns) if isinstance(data, str | PathLike) else data


def several(given: str | Sequence[str]) -> tuple[str, ...]:
    """One text or several as a tuple."""
    return (given,) if isinstance(given, str) else tuple(given)


def shown(given: object) -> str:
    """A path, or the class of what else was given, for provenance."""
    return fspath(given) if isinstance(given, str | PathLike) else f"<{type(given).__name__}>"
