"""Lists of secrets: the form in which models read each secret, and the checks of a list."""

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from vestige import _validate
from vestige.claims.checks import read
from vestige.claims.claim import NO_LEAK, Check
from vestige.claims.model_checks import adapter_check, alive_by_samples, pair_checks
from vestige.data.secrets.lines import Secret, SecretList, log_left_out, numbered
from vestige.errors import DataError
from vestige.models.predictions import text_log_probs
from vestige.models.prefix import PrefixedModel
from vestige.models.protocols import NextToken, length_limit
from vestige.monitor import SILENT, Monitor

AS_LISTED = "as listed"

CLEARLY = 10.0
"""Bits by which the words around a secret must be more probable in another form to change it."""


class Readable(NamedTuple):
    """A secret in the form in which a model reads it, and the name of the form."""

    secret: Secret
    form: str


def open_list(
    models: Sequence[NextToken],
    secrets: Sequence[Secret] | SecretList,
    *,
    seed: int,
    monitor: Monitor,
) -> tuple[list[Readable], dict[str, Any]]:
    """The secrets that the models (one model, or AFTER and BEFORE) can read.

    Returns:
        the secrets, and a dict: numbers of `skipped` and `repeated` ones, `checks` of the models.

    Raises:
        ValueError: there is no secret.
        DataError: the models can read none.
    """
    listed = secrets if isinstance(secrets, SecretList) else SecretList(tuple(secrets))
    _validate.at_least(1, secrets=len(listed.secrets))
    checks = _model_checks(models, seed=seed)
    secrets_read, unreadable = readable(models, listed, monitor)
    skipped = len(listed.skipped) + len(unreadable)
    return secrets_read, {"skipped": skipped, "repeated": listed.repeated, "checks": checks}


def _model_checks(models: Sequence[NextToken], *, seed: int) -> tuple[Check, ...]:
    if len(models) > 1:
        after, before = models
        return pair_checks(before, after, seed=seed)
    (model,) = models
    alive = alive_by_samples(model, seed=seed)
    adapter = adapter_check(model.model if isinstance(model, PrefixedModel) else model, seed=seed)
    return (alive,) if adapter is None else (alive, adapter)


def list_checks(*, usable: int, skipped: int, repeated: int) -> tuple[Check, ...]:
    """The checks "read" and "independent" of a list; `usable` and `skipped` count distinct ones."""
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
    """A failed check if some secrets are neither known nor unknown; no check otherwise.

    Args:
        in_part: numbers of secrets with a known piece, perhaps known from other texts.
        words: numbers of significant secrets whose alternatives are words of a list.
        known: the finding on these, such as "more probable than its alternatives".
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


def readable(
    models: Sequence[NextToken], listed: SecretList, monitor: Monitor = SILENT
) -> tuple[list[Readable], list[tuple[int, str]]]:
    """Each secret in the case and Unicode form that the first model prefers.

    The choice depends on the words around the secret. All alternatives share these, so the choice
    favours none of them. Also returns the numbers of unreadable secrets, with reasons.
    """
    limit = length_limit(*models)
    result: list[Readable] = []
    skipped = []
    for secret in listed.secrets:
        forms = [(AS_LISTED, secret), *secret.forms()]
        problems = [_problem(models[0], form, limit) for _, form in forms]
        fitting = [form for form, problem in zip(forms, problems, strict=True) if problem is None]
        if fitting:
            result.append(_best(models[0], fitting))
        else:
            skipped.append((secret.number, str(problems[0])))
    if not result:
        number, problem = skipped[0]
        raise DataError(
            f"no secret can be used; secret {number} {problem}",
            remedy="Shorten it to the secret and a few words before it.",
        )
    log_left_out(skipped, monitor)
    return result, skipped


def _problem(model: NextToken, secret: Secret, limit: int | None) -> str | None:
    vocabulary = model.vocabulary
    ids = vocabulary.encode(secret.text)
    if not ids or (vocabulary.unk_id is not None and vocabulary.unk_id in ids):
        return f"has words that the model's vocabulary of {len(vocabulary):,} tokens lacks"
    if limit is None:
        return None
    needed = max(map(len, vocabulary.encode_batch([secret.text, secret.longest()])))
    if needed > limit:
        return f"needs {needed:,} tokens; the model reads {limit:,}"
    return None


def _best(model: NextToken, forms: Sequence[tuple[str, Secret]]) -> Readable:
    """The most probable form; the listed one unless it is clearly less probable."""
    name, secret = forms[0]
    contexts = [form.with_parts([""] * len(form.parts)) for _, form in forms]
    if len(forms) > 1 and any(map(str.isalpha, contexts[0])):
        bits = text_log_probs(model, model.vocabulary.encode_batch(contexts)) / -np.log(2)
        best = int(np.argmin(bits))
        if name != AS_LISTED or bits[best] < bits[0] - CLEARLY:
            name, secret = forms[best]
    return Readable(secret, name)
