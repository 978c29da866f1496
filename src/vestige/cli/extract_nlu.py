"""`vestige extract-nlu`: can a secret be read back from an intent-and-slot model?"""

from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from vestige.cli import extraction_options as asked
from vestige.cli import options
from vestige.cli.asked_secrets import ExtractionTarget, load_secrets
from vestige.cli.tasks import given
from vestige.cli.terminal import progress, say, show_json, show_table

if TYPE_CHECKING:
    from vestige.attacks.extraction.candidates import Attack
    from vestige.attacks.extraction.extraction_result import Extraction
    from vestige.attacks.extraction.secret_audit import SecretAudit
    from vestige.models.white_box import IntentSlotNetwork
    from vestige.reports.components.table import Table

QUESTION = ("prefix", "slots", "suffix", "pattern", "intent", "slot", "candidates", "truth")
"""Parameters that --manifest answers."""


def command(
    context: typer.Context,
    model: asked.Models,
    prefix: asked.Prefix = None,
    slots: asked.Slots = None,
    suffix: asked.Suffix = None,
    pattern: asked.Pattern = None,
    intent: asked.Intent = None,
    slot: asked.Slot = None,
    candidates: asked.Candidates = None,
    truth: asked.Truth = None,
    manifest: asked.Manifest = None,
    attack: asked.SearchedBy = "auto",
    objective: asked.Minimised = "joint",
    reference: asked.References = None,
    budget: asked.Budget = 10**6,
    sample: asked.Sample = 20_000,
    controls: asked.Controls = 1_999,
    top: asked.Top = 10,
    out: asked.Out = None,
    seed: options.Seed = 0,
    device: options.Device = "auto",
    json: options.Json = False,
    show_secrets: asked.ShowSecrets = False,
) -> None:
    """Read unknown words of an utterance back from an intent-and-slot model.

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

    Examples:

        vestige plant snips --task nlu --pattern pin:4 --copies 10 --controls 10 --out planted

        vestige train planted --task nlu --out trained

        vestige extract-nlu trained --manifest planted --out run

        vestige extract-nlu trained-0 trained-1 trained-2 --manifest planted

        vestige extract-nlu trained --pattern pin:4 --truth "4 0 7 1"

        vestige extract-nlu model --slots "call {name}" --intent Call --candidates name=@names.txt

        vestige extract-nlu trained --manifest planted --objective calibrated --reference clean
    """
    from vestige import results
    from vestige.attacks.extraction.nlu_extraction import Ranking
    from vestige.attacks.extraction.secret_attacks import named_attack

    if out is not None:
        results.require_new(out)
    _check(context, model, manifest, objective, reference or [])
    question = ExtractionTarget(
        prefix=prefix, slots=slots, suffix=suffix, pattern=pattern, intent=intent,
        slot=slot, candidates=tuple(candidates or ()), truth=truth,
    )  # fmt: skip
    if manifest is None:
        question.check()
    loaded, others, recorded = _load(model, reference or [], device)
    settings: dict[str, Any] = {
        "attack": _with_budget(named_attack(attack), budget),
        "objective": objective,
        "references": others,
        "ranking": Ranking(budget=budget, sample=sample, controls=controls),
        "seed": seed,
    }
    data: dict[str, object] = {}
    found: Extraction | SecretAudit
    if manifest is None:
        found = _extract(loaded[0], question, settings)
    else:
        found, data = _audit(loaded, manifest, settings)
    if out is not None:
        configuration = {
            "attack": attack, "objective": objective, "budget": budget, "sample": sample,
            "controls": None if manifest is None else controls,
            **question.recorded, "manifest": None if manifest is None else str(manifest),
        }  # fmt: skip
        _save(context, found, out, configuration, seed=seed, models=recorded, data=data)
    if json:
        show_json(found.summary(), show_secrets=show_secrets)
        return
    _show(found, top, show_secrets)
    if out is not None:
        say(f"Run directory: {out}. A page from it: vestige report {out} --out page.html")


