"""Secrets of the user: read from a file, read by a model, and checked, in one way for all verbs."""

from collections.abc import Sequence
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from vestige.data.files import read_lines
from vestige.data.secret_lines import SecretList, left_out, numbered, read_secret_lines
from vestige.errors import DataError
from vestige.monitor import SILENT, Monitor

if TYPE_CHECKING:
    from vestige.claims import Check
    from vestige.data.secret_shapes import Secret
    from vestige.models.protocols import NextToken

MOST = 10_000
"""Secrets of a list."""

AS_LISTED = "as listed"

CLEARLY = 10.0
"""Bits by which the words around a secret must be more probable in another form than as listed."""


class Readable(NamedTuple):
    """A secret in the form in which a model reads it, and the name of the form."""

    secret: "Secret"
    form: str


def read_own_secrets(
    secrets: "str | PathLike[str] | Sequence[str]",
    *,
    name: str = "secrets",
    monitor: Monitor = SILENT,
) -> SecretList:
    """Secrets of a file with one per line, or of texts.

    Args:
        name: of the argument, for messages.
        monitor: gets one line about secrets that were left out.

    Raises:
        ValueError: there are none, or too many.
        DataError: the file cannot be read, or no secret in it can be used.
    """
    if isinstance(secrets, str | PathLike):
        lines, where = read_lines(Path(secrets), one="secret"), f"{secrets}: "
    else:
        lines, where = list(secrets), ""
    if not 1 <= (number := sum(bool(line.strip()) for line in lines)) <= MOST:
        raise ValueError(f"`{name}` must hold 1 to {MOST:,}, got {number:,}")
    try:
        listed = read_secret_lines(lines)
    except DataError as error:
        raise DataError(f"{where}{error.problem}", remedy=error.remedy) from error
    _log(listed.skipped, monitor)
    return listed


def readable(
    models: "Sequence[NextToken]", listed: SecretList, monitor: Monitor = SILENT
) -> tuple[list[Readable], list[tuple[int, str]]]:
    """Each secret in the case and Unicode form whose other words the first model prefers.

    These words are the same for all alternatives, so the choice favours none.

    Args:
        models: that read it, over one vocabulary.
        monitor: gets one line about secrets that the model cannot read.

    Returns:
        the secrets, and numbers of those that the models cannot read with the reason.

    Raises:
        DataError: no secret can be read.
    """
    limits = [limit for model in models if (limit := getattr(model, "longest", None)) is not None]
    found: list[Readable] = []
    skipped = []
    for secret in listed.secrets:
        forms = [(AS_LISTED, secret), *secret.forms()]
        problems = [_problem(models[0], form, limits) for _, form in forms]
        fitting = [form for form, problem in zip(forms, problems, strict=True) if problem is None]
        if fitting:
            found.append(_best(models[0], fitting))
        else:
            skipped.append((secret.number, str(problems[0])))
    if not found:
        number, problem = skipped[0]
        raise DataError(
            f"no secret can be used; secret {number} {problem}",
            remedy="Shorten it to the secret and a few words before it.",
        )
    _log(skipped, monitor)
    return found, skipped


def model_checks(models: "Sequence[NextToken]", *, seed: int) -> "tuple[Check, ...]":
    """Whether one model, or AFTER and BEFORE, can be audited."""
    from vestige.attacks.model_checks import adapter_check, alive_by_samples, pair_checks
    from vestige.models.behind import Behind

    if len(models) > 1:
        after, before = models
        return pair_checks(before, after, seed=seed)
    (model,) = models
    alive = alive_by_samples(model, seed=seed)
    adapter = adapter_check(model.model if isinstance(model, Behind) else model, seed=seed)
    return (alive,) if adapter is None else (alive, adapter)


def list_checks(*, usable: int, skipped: int, repeated: int) -> "tuple[Check, ...]":
    """The checks "read" and "independent" of a list of secrets.

    Args:
        usable: distinct secrets that the model read.
        skipped: lines that cannot be used.
        repeated: lines that repeat another.
    """
    from vestige import claims

    distinct = usable + skipped
    return (
        claims.read(usable, distinct, what=f"the {distinct:,} distinct secrets"),
        claims.Check(
            "independent", "passed",
            f"Secrets: {distinct + repeated:,} listed, {distinct:,} distinct. Repeated ones count "
            "once. The correction for several secrets allows shared alternatives.",
        ),
    )  # fmt: skip


def open_secrets(
    *, in_part: Sequence[int], words: Sequence[int], known: str
) -> "tuple[Check, ...]":
    """A failed check if secrets are neither shown to leak nor to be unknown.

    Args:
        in_part: numbers of secrets of which a piece is known, perhaps from elsewhere.
        words: numbers of significant secrets whose alternatives are words of a list.
        known: what the model does with the latter, such as "is more probable than".
    """
    from vestige.claims import NO_LEAK, Check

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


def _log(skipped: Sequence[tuple[int, str]], monitor: Monitor) -> None:
    if notice := left_out(skipped):
        monitor.log(f"{notice[:1].upper()}{notice[1:]}.")


def _problem(model: "NextToken", secret: "Secret", limits: Sequence[int]) -> str | None:
    words = model.vocabulary
    ids = words.encode(secret.text)
    if not ids or (words.unk_id is not None and words.unk_id in ids):
        return f"has words that the model's vocabulary of {len(words):,} tokens lacks"
    if not limits:
        return None
    needed = max(map(len, words.encode_batch([secret.text, secret.longest()])))
    if needed > min(limits):
        return f"needs {needed:,} tokens; the model reads {min(limits):,}"
    return None


def _best(model: "NextToken", forms: "Sequence[tuple[str, Secret]]") -> Readable:
    """The most probable form; as listed unless that is clearly less probable."""
    import numpy as np

    from vestige.models.sequence_scores import text_log_probs

    name, secret = forms[0]
    around = [form.having([""] * len(form.parts)) for _, form in forms]
    if len(forms) > 1 and any(map(str.isalpha, around[0])):
        bits = text_log_probs(model, model.vocabulary.encode_batch(around)) / -np.log(2)
        best = int(np.argmin(bits))
        if name != AS_LISTED or bits[best] < bits[0] - CLEARLY:
            name, secret = forms[best]
    return Readable(secret, name)
