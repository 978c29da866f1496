"""Checks from numbers: alive, different, read, powerful, one model.

Each function takes arrays or counts and returns a `Check`; its sentence contains the number.
"""

from collections.abc import Iterable, Mapping, Sequence
from itertools import pairwise
from math import isfinite, sqrt
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.stats import norm

from vestige.claims.claim import NO_LEAK, Check
from vestige.errors import ModelError
from vestige.metrics.tests import Test

if TYPE_CHECKING:
    from vestige.models.token_statistics import TokenStatistics

ROUNDING = 0.02
"""Largest RMS difference of two models, in nats per token, that half precision can explain."""

LEAST_READ = 0.9
"""Least share of the tokens that must be scored."""

POWER = 0.8
"""Power for which the smallest detectable effect is computed."""


def alive(scores: Sequence[ArrayLike], tokens: Sequence[ArrayLike], *, who: str) -> Check:
    """Whether a model predicts texts better than word frequencies.

    Word frequencies are counted on half of the texts for the other half, with one added to each
    count. If a uniform guess predicts better than they do (few texts with many words), it replaces
    them, because a model with zero weights makes a uniform guess.

    Args:
        scores: natural log-probability of each token, an array per text.
        tokens: ids of the tokens, an array per text.
        who: the model in a sentence, such as "the model" or "BEFORE".
    """
    text_scores = [np.asarray(score, dtype=np.float64) for score in scores]
    text_ids = [np.asarray(token, dtype=np.int64) for token in tokens]
    all_scores = np.concatenate(text_scores) if text_scores else np.array([])
    name = _capitalized(who)
    if not all_scores.size:
        return Check("alive", "could not run", f"{name} scored no text.")
    if broken := int((~np.isfinite(all_scores)).sum()):
        counts = f"{broken:,} of {all_scores.size:,}"
        sentence = f"{counts} scores of {who} are not finite: its weights are broken."
        return Check("alive", "failed", sentence)
    if len(text_scores) < 4:
        sentence = f"{len(text_scores)} texts are too few to test {who}; 4 are needed."
        return Check("alive", "could not run", sentence)
    gains = _gains_over_frequencies(text_scores, text_ids)
    mean, error = float(gains.mean()), float(gains.std(ddof=1)) / sqrt(gains.size)
    comparison = "better" if mean > 0 else "worse"
    sentence = f"{name} predicts text {abs(mean):.2f} nats per token {comparison} than word "
    if mean - 2 * error > 0:
        return Check("alive", "passed", f"{sentence}frequencies.")
    return Check("alive", "failed", f"{sentence}frequencies: too weak to audit.")


def _capitalized(sentence: str) -> str:
    return sentence[:1].upper() + sentence[1:]


def _gains_over_frequencies(
    scores: Sequence[NDArray[np.float64]], tokens: Sequence[NDArray[np.int64]]
) -> NDArray[np.float64]:
    """(n,) mean gain per token of each text that has tokens."""
    vocab_size = 1 + max(int(ids.max()) for ids in tokens if ids.size)
    gains = []
    for half in (0, 1):
        counts = np.bincount(np.concatenate(tokens[1 - half :: 2]), minlength=vocab_size)
        log_frequencies = np.log((counts + 1) / (counts.sum() + vocab_size))
        all_ids = np.concatenate(tokens[half::2])
        if all_ids.size and log_frequencies[all_ids].mean() < -np.log(vocab_size):
            log_frequencies[:] = -np.log(vocab_size)
        gains += [
            float((score - log_frequencies[ids]).mean())
            for score, ids in zip(scores[half::2], tokens[half::2], strict=True)
            if ids.size
        ]
    return np.array(gains)


