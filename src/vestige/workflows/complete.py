"""Completion of planted canaries from their beginnings: `vestige complete`."""

from typing import TYPE_CHECKING, Annotated

from annotated_types import Ge

from vestige.monitor import SILENT, Monitor
from vestige.workflows import provenance
from vestige.workflows.arguments import Call
from vestige.workflows.inputs import ManifestLike, open_model, shown
from vestige.workflows.manifests import asked_as_learnt, load_canaries
from vestige.workflows.options import Device, Flag, Metavar, ModelLike

if TYPE_CHECKING:
    from vestige.attacks.exposure.completion import Completion


def complete(
    model: ModelLike,
    manifest: Annotated[ManifestLike, Flag("--manifest"), Metavar("M")],
    *,
    prefix: Annotated[int, Ge(1)] = 1,
    beam: Annotated[int, Ge(1)] = 10,
    device: Device = "auto",
    monitor: Monitor = SILENT,
) -> "Completion":
    """Completion of canaries by a model that is given their beginnings.

    The whole rest has to come out, word for word: by greedy decoding (always the likeliest next
    token), and as the best of a beam of continuations. Canaries that were never planted stand
    beside, and so does each canary with its words in another order. Rates have Clopper-Pearson
    intervals. `prefix needed` is the shortest beginning from which greedy decoding says the rest.

    Args:
        model: A model trained on the planted copy.
        manifest: The `manifest.json` of the planting, or its directory.
        prefix: Tokens of each canary that the model is given.
        beam: Continuations that the beam search keeps.

    Examples:
        vestige complete model --manifest planted --out run

        vestige complete model --manifest planted/manifest.json --prefix 2 --beam 50 --out run
    """
    call = Call.of(complete, locals())
    from vestige.attacks.exposure import completion

    loaded = open_model(model, device=device)
    sealed, canaries = load_canaries(manifest, loaded, monitor)
    with monitor.progress("completing") as step:
        asked = asked_as_learnt(loaded, sealed)
        found = completion.complete(asked, canaries, prefix=prefix, beam=beam, progress=step)
    return call.record(
        found,
        configuration={"prefix": prefix, "beam": beam, "manifest": shown(manifest)},
        models={"model": provenance.of_model(model, loaded)},
        data={"manifest": sealed.sha256, "planted": sealed.planted},
    )
