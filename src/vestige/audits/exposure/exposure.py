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

    from vestige.attacks.exposure.exposure_result import CanaryExposure
    from vestige.data.manifest import Manifest

    Secrets: TypeAlias = str | PathLike[str] | Manifest | Sequence[str]
else:
    Secrets = Path

CANARIES = group("Canaries")
CANARY_REFERENCES, SECRET_REFERENCES, RANK_REFERENCES = 2**14, 2**12, 2**14


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
        references: Alternatives to compare with. Default: 16384 for canaries, 4096 for secrets.
        candidates: File with one alternative per line, to compare canaries with.
        exact: Compute exact ranks of canaries, reading at most this many prefixes for each.

    Raises:
        ValueError: an option does not go with SECRETS.
        VestigeError: a model or file cannot be read, or no secret in it can be used.
    """
    manifest = manifest_of(secrets)
    if manifest is None:
        reject("a manifest of canaries", candidates=candidates, exact=exact)
        return _of_secrets(run, model, secrets, before, question, references)
    reject("a file of secrets", question=question, before=before)
    return Result.of(of_canaries(run, model, secrets, references, candidates, exact))


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

    from vestige.attacks.exposure.canary_checks import canary_checks
    from vestige.attacks.exposure.canary_exposure import canary_exposure
    from vestige.attacks.manifests import asked_as_learnt, load_canaries
    from vestige.preparation.trained import useless_model

    warning = useless_model(model)
    listed = None
    if candidates is not None:
        listed = run.lines(candidates, one="phrase")
        run.withhold(candidates=candidates)
    loaded = run.model("model", model)
    manifest, canaries = load_canaries(secrets, loaded, run.monitor)
    run.data |= {"manifest": manifest.sha256, "planted": manifest.planted}
    references = run.chosen(references=references or CANARY_REFERENCES)
    with run.progress("scoring") as step, in_file(secrets, candidates):
        found = canary_exposure(
            asked_as_learnt(loaded, manifest),
            canaries,
            seed=run.seed,
            references=references,
            candidates=listed,
            exact_budget=exact,
            progress=step,
        )
    checks = canary_checks(
        loaded, secrets, manifest, readable=len(canaries), seed=run.seed, useless=warning
    )
    return replace(found, checks=checks)


def _of_secrets(
    run: Session, model: Any, secrets: Any, before: Any, question: str | None, references: Any
) -> Result:
    """Exposure of secrets, or how much an update changed it."""
    from vestige.attacks.exposure.own_secrets import log_unread, read_own_secrets
    from vestige.attacks.manifests import in_turn
    from vestige.preparation.trained import useless_model

    warning = useless_model(model)
    if before is None:
        opened: dict[str, Any] = {"model": run.model("model", model)}
    else:
        opened = dict(run.snapshots(before=before, after=model).models)
    run.withhold(secrets=secrets)
    listed = read_own_secrets(secrets, monitor=run.monitor)
    if question is not None:
        opened = {role: in_turn(one, "assistant", question) for role, one in opened.items()}
    number = run.chosen(
        references=references or (SECRET_REFERENCES if before is None else RANK_REFERENCES)
    )
    with run.progress("comparing secrets") as step, in_file(secrets):
        if before is None:
            from vestige.attacks.exposure.secret_exposure import secret_exposure

            found: Any = secret_exposure(
                opened["model"], listed, seed=run.seed, references=number, progress=step
            )
        else:
            from vestige.attacks.exposure.secret_rank import secret_rank

            pair = opened["before"], opened["after"]
            found = secret_rank(*pair, listed, seed=run.seed, samples=number, progress=step)
    log_unread(found.skipped, listed, run.monitor)
    if warning is not None:
        run.log(warning)
    return Result.of(found)


def manifest_of(secrets: Any) -> Any:
    """The manifest that SECRETS names, or None for a list of secrets.

    Raises:
        ManifestError: the manifest, or that of a folder, is missing.
    """
    from vestige.attacks.manifests import manifest_file
    from vestige.data.checksum import REMEDY
    from vestige.data.manifest import Manifest
    from vestige.data.regular_file import require_regular
    from vestige.errors import ManifestError

    if isinstance(secrets, Manifest):
        return secrets
    if not isinstance(secrets, str | PathLike):
        return None
    file = manifest_file(secrets)
    if file.suffix != ".json":
        return None
    require_regular(file, error=ManifestError, remedy=REMEDY)
    return file


def reject(needs: str, **options: object) -> None:
    """Raise ValueError for an option that was given and does not apply."""
    for name, value in options.items():
        if value is not None:
            raise ValueError(f"`{name}` needs {needs} as `secrets`")
