"""Secrets of a list in the form in which a model reads them."""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from vestige.data.secret_lines import SecretList, log_left_out
from vestige.data.secret_shapes import Secret
from vestige.errors import DataError
from vestige.models.predictions import text_log_probs
from vestige.models.protocols import NextToken
from vestige.monitor import SILENT, Monitor

AS_LISTED = "as listed"

CLEARLY = 10.0
"""Bits by which the words around a secret must be more probable in another form than as listed."""


class Readable(NamedTuple):
    """A secret in the form in which a model reads it, and the name of the form."""

    secret: Secret
    form: str


def readable(
    models: Sequence[NextToken], listed: SecretList, monitor: Monitor = SILENT
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
    log_left_out(skipped, monitor)
    return found, skipped


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
    """The most probable form; as listed unless that is clearly less probable."""
    name, secret = forms[0]
    around = [form.having([""] * len(form.parts)) for _, form in forms]
    if len(forms) > 1 and any(map(str.isalpha, around[0])):
        bits = text_log_probs(model, model.vocabulary.encode_batch(around)) / -np.log(2)
        best = int(np.argmin(bits))
        if name != AS_LISTED or bits[best] < bits[0] - CLEARLY:
            name, secret = forms[best]
    return Readable(secret, name)
