"""Completion of canaries or of own secrets from what stands before: `vestige complete`."""

from dataclasses import replace
from typing import TYPE_CHECKING, Annotated, overload

from annotated_types import Ge

from vestige.attacks.manifests import asked_as_learnt, load_canaries
from vestige.models import provenance
from vestige.monitor import SILENT, Monitor
from vestige.training_runs import useless_model
from vestige.workflows.arguments import Call
from vestige.workflows.inputs import Lines, ManifestLike, open_model, shown
from vestige.workflows.options import Device, Flag, Metavar, ModelLike

if TYPE_CHECKING:
    from vestige.attacks.exposure.completion import Completion
    from vestige.attacks.exposure.secret_completion import SecretCompletion


@overload
def complete(
    model: ModelLike,
    manifest: ManifestLike,
    *,
    prefix: int | None = None,
    beam: int = 10,
    device: str = "auto",
    monitor: Monitor = SILENT,
) -> "Completion": ...


@overload
def complete(
    model: ModelLike,
    *,
    secrets: Lines,
    question: str | None = None,
    beam: int = 10,
    device: str = "auto",
    monitor: Monitor = SILENT,
) -> "SecretCompletion": ...


def complete(
    model: ModelLike,
    manifest: Annotated[ManifestLike | None, Flag("--manifest"), Metavar("M")] = None,
    *,
    secrets: Annotated[Lines | None, Metavar("FILE")] = None,
    question: Annotated[str | None, Metavar("TEXT")] = None,
    prefix: Annotated[int | None, Ge(1)] = None,
    beam: Annotated[int, Ge(1)] = 10,
    device: Device = "auto",
    monitor: Monitor = SILENT,
) -> "Completion | SecretCompletion":
    """Completion of canaries, or of secrets that one has, by a model given their beginnings.

    The whole rest has to come out, word for word: by greedy decoding (always the likeliest next
    token), and as the best of a beam of continuations. Canaries that were never planted stand
    beside, and so does each canary with its words in another order. Rates have Clopper-Pearson
    intervals. `prefix needed` is the shortest beginning from which greedy decoding says the rest.

    The verdict asks how probable so many completions are for a model that never read the canaries:
    beside the controls, and by the orders in which their words could stand. "No leak shown" takes a
    model that predicts, and so many canaries that at most 25 % are completed with confidence.

    With `--secrets` nothing need have been planted. Each line is a secret, as for `vestige
    exposure`; the model is given what precedes a part that varies, and has to complete the part.
    How many it completes is compared with how many anyone would guess.

    Args:
        model: A model trained on the planted copy.
        manifest: The `manifest.json` of the planting, or its directory.
        secrets: A file with a secret on each line, in place of a manifest.
        question: Ask for the secrets in the assistant's turn after this message of the user's.
        prefix: Tokens of each canary that the model is given. Default: 1.
        beam: Continuations that the beam search keeps.

    Examples:
        vestige complete model --manifest planted --out run

        vestige complete model --manifest planted/manifest.json --prefix 2 --beam 50 --out run

        vestige complete model --secrets codes.txt --out run
    """
    call = Call.of(complete, locals())
    if manifest is None or secrets is not None:
        return _of_secrets(call, monitor)
    if question is not None:
        raise ValueError("`question` must come with `secrets`, got a manifest, which has its own")
    from vestige.attacks.exposure import completion
    from vestige.attacks.exposure.canary_checks import canary_checks

    given = prefix or 1
    loaded = open_model(model, device=device)
    sealed, canaries = load_canaries(manifest, loaded, monitor)
    with monitor.progress("completing") as step:
        asked = asked_as_learnt(loaded, sealed)
        found = completion.complete(asked, canaries, prefix=given, beam=beam, progress=step)
    checks = canary_checks(
        loaded, manifest, sealed, readable=len(canaries), useless=useless_model(model)
    )
    return call.record(
        replace(found, checks=checks),
        configuration={"prefix": given, "beam": beam, "manifest": shown(manifest)},
        models={"model": provenance.of_model(model, loaded)},
        data={"manifest": sealed.sha256, "planted": sealed.planted},
    )


def _of_secrets(call: Call, monitor: Monitor) -> "SecretCompletion":
    """Completion of secrets in place of canaries, by the arguments of `complete`."""
    from vestige.attacks.exposure.own_secrets import completion_of, require_alone

    given = call.arguments
    require_alone(given, ("manifest", "prefix"))
    loaded = open_model(given["model"], device=given["device"])
    shared = {name: given[name] for name in ("question", "beam")}
    found = completion_of(loaded, given["secrets"], **shared, monitor=monitor)
    return call.record(
        found,
        configuration={"secrets": shown(given["secrets"]), **shared},
        models={"model": provenance.of_model(given["model"], loaded)},
    )
