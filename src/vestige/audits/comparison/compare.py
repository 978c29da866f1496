"""`vestige compare`: which defence leaks less at equal utility?"""

from typing import TYPE_CHECKING, Annotated, Any, Unpack

from cyclopts import Parameter

from vestige.arguments import (
    Common,
    CorpusLike,
    Count,
    Format,
    Limit,
    ManifestLike,
    Probability,
    TextColumn,
    UserColumn,
)
from vestige.audits.comparison.trainings import Trainings
from vestige.results import Result
from vestige.session import Session, verb

if TYPE_CHECKING:
    from vestige.data.canaries.texts import Canary
    from vestige.models.protocols import LanguageModel


@verb
def compare(
    run: Session,
    runs: Annotated[Trainings, Parameter(metavar="RUN")],
    *,
    manifest: ManifestLike | None = None,
    test: CorpusLike | None = None,
    baseline: str | None = None,
    tolerance: Probability = 0.05,
    group: Count = 5,
    text: TextColumn = "text",
    user: UserColumn = None,
    format: Format = "auto",
    limit: Limit = None,
    **common: Unpack[Common],
) -> Result:
    """Compare trainings under several defences, and say which one to use.

    Every model is tested on the same canaries and the same test text. The result has leakage,
    utility, fairness between users, guarantee and cost of each training, with 95% intervals. A
    defence helps only if it leaks less at equal test perplexity.

    A verdict needs three trainings of each defence with different seeds (vestige train --seeds 3).
    With fewer, there are numbers and no verdict. The models must share a vocabulary: give
    --vocabulary of the first one to the later trainings.

    Examples:
        vestige train planted --vocabulary public --seeds 3 --out plain
        vestige compare plain goldfish dp --manifest planted --test test.jsonl --out comparison
        vestige compare a=runs/1 a=runs/2 a=runs/3 b=dp --baseline a --test mail.jsonl --out run

    Args:
        runs: Folders of `vestige train`, or models. NAME=RUN names one; repeat a NAME to give
            several trainings of it.
        manifest: Folder or manifest of `vestige plant`. Measures leakage.
        test: Text that no training has read. Measures utility and, with --user, fairness.
            Default: the validation text, if all trainings have the same.
        baseline: Name of the undefended training. Default: the one without a defence.
        tolerance: Relative difference in test perplexity that counts as equal.
        group: Number of users with most, and with fewest, documents to compare.

    Raises:
        ValueError: the trainings cannot be told apart, or there is nothing to measure.
        VestigeError: a model or file cannot be read, or the vocabularies differ.
    """
    from vestige.audits.comparison.comparison import compare_defences
    from vestige.audits.comparison.measurements import measure_models
    from vestige.audits.comparison.trainings import (
        as_arguments,
        load_trainings,
        undefended,
        user_samples,
        utility_text,
    )

    run.record_choice(runs=as_arguments(runs))
    trainings = load_trainings(runs, device=run.device)
    names = [training.name for training in trainings]
    for index, training in enumerate(trainings):
        name = training.name
        number = f" {names[:index].count(name) + 1}" if names.count(name) > 1 else ""
        run.record_model(f"{name}{number}", training.source, training.model)
    base = undefended(trainings, baseline)
    run.configuration["baseline"] = base
    columns: dict[str, Any] = {"format": format, "text": text, "user": user, "limit": limit}
    corpus = None if test is None else run.corpus("test", test, **columns)
    notes = list[str]()
    canaries = _canaries(run, manifest, trainings[0].model, notes)
    encoded = utility_text(trainings, corpus, notes)
    samples = user_samples(trainings, base, encoded, notes)
    if not canaries and encoded is None:
        raise ValueError("there is nothing to measure: give `manifest`, `test`, or both")
    with run.progress("comparing") as step:
        measured, more_notes = measure_models(
            trainings, canaries=canaries, test=encoded, seed=run.seed, progress=step
        )
    result = compare_defences(
        measured,
        baseline=base,
        users=None if encoded is None else encoded.users,
        samples=samples,
        k=group,
        tolerance=tolerance,
        notes=[*notes, *more_notes],
    )
    for note in result.summary["notes"]:
        run.log(note)
    return result


def _canaries(
    run: Session, manifest: "ManifestLike | None", first: "LanguageModel", notes: list[str]
) -> "tuple[Canary, ...]":
    """The canaries with the models' ids; without a manifest, a note and no canaries."""
    from vestige.data.canaries.texts import load_canaries
    from vestige.errors import DataError

    if manifest is None:
        notes.append("Leakage was not measured: give --manifest of the planted canaries.")
        return ()
    loaded, canaries = load_canaries(manifest, first.vocabulary, run.monitor)
    if loaded.turn is not None:
        raise DataError(
            "the canaries of the manifest are turns of conversations, and these models read "
            "running text",
            remedy="Measure each model with `vestige exposure` and `vestige extract`.",
        )
    run.data |= {"manifest": loaded.sha256, "planted": loaded.planted}
    return canaries
