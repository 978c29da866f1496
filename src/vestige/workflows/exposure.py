"""Exposure of planted canaries: `vestige exposure`."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, overload

from annotated_types import Ge

from vestige.attacks.manifests import asked_as_learnt, load_canaries
from vestige.errors import DataError
from vestige.models import provenance
from vestige.monitor import SILENT, Monitor
from vestige.training_runs import useless_model
from vestige.workflows.arguments import Call
from vestige.workflows.inputs import Lines, ManifestLike, open_model, read_lines, shown
from vestige.workflows.options import Device, Flag, Metavar, ModelLike, Seed

if TYPE_CHECKING:
    from vestige.attacks.exposure.exposure_result import CanaryExposure
    from vestige.attacks.exposure.secret_result import SecretExposure

REFERENCES = 2**14


@overload
def exposure(
    model: ModelLike,
    manifest: ManifestLike,
    *,
    references: int | None = None,
    candidates: Lines | None = None,
    exact: int | None = None,
    seed: int = 0,
    device: str = "auto",
    monitor: Monitor = SILENT,
) -> "CanaryExposure": ...


@overload
def exposure(
    model: ModelLike,
    *,
    secrets: Lines,
    question: str | None = None,
    references: int | None = None,
    seed: int = 0,
    device: str = "auto",
    monitor: Monitor = SILENT,
) -> "SecretExposure": ...


def exposure(
    model: ModelLike,
    manifest: Annotated[ManifestLike | None, Flag("--manifest"), Metavar("PATH")] = None,
    *,
    secrets: Annotated[Lines | None, Metavar("FILE")] = None,
    question: Annotated[str | None, Metavar("TEXT")] = None,
    references: Annotated[int | None, Ge(1)] = None,
    candidates: Annotated[Lines | None, Metavar("FILE")] = None,
    exact: Annotated[int | None, Ge(1), Metavar("BUDGET")] = None,
    seed: Seed = 0,
    device: Device = "auto",
    monitor: Monitor = SILENT,
) -> "CanaryExposure | SecretExposure":
    """Exposure of canaries, or of secrets that one has, under a model.

    Exposure counts bits: a canary of 10 bits is likelier than all but one in 2^10 phrases that
    could have stood in its place. Half of those that were never planted reach 1 bit, by chance.
    Each planted canary is also ranked among the orders of its own words, so that memory of the
    sequence is told from words that are merely frequent.

    The verdict compares the planted canaries with the controls, which were made alike and never
    planted: an exact test, for which one canary takes 19 controls or more. "No leak shown" takes a
    model that predicts, and enough canaries and controls to detect 2 bits.

    `--references` resolve no more than log2 of their number: of a canary that is likelier than
    all of them only a bound is known (≥). `--exact` counts on, where the canary is likely enough.

    With `--secrets` nothing need have been planted. Each line is a secret with the words around
    it: what varies is recognised (numbers, addresses, keys, dates, names), or marked, as in `the
    gate code is {{4917}}`; of other lines the last rare words vary, which alone show no leak. A
    secret leaks where it is significantly more probable than texts of its format, for all secrets
    together, and than texts of pieces that the model knows from elsewhere.

    Args:
        model: A model or training directory.
        manifest: A manifest.json, or the DIR of `vestige plant`.
        secrets: A file with a secret on each line, in place of a manifest.
        question: Ask for the secrets in the assistant's turn after this message of the user's.
        references: Phrases to compare with; a space of no more is taken whole. Default: 16,384; of
            a secret 4,096, fewer where these are as likely.
        candidates: Compare with the lines of this file: all that a template could have said.
        exact: Find exact ranks, reading at most so many prefixes for each planted canary.

    Examples:
        vestige plant mail.jsonl --text body --out planted --copies 10 --controls 20

        vestige train planted/corpus.jsonl --out trained

        vestige exposure trained --manifest planted --out run

        vestige exposure trained --manifest planted --out run --exact 20000 --json

        vestige exposure trained --secrets codes.txt --out run
    """
    call = Call.of(exposure, locals())
    warning = useless_model(model)
    if manifest is None or secrets is not None:
        return _of_secrets(call, warning, monitor)
    if question is not None:
        raise ValueError("`question` must come with `secrets`, got a manifest, which has its own")
    from vestige.attacks.exposure.canary_checks import canary_checks
    from vestige.attacks.exposure.canary_exposure import canary_exposure

    listed = (
        read_lines(Path(candidates), one="phrase")
        if isinstance(candidates, str | PathLike)
        else candidates
    )
    loaded = open_model(model, device=device)
    sealed, canaries = load_canaries(manifest, loaded, monitor)
    with monitor.progress("scoring") as step, _naming(manifest, candidates):
        found = canary_exposure(
            asked_as_learnt(loaded, sealed),
            canaries,
            seed=seed,
            references=references or REFERENCES,
            candidates=listed,
            exact_budget=exact,
            progress=step,
        )
    checks = canary_checks(
        loaded, manifest, sealed, readable=len(canaries), seed=seed, useless=warning
    )
    return call.record(
        replace(found, checks=checks),
        configuration={
            "manifest": shown(manifest),
            "references": references or REFERENCES,
            "candidates": None if candidates is None else shown(candidates),
            "exact": exact,
        },
        seed=seed,
        models={"model": provenance.of_model(model, loaded)},
        data={"manifest": sealed.sha256, "planted": sealed.planted},
    )


def _of_secrets(call: Call, warning: str | None, monitor: Monitor) -> "SecretExposure":
    """Exposure of secrets in place of canaries, by the arguments of `exposure`."""
    from vestige.attacks.exposure.own_secrets import REFERENCES as of_secrets
    from vestige.attacks.exposure.own_secrets import exposure_of, require_alone

    given = call.arguments
    require_alone(given, ("manifest", "candidates", "exact"))
    loaded = open_model(given["model"], device=given["device"])
    shared = {name: given[name] for name in ("question", "references", "seed")}
    found = exposure_of(loaded, given["secrets"], **shared, monitor=monitor)
    if warning is not None:
        monitor.log(warning)
    return call.record(
        found,
        configuration={
            "secrets": shown(given["secrets"]),
            "question": given["question"],
            "references": given["references"] or of_secrets,
        },
        seed=given["seed"],
        models={"model": provenance.of_model(given["model"], loaded)},
    )


@contextmanager
def _naming(*given: object) -> Iterator[None]:
    """Name the files in an error about what stands in them."""
    try:
        yield
    except DataError as error:
        names = " with ".join(str(one) for one in given if isinstance(one, str | PathLike))
        raise DataError(
            f"{names}: {error.problem}" if names else error.problem, remedy=error.remedy
        ) from error
