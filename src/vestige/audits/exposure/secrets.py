"""Exposure of secrets that were never planted, among texts of their format.

Carlini et al. (2019), "The Secret Sharer", section 4: a model that has read a secret gives it a
higher probability than others of its format. These are enumerated if they are few, else sampled.

Differs from the paper: nothing was planted, and the format follows from the secret's own text
(`vestige.data.secrets.kinds`). Sampling stops once enough alternatives are as probable as the
secret: Besag and Clifford (1991), "Sequential Monte Carlo p-values", Biometrika 78(2). In both
cases p is exact for a secret drawn uniformly from its format.

A model may have read a piece of the secret elsewhere: a name, a handle, a domain. So p is the
largest of several tests, the intersection-union test of Berger (1982), "Multiparameter Hypothesis
Testing and Acceptance Sampling", Technometrics 24(4):

- the whole secret, among all texts of its format;
- each random piece, among texts that share the other pieces;
- the whole secret, among texts of pieces that the model knows (`known_pieces`).

With a model from before an update, a log-perplexity is the difference of the two models', so what
the model knew before does not count. `audits.update.rank` sums differences of
probabilities by token instead, and ranks among all sequences of as many tokens.
"""

from collections.abc import Callable, Mapping, Sequence
from functools import cache
from itertools import islice
from math import log2
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from vestige import _validate
from vestige.audits.exposure.known_pieces import Known, known_parts, pools
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

Models = tuple[NextToken, ...]  # the audited one, and perhaps that before an update

ENOUGH = 20
"""Alternatives as probable as the secret, after which no more are sampled."""

HALVES = (1.0, 2.0)
"""Least and most bits ahead of few alternatives by which a p-value is halved."""

_BATCH = 128


