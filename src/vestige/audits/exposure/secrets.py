"""Exposure of secrets that were never planted, among texts of their format.

Carlini et al. (2019), "The Secret Sharer", section 4: a model that has read a secret gives it a
higher probability than alternatives of its format. Few alternatives are enumerated, many sampled.

Differs from the paper: nothing was planted, and the format follows from the text of the secret
(`vestige.data.secrets.kinds`). Sampling stops once enough alternatives are as probable as the
secret: Besag and Clifford (1991), "Sequential Monte Carlo p-values", Biometrika 78(2). In both
cases p is exact for a secret drawn uniformly from its format.

A model may have read a piece of the secret elsewhere: a name, a handle, a domain. So p is the
largest of several tests, the intersection-union test of Berger (1982), "Multiparameter Hypothesis
Testing and Acceptance Sampling", Technometrics 24(4):

- the complete secret, among all texts of its format;
- each random piece, among texts with the same other pieces;
- the complete secret, among texts of pieces that the model knows (`known_pieces`).

With a model from before an update, a log-perplexity is the difference between the two models, so
previous knowledge does not count. `audits.update.rank`, by contrast, sums differences of token
probabilities and ranks among all sequences with the same number of tokens.
"""

from collections.abc import Callable, Mapping, Sequence
from functools import cache
from itertools import islice
from math import log2
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from vestige import _validate
from vestige.audits.exposure.known_pieces import KnownPart, alternatives_from, known_parts
from vestige.claims import Check, Claim, Estimate, Test, powerful
from vestige.claims.secret_checks import Readable, list_checks, open_list, open_secrets
from vestige.data.secrets.lines import Secret, SecretList
from vestige.errors import ModelError
from vestige.metrics.exposure import sampled_exposure, whole_exposure
from vestige.metrics.tests import holm
from vestige.models.checkpoints import check_compatible
from vestige.models.predictions import text_log_probs
from vestige.models.prefix import PrefixedModel
from vestige.models.protocols import NextToken
from vestige.monitor import SILENT, Monitor
from vestige.results import Result

Models = tuple[NextToken, ...]  # the audited model, and optionally the one before an update

ENOUGH = 20
"""Number of alternatives at least as probable as the secret after which sampling stops."""

BITS_PER_HALVING = (1.0, 2.0)
"""Least and most bits ahead of the best alternative that halve an extrapolated p-value."""

_BATCH = 128


class _Ranked(NamedTuple):
    """Log-perplexities of a text and of its alternatives in bits, and the p-value of its rank."""

    bits: float
    alternatives: list[float]
    p: float


def secret_exposure(
    model: NextToken,
    secrets: Sequence[Secret] | SecretList,
    *,
    seed: int,
    before: NextToken | None = None,
    references: int = 2**12,
    level: float = 0.05,
    progress: Callable[[int, int], None] | None = None,
    monitor: Monitor = SILENT,
) -> Result:
    """Exposure of every secret, and which of them the model knows.

    Args:
        model: any model of next tokens; a secret is read from the beginning of a text.
        secrets: at least one; those that the model cannot read are skipped.
        seed: of the alternatives.
        before: the model before an update; texts are then ranked by the gain of the update.
        references: most alternatives of a secret; a space with no more is enumerated.
        level: probability of any false leak (FWER).
        progress: called with (secrets done, all).
        monitor: receives one line about skipped secrets.

    Raises:
        ValueError: an argument is out of range.
        IncompatibleModels: the vocabularies differ.
        DataError: the model can read no secret.
        ModelError: its scores are not finite.
    """
    if before is not None:
        check_compatible(before, model)
    _validate.at_least(1, references=references)
    _validate.fraction(level=level)
    models = (model,) if before is None else (model, before)
    readable, details = open_list(models, secrets, seed=seed, monitor=monitor)
    known = cache(lambda: known_parts(model, seed=seed))  # only for significant secrets
    rows = []
    for done, item in enumerate(readable, start=1):
        generator = np.random.default_rng([seed, item.secret.number])
        rows.append(_measure(models, item, known, references, level / len(readable), generator))
        if progress:
            progress(done, len(readable))
    return secret_result(rows, level=level, seed=seed, update=before is not None, **details)


