"""Unknown words of utterances, extracted from intent-and-slot models."""

from collections import Counter
from collections.abc import Sequence
from math import log, sqrt
from typing import Any

import numpy as np
from numpy.typing import NDArray

from vestige.audits.extraction.objective import list_labels, objective_of
from vestige.audits.extraction.unknown_words import extract_secrets
from vestige.audits.extraction.utterances_audit import audit_secrets
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

MAX_LABELLED = 200
"""Most utterances whose labels are predicted for the check "alive"."""


def extract_utterances(run: Session, model: Any, manifest: Any) -> Result:
    """Extract the unknown words of one utterance, or planted secrets and their controls.

    Args:
        model: an intent-and-slot model.
        manifest: of planted secrets; None for the utterance of `pattern`.

    Raises:
        ValueError: the pattern or the truth does not fit.
        VestigeError: a model or a file of candidates cannot be read, or does not fit.
    """
    arguments = run.arguments
    network = run.intent_slot("model", model)
    search: dict[str, Any] = {
        "budget": arguments["search_budget"],
        "sample": arguments["rank_sample"],
        "seed": run.seed,
    }
    if manifest is None:
        pattern = parse_pattern(
            *(arguments[name] for name in ("pattern", "intent", "slot", "candidates")),
            intents=network.intents,
        )
        truth = arguments["truth"]
        truths = None if truth is None else [truth_words(truth, pattern)]
        run.configuration |= {"truth": None, "controls": None}  # only the rows have the truth
        objective = objective_of(network, pattern)
        with run.progress("searching for the secret") as step:
            return Result.of(extract_secrets(objective, truths=truths, progress=step, **search))
    sealed = load_secrets(manifest)
    run.data["manifest"] = sealed.sha256
    alive = _alive_check(network, _read_labelled(manifest))
    with run.progress("searching for the secrets") as step:
        return audit_secrets(
            network, sealed.canaries,
            controls=arguments["controls"], alive=alive, progress=step, **search,
        )  # fmt: skip


def parse_pattern(
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
            "`intent` must be given for a pattern of your own; the model knows "
            f"{list_labels(intents)}"
        )
    [(text, intent)] = with_intents([text], [] if intent is None else [intent])
    sets = candidate_sets(candidates)
    require_used(sets, [text], by="the unknown words")
    slot = "canary" if slot is None else slot
    return SecretPattern.parse(text, intent=intent, slot=slot, candidates=sets)


def truth_words(truth: str, pattern: SecretPattern) -> list[str]:
    """The words of the true secret; ValueError, which does not quote them, if they do not fit."""
    words = truth.split()
    try:
        pattern.check(words)
    except ValueError as error:
        raise ValueError(
            f"`truth` does not fit the pattern: {error}; put blanks between the words"
        ) from error
    return words


def _read_labelled(manifest: Any) -> Utterances | None:
    """The utterances in the folder of the manifest; None if there are none."""
    if isinstance(manifest, SecretManifest):
        return None
    try:
        return read_parts(manifest_file(manifest).parent).train
    except (DataError, ValueError):
        return None


def _alive_check(model: IntentSlotNetwork, utterances: Utterances | None) -> Check:
    """The check "alive": the model predicts labels better than their frequencies do."""
    if utterances is None or len(utterances) < 2:
        missing = "The folder of the manifest has no labelled utterances to test the model with."
        return Check("alive", "could not run", missing)
    sample = Utterances.of(list(utterances)[:: -(-len(utterances) // MAX_LABELLED)])
    gains = _label_gains(model, sample)
    if gains is None:
        broken = "The model gives losses that are not finite, or lacks the labels."
        return Check("alive", "failed", broken)
    if gains.mean() > 2 * gains.std(ddof=1) / sqrt(gains.size):
        sentence = (
            f"The model predicts labels {gains.mean():.3g} nats per label better than their "
            "frequencies do."
        )
        return Check("alive", "passed", sentence)
    sentence = (
        "The model predicts labels no better than their frequencies do: it is too weak for an "
        "audit."
    )
    return Check("alive", "failed", sentence)


def _label_gains(model: IntentSlotNetwork, utterances: Utterances) -> NDArray[np.float64] | None:
    """(u,) how much better than label frequencies a model predicts each label, in nats.

    None if losses are not finite, or if the model has the labels of fewer than two utterances.
    """
    from vestige.training.utterances import answer

    losses, rows = answer(model, model.encode(utterances)).losses, list(utterances)
    has_labels = ~np.isnan(losses)
    if has_labels.sum() < 2 or not np.isfinite(losses[has_labels]).all():
        return None
    intents = Counter(row.intent for row in rows)
    tags = Counter(tag for row in rows for tag in row.tags)
    total = tags.total()
    frequency_losses = [
        -log(intents[row.intent] / len(rows)) - sum(log(tags[tag] / total) for tag in row.tags)
        for row in rows
    ]
    labels = np.array([1 + len(row.tags) for row in rows])
    gains: NDArray[np.float64] = ((np.array(frequency_losses) - losses) / labels)[has_labels]
    return gains
