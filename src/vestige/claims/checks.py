"""Checks from numbers: alive, different, read, powerful, one model.

Each takes plain arrays and returns a `Check` whose sentence states the number behind it.
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
"""Root mean square difference in nats per token that rounding to half precision can cause."""

LEAST_READ = 0.9
"""Share of the tokens that must be scored."""

DETECTED = 0.8
"""Power at which a smallest detectable effect is stated."""


def alive(
    scores: Sequence[ArrayLike], tokens: Sequence[ArrayLike], *, who: str, least: float = 0.0
) -> Check:
    """Whether a model predicts texts better than word frequencies do.

    Frequencies are counted on every other text, with one added to each count. Where so few texts
    have so many words that a uniform guess does better than the counts, it takes their place: a
    model of zero weights is one.

    Args:
        scores: natural log-probability of each token, an array for each text.
        tokens: ids, likewise.
        who: the model in a sentence, such as "the model" or "BEFORE".
        least: nats per token by which it must be better.
    """
    read = [np.asarray(score, dtype=np.float64) for score in scores]
    ids = [np.asarray(token, dtype=np.int64) for token in tokens]
    every = np.concatenate(read) if read else np.array([])
    name = who[:1].upper() + who[1:]
    if not every.size:
        return Check("alive", "could not run", f"{name} scored no text.")
    if broken := int((~np.isfinite(every)).sum()):
        return Check(
            "alive", "failed",
            f"{broken:,} of {every.size:,} scores of {who} are not finite: its weights are broken.",
        )  # fmt: skip
    if len(read) < 4:
        return Check(
            "alive", "could not run", f"{len(read)} texts are too few to test {who}; 4 are needed."
        )
    gains = _gains_over_frequencies(read, ids)
    mean, error = float(gains.mean()), float(gains.std(ddof=1)) / sqrt(gains.size)
    better = f"{name} predicts text {mean:.2f} nats per token better than word frequencies"
    if mean - 2 * error > least:
        return Check("alive", "passed", f"{better}.")
    if mean > 0:
        return Check("alive", "failed", f"{better}: too weak to audit.")
    return Check(
        "alive", "failed",
        f"{name} predicts text {abs(mean):.2f} nats per token worse than word frequencies: "
        "too weak to audit.",
    )  # fmt: skip


def _gains_over_frequencies(
    scores: Sequence[NDArray[np.float64]], tokens: Sequence[NDArray[np.int64]]
) -> NDArray[np.float64]:
    """(n,) mean gain per token of each text that has tokens."""
    vocabulary = 1 + max(int(own.max()) for own in tokens if own.size)
    gains = []
    for half in (0, 1):
        counts = np.bincount(np.concatenate(tokens[1 - half :: 2]), minlength=vocabulary)
        frequencies = np.log((counts + 1) / (counts.sum() + vocabulary))
        own = np.concatenate(tokens[half::2])
        if own.size and frequencies[own].mean() < -np.log(vocabulary):
            frequencies[:] = -np.log(vocabulary)
        gains += [
            float((score - frequencies[token]).mean())
            for score, token in zip(scores[half::2], tokens[half::2], strict=True)
            if token.size
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
        finding: equal models are a result of the audit, as in `unlearning`, and block only
            "no leak shown".
        names: of the two models, for the sentence.
    """
    blocks = (NO_LEAK,) if finding else Check.blocks
    told = "The models" if names is None else " and ".join(names)
    told = told[:1].upper() + told[1:]
    moved = np.asarray(after, dtype=np.float64) - np.asarray(before, dtype=np.float64)
    if same_weights or (moved.size and np.isfinite(moved).all() and not moved.any()):
        same = "Both models are the same." if names is None else f"{told} are the same model."
        return Check("different", "failed", same, blocks)
    if not moved.size or not np.isfinite(moved).all():
        return Check("different", "could not run", f"{told} have no finite scores to compare.")
    size = float(np.sqrt(np.mean(moved**2)))
    told += f" differ by {size:.2g} nats per token"
    if size < ROUNDING:
        return Check("different", "failed", f"{told}: rounding explains it.", (NO_LEAK,))
    return Check("different", "passed", f"{told}.")


def read(scored: int, of: int, *, what: str = "the tokens") -> Check:
    """Whether enough of the texts was scored. A leak in what was read is one all the same."""
    if not of:
        return Check("read", "could not run", "The texts have no tokens.")
    share = scored / of
    told = f"{share:.0%} of {what} were read"
    if share >= LEAST_READ:
        return Check("read", "passed", f"{told}.")
    return Check(
        "read", "failed",
        f"{told}; at least {LEAST_READ:.0%} are needed. The rest is longer than the context or "
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
    control: bool | None = None,
) -> Check:
    """Whether the result could have been different.

    Args:
        test: as in the claim.
        detectable: smallest effect that is detected with 80% power.
        wanted: largest effect that "no leak shown" may leave undetected, in the same unit.
        high: upper end of the 95% interval of the effect; one below `wanted` excludes it as well.
        effect: the effect in a sentence, with its unit, such as "an exposure of {} bits".
        control: whether a positive control was detected; None where there was none.
    """

    def check(passed: bool, sentence: str) -> Check:
        return Check("powerful", "passed" if passed else "failed", sentence, (NO_LEAK,))

    if test is None:
        return Check("powerful", "could not run", "Nothing could be tested.", (NO_LEAK,))
    if not test.possible:
        return check(
            False,
            f"The least p-value is {test.least:.2g}, above the level {test.alpha:g}.",
        )
    if control is not None:
        return check(
            control, f"The positive control was {'detected' if control else 'not detected'}."
        )
    if detectable is None or wanted is None:
        return Check(
            "powerful", "could not run", "The smallest detectable leak is unknown.", (NO_LEAK,)
        )
    alike = f"{detectable:.2g}" == f"{wanted:.2g}" and detectable > wanted
    digits = 3 if alike else 2
    size, limit = (f"{one:.{digits}g}" for one in (detectable, wanted))
    shown = effect.format(size) if "{}" in effect else f"{effect} of {size}"
    if not isfinite(detectable):
        shown = "no effect of any size"
    shown = shown[:1].upper() + shown[1:]
    sentence = f"{shown} would be detected (power 80%); required: {limit}."
    if detectable > wanted and high is not None and high <= wanted:
        return check(True, f"{sentence} The 95% CI excludes more than {high:.2g}.")
    return check(detectable <= wanted, sentence)