def secret_result(
    measured: Sequence[Mapping[str, Any]],
    *,
    level: float,
    seed: int,
    skipped: int = 0,
    repeated: int = 0,
    checks: tuple[Check, ...],
    update: bool = False,
) -> Result:
    """The result: a table of secrets with corrected p-values (Holm), a summary and a claim.

    Columns in bits: log_perplexity, without the prefix that all alternatives share; space_bits,
    log2 of the number of texts of the format; exposure by rank among `references` of them (all if
    `whole`), and its 95% interval, low to high; at_ceiling, only low is known. joint_p is the
    p-value of the rank alone, p the largest of all tests, and least_p the smallest possible p. A
    secret is `found` if its adjusted_p is at most `level`, and known `in_part` if only the adjusted
    joint_p is.

    Args:
        measured: one row per secret.
        skipped: secrets that could not be used.
        repeated: lines that repeat another secret.
        checks: of the models.
        update: texts are ranked by the gain of an update. The table then also has the log2 of the
            rank in the complete space.
    """
    adjusted, adjusted_joint = (holm([row[name] for row in measured]) for name in ("p", "joint_p"))
    rows = []
    for measurement, p, joint_p in zip(
        measured, adjusted.tolist(), adjusted_joint.tolist(), strict=True
    ):
        row = {**measurement, "adjusted_p": p, "found": measurement["drawn"] and p <= level}
        row["in_part"] = joint_p <= level < p
        if update:
            row["gain"] = -row.pop("log_perplexity")
            for end, bits in (("", "exposure"), ("_low", "high"), ("_high", "low")):
                row[f"log2_space_rank{end}"] = max(row["space_bits"] - row[bits], 0.0)
        rows.append(row)
    predicate = f"{'promoted more' if update else 'more probable'} than its alternatives"
    found, in_part, whole = (sum(r[name] for r in rows) for name in ("found", "in_part", "whole"))
    number = _secrets(len(rows))
    if found:
        sentence = f"{'The update reveals' if update else 'The model knows'} {found} of {number}"
    elif len(rows) == 1:
        sentence = f"The secret is not {predicate}"
    else:
        sentence = f"None of {number} is {predicate}"
    sentence += f" (FWER {level:.0%})."
    if in_part:
        sentence += f" Known in part: {_secrets(in_part)}; a part can come from other texts."
    checks = (*checks, *list_checks(usable=len(rows), skipped=skipped, repeated=repeated))
    claim = _claim(rows, checks, level, predicate, update=update)
    return Result(
        kind="SecretRank" if update else "SecretExposure",
        summary={
            **claim.summary(),
            "sentence": sentence,
            "secrets": len(rows),
            "found": found,
            "in_part": in_part,
            "skipped": skipped,
            "repeated": repeated,
            "level": level,
            "least_probability": float(adjusted.min()),
            "most_exposed": max(row["exposure"] for row in rows),
            "whole_spaces": whole,
            "seed": seed,
            **({"exact": whole} if update else {}),
        },
        rows=tuple(rows),
        claim=claim,
    )


def _claim(
    rows: Sequence[Mapping[str, Any]],
    checks: tuple[Check, ...],
    level: float,
    predicate: str,
    *,
    update: bool,
) -> Claim:
    """Whether the model knows a secret."""
    least_p = max(row["least_p"] for row in rows)
    flagged = [row["adjusted_p"] for row in rows if row["found"]]
    not_flagged = [row["adjusted_p"] for row in rows if row["adjusted_p"] > level]
    test = Test(
        p=min(flagged or not_flagged or [1.0]),
        least=min(1.0, len(rows) * least_p),
        alpha=level,
        against="texts of the same format",
    )
    power = powerful(
        test,
        detectable=log2(len(rows) / level),
        wanted=-log2(least_p),
        effect="an exposure of {} bits",
    )
    in_part = [row["secret_number"] for row in rows if row["in_part"]]
    words = [r["secret_number"] for r in rows if r["adjusted_p"] <= level and not r["drawn"]]
    checks = (*checks, *open_secrets(in_part=in_part, words=words, known=predicate), power)
    most_exposed = max(rows, key=lambda row: float(row["exposure"]))
    name = "highest exposure of a secret"
    estimate = Estimate(
        name, most_exposed["exposure"], most_exposed["low"], most_exposed["high"], "bits"
    )
    return Claim("exposure --before" if update else "exposure secrets", test, checks, estimate)


