"""Phrases that must not leak, as a verb is given them: a file, a manifest, or texts."""

import re
from collections.abc import Iterator, Sequence
from os import PathLike
from typing import TYPE_CHECKING

from vestige.attacks.manifests import load_canaries, manifest_file
from vestige.monitor import Monitor

if TYPE_CHECKING:
    from vestige.attacks.update.known_phrases import Asked
    from vestige.data.canary import Canary
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
    listed = _listed(secrets, model, monitor)
    if len(listed) > MOST:
        raise ValueError(f"`secrets` must be at most {MOST:,} phrases, got {len(listed):,}")
    vocabulary, longest = model.vocabulary, getattr(model, "longest", None)
    found = []
    for secret in listed:
        asked = Asked.of(secret.text, vocabulary, number=secret.number, secret=secret)
        if vocabulary.unk_id is not None and vocabulary.unk_id in asked.first:
            raise ValueError(
                "`secrets` must hold only words of the models' vocabulary, got others in entry "
                f"{secret.number}"
            )
        if longest is not None and asked.longest + room > longest:
            raise ValueError(
                f"`secrets` must hold phrases of at most {longest - room} tokens, got "
                f"{asked.longest} in entry {secret.number}"
            )
        found.append(asked)
    if not found:
        raise ValueError("`secrets` must hold a planted canary, got none")
    return tuple(found)


def _listed(secrets: "Lines", model: "LanguageModel", monitor: Monitor) -> "tuple[Secret, ...]":
    """Secrets of a list, or a manifest's planted canaries."""
    from vestige.attacks.exposure.own_secrets import read_own_secrets

    if isinstance(secrets, str | PathLike):
        file = manifest_file(secrets)
        if file.suffix.lower() == ".json":
            _, canaries = load_canaries(file, model, monitor)
            return tuple(_planted(canaries))
    return read_own_secrets(secrets, monitor=monitor).secrets


def _planted(canaries: "Sequence[Canary]") -> "Iterator[Secret]":
    """Planted canaries; any word of a canary could have been in another one's place."""
    from vestige.data.canary import SAMPLED
    from vestige.data.secret_shapes import Part, Secret

    words = {word: None for canary in canaries for word in canary.phrase.split()}
    planted = [canary for canary in canaries if not canary.control]
    for number, canary in enumerate(planted, 1):
        own = tuple(re.split(r"( )", canary.phrase))
        slots = tuple((word,) if word == " " else tuple(words) for word in own)
        drawn = canary.pattern not in ("given", SAMPLED)
        kind = "given" if drawn else "words"
        part = Part(0, len(canary.phrase), kind, slots, own, drawn=drawn)
        yield Secret(canary.phrase, (part,), number)
