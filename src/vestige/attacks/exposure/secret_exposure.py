"""Exposure of secrets that were never planted, among texts of their format.

Carlini et al. (2019), "The Secret Sharer", section 4: a model that has read a secret gives it a
higher probability than others of its format. These are enumerated where they are few, else drawn.

Differs from the paper: nothing was planted, and the format follows from the secret's own text
(`vestige.data.secret_kinds`). Drawing stops once so many are as probable as the secret that it
cannot be told from them: Besag and Clifford (1991), "Sequential Monte Carlo p-values", Biometrika
78(2). Either way p is exact for a secret drawn uniformly from its format.

A model may have read a piece of the secret elsewhere: a name, a handle, a domain. So p is the
largest of several tests, the intersection-union test of Berger (1982), "Multiparameter Hypothesis
Testing and Acceptance Sampling", Technometrics 24(4):

- the whole secret, among all texts of its format;
- each random piece, among texts that share the other pieces;
- the whole secret, among texts of pieces that the model knows (`secret_pools`): other known handles
  with its domain, its handle with other known domains; other known codes, names or dates in its
  context.

With a model from before an update, a log-perplexity is the difference of the two models'. It is not
the differential score of `attacks.update.differential_rank`, which sums differences of
probabilities by token and ranks among all sequences of as many tokens.

A secret is read in the case and Unicode form in which the model finds the words around it most
probable. These words are the same for all alternatives, so that the choice favours none.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache

import numpy as np
from numpy.typing import NDArray

from vestige import _validate
from vestige.attacks.exposure.secret_checks import checks_of
from vestige.attacks.exposure.secret_forms import Readable, readable
from vestige.attacks.exposure.secret_pools import Known, known_parts, pools
from vestige.attacks.exposure.secret_result import ExposedSecret, SecretExposure, SecretRank
from vestige.attacks.exposure.sequence_scores import text_log_probs
from vestige.data.secret_lines import SecretList, as_list
from vestige.data.secret_shapes import Secret
from vestige.errors import ModelError
from vestige.metrics.exposure import sampled_exposure, whole_exposure
from vestige.metrics.tests import holm
from vestige.models.behind import Behind
from vestige.models.checkpoints import check_compatible
from vestige.models.protocols import NextToken

Progress = Callable[[int, int], None]
Models = tuple[NextToken, ...]  # the audited one, and perhaps that before an update
Bits = NDArray[np.float64]

ENOUGH = 20
"""Alternatives as probable as the secret, after which no more are drawn."""

HALVES = (1.0, 2.0)
"""Bits by which the p-value of a secret ahead of few others is halved: at least, at most."""

_BATCH = 128


@dataclass(frozen=True)
class _Ranked:
    own: float
    others: list[float]
    p: float


def secret_exposure(
    model: NextToken,
    secrets: Sequence[Secret] | SecretList,
    *,
    seed: int,
    before: NextToken | None = None,
    references: int = 2**12,
    level: float = 0.05,
    progress: Progress | None = None,
) -> SecretExposure:
    """Exposure of every secret, and which of them the model knows.

    Args:
        model: any model of next tokens; a secret is read from the beginning of a text.
        secrets: at least one; those that the model cannot read are skipped.
        seed: draws the alternatives.
        before: the model before an update: exposure is then among the gains of the update.
        references: alternatives of a secret at most; a space of no more is enumerated.
        level: probability of a false leak among all secrets together.
        progress: told (secrets done, all).

    Raises:
        ValueError: an argument is out of range.
        IncompatibleModels: the vocabularies differ.
        DataError: the model can read no secret.
        ModelError: its scores are not finite.
    """
    if before is not None:
        check_compatible(before, model)
    listed = as_list(secrets)
    _validate.at_least(1, references=references, secrets=len(listed.secrets))
    _validate.fraction(level=level)
    models = (model,) if before is None else (model, before)
    checks = checks_of(models, seed=seed)
    chosen = readable(models, listed.secrets)
    known = cache(lambda: known_parts(model, seed=seed))  # where a secret is significant
    found = []
    for number, one in enumerate(chosen.secrets, start=1):
        generator = np.random.default_rng([seed, one.secret.number])
        found.append(
            _measured(models, one, known, references, level / len(chosen.secrets), generator)
        )
        if progress:
            progress(number, len(chosen.secrets))
    result = SecretExposure if before is None else SecretRank
    return result(
        secrets=tuple(found),
        adjusted=tuple(holm([one.p for one in found]).tolist()),
        level=level,
        seed=seed,
        skipped=(*listed.skipped, *chosen.skipped),
        repeated=listed.repeated,
        checks=checks,
    )


def _measured(
    models: Models,
    one: Readable,
    known: Callable[[], Sequence[Known]],
    references: int,
    level: float,
    generator: np.random.Generator,
) -> ExposedSecret:
    secret = one.secret
    first = _ranked(models, secret, references, generator)
    pieces = secret.pieces()
    p = first.p
    if p <= level:  # else the largest is not significant either
        p = max([p, *(_ranked(models, piece, references, generator).p for piece in pieces)])
    if p <= level and secret.drawn:
        p = max(p, _among_known(models, secret, known, references, level, generator))
    whole = secret.size <= references
    if whole:
        ranked = whole_exposure([first.own], [first.own, *first.others], inside=[True])
    else:
        ranked = sampled_exposure([first.own], first.others, space_bits=secret.bits)
    return ExposedSecret(
        text=secret.text,
        number=secret.number,
        kind=secret.kind,
        form=one.form,
        drawn=secret.drawn,
        log_perplexity=first.own,
        space_bits=secret.bits,
        references=len(first.others),
        whole=whole,
        rank=int(ranked.rank[0]),
        exposure=float(ranked.exposure[0]),
        low=float(ranked.low[0]),
        high=float(ranked.high[0]),
        at_ceiling=bool(ranked.at_ceiling[0]),
        p=p,
        least_p=max(1 / min(space.size, references + 1) for space in (secret, *pieces)),
        joint_p=first.p,
    )


def _among_known(
    models: Models,
    secret: Secret,
    known: Callable[[], Sequence[Known]],
    references: int,
    level: float,
    generator: np.random.Generator,
) -> float:
    """The largest p among texts of pieces that the model knows; 0 where it knows none.

    Where there are too few to reach the level, the tail is extrapolated: p halves with as many bits
    as the best of them is ahead of their median, over log2 of their number, within `HALVES`.
    """
    seed = int(generator.integers(2**31))
    here = known_parts(models[0], seed=seed, before=secret.before) if secret.before.strip() else []
    found = [0.0]
    for texts in pools(secret, [*known(), *here], most=references, generator=generator):
        own, *others = _scored(models, [secret.text, *texts]).tolist()
        p = (1 + sum(bits <= own for bits in others)) / (1 + len(others))
        if min(others) > own and p > level:
            best = min(others)
            spread = (float(np.median(others)) - best) / np.log2(1 + len(others))
            p *= 2.0 ** ((own - best) / float(np.clip(spread, *HALVES)))
        found.append(p)
    return max(found)


def _ranked(
    models: Models, space: Secret, references: int, generator: np.random.Generator
) -> _Ranked:
    if space.size > references:
        return _drawn(models, space, references, generator)
    own, *others = _scored(models, [space.text, *_rest(space)]).tolist()
    return _Ranked(own, others, (1 + sum(bits <= own for bits in others)) / space.size)


def _rest(space: Secret) -> list[str]:
    return [text for text in space.every() if text != space.text]


def _drawn(
    models: Models, space: Secret, references: int, generator: np.random.Generator
) -> _Ranked:
    """By Besag and Clifford's rule."""
    more: list[float] = []  # bits of each alternative less those of the secret
    own = 0.0
    while len(more) < references:
        number = min(_BATCH, references - len(more))
        texts = [_another(space, generator) for _ in range(number)]
        own, *drawn = _scored(models, [space.text, *texts]).tolist()
        more += [bits - own for bits in drawn]
        ahead = np.cumsum(np.array(more) <= 0)
        if ahead[-1] >= ENOUGH:
            until = int(np.argmax(ahead >= ENOUGH)) + 1
            return _Ranked(own, [own + bits for bits in more[:until]], ENOUGH / until)
    return _Ranked(own, [own + bits for bits in more], (int(ahead[-1]) + 1) / (references + 1))


def _another(secret: Secret, generator: np.random.Generator) -> str:
    """A text of the same format that is not the secret."""
    while True:
        text = secret.draw(generator)
        if text != secret.text:
            return text


def _scored(models: Models, texts: Sequence[str]) -> Bits:
    """Log-perplexities in bits, less those before an update."""
    after, *before = (_bits(model, texts) for model in models)
    return after - before[0] if before else after


def _bits(model: NextToken, texts: Sequence[str]) -> Bits:
    """(n,) log-perplexities in bits; what all texts begin with is read once and not counted."""
    ids = [list(one) for one in model.vocabulary.encode_batch(texts)]
    same = 0
    while all(len(one) > same + 1 and one[same] == ids[0][same] for one in ids):
        same += 1
    reader: NextToken = Behind(model, ids[0][:same]) if same else model
    bits: Bits = text_log_probs(reader, [one[same:] for one in ids]) / -np.log(2)
    if not np.isfinite(bits).all():
        raise ModelError("the model's scores are not finite", remedy="Save the model again.")
    return bits