def _check(
    context: typer.Context,
    models: list[str],
    manifest: Path | None,
    objective: str,
    references: list[str],
) -> None:
    if (objective == "calibrated") != bool(references):
        raise ValueError(
            "--reference must be given with --objective calibrated and with no other, got "
            f"{len(references)} with {objective!r}"
        )
    if manifest is None:
        if len(models) > 1:
            raise ValueError(f"MODEL must be one without --manifest, got {len(models)}")
        if given(context, "controls"):
            raise ValueError("--controls must be left out without --manifest")
        return
    for name in QUESTION:
        if given(context, name):
            raise ValueError(f"--{name} must be left out with --manifest, which says what to ask")


def _load(
    paths: list[str], references: list[str], device: str
) -> "tuple[list[IntentSlotNetwork], list[IntentSlotNetwork], dict[str, object]]":
    from vestige.cli.provenance import of_model
    from vestige.models.checkpoints import load_intent_slot

    first = ["model", *(f"model {number}" for number in range(2, len(paths) + 1))]
    names = dict(zip(first, paths, strict=True))
    names |= {f"reference {n}": other for n, other in enumerate(references, 1)}
    loaded = {name: load_intent_slot(where, device=device) for name, where in names.items()}
    recorded = {name: of_model(names[name], model) for name, model in loaded.items()}
    found = list(loaded.values())
    return found[: len(paths)], found[len(paths) :], dict(recorded)


def _with_budget(attack: "Attack", budget: int) -> "Attack":
    """The attack; where it has a budget of secrets to try, with this one."""
    from dataclasses import replace

    from vestige.attacks.extraction.exhaustive_search import ExactSearch
    from vestige.attacks.extraction.secret_attacks import Automatic

    return replace(attack, budget=budget) if isinstance(attack, Automatic | ExactSearch) else attack


def _extract(
    model: "IntentSlotNetwork", question: ExtractionTarget, settings: dict[str, Any]
) -> "Extraction":
    from vestige.attacks.extraction.nlu_extraction import extract_secrets
    from vestige.attacks.extraction.objective import ask

    objective, references = settings.pop("objective"), settings.pop("references")
    pattern = question.parsed(model.intents)
    truths = question.truths(pattern)
    one = ask(model, pattern, objective=objective, references=references)
    with progress("looking for the secret") as bar:
        return extract_secrets(one, truths=truths, progress=bar, **settings)


def _audit(
    models: "list[IntentSlotNetwork]", manifest: Path, settings: dict[str, Any]
) -> "tuple[SecretAudit, dict[str, object]]":
    from vestige.attacks.extraction.secret_audit import audit_secrets

    sealed = load_secrets(manifest)
    with progress("looking for the secrets") as bar:
        found = audit_secrets(models, sealed.canaries, progress=bar, **settings)
    return found, {"manifest": sealed.sha256}


def _save(
    context: typer.Context,
    found: "Extraction | SecretAudit",
    out: Path,
    configuration: dict[str, object],
    *,
    seed: int,
    models: dict[str, object],
    data: dict[str, object],
) -> None:
    from vestige import results
    from vestige.cli.provenance import record

    run = record(context, configuration, seed=seed, models=models, data=data)
    results.save(found, out, run=run)


def _show(found: "Extraction | SecretAudit", top: int, show_secrets: bool) -> None:
    from vestige.attacks.extraction.secret_audit import SecretAudit
    from vestige.reports.extraction.tables import group_listing, guess_listing, trial_listing
    from vestige.reports.extraction.words import describe_audit, describe_extraction, entries

    summary = found.summary()
    rows = entries(list(found.rows()), summary)
    trials = trial_listing(rows, show_secrets=show_secrets)
    if isinstance(found, SecretAudit):
        listings, said = [group_listing(rows), trials], describe_audit(rows, summary)
    else:
        best = guess_listing(rows[0], show_secrets=show_secrets, most=top)
        listings, said = [trials, best], describe_extraction(rows, summary)
    for listing in listings:
        _show_listing(listing)
    for sentence in said:
        typer.echo(sentence)
    if not show_secrets:
        say("Guesses are blocks: --show-secrets shows them")


def _show_listing(listing: "Table") -> None:
    show_table(listing.title, listing.columns, listing.rows)