def different(
    before: ArrayLike,
    after: ArrayLike,
    *,
    same_weights: bool = False,
    finding: bool = False,
    names: tuple[str, str] | None = None,
) -> Check:
    """Whether token log-probabilities (t,) of two models differ by more than rounding.

    Args:
        same_weights: their weights are known to be equal.
        finding: equal models are a finding, as in `unlearning`, and block only "no leak shown".
        names: of the two models, for the sentence.
    """
    blocks = (NO_LEAK,) if finding else Check.blocks
    subject = "The models" if names is None else _capitalized(" and ".join(names))
    change = np.asarray(after, dtype=np.float64) - np.asarray(before, dtype=np.float64)
    finite = bool(change.size and np.isfinite(change).all())
    if same_weights or (finite and not change.any()):
        same = "Both models are the same." if names is None else f"{subject} are the same model."
        return Check("different", "failed", same, blocks)
    if not finite:
        return Check("different", "could not run", f"{subject} have no finite scores to compare.")
    rms = float(np.sqrt(np.mean(change**2)))
    sentence = f"{subject} differ by {rms:.2g} nats per token"
    if rms < ROUNDING:
        return Check("different", "failed", f"{sentence}: rounding explains it.", (NO_LEAK,))
    return Check("different", "passed", f"{sentence}.")


def read(scored: int, total: int, *, what: str = "the tokens") -> Check:
    """Whether enough tokens were scored. Unread tokens do not prevent the verdict "leak"."""
    if not total:
        return Check("read", "could not run", "The texts have no tokens.")
    share = scored / total
    sentence = f"{share:.0%} of {what} were read"
    if share >= LEAST_READ:
        return Check("read", "passed", f"{sentence}.")
    return Check(
        "read", "failed",
        f"{sentence}; at least {LEAST_READ:.0%} are needed. The rest is longer than the context or "
        "than the reference, or is unknown to the model.",
        (NO_LEAK,),
    )  # fmt: skip


def powerful(
    test: Test | None,
    *,
    detectable: float | None = None,
    wanted: float | None = None,
    high: float | None = None,
    effect: str = "an effect",
) -> Check:
    """Whether the audit would have detected a leak.

    Args:
        test: the test of the claim.
        detectable: smallest effect that is detected with 80% power.
        wanted: largest effect that "no leak shown" may leave undetected, in the same unit.
        high: upper end of the 95% interval of the effect; the check also passes if it is at most
            `wanted`.
        effect: the effect in a sentence, with its unit, such as "an exposure of {} bits".
    """

    def check(passed: bool, sentence: str) -> Check:
        return Check("powerful", "passed" if passed else "failed", sentence, (NO_LEAK,))

    if test is None:
        return Check("powerful", "could not run", "Nothing could be tested.", (NO_LEAK,))
    if not test.possible:
        sentence = f"The least p-value is {test.least:.2g}, above the level {test.alpha:g}."
        return check(False, sentence)
    if detectable is None or wanted is None:
        return Check(
            "powerful", "could not run", "The smallest detectable leak is unknown.", (NO_LEAK,)
        )
    look_equal = f"{detectable:.2g}" == f"{wanted:.2g}" and detectable > wanted
    digits = 3 if look_equal else 2
    size, limit = f"{detectable:.{digits}g}", f"{wanted:.{digits}g}"
    subject = effect.format(size) if "{}" in effect else f"{effect} of {size}"
    if not isfinite(detectable):
        subject = "no effect of any size"
    sentence = f"{_capitalized(subject)} would be detected (power 80%); required: {limit}."
    if detectable > wanted and high is not None and high <= wanted:
        return check(True, f"{sentence} The 95% CI excludes more than {high:.2g}.")
    return check(detectable <= wanted, sentence)


def bounded(test: Test | None, high: float | None, *, limit: float, what: str) -> Check:
    """The check "powerful" of an audit with an interval: does it exclude a large leak?

    `high`: upper end of the 95% interval; `limit`: largest value of it for "no leak shown".
    """
    if test is None or not test.possible or high is None or not isfinite(high):
        return powerful(test)
    return Check(
        "powerful", "passed" if high <= limit else "failed",
        f"The 95% CI ends at {high:.1%} {what}; required: at most {limit:.0%}.",
        (NO_LEAK,),
    )  # fmt: skip


