"""Exposure of secrets that one already has, among texts of the same shape.

Carlini et al. (2019), "The Secret Sharer", section 4: a secret that a model has learnt is likelier
than others that could have stood in its place. These are enumerated where they are few, else drawn.

Differs from the paper: nothing was planted, and what could have stood there follows from the
secret's own shape (`vestige.data.secret_shapes`). Drawing stops once so many are as likely as the
secret that it cannot be told from them: Besag and Clifford (1991), "Sequential Monte Carlo
p-values", Biometrika 78(2); p-values are exact either way, and adjusted for the number of secrets.

A model that has read a piece of a secret elsewhere, a name in another sentence, prefers the secret
as well. Where several pieces vary, p is therefore the largest of the whole's and of each piece's
among texts in which it alone is another: Berger (1982), "Multiparameter Hypothesis Testing and
Acceptance Sampling", Technometrics 24(4), the intersection-union test. Pieces with few alternatives
are left out: no rank among them could be told from chance.
"""

from collections.abc import Callable, Sequence

import numpy as np
from numpy.typing import NDArray

from vestige import _validate
from vestige.attacks.exposure.secret_result import ExposedSecret, SecretExposure
from vestige.attacks.exposure.sequence_scores import text_log_probs
from vestige.data.secret_shapes import Secret
from vestige.errors import DataError
from vestige.metrics.exposure import sampled_exposure, whole_exposure
from vestige.metrics.holm import holm
from vestige.models.behind import Behind
from vestige.models.protocols import NextToken

Progress = Callable[[int, int], None]
Models = tuple[NextToken, ...]  # the one that is asked, and perhaps that before an update

ENOUGH = 20
"""Alternatives as likely as the secret, after which no more are drawn."""
_BATCH = 128


def secret_exposure(
    model: NextToken,
    secrets: Sequence[Secret],
    *,
    seed: int,
    before: NextToken | None = None,
    references: int = 2**12,
    level: float = 0.05,
    progress: Progress | None = None,
) -> SecretExposure:
    """Exposure of every secret, and which of them are found.

    Args:
        model: any model of next tokens; a secret is read from the beginning of a text.
        secrets: at least one.
        seed: draws the alternatives.
        before: the model before an update, over the same vocabulary; what counts is then what the
            update gained: bits after it less bits before it.
        references: alternatives of a secret at most; a space of no more is taken whole.
        level: chance of a false alarm among all secrets together.
        progress: told (secrets done, all).

    Raises:
        ValueError: an argument is out of range.
        DataError: a secret has words that the vocabulary lacks, or is too long for the model.
    """
    _validate.at_least(1, references=references, secrets=len(secrets))
    _validate.fraction(level=level)
    models = (model,) if before is None else (model, before)
    found = []
    for number, secret in enumerate(secrets, start=1):
        for asked in models:
            _check(asked, secret, number)
        generator = np.random.default_rng([seed, number])
        found.append(_measured(models, secret, references, generator))
        if progress:
            progress(number, len(secrets))
    adjusted = holm([one.p for one in found])
    return SecretExposure(
        secrets=tuple(found), adjusted=tuple(adjusted.tolist()), level=level, seed=seed
    )


def _measured(
    models: Models, secret: Secret, references: int, generator: np.random.Generator
) -> ExposedSecret:
    own, scores, p = _compared(models, secret, references, generator)
    whole = secret.size <= references
    if whole:
        ranked = whole_exposure([own], [own, *scores], inside=[True])
    else:
        ranked = sampled_exposure([own], scores, space_bits=secret.bits)
    pieces = secret.pieces()
    alone = [_compared(models, piece, references, generator)[2] for piece in pieces]
    return ExposedSecret(
        text=secret.text,
        kind=secret.kind,
        log_perplexity=own,
        space_bits=secret.bits,
        references=len(scores),
        whole=whole,
        rank=int(ranked.rank[0]),
        exposure=float(ranked.exposure[0]),
        low=float(ranked.low[0]),
        high=float(ranked.high[0]),
        at_ceiling=bool(ranked.at_ceiling[0]),
        p=max(p, *alone) if alone else p,
        least_p=max(1 / min(one.size, references + 1) for one in (secret, *pieces)),
        joint_p=p,
    )


def _compared(
    models: Models, secret: Secret, references: int, generator: np.random.Generator
) -> tuple[float, list[float], float]:
    """(the secret's log-perplexity, those of all alternatives or of drawn ones, p)."""
    if secret.size > references:
        return _drawn(models, secret, references, generator)
    others = [text for text in secret.every() if text != secret.text]
    own, scores = _scored(models, secret.text, others)
    rank = int(whole_exposure([own], [own, *scores], inside=[True]).rank[0])
    return own, scores, rank / secret.size


def _drawn(
    models: Models, secret: Secret, references: int, generator: np.random.Generator
) -> tuple[float, list[float], float]:
    """(the secret's log-perplexity, those of alternatives, p) by Besag and Clifford's rule."""
    more: list[float] = []  # bits of each alternative less those of the secret
    own = 0.0
    while len(more) < references:
        texts = [_another(secret, generator) for _ in range(min(_BATCH, references - len(more)))]
        own, drawn = _scored(models, secret.text, texts)
        more += [bits - own for bits in drawn]
        ahead = np.cumsum(np.array(more) <= 0)
        if ahead[-1] >= ENOUGH:
            until = int(np.argmax(ahead >= ENOUGH)) + 1
            return own, [own + bits for bits in more[:until]], ENOUGH / until
    return own, [own + bits for bits in more], (int(ahead[-1]) + 1) / (references + 1)


def _another(secret: Secret, generator: np.random.Generator) -> str:
    """A text of the same shape that is not the secret."""
    while True:
        text = secret.draw(generator)
        if text != secret.text:
            return text


def _scored(models: Models, secret: str, others: Sequence[str]) -> tuple[float, list[float]]:
    """Log-perplexities in bits, less those before an update."""
    bits, *before = (_log_perplexities(model, [secret, *others]) for model in models)
    for less in before:
        bits = bits - less
    own, *rest = bits.tolist()
    return own, rest


def _log_perplexities(model: NextToken, said: Sequence[str]) -> NDArray[np.float64]:
    """(n,) in bits; what all texts begin with is read once, and counts for none."""
    texts = [list(ids) for ids in model.vocabulary.encode_batch(said)]
    same = 0
    while all(len(ids) > same + 1 and ids[same] == texts[0][same] for ids in texts):
        same += 1
    behind: NextToken = Behind(model, texts[0][:same]) if same else model
    bits: NDArray[np.float64] = text_log_probs(behind, [ids[same:] for ids in texts]) / -np.log(2)
    return bits


def _check(model: NextToken, secret: Secret, number: int) -> None:
    ids = model.vocabulary.encode(secret.text)
    if not ids or model.vocabulary.unk_id in ids:
        raise DataError(
            f"secret {number} has words that the model's vocabulary of "
            f"{len(model.vocabulary)} tokens lacks",
            remedy="Ask only for what the model can read.",
        )
    longest = getattr(model, "longest", None)
    if longest is not None and 2 * len(ids) > longest:  # an alternative may take more tokens
        raise DataError(
            f"secret {number} has {len(ids)} tokens, and the model reads {longest}",
            remedy="Give the part that matters, with a few words before it.",
        )