def _measure(
    models: Models,
    readable: Readable,
    known: Callable[[], Sequence[KnownPart]],
    references: int,
    level: float,
    generator: np.random.Generator,
) -> dict[str, Any]:
    """The row of a secret."""
    secret = readable.secret
    joint = _rank(models, secret, references, generator)
    pieces = secret.pieces()
    p = joint.p
    if p <= level:  # otherwise the largest p-value is not significant either
        p = max([p, *(_rank(models, piece, references, generator).p for piece in pieces)])
    if p <= level and secret.has_format:
        p = max(p, _known_pieces_p_value(models, secret, known, references, level, generator))
    whole = secret.size <= references
    if whole:
        exposure = whole_exposure([joint.bits], [joint.bits, *joint.alternatives], inside=[True])
    else:
        exposure = sampled_exposure([joint.bits], joint.alternatives, space_bits=secret.bits)
    names = ("rank", "exposure", "low", "high", "at_ceiling")
    return {
        "secret_number": secret.number,
        "phrase": secret.text,
        "kind": secret.kind,
        "form": readable.form,
        "drawn": secret.has_format,
        "log_perplexity": joint.bits,
        "space_bits": secret.bits,
        "references": len(joint.alternatives),
        "whole": whole,
        **{name: getattr(exposure, name)[0].item() for name in names},
        "p": float(p),
        "least_p": max(1 / min(space.size, references + 1) for space in (secret, *pieces)),
        "joint_p": joint.p,
    }


def _rank(
    models: Models, space: Secret, references: int, generator: np.random.Generator
) -> _Ranked:
    """Rank a secret among all texts of its format, or among a sample."""
    if space.size <= references:
        texts = [text for text in space.all_texts() if text != space.text]
        bits, *others = _log_perplexities(models, [space.text, *texts]).tolist()
        return _Ranked(bits, others, (1 + sum(other <= bits for other in others)) / space.size)
    excess: list[float] = []  # bits of each alternative minus those of the secret
    bits = 0.0
    while len(excess) < references:  # the rule of Besag and Clifford
        number = min(_BATCH, references - len(excess))
        sampled = iter(lambda: space.draw(generator), None)
        texts = list(islice((text for text in sampled if text != space.text), number))
        bits, *others = _log_perplexities(models, [space.text, *texts]).tolist()
        excess += [other - bits for other in others]
        ahead = np.cumsum(np.array(excess) <= 0)
        if ahead[-1] >= ENOUGH:
            stop = int(np.argmax(ahead >= ENOUGH)) + 1
            return _Ranked(bits, [bits + x for x in excess[:stop]], ENOUGH / stop)
    return _Ranked(bits, [bits + x for x in excess], (int(ahead[-1]) + 1) / (references + 1))


def _known_pieces_p_value(
    models: Models,
    secret: Secret,
    known: Callable[[], Sequence[KnownPart]],
    references: int,
    level: float,
    generator: np.random.Generator,
) -> float:
    """The largest p-value among texts of pieces that the model knows; 0 if it knows none.

    If there are too few texts to reach the level, the tail is extrapolated: p halves per
    (median - best) / log2(number of texts) bits by which the secret is ahead of the best text; this
    step is limited to `BITS_PER_HALVING`.
    """
    seed = int(generator.integers(2**31))
    parts = [*known()]
    if secret.before.strip():
        parts += known_parts(models[0], seed=seed, before=secret.before)
    largest = 0.0
    for texts in alternatives_from(parts, secret, most=references, generator=generator):
        bits, *others = _log_perplexities(models, [secret.text, *texts]).tolist()
        p = (1 + sum(other <= bits for other in others)) / (1 + len(others))
        if (best := min(others)) > bits and p > level:
            step = (float(np.median(others)) - best) / np.log2(1 + len(others))
            p *= 2.0 ** ((bits - best) / float(np.clip(step, *BITS_PER_HALVING)))
        largest = max(largest, p)
    return largest


def _log_perplexities(models: Models, texts: Sequence[str]) -> NDArray[np.float64]:
    """(n,) log-perplexities in bits, minus those before an update, without the shared prefix."""
    rows = [list(ids) for ids in models[0].vocabulary.encode_batch(texts)]
    shared = 0
    while all(len(ids) > shared + 1 and ids[shared] == rows[0][shared] for ids in rows):
        shared += 1
    by_model = []
    for model in models:
        reader: NextToken = PrefixedModel(model, rows[0][:shared]) if shared else model
        bits = text_log_probs(reader, [ids[shared:] for ids in rows]) / -np.log(2)
        if not np.isfinite(bits).all():
            raise ModelError("the model's scores are not finite", remedy="Save the model again.")
        by_model.append(bits)
    after, *before = by_model
    return np.asarray(after - before[0] if before else after, np.float64)


def _secrets(number: int) -> str:
    return "1 secret" if number == 1 else f"{number} secrets"