def detectable_difference(first: ArrayLike, second: ArrayLike, *, alpha: float) -> float:
    """Difference of means that a one-sided test at `alpha` detects with 80% power."""
    samples = [np.asarray(values, dtype=np.float64) for values in (first, second)]
    if min(sample.size for sample in samples) < 2:
        return float("inf")
    spread = sqrt(sum(float(sample.var(ddof=1)) / sample.size for sample in samples))
    return float((norm.isf(alpha) + norm.isf(1 - POWER)) * spread)


def detectable_shift(spread: float, n: int, m: int, *, alpha: float) -> float:
    """The same for n units against m, with a known standard deviation `spread`."""
    if min(n, m) < 1:
        return float("inf")
    return float((norm.isf(alpha) + norm.isf(1 - POWER)) * spread * sqrt(1 / n + 1 / m))


def detectable_auc(n: int, m: int, *, alpha: float) -> float:
    """AUC of n units against m that a one-sided rank test at `alpha` detects with 80% power.

    Normal approximation of Mann and Whitney's statistic under the null hypothesis.
    """
    if min(n, m) < 1:
        return 1.0
    spread = sqrt((n + m + 1) / (12 * n * m))
    return float(min(1.0, 0.5 + (norm.isf(alpha) + norm.isf(1 - POWER)) * spread))


def one_model(hashes: Mapping[str, str]) -> Check:
    """Whether all runs of a page measured the same weights; hashes of the weights by run."""
    models = len(set(hashes.values()))
    if not hashes:
        return Check("one model", "could not run", "No run records the weights of its model.")
    if models == 1:
        return Check("one model", "passed", "All runs measured the same model.")
    return Check("one model", "failed", f"The runs measured {models} different models.")


def distinct(hashes: Mapping[str, str]) -> Check:
    """Whether all trainings have different weights; hashes of the weights by training."""
    copies = len(hashes) - len(set(hashes.values()))
    if copies:
        sentence = f"{copies} of {len(hashes)} trainings are copies of another."
        return Check("independent", "failed", sentence)
    return Check("independent", "passed", f"{len(hashes)} trainings, no two with the same weights.")


def require_finite(scores: Mapping[str, Iterable[ArrayLike]]) -> None:
    """Raise ModelError if a score is not finite; arrays of scores by model."""
    for who, arrays in scores.items():
        if broken := sum(int((~np.isfinite(np.asarray(array))).sum()) for array in arrays):
            raise ModelError(
                f"{broken:,} scores of {who} are not finite: its weights are broken",
                remedy="Save the model again and check its weights.",
            )


def statistics_checks(
    outputs: "Mapping[str, Sequence[TokenStatistics]]",
    *,
    read_tokens: tuple[int, int] | None = None,
    pair: tuple[str, str] | None = None,
) -> tuple[Check, ...]:
    """The checks "alive" of each model, "read", and "different" of a pair.

    Args:
        outputs: by model, named as in a sentence: of the audited texts, and of the reference.
        read_tokens: scored tokens of the audited texts, and all their tokens; None omits "read".
        pair: two models that must differ.
    """

    def by_text(values: NDArray[np.generic], offsets: Sequence[int]) -> list[NDArray[np.generic]]:
        return [values[start:end] for start, end in pairwise(offsets)]

    checks = []
    for who, (_, reference) in outputs.items():
        offsets = reference.offsets.tolist()
        scores, tokens = by_text(reference.log_probs, offsets), by_text(reference.tokens, offsets)
        checks.append(alive(scores, tokens, who=who))
    if read_tokens is not None:
        checks.append(read(*read_tokens))
    if pair is not None:
        before, after = (
            np.concatenate([output.log_probs for output in outputs[who]]) for who in pair
        )
        checks.append(different(before, after))
    return tuple(checks)
