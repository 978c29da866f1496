"""Canaries of a manifest as a model reads them, behind the turn of a conversation if needed."""

from collections.abc import Sequence
from dataclasses import replace
from os import PathLike
from typing import TYPE_CHECKING

from vestige.data.sources import manifest_file
from vestige.errors import DataError, IncompatibleModels
from vestige.monitor import SILENT, Monitor

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from vestige.data.canary import Canary
    from vestige.data.manifest import Manifest, Role
    from vestige.data.vocabulary import Vocabulary
    from vestige.models.protocols import NextToken


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
    ids = [tuple(vocabulary.encode(canary.phrase)) for canary in sealed.canaries]
    lacking = [not own or vocabulary.unk_id in own for own in ids]
    controls = [
        lost for canary, lost in zip(sealed.canaries, lacking, strict=True) if canary.control
    ]
    left_out = 0 if all(controls) else sum(controls)  # the first of none is refused by its number
    if left_out:
        monitor.log(f"{left_out} of {len(controls)} controls left out: the model lacks their words")
    found = []
    for number, (canary, own) in enumerate(zip(sealed.canaries, ids, strict=True), 1):
        if not lacking[number - 1]:
            found.append(replace(canary, ids=own))
        elif not (canary.control and left_out):
            unknown = sum(token == vocabulary.unk_id for token in own)
            raise DataError(
                f"canary {number} of {where} cannot be read: the model's vocabulary lacks "
                f"{unknown} of its {len(own)} tokens",
                remedy="Plant with --vocabulary MODEL, or pass the model trained on this text.",
            )
    return sealed, tuple(found)


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


def asked_as_learnt(model: "NextToken", manifest: "Manifest") -> "NextToken":
    """The model after what its chat template puts before the turn that the canaries were.

    Raises:
        DataError: the canaries are turns of conversations, and there is no template to put them in.
    """
    turn = manifest.turn
    return model if turn is None else in_turn(model, turn.role, turn.question)


def in_turn(model: "NextToken", role: "Role", question: str) -> "NextToken":
    """The model after what its chat template puts before a turn.

    Args:
        model: with a tokenizer that has a template.
        role: whose turn it is.
        question: of the user, before the assistant's turn.

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
    """The chat template of a model's tokenizer with its special tokens; None without one."""
    tokenizer = getattr(model.vocabulary, "tokenizer", None)
    source = getattr(tokenizer, "chat_template", None)
    if isinstance(source, dict):  # several, by name
        source = source.get("default")
    if not isinstance(source, str):
        return None
    named = getattr(tokenizer, "special_tokens_map", {})
    return source, {name: token for name, token in named.items() if isinstance(token, str)}
