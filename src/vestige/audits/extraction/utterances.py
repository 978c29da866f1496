"""Unknown words of utterances, extracted from intent-and-slot models."""

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import replace
from math import log, sqrt
from typing import TYPE_CHECKING, Any

from vestige.results import Result
from vestige.session import Session

if TYPE_CHECKING:
    import numpy as np

    from vestige.attacks.extraction.candidates import Attack
    from vestige.claims import Check
    from vestige.data.secret_pattern import SecretPattern
    from vestige.data.utterances import Utterances
    from vestige.models.white_box import IntentSlotNetwork

_INTENTS = 40
"""Intents that a message lists."""
LABELLED = 200
"""Utterances whose labels are predicted to see whether a model is alive."""


def extract_utterances(run: Session, model: Any, manifest: Any) -> Result:
    """Extract the unknown words of one utterance, or every planted secret and controls.

    Args:
        model: an intent-and-slot model; others of the same training are in `also`.
        manifest: of planted secrets; None for the utterance of `pattern`.

    Raises:
        ValueError: the pattern cannot be read, or has no intent, the truth does not fit it, or
            there are references where the objective needs none, or none where it does.
        VestigeError: a model or a file of candidates cannot be read, or does not fit.
    """
    from vestige.attacks.extraction.nlu_extraction import Ranking, extract_secrets
    from vestige.attacks.extraction.objective import objective_of
    from vestige.attacks.extraction.secret_audit import audit_secrets
    from vestige.attacks.manifests import load_secrets

    given = run.arguments
    objective, others = given["objective"], given["reference_model"]
    if (objective == "calibrated") != bool(others):
        raise ValueError(
            "`reference_model` must be given with `objective` calibrated and with no other, got "
            f"{len(others)} with {objective!r}"
        )
    models = [
        run.intent_slot("model" if number == 1 else f"model {number}", one)
        for number, one in enumerate([model, *given["also"]], 1)
    ]
    references = [run.intent_slot(f"reference {n}", one) for n, one in enumerate(others, 1)]
    search: dict[str, Any] = {
        "attack": _with_budget(given["attack"], given["search_budget"]),
        "ranking": Ranking(
            budget=given["search_budget"],
            sample=given["rank_sample"],
            controls=given["controls"],
        ),
        "seed": run.seed,
    }
    if manifest is None:
        pattern, truths = _asked(run, models[0].intents)
        asked = objective_of(models[0], pattern, kind=objective, references=references)
        with run.progress("searching for the secret") as step:
            return Result.of(extract_secrets(asked, truths=truths, progress=step, **search))
    sealed = load_secrets(manifest)
    run.data["manifest"] = sealed.sha256
    with run.progress("searching for the secrets") as step:
        found = audit_secrets(
            models, sealed.canaries, objective=objective, references=references, progress=step,
            **search,
        )  # fmt: skip
    return Result.of(replace(found, alive=tuple(_alive(models, _labelled(manifest)))))


def _asked(run: Session, intents: Sequence[str]) -> "tuple[SecretPattern, list[list[str]] | None]":
    """The utterance of the options, and its true words."""
    given = run.arguments
    pattern = pattern_of(
        given["pattern"], given["intent"], given["slot"], given["candidates"], intents=intents
    )
    truths = None if given["truth"] is None else [words_of(given["truth"], pattern)]
    run.configuration |= {"truth": None, "controls": None}  # the truth is in the rows alone
    return pattern, truths


def pattern_of(
    text: str, intent: str | None, slot: str | None, candidates: Any, *, intents: Sequence[str]
) -> "SecretPattern":
    """The pattern of an utterance.

    Args:
        text: with its unknown words in braces, or a shorthand such as pin:4.
        candidates: sets of words, as `candidate_sets` takes them.
        intents: that the model knows.

    Raises:
        ValueError: the pattern cannot be read, has no intent, or does not use a set of candidates.
        DataError: a file of candidates cannot be read.
    """
    from vestige.data.candidate_words import candidate_sets, require_used, with_intents
    from vestige.data.secret_pattern import SecretPattern

    if intent is None and "{" in text:
        known = ", ".join(intents[:_INTENTS]) + (", …" if len(intents) > _INTENTS else "")
        raise ValueError(
            f"`intent` must be given for a pattern of your own; the model knows {known}"
        )
    [(text, intent)] = with_intents([text], [] if intent is None else [intent])
    sets = candidate_sets(candidates)
    require_used(sets, [text], by="the unknown words")
    slot = "canary" if slot is None else slot
    return SecretPattern.parse(text, intent=intent, slot=slot, candidates=sets)


def words_of(truth: str, pattern: "SecretPattern") -> list[str]:
    """The words of the true secret.

    Raises:
        ValueError: the pattern cannot have them; the message does not quote them.
    """
    words = truth.split()
    try:
        pattern.check(words)
    except ValueError as error:
        raise ValueError(
            f"`truth` does not fit the pattern: {error}; put blanks between the words"
        ) from error
    return words


def _with_budget(attack: str, budget: int) -> "Attack":
    """The attack; one that may try every secret does so within the budget."""
    from vestige.attacks.extraction.exhaustive_search import ExactSearch
    from vestige.attacks.extraction.secret_attacks import Automatic, named_attack

    chosen = named_attack(attack)
    return replace(chosen, budget=budget) if isinstance(chosen, Automatic | ExactSearch) else chosen


def _labelled(manifest: Any) -> "Utterances | None":
    """The utterances beside the manifest; None if there are none."""
    from vestige.attacks.manifests import manifest_file
    from vestige.data.secret_manifest import SecretManifest
    from vestige.data.sources import read_parts
    from vestige.errors import DataError

    if isinstance(manifest, SecretManifest):
        return None
    try:
        return read_parts(manifest_file(manifest).parent).train
    except (DataError, ValueError):
        return None


def _alive(
    models: "Sequence[IntentSlotNetwork]", utterances: "Utterances | None"
) -> "Iterator[Check]":
    """The check "alive" of each model: it predicts labels better than their frequencies do."""
    from vestige.claims import Check
    from vestige.data.utterances import Utterances

    if utterances is None or len(utterances) < 2:
        missing = "The folder of the manifest has no labelled utterances to test the model with."
        yield Check("alive", "could not run", missing)
        return
    step = -(-len(utterances) // LABELLED)
    some = Utterances.of(list(utterances)[::step])
    for number, model in enumerate(models, 1):
        who = "The model" if len(models) == 1 else f"Model {number}"
        gains = _gains(model, some)
        if gains is None:
            told, passed = "gives losses that are not finite, or lacks the labels.", False
        elif passed := bool(gains.mean() > 2 * gains.std(ddof=1) / sqrt(gains.size)):
            told = (
                f"predicts labels {gains.mean():.3g} nats per label better than their frequencies "
                "do."
            )
        else:
            told = (
                "predicts labels no better than their frequencies do: it is too weak for an audit."
            )
        yield Check("alive", "passed" if passed else "failed", f"{who} {told}")


def _gains(model: "IntentSlotNetwork", utterances: "Utterances") -> "np.ndarray | None":
    """(u,) nats per label that a model gains on label frequencies; None where it has no losses."""
    import numpy as np

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
    gains: np.ndarray = ((np.array(by_frequency) - losses) / labels)[known]
    return gains