def bounded(test: Test | None, high: float | None, *, limit: float, what: str) -> Check:
    """The check "powerful" of an audit with an interval: whether it excludes a leak that matters.

    `limit`: largest share that "no leak shown" may leave possible; `high`: end of the interval.
    """
    if test is None or not test.possible or high is None or not isfinite(high):
        return powerful(test)
    return Check(
        "powerful", "passed" if high <= limit else "failed",
        f"The 95% CI ends at {high:.1%} {what}; required: at most {limit:.0%}.",
        (NO_LEAK,),
    )  # fmt: skip


def detectable_difference(own: ArrayLike, rest: ArrayLike, *, alpha: float) -> float:
    """Difference of means that a one-sided test at `alpha` detects with 80% power."""
    sides = [np.asarray(side, dtype=np.float64) for side in (own, rest)]
    if min(side.size for side in sides) < 2:
        return float("inf")
    spread = sqrt(sum(float(side.var(ddof=1)) / side.size for side in sides))
    return float((norm.isf(alpha) + norm.isf(1 - DETECTED)) * spread)


def detectable_shift(spread: float, n: int, m: int, *, alpha: float) -> float:
    """The same for n units against m, both with a known standard deviation."""
    if min(n, m) < 1:
        return float("inf")
    return float((norm.isf(alpha) + norm.isf(1 - DETECTED)) * spread * sqrt(1 / n + 1 / m))


def detectable_auc(n: int, m: int, *, alpha: float) -> float:
    """AUC of n units against m that a one-sided rank test at `alpha` detects with 80% power.

    By the normal approximation of Mann and Whitney's statistic under the null.
    """
    if min(n, m) < 1:
        return 1.0
    spread = sqrt((n + m + 1) / (12 * n * m))
    return float(min(1.0, 0.5 + (norm.isf(alpha) + norm.isf(1 - DETECTED)) * spread))


def one_model(hashes: Mapping[str, str]) -> Check:
    """Whether all runs of a page measured the same weights; hashes by name of the run."""
    found = len(set(hashes.values()))
    if not hashes:
        return Check("one model", "could not run", "No run records the weights of its model.")
    if found == 1:
        return Check("one model", "passed", "All runs measured the same model.")
    return Check("one model", "failed", f"The runs measured {found} different models.")


def distinct(hashes: Mapping[str, str], *, what: str = "trainings") -> Check:
    """Whether models that count as independent are different ones; hashes by name."""
    copies = len(hashes) - len(set(hashes.values()))
    if copies:
        return Check(
            "independent", "failed", f"{copies} of {len(hashes)} {what} are copies of another."
        )
    return Check("independent", "passed", f"{len(hashes)} {what}, no two with the same weights.")


def require_finite(scores: Mapping[str, Iterable[ArrayLike]]) -> None:
    """Refuse broken models (ModelError) before anything is computed from their scores, by model."""
    for who, parts in scores.items():
        if broken := sum(int((~np.isfinite(np.asarray(one))).sum()) for one in parts):
            raise ModelError(
                f"{broken:,} scores of {who} are not finite: its weights are broken",
                remedy="Save the model again and check its weights.",
            )


def model_checks(
    outputs: "Mapping[str, Sequence[TokenStatistics]]",
    *,
    read_tokens: tuple[int, int] | None = None,
    pair: tuple[str, str] | None = None,
) -> tuple[Check, ...]:
    """The checks "alive" of each model, "read", and "different" of a pair.

    Args:
        outputs: by model, as a sentence names it, of the audited texts and the reference.
        read_tokens: tokens of the audited texts that were scored, and all that they have; None
            leaves "read" out.
        pair: two models that must differ.
    """

    def by_text(one: "TokenStatistics", values: NDArray[np.generic]) -> list[NDArray[np.generic]]:
        return [values[start:end] for start, end in pairwise(one.offsets.tolist())]

    checks = [
        alive(by_text(rest, rest.log_probs), by_text(rest, rest.tokens), who=who)
        for who, (_, rest) in outputs.items()
    ]
    if read_tokens is not None:
        checks.append(read(*read_tokens))
    if pair is not None:
        before, after = (np.concatenate([one.log_probs for one in outputs[who]]) for who in pair)
        checks.append(different(before, after))
    return tuple(checks)
