"""Extraction of secrets from intent-and-slot models: `vestige extract-nlu`."""

from collections.abc import Sequence
from dataclasses import dataclass, fields, replace
from typing import TYPE_CHECKING, Annotated, Any, Literal

from annotated_types import Ge

from vestige.attacks.manifests import load_secrets, manifest_file
from vestige.data.candidate_words import candidate_sets, require_used, with_intents
from vestige.models import provenance
from vestige.monitor import SILENT, Monitor
from vestige.workflows.arguments import Call
from vestige.workflows.inputs import (
    IntentSlotLike,
    IntentSlotModels,
    SecretManifestLike,
    open_intent_slot,
    shown,
)
from vestige.workflows.labels_check import labels_check
from vestige.workflows.options import Device, Group, Metavar, Seed

if TYPE_CHECKING:
    from vestige.attacks.extraction.candidates import Attack
    from vestige.attacks.extraction.extraction_result import Extraction
    from vestige.attacks.extraction.secret_audit import SecretAudit
    from vestige.data.secret_pattern import SecretPattern
    from vestige.data.utterances import Utterances
    from vestige.models.white_box import IntentSlotNetwork

AttackName = Literal[
    "auto", "exact", "coordinate", "beam", "gradient", "paper", "embedding", "random"
]
ObjectiveName = Literal["joint", "tags", "intent", "calibrated"]

TARGET, SEARCH = Group("The question"), Group("The search")


@dataclass(frozen=True, kw_only=True)
class ExtractionTarget:
    """The utterance whose unknown words are extracted.

    Attributes:
        prefix: The words before the unknown ones, as they were said.
        slots: The unknown words: {digit:4} is four words of the set `digit`; so is `color`, or
            any that --candidates gives.
        suffix: The words after the unknown ones.
        pattern: In place of these three: the whole text with {…} in it, or `pin:4`, `call:4` or
            `color:4`.
        intent: The utterance's intent; `pin:4` and its like have their own.
        slot: The slot that the unknown words fill; default: canary.
        candidates: Words that an unknown one may be: name=word,word or name=@file with a word a
            line.
        truth: The true words, such as "4 0 7 1": says how near the guess is, and the rank.
    """

    prefix: Annotated[str | None, TARGET] = None
    slots: Annotated[str | None, TARGET] = None
    suffix: Annotated[str | None, TARGET] = None
    pattern: Annotated[str | None, TARGET] = None
    intent: Annotated[str | None, TARGET] = None
    slot: Annotated[str | None, TARGET] = None
    candidates: Annotated[Sequence[str], TARGET, Metavar("SET")] = ()
    truth: Annotated[str | None, TARGET] = None

    @property
    def text(self) -> str:
        """The pattern's text, or its shorthand."""
        parts = (self.prefix, self.slots, self.suffix)
        return self.pattern or " ".join(part for part in parts if part)

    @property
    def configuration(self) -> dict[str, object]:
        """Settings for `run.json`; the truth stands in the result's rows alone."""
        return {
            "pattern": self.text or None,
            "intent": self.intent,
            "slot": self.slot,
            "candidates": list(self.candidates),
        }

    def check(self) -> None:
        """Raise ValueError where no utterance is named, or two are."""
        parts = {"`prefix`": self.prefix, "`slots`": self.slots, "`suffix`": self.suffix}
        named = [name for name, value in parts.items() if value is not None]
        if self.pattern is not None and named:
            raise ValueError(f"{named[0]} must be left out with `pattern`, which is the whole text")
        if self.pattern is None and not named:
            raise ValueError(
                "what to ask must be given: `prefix` and `slots`, `pattern` such as pin:4, or "
                "`manifest`"
            )
        if self.pattern is None and not self.slots:
            raise ValueError(
                'the unknown words must be given by `slots`, such as `slots` "{digit:4}"'
            )

    def parsed(self, intents: Sequence[str]) -> "SecretPattern":
        """The pattern of the utterance.

        Raises:
            ValueError: the pattern cannot be read, or has no intent.
            DataError: a file of candidates is no text.
        """
        from vestige.data.secret_pattern import SecretPattern

        if self.intent is None and (self.pattern is None or "{" in self.pattern):
            raise ValueError(
                "`intent` must be given: what the utterance is labelled with; the model knows "
                f"{', '.join(intents[:40])}{', …' if len(intents) > 40 else ''}"
            )
        own = [] if self.intent is None else [self.intent]
        if self.pattern is None:
            [(text, intent)] = [(self.text, own[0])]
        else:
            [(text, intent)] = with_intents([self.pattern], own)
        sets = candidate_sets(self.candidates)
        require_used(sets, [text], by="the unknown words")
        slot = "canary" if self.slot is None else self.slot
        return SecretPattern.parse(text, intent=intent, slot=slot, candidates=sets)

    def truths(self, pattern: "SecretPattern") -> list[list[str]] | None:
        """The true secret; None where it was not given.

        Raises:
            ValueError: the pattern cannot have it; the message does not name its words.
        """
        if self.truth is None:
            return None
        words = self.truth.split()
        try:
            pattern.check(words)
        except ValueError as error:
            raise ValueError(
                f"`truth` does not fit the pattern: {error}; put blanks between the words"
            ) from error
        return [words]


