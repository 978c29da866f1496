"""Unknown words of utterances, extracted from intent-and-slot models."""

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from vestige.results import Result
from vestige.session import Session

if TYPE_CHECKING:
    from vestige.attacks.extraction.candidates import Attack
    from vestige.attacks.extraction.nlu_extraction import Ranking
    from vestige.attacks.extraction.objective import ObjectiveKind
    from vestige.data.secret_pattern import SecretPattern
    from vestige.data.utterances import Utterances

_INTENTS = 40
"""Intents that a message lists."""


def extract_pattern(
    run: Session,
    model: Any,
    *,
    pattern: str,
    intent: str | None,
    slot: str | None,
    candidates: Any,
    truth: str | None,
    attack: str,
    objective: "ObjectiveKind",
    reference_models: Sequence[Any],
    ranking: "Ranking",
) -> Result:
    """Extract the unknown words of one utterance.

    Raises:
        ValueError: the pattern cannot be read, or has no intent, or the truth does not fit it.
        DataError: a file of candidates cannot be read.
    """
    from vestige.attacks.extraction.nlu_extraction import extract_secrets
    from vestige.attacks.extraction.objective import objective_of

    _require_references(objective, reference_models)
    loaded = run.intent_slot("model", model)
    references = _loaded(run, "reference", reference_models)
    parsed = pattern_of(pattern, intent, slot, candidates, intents=loaded.intents)
    truths = None if truth is None else [words_of(truth, parsed)]
    run.configuration |= {"truth": None, "controls": None}  # the truth is in the rows alone
    asked = objective_of(loaded, parsed, kind=objective, references=references)
    with run.progress("searching for the secret") as step:
        found = extract_secrets(
            asked, truths=truths, attack=_with_budget(attack, ranking.budget), ranking=ranking,
            seed=run.seed, progress=step,
        )  # fmt: skip
    return Result.of(found)


def extract_planted(
    run: Session,
    models: Sequence[Any],
    manifest: Any,
    *,
    attack: str,
    objective: "ObjectiveKind",
    reference_models: Sequence[Any],
    ranking: "Ranking",
) -> Result:
    """Extract every planted secret of a manifest, and controls.

    Args:
        models: trained on the planted utterances, with several seeds; ranks are added up.
    """
    from vestige.attacks.extraction.secret_audit import audit_secrets
    from vestige.attacks.manifests import load_secrets
    from vestige.audits.extraction.labels_check import labels_check

    _require_references(objective, reference_models)
    loaded = _loaded(run, "model", models)
    references = _loaded(run, "reference", reference_models)
    sealed = load_secrets(manifest)
    run.data["manifest"] = sealed.sha256
    with run.progress("searching for the secrets") as step:
        found = audit_secrets(
            loaded, sealed.canaries, attack=_with_budget(attack, ranking.budget),
            objective=objective, references=references, ranking=ranking, seed=run.seed,
            progress=step,
        )  # fmt: skip
    return Result.of(replace(found, alive=labels_check(loaded, _labelled(manifest))))


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


def _require_references(objective: str, references: Sequence[Any]) -> None:
    if (objective == "calibrated") != bool(references):
        raise ValueError(
            "`reference_model` must be given with `objective` calibrated and with no other, got "
            f"{len(references)} with {objective!r}"
        )


def _loaded(run: Session, role: str, models: Sequence[Any]) -> list[Any]:
    """Intent-and-slot models, recorded as "model", "model 2", ... or "reference 1", ..."""
    first = role == "model"
    names = [role if first and number == 1 else f"{role} {number}" for number in _numbers(models)]
    return [run.intent_slot(name, one) for name, one in zip(names, models, strict=True)]


def _numbers(models: Sequence[Any]) -> range:
    return range(1, len(models) + 1)


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
    from vestige.data.utterance_parts import read_parts
    from vestige.errors import DataError

    if isinstance(manifest, SecretManifest):
        return None
    try:
        return read_parts(manifest_file(manifest).parent).train
    except (DataError, ValueError):
        return None
