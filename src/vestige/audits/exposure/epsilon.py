"""Lower bounds on epsilon from coin-flip canaries, and their verdict on a claimed epsilon.

A fair coin put each canary into the training text or left it out. How well the log-probabilities of
the model separate the two groups bounds epsilon from below: Steinke, Nasr and Jagielski (2023),
"Privacy Auditing with One (1) Training Run" (`metrics.epsilon`), and Jagielski, Ullman and Oprea
(2020), "Auditing Differentially Private Machine Learning" (`metrics.epsilon`). A claim with a
mechanism, such as DP-SGD with some noise, has a trade-off curve, which can be refuted even if its
epsilon cannot: Mahloujifar et al. (2024), "Auditing f-Differential Privacy in One Run"
(`metrics.f_dp_epsilon`).

With r copies of each canary the bound is for groups of r sequences. A claim for single sequences
must be converted first: `vestige.privacy.accounting.Mechanism` with `copies`.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from vestige import _validate
from vestige.data.canaries.texts import COIN_FLIP, Canary, canary_ids
from vestige.errors import DataError
from vestige.metrics.epsilon import EpsilonBound, one_run_epsilon
from vestige.metrics.estimates import Estimate, auc, columns
from vestige.metrics.f_dp_epsilon import GAUSSIAN, Curves, f_dp_epsilon, threshold_epsilon
from vestige.models.checkpoints import check_compatible
from vestige.models.predictions import text_log_probs
from vestige.models.protocols import NextToken
from vestige.results import Measurement

Verdict = Literal["consistent", "violated", "violated if independent", "underpowered"]
"""The verdict of an audit on a claimed epsilon.

