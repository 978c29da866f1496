"""Phrases that must not leak, as a verb is given them: a file, a manifest, or texts."""

from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING

from vestige.monitor import Monitor
from vestige.workflows.inputs import read_lines
from vestige.workflows.manifests import load_canaries, manifest_file

if TYPE_CHECKING:
    from vestige.attacks.update.known_phrases import Asked
    from vestige.data.secret_shapes import Secret
    from vestige.models.protocols import LanguageModel
    from vestige.workflows.inputs import Lines

MOST = 10_000


def read_secrets(
    secrets: "Lines | None", model: "LanguageModel", *, room: int, monitor: Monitor
) -> "tuple[Asked, ...]":
    """Phrases as a model reads them.

    Args:
        secrets: texts, a file with one a line, or a manifest whose planted canaries they are.
        model: its vocabulary reads them.
        room: tokens that stand before them at most.
        monitor: told of what is left out.

    Raises:
        ValueError: one is too long or has words that the model does not know, or they are too many.
        VestigeError: the file cannot be read.
    """
    from vestige.attacks.update.known_phrases import Asked

    if secrets is None:
        return ()
    texts = _texts(secrets, model, monitor)
    if len(texts) > MOST:
        raise ValueError(f"`secrets` must be at most {MOST:,} phrases, got {len(texts):,}")
    vocabulary, longest = model.vocabulary, getattr(model, "longest", None)
    found = []
    for number, text in texts.items():
        secret = _secret(text, number)
        phrase = text if secret is None else secret.text
        asked = Asked.of(phrase, vocabulary, number=number, secret=secret)
        if vocabulary.unk_id is not None and vocabulary.unk_id in asked.first:
            raise ValueError(
                "`secrets` must hold only words of the models' vocabulary, got others in entry "
                f"{number}"
            )
        if longest is not None and asked.longest + room > longest:
            raise ValueError(
                f"`secrets` must hold phrases of at most {longest - room} tokens, got "
                f"{asked.longest} in entry {number}"
            )
        found.append(asked)
    if not found:
        raise ValueError("`secrets` must hold one phrase at least, got none")
    return tuple(found)


def _secret(line: str, number: int) -> "Secret | None":
    """A line with what of it varies; None where nothing is known to."""
    from vestige.data.secret_shapes import read_secret
    from vestige.errors import DataError

    try:
        return read_secret(line, number)
    except DataError:
        return None


def _texts(secrets: "Lines", model: "LanguageModel", monitor: Monitor) -> dict[int, str]:
    """Phrases by their number: of the line, of the text, or among a manifest's canaries."""
    if not isinstance(secrets, str | PathLike):
        return {n: text for n, text in enumerate(secrets, 1) if text.strip()}
    file = manifest_file(secrets)
    if file.suffix.lower() == ".json":
        _, canaries = load_canaries(file, model, monitor)
        planted = [canary.phrase for canary in canaries if not canary.control]
        return dict(enumerate(planted, 1))
    lines = read_lines(Path(secrets), one="phrase")
    return {n: line for n, line in enumerate(lines, 1) if line.strip()}