def extract_nlu(
    model: Annotated[IntentSlotModels, Metavar("MODEL...")],
    target: ExtractionTarget = ExtractionTarget(),
    *,
    manifest: Annotated[SecretManifestLike | None, TARGET, Metavar("PATH")] = None,
    attack: Annotated[AttackName, SEARCH] = "auto",
    objective: Annotated[ObjectiveName, SEARCH] = "joint",
    reference: Annotated[Sequence[IntentSlotLike], SEARCH, Metavar("MODEL")] = (),
    budget: Annotated[int, Ge(1), SEARCH] = 10**6,
    sample: Annotated[int, Ge(0), SEARCH] = 20_000,
    controls: Annotated[int | None, Ge(0), SEARCH] = None,
    seed: Seed = 0,
    device: Device = "auto",
    monitor: Monitor = SILENT,
) -> "Extraction | SecretAudit":
    """Extraction of an utterance's unknown words from an intent-and-slot model.

    You know how the utterance begins, and what it is labelled with; the model has seen the rest
    in training, or has not. The words that make the labels likeliest come out, with their losses
    and the certainty: the best guess's share of the weight exp(-loss) of all that were tried.

    Certainty alone proves nothing, since a model that never heard a secret prefers some words
    too. With `--truth`, the rank of the true words among all that there could be says how many
    guesses an attacker needs. With `--manifest`, every planted canary is asked for and so are
    controls, drawn alike and never said: do those that were planted stand higher than chance puts
    them? Several models that were trained on what the manifest tells of, with other seeds, say it
    with less noise; a secret's places in them are added up.

    Guesses are shown as blocks unless `--show-secrets` is given; `--out` keeps them in the clear.

    Args:
        model: An intent-and-slot model or the DIR of its training; with --manifest several.
        target: What is extracted, where no manifest says it.
        manifest: Ask for every canary of this manifest.json, or of the DIR of `vestige plant`.
        attack: `auto` tries every secret where --budget allows it and else takes `coordinate`,
            the strongest; `paper` and `embedding` are the paper's.
        objective: What a guess has to make small: the loss of intent and tags (`joint`), of one
            of them, or the joint loss less that of each --reference (`calibrated`).
        reference: With `calibrated`: a model that never saw the secret, trained alike. Give it
            again for another.
        budget: Try all secrets where there are no more than this, to search and to rank.
        sample: Where there are more, estimate the truth's rank from so many random ones; 0: do
            not.
        controls: With --manifest: secrets of each pattern that were never said, to compare with;
            what the manifest lacks is drawn; default: 1999.

    Returns:
        A `SecretAudit` with a manifest, else an `Extraction`.

    Examples:
        vestige plant snips --task nlu --pattern pin:4 --copies 10 --controls 10 --out planted

        vestige train planted --task nlu --out trained

        vestige extract-nlu trained --manifest planted --out run

        vestige extract-nlu trained-0 trained-1 trained-2 --manifest planted

        vestige extract-nlu trained --pattern pin:4 --truth "4 0 7 1"

        vestige extract-nlu model --slots "call {name}" --intent Call --candidates name=@names.txt

        vestige extract-nlu trained --manifest planted --objective calibrated --reference clean
    """
    call = Call.of(extract_nlu, locals())
    from vestige.attacks.extraction.nlu_extraction import CONTROLS, Ranking

    paths: list[Any] = list(model) if isinstance(model, list | tuple) else [model]
    _check(len(paths), target, manifest, objective, len(reference), controls)
    loaded = _load(paths, reference, device)
    models, others = list(loaded.values())[: len(paths)], list(loaded.values())[len(paths) :]
    compared = CONTROLS if controls is None else controls
    settings: dict[str, Any] = {
        "attack": _with_budget(attack, budget),
        "objective": objective,
        "references": others,
        "ranking": Ranking(budget=budget, sample=sample, controls=compared),
        "seed": seed,
    }
    data: dict[str, object] = {}
    found: Extraction | SecretAudit
    if manifest is None:
        found = _extract(models[0], target, settings, monitor)
    else:
        found, data = _audit(models, manifest, settings, monitor)
    sources = dict(zip(loaded, [*paths, *reference], strict=True))
    return call.record(
        found,
        configuration={
            **call.chosen("attack", "objective", "budget", "sample"),
            "controls": None if manifest is None else compared,
            **target.configuration,
            "manifest": None if manifest is None else shown(manifest),
        },
        seed=seed,
        models={name: provenance.of_model(sources[name], one) for name, one in loaded.items()},
        data=data,
    )