- consistent: the audit could have refuted the claim, and did not.
- violated: epsilon is larger than claimed, or the stated mechanism's trade-off curve is refuted.
- violated if independent: only the bound that assumes independent scores exceeds the claim.
- underpowered: no scores of these canaries could have refuted the claim; there are too few.
"""


@dataclass(frozen=True, kw_only=True)
class CanaryAudit(Measurement):
    """Lower bounds on epsilon from coin-flip canaries.

    Attributes:
        canaries: all canaries.
        scores: log-probability of each in nats, minus that under the reference model, if any.
        one_run: the bound that assumes only fair coins; the verdict uses it.
        f_dp: the bound for the claimed mechanism; the verdict uses it, too. If none is claimed, the
            bound for a Gaussian mechanism, which the verdict does not use.
        threshold: the bound that also assumes independent scores.
        separation: probability that a planted canary scores above one that was left out.
        copies: of each planted canary.
        claimed: epsilon that the training claims for groups of `copies`; None without a claim.
        calibrated: whether a reference model's log-probabilities were subtracted.
        mechanism_claimed: whether the claim states a mechanism.
        confidence: of the verdict. Two bounds that share it have a higher confidence each.
    """

    canaries: tuple[Canary, ...]
    scores: tuple[float, ...]
    one_run: EpsilonBound
    f_dp: EpsilonBound
    threshold: EpsilonBound
    separation: Estimate
    copies: int
    claimed: float | None
    calibrated: bool
    mechanism_claimed: bool = False
    confidence: float = 0.95

    @property
    def unit(self) -> str:
        """The unit of the bounds: one sequence, or groups of copies."""
        return "sequence" if self.copies == 1 else f"groups of {self.copies} sequences"

    @property
    def proven(self) -> EpsilonBound:
        """The largest of the bounds that the verdict uses."""
        bounds = (self.one_run, self.f_dp) if self.mechanism_claimed else (self.one_run,)
        return max(bounds, key=lambda bound: bound.epsilon)

    @property
    def ceiling(self) -> float:
        """The largest epsilon that these bounds could have proven, with perfect scores."""
        return max(self.one_run.ceiling, self.f_dp.ceiling if self.mechanism_claimed else 0.0)

    @property
    def verdict(self) -> Verdict | None:
        """Verdict on the claim; None without one."""
        if self.claimed is None:
            return None
        if self.proven.epsilon > self.claimed:
            return "violated"
        if self.threshold.epsilon > self.claimed:
            return "violated if independent"
        return "consistent" if self.ceiling > self.claimed else "underpowered"

    def summary(self) -> dict[str, object]:
        """One row of a results table."""
        one_run, f_dp, threshold = self.one_run, self.f_dp, self.threshold
        return {
            "unit": self.unit,
            "copies": self.copies,
            "canaries_in": one_run.canaries_in,
            "canaries_out": one_run.canaries_out,
            "delta": one_run.delta,
            "confidence": self.confidence,
            "claimed_epsilon": self.claimed,
            "verdict": self.verdict,
            "empirical_epsilon": one_run.epsilon,
            **{name: getattr(one_run, name) for name in ("ceiling", "guesses", "correct")},
            **{f"f_dp_{name}": getattr(f_dp, name) for name in ("epsilon", "ceiling", "assumes")},
            "mechanism_claimed": self.mechanism_claimed,
            "threshold_epsilon": threshold.epsilon,
            "threshold_ceiling": threshold.ceiling,
            **columns("auc", self.separation),
            "calibrated": self.calibrated,
        }

    def rows(self) -> Iterator[dict[str, object]]:
        """One row per canary, the highest score first."""
        pairs = zip(self.canaries, self.scores, strict=True)
        for canary, score in sorted(pairs, key=lambda pair: -pair[1]):
            yield {
                "phrase": canary.phrase,
                "trained_on": canary.planted,
                "copies": canary.copies,
                "score": score,
            }


def audit_canaries(
    model: NextToken | Sequence[float],
    canaries: Sequence[Canary],
    *,
    delta: float,
    confidence: float = 0.95,
    reference: NextToken | Sequence[float] | None = None,
    claimed: float | None = None,
    claimed_copies: int = 1,
    mechanism: Curves | None = None,
) -> CanaryAudit:
    """Lower bounds on epsilon from canaries that a coin put into the training text or left out.

    Args:
        model: trained on the text with the canaries, or its `canary_scores`.
        canaries: of `coin_flip_canaries`, planted ones and controls, and no others.
        delta: of the claim, in [0, 1).
        confidence: of each bound, in (0, 1). With a mechanism, of the two bounds that the verdict
            uses, together (Bonferroni).
        reference: a model that saw no canary, or its `canary_scores`; they are subtracted.
        claimed: epsilon that the training claims at delta, for groups of `claimed_copies`.
        claimed_copies: must equal the copies of each canary; convert a claim for one sequence to
            one for groups first.
        mechanism: trade-off curves of the claimed mechanism, for single sequences.

    Raises:
        ValueError: an argument is out of range, or the claim or mechanism is for another unit.
        DataError: the canaries are no coin flips, differ in copies, or have unknown words.
        IncompatibleModels: the reference model, or the planting, has another vocabulary.
    """
    copies = _copies(canaries)
    if claimed is not None:
        _validate.at_least(0, claimed=claimed)
        if claimed_copies != copies:
            raise ValueError(
                f"claimed_copies must be {copies}, as often as each canary was planted, got "
                f"{claimed_copies}; `Mechanism(..., copies=)` converts a claim"
            )
    if mechanism is not None and (claimed is None or copies != 1):
        raise ValueError(
            "mechanism must come with claimed, for canaries of one copy each: it is what the "
            f"claim states of a sequence, got claimed {claimed} and {copies} copies"
        )
    scores = _scores(model, canaries)
    if reference is not None:
        if not isinstance(reference, Sequence) and not isinstance(model, Sequence):
            check_compatible(reference, model)
        scores = scores - _scores(reference, canaries)
    for number in np.flatnonzero(~np.isfinite(scores))[:1]:
        raise DataError(
            f"canary {number + 1} has no finite log-probability under the model",
            remedy="Audit a model that gives every word some probability.",
        )
    planted = np.array([canary.planted for canary in canaries])
    samples = scores[planted], scores[~planted]
    bound_confidence = confidence if mechanism is None else (1 + confidence) / 2
    family = mechanism or GAUSSIAN
    return CanaryAudit(
        canaries=tuple(canaries),
        scores=tuple(scores.tolist()),
        one_run=one_run_epsilon(*samples, delta=delta, confidence=bound_confidence),
        f_dp=f_dp_epsilon(*samples, delta=delta, confidence=bound_confidence, family=family),
        threshold=threshold_epsilon(*samples, delta=delta, confidence=confidence, family=mechanism),
        separation=auc(*samples, confidence=confidence),
        copies=copies,
        claimed=claimed,
        calibrated=reference is not None,
        mechanism_claimed=mechanism is not None,
        confidence=confidence,
    )


def canary_scores(model: NextToken, canaries: Sequence[Canary]) -> NDArray[np.float64]:
    """(n,) log-probability of each whole canary, in nats."""
    numbered = enumerate(canaries, start=1)
    return text_log_probs(
        model, [canary_ids(number, canary, model.vocabulary) for number, canary in numbered]
    )


def _scores(model: NextToken | Sequence[float], canaries: Sequence[Canary]) -> NDArray[np.float64]:
    if not isinstance(model, Sequence):
        return canary_scores(model, canaries)
    if len(model) != len(canaries):
        raise ValueError(
            f"there must be a score for each of {len(canaries)} canaries, got {len(model)}"
        )
    return np.array(model, np.float64)


def _copies(canaries: Sequence[Canary]) -> int:
    """Copies of each planted canary."""
    for number, canary in enumerate(canaries, start=1):
        if canary.pattern != COIN_FLIP:
            raise DataError(
                f"canary {number} is {canary.pattern!r}; this audit needs coin-flip canaries",
                remedy="Plant coin-flip canaries, and pass only those.",
            )
    copies = {canary.copies for canary in canaries if canary.planted}
    if not copies or all(canary.planted for canary in canaries):
        raise DataError(
            f"all {len(canaries)} canaries have the same coin flip",
            remedy="Plant more coin-flip canaries: a hundred give a weak bound, a thousand a "
            "better one.",
        )
    if len(copies) > 1:
        raise DataError(
            f"the canaries have {', '.join(map(str, sorted(copies)))} copies; a bound needs one "
            "number of copies",
            remedy="Audit the canaries of each number of copies separately.",
        )
    return copies.pop()
