"""Secrets as a model can read them: in which case and Unicode form."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from vestige.attacks.exposure.sequence_scores import text_log_probs
from vestige.data.secret_shapes import Secret
from vestige.errors import DataError
from vestige.models.protocols import NextToken

AS_LISTED = "as listed"

CLEARLY = 10.0
"""Bits by which the words around a secret must be more probable in another form than as listed."""


@dataclass(frozen=True)
class Readable:
    """A secret in the form in which a model reads it.

    Attributes:
        secret: in this form.
        form: its name.
    """

    secret: Secret
    form: str


@dataclass(frozen=True)
class Chosen:
    """Secrets that a model can read, and the numbers of others with the reason."""

    secrets: tuple[Readable, ...]
    skipped: tuple[tuple[int, str], ...]


def readable(models: Sequence[NextToken], secrets: Sequence[Secret]) -> Chosen:
    """Each secret in the form in which the first model finds the words around it most probable.

    Args:
        models: that read it, over one vocabulary.
        secrets: at least one.

    Raises:
        DataError: no secret can be read.
    """
    found, skipped = [], []
    limits = [limit for model in models if (limit := getattr(model, "longest", None)) is not None]
    for secret in secrets:
        forms = [(AS_LISTED, secret), *secret.forms()]
        fitting = [
            (name, form) for name, form in forms if _problem(models[0], form, limits) is None
        ]
        if fitting:
            found.append(_best(models[0], fitting))
        else:
            skipped.append((secret.number, _problem(models[0], secret, limits) or ""))
    if not found:
        number, problem = skipped[0]
        raise DataError(
            f"no secret can be used; secret {number} {problem}",
            remedy="Shorten it to the secret and a few words before it.",
        )
    return Chosen(tuple(found), tuple(skipped))


def _problem(model: NextToken, secret: Secret, limits: Sequence[int]) -> str | None:
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


def _best(model: NextToken, forms: Sequence[tuple[str, Secret]]) -> Readable:
    """The most probable form; as listed where that is not clearly less probable."""
    name, secret = forms[0]
    around = [form.having([""] * len(form.parts)) for _, form in forms]
    if len(forms) > 1 and any(map(str.isalpha, around[0])):
        bits = text_log_probs(model, model.vocabulary.encode_batch(around)) / -np.log(2)
        best = int(np.argmin(bits))
        if name != AS_LISTED or bits[best] < bits[0] - CLEARLY:
            name, secret = forms[best]
    return Readable(secret, name)