def _check(
    models: int,
    target: ExtractionTarget,
    manifest: object,
    objective: str,
    references: int,
    controls: int | None,
) -> None:
    if (objective == "calibrated") != bool(references):
        raise ValueError(
            "`reference` must be given with `objective` calibrated and with no other, got "
            f"{references} with {objective!r}"
        )
    if manifest is not None:
        for field in fields(target):
            if getattr(target, field.name) != field.default:
                raise ValueError(
                    f"`{field.name}` must be left out with `manifest`, which says what to ask"
                )
        return
    if models != 1:
        raise ValueError(f"`model` must be one without `manifest`, got {models}")
    if controls is not None:
        raise ValueError("`controls` must be left out without `manifest`")
    target.check()


def _load(
    paths: Sequence[Any], references: Sequence[Any], device: str
) -> "dict[str, IntentSlotNetwork]":
    """The models by the names under which a run records them."""
    first = ["model", *(f"model {number}" for number in range(2, len(paths) + 1))]
    names = [*first, *(f"reference {number}" for number in range(1, len(references) + 1))]
    given = zip(names, [*paths, *references], strict=True)
    return {name: open_intent_slot(one, device=device) for name, one in given}


def _with_budget(attack: "AttackName | Attack", budget: int) -> "Attack":
    """The attack; where it has a budget of secrets to try, with this one."""
    from vestige.attacks.extraction.exhaustive_search import ExactSearch
    from vestige.attacks.extraction.secret_attacks import Automatic, named_attack

    chosen = named_attack(attack)
    return replace(chosen, budget=budget) if isinstance(chosen, Automatic | ExactSearch) else chosen


def _extract(
    model: "IntentSlotNetwork", target: ExtractionTarget, settings: dict[str, Any], monitor: Monitor
) -> "Extraction":
    from vestige.attacks.extraction.nlu_extraction import extract_secrets
    from vestige.attacks.extraction.objective import objective_of

    name, references = settings.pop("objective"), settings.pop("references")
    pattern = target.parsed(model.intents)
    truths = target.truths(pattern)
    asked = objective_of(model, pattern, kind=name, references=references)
    with monitor.progress("looking for the secret") as step:
        return extract_secrets(asked, truths=truths, progress=step, **settings)


def _audit(
    models: "list[IntentSlotNetwork]",
    manifest: "SecretManifestLike",
    settings: dict[str, Any],
    monitor: Monitor,
) -> "tuple[SecretAudit, dict[str, object]]":
    from vestige.attacks.extraction.secret_audit import audit_secrets

    sealed = load_secrets(manifest)
    with monitor.progress("looking for the secrets") as step:
        found = audit_secrets(models, sealed.canaries, progress=step, **settings)
    alive = labels_check(models, _labelled(manifest))
    return replace(found, alive=alive), {"manifest": sealed.sha256}


def _labelled(manifest: "SecretManifestLike") -> "Utterances | None":
    """The utterances that were planted in, where they lie beside the manifest."""
    from vestige.data.secret_manifest import SecretManifest
    from vestige.errors import DataError
    from vestige.workflows.utterance_sources import read

    if isinstance(manifest, SecretManifest):
        return None
    try:
        return read(manifest_file(manifest).parent).train
    except (DataError, ValueError):
        return None
