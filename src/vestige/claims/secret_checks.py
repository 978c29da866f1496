"""A list of secrets, opened for one or two models, and the checks that it needs."""

from collections.abc import Sequence
from typing import Any

from vestige import _validate
from vestige.claims.checks import read
from vestige.claims.claim import NO_LEAK, Check
from vestige.claims.model_checks import adapter_check, alive_by_samples, pair_checks
from vestige.data.secret_lines import SecretList, as_list, numbered
from vestige.data.secret_shapes import Secret
from vestige.models.behind import Behind
from vestige.models.protocols import NextToken
from vestige.models.readable_secrets import Readable, readable
from vestige.monitor import Monitor


def open_list(
    models: Sequence[NextToken],
    secrets: Sequence[Secret] | SecretList,
    *,
    seed: int,
    monitor: Monitor,
) -> tuple[list[Readable], dict[str, Any]]:
    """The secrets that the models can read, with what a result says of the rest and the models.

    Args:
        models: one, or AFTER and BEFORE.
        secrets: at least one.
        seed: of the texts with which the models are checked.
        monitor: gets one line about secrets that are skipped.

    Returns:
        the secrets; numbers of `skipped` and `repeated` ones, and the models' `checks`.

    Raises:
        ValueError: there is no secret.
        DataError: the models can read none.
    """
    listed = as_list(secrets)
    _validate.at_least(1, secrets=len(listed.secrets))
    checks = _model_checks(models, seed=seed)
    chosen, unread = readable(models, listed, monitor)
    skipped = len(listed.skipped) + len(unread)
    return chosen, {"skipped": skipped, "repeated": listed.repeated, "checks": checks}


def _model_checks(models: Sequence[NextToken], *, seed: int) -> tuple[Check, ...]:
    if len(models) > 1:
        after, before = models
        return pair_checks(before, after, seed=seed)
    (model,) = models
    alive = alive_by_samples(model, seed=seed)
    adapter = adapter_check(model.model if isinstance(model, Behind) else model, seed=seed)
    return (alive,) if adapter is None else (alive, adapter)


def list_checks(*, usable: int, skipped: int, repeated: int) -> tuple[Check, ...]:
    """The checks "read" and "independent" of a list of secrets.

    Args:
        usable: distinct secrets that the model read.
        skipped: lines that cannot be used.
        repeated: lines that repeat another.
    """
    distinct = usable + skipped
    return (
        read(usable, distinct, what=f"the {distinct:,} distinct secrets"),
        Check(
            "independent", "passed",
            f"Secrets: {distinct + repeated:,} listed, {distinct:,} distinct. Repeated ones count "
            "once. The correction for several secrets allows shared alternatives.",
        ),
    )  # fmt: skip


def open_secrets(*, in_part: Sequence[int], words: Sequence[int], known: str) -> tuple[Check, ...]:
    """A failed check if secrets are neither shown to leak nor to be unknown.

    Args:
        in_part: numbers of secrets of which a piece is known, perhaps from elsewhere.
        words: numbers of significant secrets whose alternatives are words of a list.
        known: what the model does with the latter, such as "is more probable than".
    """
    sentences = []
    if in_part:
        sentences.append(
            f"Known in part: {numbered(in_part)}. The part, such as a name, can come from other "
            "texts."
        )
    if words:
        sentences.append(
            f"{numbered(words).capitalize()}: {known}, but its alternatives are only words of a "
            "list, and its meaning may be the reason. Mark the alternatives, as in {{tea|coffee}}."
        )
    if not sentences:
        return ()
    return (Check("alternatives", "failed", " ".join(sentences), (NO_LEAK,)),)