class _Ranked(NamedTuple):
    """Bits of a text and of its alternatives, and the p-value of its rank."""

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
    progress: Callable[[int, int], None] | None = None,
    monitor: Monitor = SILENT,
) -> Result:
    """Exposure of every secret, and which of them the model knows.

    Args:
        model: any model of next tokens; a secret is read from the beginning of a text.
        secrets: at least one; those that the model cannot read are skipped.
        seed: of the alternatives.
        before: the model before an update: exposure is then among the gains of the update.
        references: alternatives of a secret at most; a space of no more is enumerated.
        level: probability of a false leak among all secrets together.
        progress: called with (secrets done, all).
        monitor: gets one line about secrets that are skipped.

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
    chosen, about = open_list(models, secrets, seed=seed, monitor=monitor)
    known = cache(lambda: known_parts(model, seed=seed))  # only for significant secrets
    rows = []
    for number, one in enumerate(chosen, start=1):
        generator = np.random.default_rng([seed, one.secret.number])
        rows.append(_measured(models, one, known, references, level / len(chosen), generator))
        if progress:
            progress(number, len(chosen))
    return secret_result(rows, level=level, seed=seed, update=before is not None, **about)


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
    """The table of measured secrets with corrected p-values (Holm), the summary and the claim.

    Columns, in bits: log_perplexity of what varies and follows; space_bits, log2 of the texts of
    its format; exposure by rank among `references` of them (all if `whole`), with its 95% interval,
    low to high, of which only low is known at_ceiling. joint_p is that of the rank alone; p is the
    largest of all tests, and least_p the smallest that was possible. A secret is `found` if its
    adjusted_p is at most `level`, and known `in_part` if only that of the rank is.

    Args:
        measured: one row per secret.
        skipped: secrets that could not be used.
        repeated: lines that repeat another secret.
        checks: of the models.
        update: the exposures are among the gains of an update. Ranks in the whole space are then
            given as log2, 0 for the first.
    """
    adjusted, joint = (holm([row[name] for row in measured]) for name in ("p", "joint_p"))
    rows = []
    for own, p, joint_p in zip(measured, adjusted.tolist(), joint.tolist(), strict=True):
        row = {**own, "adjusted_p": p, "found": own["drawn"] and p <= level}
        row["in_part"] = joint_p <= level < p
        if update:
            row["gain"] = -row.pop("log_perplexity")
            for end, bits in (("", "exposure"), ("_low", "high"), ("_high", "low")):
                row[f"log2_space_rank{end}"] = max(row["space_bits"] - row[bits], 0.0)
        rows.append(row)
    known = f"{'promoted more' if update else 'more probable'} than its alternatives"
    found, in_part, whole = (sum(r[name] for r in rows) for name in ("found", "in_part", "whole"))
    number = _secrets(len(rows))
    if found:
        sentence = f"{'The update reveals' if update else 'The model knows'} {found} of {number}"
    elif len(rows) == 1:
        sentence = f"The secret is not {known}"
    else:
        sentence = f"None of {number} is {known}"
    sentence += f" (FWER {level:.0%})."
    if in_part:
        sentence += f" Known in part: {_secrets(in_part)}; a part can come from other texts."
    checks = (*checks, *list_checks(usable=len(rows), skipped=skipped, repeated=repeated))
    claim = _claim(rows, checks, level, known, update=update)
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
    known: str,
    *,
    update: bool,
) -> Claim:
    """Whether the model knows a secret."""
    least_p = max(row["least_p"] for row in rows)
    flagged = [row["adjusted_p"] for row in rows if row["found"]]
    others = [row["adjusted_p"] for row in rows if row["adjusted_p"] > level]
    test = Test(
        p=min(flagged or others or [1.0]),
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
    pieces = [row["secret_number"] for row in rows if row["in_part"]]
    words = [r["secret_number"] for r in rows if r["adjusted_p"] <= level and not r["drawn"]]
    checks = (*checks, *open_secrets(in_part=pieces, words=words, known=known), power)
    most = max(rows, key=lambda row: float(row["exposure"]))
    name = "highest exposure of a secret"
    estimate = Estimate(name, most["exposure"], most["low"], most["high"], "bits")
    return Claim("exposure --before" if update else "exposure secrets", test, checks, estimate)


def _measured(
    models: Models,
    one: Readable,
    known: Callable[[], Sequence[Known]],
    references: int,
    level: float,
    generator: np.random.Generator,
) -> dict[str, Any]:
    """The row of a secret."""
    secret = one.secret
    first = _ranked(models, secret, references, generator)
    pieces = secret.pieces()
    p = first.p
    if p <= level:  # else the largest is not significant either
        p = max([p, *(_ranked(models, piece, references, generator).p for piece in pieces)])
    if p <= level and secret.has_format:
        p = max(p, _among_known(models, secret, known, references, level, generator))
    whole = secret.size <= references
    if whole:
        ranked = whole_exposure([first.own], [first.own, *first.others], inside=[True])
    else:
        ranked = sampled_exposure([first.own], first.others, space_bits=secret.bits)
    names = ("rank", "exposure", "low", "high", "at_ceiling")
    return {
        "secret_number": secret.number,
        "phrase": secret.text,
        "kind": secret.kind,
        "form": one.form,
        "drawn": secret.has_format,
        "log_perplexity": first.own,
        "space_bits": secret.bits,
        "references": len(first.others),
        "whole": whole,
        **{name: getattr(ranked, name)[0].item() for name in names},
        "p": float(p),
        "least_p": max(1 / min(space.size, references + 1) for space in (secret, *pieces)),
        "joint_p": first.p,
    }


def _ranked(
    models: Models, space: Secret, references: int, generator: np.random.Generator
) -> _Ranked:
    if space.size <= references:
        rest = [text for text in space.all_texts() if text != space.text]
        own, *others = _scored(models, [space.text, *rest]).tolist()
        return _Ranked(own, others, (1 + sum(bits <= own for bits in others)) / space.size)
    more: list[float] = []  # bits of each alternative less those of the secret
    own = 0.0
    while len(more) < references:  # by Besag and Clifford's rule
        number = min(_BATCH, references - len(more))
        sampled = iter(lambda: space.draw(generator), None)
        texts = list(islice((text for text in sampled if text != space.text), number))
        own, *drawn = _scored(models, [space.text, *texts]).tolist()
        more += [bits - own for bits in drawn]
        ahead = np.cumsum(np.array(more) <= 0)
        if ahead[-1] >= ENOUGH:
            until = int(np.argmax(ahead >= ENOUGH)) + 1
            return _Ranked(own, [own + bits for bits in more[:until]], ENOUGH / until)
    return _Ranked(own, [own + bits for bits in more], (int(ahead[-1]) + 1) / (references + 1))


def _among_known(
    models: Models,
    secret: Secret,
    known: Callable[[], Sequence[Known]],
    references: int,
    level: float,
    generator: np.random.Generator,
) -> float:
    """The largest p among texts of pieces that the model knows; 0 if it knows none.

    If these are too few to reach the level, the tail is extrapolated: p halves with as many bits
    as the best of them is ahead of their median, over log2 of their number, within `HALVES`.
    """
    seed = int(generator.integers(2**31))
    here = known_parts(models[0], seed=seed, before=secret.before) if secret.before.strip() else []
    largest = 0.0
    for texts in pools(secret, [*known(), *here], most=references, generator=generator):
        own, *others = _scored(models, [secret.text, *texts]).tolist()
        p = (1 + sum(bits <= own for bits in others)) / (1 + len(others))
        if (best := min(others)) > own and p > level:
            spread = (float(np.median(others)) - best) / np.log2(1 + len(others))
            p *= 2.0 ** ((own - best) / float(np.clip(spread, *HALVES)))
        largest = max(largest, p)
    return largest


def _scored(models: Models, texts: Sequence[str]) -> NDArray[np.float64]:
    """(n,) log-perplexities in bits, less those before an update.

    The prefix of all texts is read once and not counted.
    """
    ids = [list(one) for one in models[0].vocabulary.encode_batch(texts)]
    same = 0
    while all(len(one) > same + 1 and one[same] == ids[0][same] for one in ids):
        same += 1
    found = []
    for model in models:
        reader: NextToken = PrefixedModel(model, ids[0][:same]) if same else model
        found.append(text_log_probs(reader, [one[same:] for one in ids]) / -np.log(2))
        if not np.isfinite(found[-1]).all():
            raise ModelError("the model's scores are not finite", remedy="Save the model again.")
    after, *before = found
    return np.asarray(after - before[0] if before else after, np.float64)


def _secrets(number: int) -> str:
    return "1 secret" if number == 1 else f"{number} secrets"
