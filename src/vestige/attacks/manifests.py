"""Manifests of planted canaries, the canaries as a model reads them, and checks of the model."""

import json
from collections.abc import Container, Iterator, Sequence
from dataclasses import replace
from itertools import islice
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING

from vestige.data.sources import CORPUS, MANIFEST
from vestige.errors import DataError, IncompatibleModels
from vestige.monitor import SILENT, Monitor

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from vestige.claims import Check
    from vestige.data.canary import Canary
    from vestige.data.manifest import Manifest, Role
    from vestige.data.secret_manifest import SecretManifest
    from vestige.data.vocabulary import Vocabulary
    from vestige.models.protocols import NextToken

TEXTS, LENGTH = 64, 64
"""Texts of the corpus, and tokens of each, on which a model is compared with word frequencies."""

FEWEST_TEXTS, LINES = 8, 1000
"""With fewer texts the model's own samples are read; lines of the corpus that are tried."""


def manifest_file(path: "str | PathLike[str]") -> Path:
    """The manifest that a path names: the file itself, or the one in a planted directory."""
    return Path(path) / MANIFEST if Path(path).is_dir() else Path(path)


def load_canaries(
    manifest: "str | PathLike[str] | Manifest", model: "NextToken", monitor: Monitor = SILENT
) -> "tuple[Manifest, tuple[Canary, ...]]":
    """A manifest, and its canaries with the ids of a model's vocabulary.

    Controls with words that the vocabulary lacks are left out and counted in the log: which words
    a vocabulary keeps is decided later than which words a control has.

    Args:
        manifest: a `Manifest`, its file, or the directory of `vestige plant` that holds one.

    Raises:
        ManifestError: it is missing, malformed, was changed, or holds no canary.
        IncompatibleModels: it was planted for another vocabulary.
        DataError: a planted canary, or every control, has words that the vocabulary lacks.
    """
    from vestige.data.manifest import Manifest
    from vestige.errors import ManifestError

    if isinstance(manifest, Manifest):
        where, sealed = "the manifest", manifest
    else:
        file = manifest_file(manifest)
        where, sealed = str(file), Manifest.load(file)
    vocabulary = model.vocabulary
    if not sealed.canaries:
        raise ManifestError(
            f"{where} has no canaries", remedy="Pass a manifest of `vestige plant`."
        )
    if sealed.vocabulary not in (None, vocabulary.fingerprint()):
        raise IncompatibleModels(
            f"{where} belongs to another model: its canaries were planted for another vocabulary",
            remedy="Pass the manifest of the model's training corpus.",
        )
    controls = [canary for canary in sealed.canaries if canary.control]
    lost = {c.phrase for c in controls if not _is_readable(c, vocabulary)}
    if len(lost) == len(controls):
        lost = set()  # the first of them is then refused, by its number
    if lost:
        monitor.log(
            f"{len(lost)} of {len(controls)} controls left out: the model lacks their words"
        )
    read = [
        _read(where, number, canary, vocabulary)
        for number, canary in enumerate(sealed.canaries, 1)
        if canary.phrase not in lost
    ]
    return sealed, tuple(read)


def canary_ids(number: int, canary: "Canary", vocabulary: "Vocabulary") -> tuple[int, ...]:
    """The token ids of a canary. Errors name its number, since its words are secret.

    Raises:
        DataError: the vocabulary lacks a word of it.
        IncompatibleModels: it was planted for another vocabulary.
    """
    ids = tuple(vocabulary.encode(canary.phrase))
    if not ids or vocabulary.unk_id in ids:
        raise DataError(
            f"canary {number} has words that the model's vocabulary of {len(vocabulary)} tokens "
            "lacks",
            remedy="Plant with --vocabulary, or pass the model trained on these canaries.",
        )
    if canary.ids and canary.ids != ids:
        raise IncompatibleModels(
            f"canary {number} was planted for another vocabulary",
            remedy="Pass the manifest of the model's own training text.",
        )
    return ids


def canary_scores(model: "NextToken", canaries: "Sequence[Canary]") -> "NDArray[np.float64]":
    """(n,) log-probability of each whole canary, in nats."""
    from vestige.models.predictions import text_log_probs

    numbered = enumerate(canaries, start=1)
    return text_log_probs(model, [canary_ids(n, one, model.vocabulary) for n, one in numbered])


def canary_checks(
    model: "NextToken",
    manifest: "str | PathLike[str] | Manifest",
    sealed: "Manifest",
    *,
    readable: int,
    seed: int = 0,
    useless: str | None = None,
) -> "tuple[Check, ...]":
    """The checks "alive" and "read", and "different" of an adapter against its base.

    Args:
        model: as it was loaded, without the prefix of a chat template.
        manifest: as it was given. The model is read on the corpus beside its file, if there is one.
        sealed: the same, loaded.
        readable: canaries and controls that the model's vocabulary holds.
        seed: of the texts that the model samples if there is no corpus.
        useless: what the training itself says against the model, if anything.
    """
    from vestige import claims
    from vestige.attacks.model_checks import adapter_check, alive_by_samples
    from vestige.models.predictions import log_probs_of

    texts = [] if not isinstance(manifest, str | PathLike) else _texts_beside(manifest, sealed)
    longest = min(LENGTH, (getattr(model, "longest", None) or LENGTH) - 1)
    ids = [read[:longest] for read in model.vocabulary.encode_batch(texts) if len(read) > 1]
    if useless is not None:
        alive = claims.Check("alive", "failed", useless)
    elif len(ids) < FEWEST_TEXTS:
        alive = alive_by_samples(model, seed=seed)
    else:
        alive = claims.alive(log_probs_of(model, ids), ids, who="the model")
    read = claims.read(readable, len(sealed.canaries), what="the canaries and controls")
    adapter = adapter_check(model, seed=seed)
    return (alive, read) if adapter is None else (alive, read, adapter)


