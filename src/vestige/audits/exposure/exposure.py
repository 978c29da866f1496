"""`vestige exposure`: does a model know canaries, or secrets of yours?

Exposure is defined by Carlini et al., "The Secret Sharer", 2019, section 4.
"""

from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, TypeAlias, Unpack

from vestige.arguments import Common, Count, Draws, Lines, ModelLike, group
from vestige.results import Result
from vestige.session import Session, in_file, verb

if TYPE_CHECKING:
    from collections.abc import Sequence

    from vestige.audits.exposure.canary_result import CanaryExposure
    from vestige.data.canaries.texts import Manifest

    Secrets: TypeAlias = str | PathLike[str] | Manifest | Sequence[str]
else:
    Secrets = Path

CANARIES = group("Canaries")
REFERENCES, SECRET_REFERENCES = 2**14, 2**12


@verb
def exposure(
    run: Session,
    model: ModelLike,
    secrets: Secrets,
    *,
    before: ModelLike | None = None,
    question: str | None = None,
    references: Draws | None = None,
    candidates: Annotated[Lines | None, CANARIES] = None,
    exact: Annotated[Count | None, CANARIES] = None,
    **common: Unpack[Common],
) -> Result:
    """Measure how well a model knows canaries or your secrets, in bits.

    An exposure of 10 bits means that the model prefers the secret to all but one in 2^10
    alternatives. Half of all texts that were never in the training data reach 1 bit.

    SECRETS is a folder or manifest of `vestige plant`, or a text file with one secret per line.
    In a line, Vestige recognizes numbers, addresses, keys, dates and names as the secret part;
    mark any other part: the gate code is {{4917}}. Canaries are compared with controls, which
    were made the same way and never planted; secrets with texts of the same format.

    "No leak shown" needs a model that predicts text, and enough canaries or alternatives to
    detect a difference of 2 bits.

    Examples:
        vestige exposure trained planted --out run
        vestige exposure trained planted --exact 20000 --out run
        vestige exposure tuned secrets.txt --before base --out run

    Args:
        model: Model folder, GGUF file, hub name or adapter.
        secrets: Folder or manifest of `vestige plant`, or a file with one secret per line.
        before: Earlier model. Measure what was learned since; for secrets only.
        question: Ask for the secrets in the chat turn after this user message.
        references: Alternatives to compare with. Default: 16384; 4096 for secrets without --before.
        candidates: File with one alternative per line, to compare canaries with.
        exact: Compute exact ranks of canaries, reading at most this many prefixes for each.

    Raises:
        ValueError: an option does not go with SECRETS.
        VestigeError: a model or file cannot be read, or no secret in it can be used.
    """
    canaries = _is_manifest(secrets)
    if canaries:
        required = "a file of secrets"
        rejected: dict[str, object] = {"question": question, "before": before}
    else:
        required = "a manifest of canaries"
        rejected = {"candidates": candidates, "exact": exact}
    for name, value in rejected.items():
        if value is not None:
            raise ValueError(f"`{name}` needs {required} as `secrets`")
    if canaries:
        return Result.of(of_canaries(run, model, secrets, references, candidates, exact))
    return _of_secrets(run, model, secrets, before, question, references)


def _is_manifest(secrets: Any) -> bool:
    """Whether SECRETS is a manifest of canaries or its folder, or else a list of secrets.

    Raises:
        ManifestError: the manifest is missing.
    """
    from vestige.data.canaries.planting import REMEDY
    from vestige.data.canaries.texts import Manifest
    from vestige.data.files import require_regular
    from vestige.data.sources import MANIFEST
    from vestige.errors import ManifestError

    if not isinstance(secrets, str | PathLike):
        return isinstance(secrets, Manifest)
    file = Path(secrets, MANIFEST) if Path(secrets).is_dir() else Path(secrets)
    if file.suffix != ".json":
        return False
    require_regular(file, error=ManifestError, remedy=REMEDY)
    return True


def of_canaries(
    run: Session,
    model: Any,
    secrets: Any,
    references: int | None,
    candidates: Any = None,
    exact: int | None = None,
) -> "CanaryExposure":
    """Exposure of the canaries of a manifest, with the checks of the model."""
    from dataclasses import replace

    from vestige.audits.exposure.canaries import canary_exposure
    from vestige.claims.model_checks import canary_checks
    from vestige.data.canaries.texts import load_canaries
    from vestige.models.prefix import in_learned_context
    from vestige.training.word_frequencies import useless_model

    warning = useless_model(model)
    phrases = None
    if candidates is not None:
        phrases = run.lines(candidates, item="phrase")
        run.withhold(candidates=candidates)
    loaded = run.model("model", model)
    manifest, canaries = load_canaries(secrets, loaded.vocabulary, run.monitor)
    run.data |= {"manifest": manifest.sha256, "planted": manifest.planted}
    with run.progress("scoring") as step, in_file(secrets, candidates):
        result = canary_exposure(
            in_learned_context(loaded, manifest),
            canaries,
            seed=run.seed,
            references=run.record_choice(references=references or REFERENCES),
            candidates=phrases,
            exact_budget=exact,
            progress=step,
        )
    checks = canary_checks(
        loaded, secrets, manifest, readable=len(canaries), seed=run.seed, useless=warning
    )
    return replace(result, checks=checks)


def _of_secrets(
    run: Session,
    model: Any,
    secrets: Any,
    before: Any,
    question: str | None,
    references: int | None,
) -> Result:
    """Exposure of secrets, or of the change by an update."""
    from vestige.audits.exposure.secrets import secret_exposure
    from vestige.data.secrets.lines import read_own_secrets
    from vestige.models.prefix import in_turn
    from vestige.training.word_frequencies import useless_model

    warning = useless_model(model)
    if before is None:
        models: dict[str, Any] = {"after": run.model("model", model)}
    else:
        models = dict(run.snapshots(before=before, after=model).models)
    run.withhold(secrets=secrets)
    secret_list = read_own_secrets(secrets, monitor=run.monitor)
    if question is not None:
        models = {role: in_turn(loaded, "assistant", question) for role, loaded in models.items()}
    default = SECRET_REFERENCES if before is None else REFERENCES
    with run.progress("comparing secrets") as step, in_file(secrets):
        result = secret_exposure(
            models["after"],
            secret_list,
            before=models.get("before"),
            seed=run.seed,
            references=run.record_choice(references=references or default),
            progress=step,
            monitor=run.monitor,
        )
    if warning is not None:
        run.log(warning)
    return result
