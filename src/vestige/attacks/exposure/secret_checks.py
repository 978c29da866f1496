"""Checks of audits of secrets: the models, the list, and what its alternatives can show."""

from collections.abc import Sequence

from vestige import claims
from vestige.attacks.model_checks import adapter_check, alive_by_samples, pair_checks
from vestige.data.secret_lines import numbered
from vestige.models.behind import Behind
from vestige.models.protocols import NextToken


def checks_of(models: Sequence[NextToken], *, seed: int) -> tuple[claims.Check, ...]:
    """Whether one model, or AFTER and BEFORE, can be audited."""
    if len(models) > 1:
        after, before = models
        return pair_checks(before, after, seed=seed)
    (model,) = models
    alive = alive_by_samples(model, seed=seed)
    inner = model.model if isinstance(model, Behind) else model
    adapter = adapter_check(inner, seed=seed)
    return (alive,) if adapter is None else (alive, adapter)


def list_checks(*, listed: int, repeated: int, usable: int) -> tuple[claims.Check, ...]:
    """The checks "read" and "independent" of a list of secrets.

    Args:
        listed: lines of the list.
        repeated: lines that repeat another.
        usable: distinct secrets that the model read.
    """
    distinct = listed - repeated
    counts = f"{listed:,} listed, {distinct:,} distinct"
    return (
        claims.read(usable, distinct, what=f"the {distinct:,} distinct secrets"),
        claims.Check(
            "independent", "passed",
            f"Secrets: {counts}. Repeated ones count once. The correction for several secrets "
            "allows shared alternatives.",
        ),
    )  # fmt: skip


def open_secrets(
    *, in_part: Sequence[int], words: Sequence[int], known: str
) -> tuple[claims.Check, ...]:
    """A failed check where secrets are neither shown to leak nor to be unknown.

    Args:
        in_part: numbers of secrets of which a piece is known, perhaps from elsewhere.
        words: numbers of secrets whose alternatives are words of a list, and that are significant.
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
    return (claims.Check("alternatives", "failed", " ".join(sentences), (claims.NO_LEAK,)),)
