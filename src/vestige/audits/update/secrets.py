"""Listed secrets: scored by themselves, and looked for in everything that a search generates."""

import re
from collections.abc import Iterator, Sequence
from os import PathLike
from typing import TYPE_CHECKING

from vestige.attacks.exposure.own_secrets import read_own_secrets
from vestige.attacks.manifests import load_canaries, manifest_file
from vestige.attacks.update.known_phrases import Asked
from vestige.data.canary import SAMPLED, Canary
from vestige.data.secret_shapes import Part, Secret
from vestige.monitor import Monitor

if TYPE_CHECKING:
    from vestige.arguments import Lines
    from vestige.models.protocols import LanguageModel

MOST = 10_000
"""Secrets in a list."""


def read_secrets(
    secrets: "Lines | None", model: "LanguageModel", *, room: int, monitor: Monitor
) -> tuple[Asked, ...]:
    """Secrets as a model reads them.

    Args:
        secrets: texts, a file with one per line, or a manifest with planted canaries.
        model: its vocabulary reads them.
        room: tokens that may precede them.
        monitor: gets a line about secrets that are left out.

    Raises:
        ValueError: one is too long or has unknown words, or there are too many or none.
        VestigeError: the file cannot be read.
    """
    if secrets is None:
        return ()
    listed = _listed(secrets, model, monitor)
    if len(listed) > MOST:
        raise ValueError(f"`secrets` must be at most {MOST:,} phrases, got {len(listed):,}")
    if not listed:
        raise ValueError("`secrets` must hold a planted canary, got none")
    vocabulary, longest = model.vocabulary, getattr(model, "longest", None)
    read = []
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
        read.append(asked)
    return tuple(read)


def _listed(secrets: "Lines", model: "LanguageModel", monitor: Monitor) -> tuple[Secret, ...]:
    """Secrets of a list, or a manifest's planted canaries."""
    if isinstance(secrets, str | PathLike):
        file = manifest_file(secrets)
        if file.suffix.lower() == ".json":
            _, canaries = load_canaries(file, model, monitor)
            return tuple(_planted(canaries))
    return read_own_secrets(secrets, monitor=monitor).secrets


def _planted(canaries: Sequence[Canary]) -> Iterator[Secret]:
    """Planted canaries; each word could have been any word of a canary."""
    words = {word: None for canary in canaries for word in canary.phrase.split()}
    planted = [canary for canary in canaries if not canary.control]
    for number, canary in enumerate(planted, 1):
        own = tuple(re.split(r"( )", canary.phrase))
        slots = tuple((word,) if word == " " else tuple(words) for word in own)
        sampled = canary.pattern not in ("given", SAMPLED)
        kind = "given" if sampled else "words"
        part = Part(0, len(canary.phrase), kind, slots, own, drawn=sampled)
        yield Secret(canary.phrase, (part,), number)