def _texts_beside(manifest: "str | PathLike[str]", sealed: "Manifest") -> list[str]:
    """Texts of the corpus beside a manifest without canaries; none if it cannot be read."""
    try:
        corpus = manifest_file(manifest).parent / CORPUS
        return list(islice(_unplanted(corpus, set(sealed.places)), TEXTS))
    except (OSError, ValueError):
        return []


def _unplanted(corpus: Path, planted: Container[int]) -> Iterator[str]:
    with corpus.open(encoding="utf-8") as file:
        for number, line in enumerate(islice(file, LINES)):
            row = json.loads(line)
            text = row.get("text") if isinstance(row, dict) else None
            if number not in planted and isinstance(text, str) and text:
                yield text


def asked_as_learnt(model: "NextToken", manifest: "Manifest") -> "NextToken":
    """The model, behind what its chat template says before the turn that the canaries were.

    Raises:
        DataError: the canaries are turns of conversations, and there is no template to put them in.
    """
    turn = manifest.turn
    return model if turn is None else in_turn(model, turn.role, turn.question)


def in_turn(model: "NextToken", role: "Role", question: str) -> "NextToken":
    """The model, behind what its chat template says before a turn.

    Args:
        model: with a tokenizer that has a template.
        role: whose turn it is.
        question: what the user says before, where it is the assistant's.

    Raises:
        DataError: there is no template, or none that can be used.
    """
    from vestige.data.chat_template import assistant_turn, users_turn
    from vestige.models.behind import Behind

    template = template_of(model)
    if template is None:
        raise DataError(
            "a turn of a conversation needs a chat template; the tokenizer has none",
            remedy="Pass the model with its tokenizer.",
        )
    if role == "assistant":
        before = assistant_turn(*template, message=question)
    else:
        around = users_turn(*template)
        if around is None:
            raise DataError(
                "the chat template does not contain the user's text exactly once",
                remedy="Plant the canaries in the assistant's turn.",
            )
        before = around[0]
    ids = list(model.vocabulary.encode(before))
    begun = ids[:1] == [getattr(model, "first_token", None)]  # which every text begins with
    return Behind(model, ids[begun:] if len(ids) > 1 else ids, anywhere=not begun)


def template_of(model: "NextToken") -> tuple[str, dict[str, str]] | None:
    """The chat template of a model's tokenizer with its special tokens; None where it has none."""
    tokenizer = getattr(model.vocabulary, "tokenizer", None)
    source = getattr(tokenizer, "chat_template", None)
    if isinstance(source, dict):  # several, by name
        source = source.get("default")
    if not isinstance(source, str):
        return None
    named = getattr(tokenizer, "special_tokens_map", {})
    return source, {name: token for name, token in named.items() if isinstance(token, str)}


def load_secrets(manifest: "str | PathLike[str] | SecretManifest") -> "SecretManifest":
    """A manifest of secrets in labelled utterances.

    Args:
        manifest: a `SecretManifest`, its file, or the directory of `vestige plant --task nlu`.

    Raises:
        ManifestError: it is missing, malformed, was changed, or is one of running text.
    """
    from vestige.data.checksum import format_of
    from vestige.data.secret_manifest import FORMAT, SecretManifest
    from vestige.errors import ManifestError

    if isinstance(manifest, SecretManifest):
        return manifest
    file = manifest_file(manifest)
    if file.is_file() and format_of(file) not in (FORMAT, None):
        raise ManifestError(
            f"{file} has canaries in text, not in labelled utterances",
            remedy="Plant with `vestige plant --task nlu`, or pass a language model.",
        )
    return SecretManifest.load(file)


def _is_readable(canary: "Canary", vocabulary: "Vocabulary") -> bool:
    ids = vocabulary.encode(canary.phrase)
    return bool(ids) and vocabulary.unk_id not in ids


def _read(where: str, number: int, canary: "Canary", vocabulary: "Vocabulary") -> "Canary":
    ids = tuple(vocabulary.encode(canary.phrase))
    unknown = sum(token == vocabulary.unk_id for token in ids)
    if unknown or not ids:  # the phrase itself is a secret
        raise DataError(
            f"canary {number} of {where} cannot be read: the model's vocabulary lacks {unknown} "
            f"of its {len(ids)} tokens",
            remedy="Plant with --vocabulary MODEL, or pass the model trained on this text.",
        )
    return replace(canary, ids=ids)
