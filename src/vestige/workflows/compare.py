"""Comparison of defences: `vestige compare`."""

from typing import TYPE_CHECKING, Annotated

from annotated_types import Ge

from vestige import _validate
from vestige.attacks.manifests import load_canaries
from vestige.models import provenance
from vestige.monitor import SILENT, Monitor
from vestige.workflows.arguments import Call
from vestige.workflows.inputs import ManifestLike, open_corpus, shown
from vestige.workflows.model_measurements import measure_models
from vestige.workflows.options import (
    CorpusLike,
    DataFormat,
    Device,
    Limit,
    Metavar,
    Seed,
    TextColumn,
    UserColumn,
)
from vestige.workflows.trained_models import (
    TrainedModels,
    labelled,
    listed,
    load_trainings,
    shared_text,
    undefended,
    user_samples,
)

if TYPE_CHECKING:
    from vestige.data.canary import Canary
    from vestige.defences.comparison import DefenceComparison
    from vestige.models.protocols import LanguageModel


def compare(
    runs: Annotated[TrainedModels, Metavar("RUN")],
    *,
    manifest: Annotated[ManifestLike | None, Metavar("M")] = None,
    test: Annotated[CorpusLike | None, Metavar("DATA")] = None,
    baseline: Annotated[str | None, Metavar("NAME")] = None,
    tolerance: float = 0.05,
    group: Annotated[int, Ge(1)] = 5,
    seed: Seed = 0,
    device: Device = "auto",
    format: DataFormat = "auto",
    text: TextColumn = "text",
    user: UserColumn = None,
    limit: Limit = None,
    monitor: Monitor = SILENT,
) -> "DefenceComparison":
    """Trainings under several defences side by side, and which to take.

    Every model is asked the same canaries and the same test text. What each leaks, predicts, does
    to users who wrote little, guarantees and costs stands in one table, every measure with its
    interval; `DIR/page.html` shows it at a glance. A defence is said to help only where it leaks
    less at the same test perplexity, and only where the intervals support it.

    Two trainings that differ in their seed alone differ by bits of exposure, so that a verdict
    takes three trainings of each, with different seeds (`vestige train --seeds 3`); with fewer
    there are numbers and no verdict. Trainings are compared by steps and tokens, not by seconds.

    The models must share a vocabulary: give the later trainings `--vocabulary` of the first.

    Args:
        runs: Directories of `vestige train`, of `vestige train --seeds`, or models; NAME=RUN
            names one, and given several times has several trainings.
        manifest: The `manifest.json` of the planting, or its directory: measures leakage.
        test: Text that no training has seen: measures utility and, with `user`, fairness. Without
            it the text that all trainings held out is taken.
        baseline: Name of the undefended training; if not given, the one without a defence.
        tolerance: Share by which the test perplexities of equally useful models may differ.
        group: Users with most and with fewest documents, of each so many.

    Examples:
        vestige train planted --vocabulary public --seeds 3 --out plain

        vestige compare plain goldfish dp --manifest planted --test test.jsonl --out comparison

        vestige compare a=runs/1 a=runs/2 a=runs/3 b=runs/4 b=runs/5 b=runs/6 --baseline a
        --manifest planted --test mail.jsonl --user author --out comparison
    """
    call = Call.of(compare, {**locals(), "runs": listed(runs)})
    from vestige.defences.comparison import compare_defences

    _validate.open_fraction(**{"`tolerance`": tolerance})
    trainings = load_trainings(runs, device=device)
    base = undefended(trainings, baseline)
    corpus = None
    if test is not None:
        corpus = open_corpus(test, format=format, text=text, user=user, limit=limit)
    canaries, sealed, notes = _canaries(manifest, trainings[0].model, monitor)
    encoded, told = shared_text(trainings, corpus)
    samples, why = user_samples(trainings, base, encoded)
    if not canaries and encoded is None:
        raise ValueError("`manifest` or `test` must be given, got neither: nothing to measure")
    with monitor.progress("comparing") as step:
        measured, more = measure_models(
            trainings, canaries=canaries, test=encoded, seed=seed, progress=step
        )
    found = compare_defences(
        measured,
        baseline=base,
        users=None if encoded is None else encoded.users,
        samples=samples,
        k=group,
        tolerance=tolerance,
        notes=[*notes, *told, *why, *more],
    )
    return call.record(
        found,
        configuration={
            "baseline": base,
            **call.chosen("tolerance", "group"),
            "manifest": None if manifest is None else shown(manifest),
        },
        seed=seed,
        models={
            name: provenance.of_model(one.source, one.model)
            for name, one in labelled(trainings).items()
        },
        data=sealed if corpus is None else {**sealed, "test": provenance.of_corpus(test, corpus)},
    )


def _canaries(
    manifest: "ManifestLike | None", first: "LanguageModel", monitor: Monitor
) -> "tuple[tuple[Canary, ...], dict[str, object], list[str]]":
    """The canaries with the models' ids, what is recorded of them, and a note without any."""
    if manifest is None:
        return (), {}, ["Leakage: give --manifest of the planted canaries."]
    sealed, canaries = load_canaries(manifest, first, monitor)
    if sealed.turn is not None:
        from vestige.errors import DataError

        raise DataError(
            "the canaries of the manifest stand in conversations, and trainings of running text "
            "are compared",
            remedy="Measure each model by `vestige exposure` and `vestige extract`.",
        )
    return canaries, {"manifest": sealed.sha256, "planted": sealed.planted}, []
