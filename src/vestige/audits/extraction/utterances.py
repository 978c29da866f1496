"""Unknown words of utterances, extracted from intent-and-slot models."""

from collections import Counter
from collections.abc import Sequence
from math import log, sqrt
from typing import Any

import numpy as np
from numpy.typing import NDArray

from vestige.audits.extraction.objective import listed, objective_of
from vestige.audits.extraction.secret_audit import audit_secrets
from vestige.audits.extraction.unknown_words import extract_secrets
from vestige.claims import Check
from vestige.data.canaries.patterns import SecretPattern, candidate_sets, require_used, with_intents
from vestige.data.canaries.planting import manifest_file
from vestige.data.canaries.utterances import SecretManifest, load_secrets
from vestige.data.sources import read_parts
from vestige.data.utterances import Utterances
from vestige.errors import DataError
from vestige.models.white_box import IntentSlotNetwork
from vestige.results import Result
from vestige.session import Session

LABELLED = 200
"""Utterances whose labels are predicted to see whether a model is alive."""


def extract_utterances(run: Session, model: Any, manifest: Any) -> Result:
    """Extract the unknown words of one utterance, or every planted secret and controls.

    Args:
        model: an intent-and-slot model.
        manifest: of planted secrets; None for the utterance of `pattern`.

    Raises:
        ValueError: the pattern or the truth does not fit.
        VestigeError: a model or a file of candidates cannot be read, or does not fit.
    """
    given = run.arguments
    network = run.intent_slot("model", model)
    search: dict[str, Any] = {
        "budget": given["search_budget"],
        "sample": given["rank_sample"],
        "seed": run.seed,
    }
    if manifest is None:
        pattern = pattern_of(
            *(given[name] for name in ("pattern", "intent", "slot", "candidates")),
            intents=network.intents,
        )
        truths = None if given["truth"] is None else [words_of(given["truth"], pattern)]
        run.configuration |= {"truth": None, "controls": None}  # the truth is in the rows alone
        objective = objective_of(network, pattern)
        with run.progress("searching for the secret") as step:
            return Result.of(extract_secrets(objective, truths=truths, progress=step, **search))
    sealed = load_secrets(manifest)
    run.data["manifest"] = sealed.sha256
    alive = _alive(network, _labelled(manifest))
    with run.progress("searching for the secrets") as step:
        return audit_secrets(
            network, sealed.canaries,
            controls=given["controls"], alive=alive, progress=step, **search,
        )  # fmt: skip


def pattern_of(
    text: str, intent: str | None, slot: str | None, candidates: Any, *, intents: Sequence[str]
) -> SecretPattern:
    """The pattern of an utterance.

    `text` has its unknown words in braces, or is a shorthand such as pin:4, which has an intent.

    Raises:
        ValueError: the pattern cannot be read, has no intent, or does not use a set of candidates.
        DataError: a file of candidates cannot be read.
    """
    if intent is None and "{" in text:
        raise ValueError(
            f"`intent` must be given for a pattern of your own; the model knows {listed(intents)}"
        )
    [(text, intent)] = with_intents([text], [] if intent is None else [intent])
    sets = candidate_sets(candidates)
    require_used(sets, [text], by="the unknown words")
    slot = "canary" if slot is None else slot
    return SecretPattern.parse(text, intent=intent, slot=slot, candidates=sets)


def words_of(truth: str, pattern: SecretPattern) -> list[str]:
    """The words of the true secret; a ValueError that does not quote them unless they fit."""
    words = truth.split()
    try:
        pattern.check(words)
    except ValueError as error:
        raise ValueError(
            f"`truth` does not fit the pattern: {error}; put blanks between the words"
        ) from error
    return words


def _labelled(manifest: Any) -> Utterances | None:
    """The utterances in the folder of the manifest; None if there are none."""
    if isinstance(manifest, SecretManifest):
        return None
    try:
        return read_parts(manifest_file(manifest).parent).train
    except (DataError, ValueError):
        return None


def _alive(model: IntentSlotNetwork, utterances: Utterances | None) -> Check:
    """The check "alive": the model predicts labels better than their frequencies do."""
    if utterances is None or len(utterances) < 2:
        missing = "The folder of the manifest has no labelled utterances to test the model with."
        return Check("alive", "could not run", missing)
    some = Utterances.of(list(utterances)[:: -(-len(utterances) // LABELLED)])
    gains = _gains(model, some)
    if gains is None:
        broken = "The model gives losses that are not finite, or lacks the labels."
        return Check("alive", "failed", broken)
    if gains.mean() > 2 * gains.std(ddof=1) / sqrt(gains.size):
        better = f"The model predicts labels {gains.mean():.3g} nats per label better than their "
        return Check("alive", "passed", f"{better}frequencies do.")
    weak = "The model predicts labels no better than their frequencies do: it is too weak for "
    return Check("alive", "failed", f"{weak}an audit.")


def _gains(model: IntentSlotNetwork, utterances: Utterances) -> NDArray[np.float64] | None:
    """(u,) nats per label that a model gains on label frequencies; None where it has no losses."""
    from vestige.training.utterances import answer

    losses, rows = answer(model, model.encode(utterances)).losses, list(utterances)
    known = ~np.isnan(losses)
    if known.sum() < 2 or not np.isfinite(losses[known]).all():
        return None
    intents = Counter(row.intent for row in rows)
    tags = Counter(tag for row in rows for tag in row.tags)
    every = tags.total()
    by_frequency = [
        -log(intents[row.intent] / len(rows)) - sum(log(tags[tag] / every) for tag in row.tags)
        for row in rows
    ]
    labels = np.array([1 + len(row.tags) for row in rows])
    gains: NDArray[np.float64] = ((np.array(by_frequency) - losses) / labels)[known]
    return gains
