"""Canaries and secrets that a model completes from their beginning."""

from dataclasses import replace
from typing import TYPE_CHECKING, Any

from vestige.results import Result
from vestige.session import Session, in_file

if TYPE_CHECKING:
    from vestige.attacks.exposure.completion import Completion


def complete_canaries(
    run: Session, model: Any, manifest: Any, *, prefix: int | None, beam: int
) -> "Completion":
    """Complete each canary of a manifest from its first tokens, with the checks of the model.

    Args:
        manifest: a manifest of canaries, its file or its folder.
        prefix: tokens that the model is given; None: one.
        beam: continuations that the beam search keeps.
    """
    from vestige.attacks.exposure.canary_checks import canary_checks
    from vestige.attacks.exposure.completion import complete
    from vestige.attacks.manifests import asked_as_learnt, load_canaries
    from vestige.preparation.trained import useless_model

    warning = useless_model(model)
    loaded = run.model("model", model)
    sealed, canaries = load_canaries(manifest, loaded, run.monitor)
    run.data |= {"manifest": sealed.sha256, "planted": sealed.planted}
    prefix = run.chosen(prefix=prefix or 1)
    with run.progress("completing canaries") as step:
        found = complete(
            asked_as_learnt(loaded, sealed), canaries, prefix=prefix, beam=beam, progress=step
        )
    checks = canary_checks(loaded, manifest, sealed, readable=len(canaries), useless=warning)
    return replace(found, checks=checks)


def complete_own_secrets(
    run: Session, model: Any, secrets: Any, *, question: str | None, beam: int
) -> Result:
    """Complete each varying part of the secrets from the text before it.

    Args:
        secrets: a file with one per line, or texts.
        question: the user message before the chat turn with the secret.
        beam: continuations that the beam search keeps.
    """
    from vestige.attacks.exposure.own_secrets import log_unread, read_own_secrets
    from vestige.attacks.exposure.secret_completion import complete_secrets
    from vestige.attacks.manifests import in_turn

    loaded = run.model("model", model)
    run.withhold(what=secrets)
    listed = read_own_secrets(secrets, name="what", monitor=run.monitor)
    asked = loaded if question is None else in_turn(loaded, "assistant", question)
    with run.progress("completing secrets") as step, in_file(secrets):
        found = complete_secrets(asked, listed, beam=beam, progress=step)
    log_unread(found.skipped, listed, run.monitor)
    return Result.of(found)
