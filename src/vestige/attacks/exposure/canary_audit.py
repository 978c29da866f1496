"""Lower bounds on epsilon from coin-flip canaries, and what they say of a claim.

A fair coin put each canary into the training text or left it out. The canaries' log-probabilities
under the model say which; how well they say it bounds epsilon from below: Steinke, Nasr and
Jagielski (2023), "Privacy Auditing with One (1) Training Run", and Jagielski, Ullman and Oprea
(2020), "Auditing Differentially Private Machine Learning" (see `metrics.epsilon`).
A claim that states its mechanism, such as DP-SGD with some noise,
states a whole trade-off curve, which can be refuted where its epsilon cannot: Mahloujifar et al.
(2024), "Auditing f-Differential Privacy in One Run" (`metrics.f_dp_epsilon`).

With r copies of each canary the bound is one for groups of r sequences. A claim for single
sequences must then be converted first: `defences.group_privacy.group_epsilon`.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from vestige import _validate
from vestige.attacks.exposure.phrase_exposure import canary_ids
from vestige.attacks.exposure.sequence_scores import text_log_probs
from vestige.data.canary import BY_COIN, Canary
from vestige.errors import DataError
from vestige.metrics.epsilon import EpsilonBound, one_run_epsilon, threshold_epsilon
from vestige.metrics.estimates import Estimate, auc, columns
from vestige.metrics.f_dp_epsilon import GAUSSIAN, Curves, f_dp_epsilon
from vestige.models.checkpoints import check_compatible
from vestige.models.protocols import NextToken
from vestige.results import Measurement

Verdict = Literal["consistent", "violated", "violated if independent", "underpowered"]
"""What an audit says about a claim.

- consistent: it could have refuted the claim, and did not.
- violated: epsilon is larger than claimed, at the stated confidence; or it is for the mechanism
  that the claim states, whose trade-off curve is refuted.
- violated if independent: only the bound that takes scores for independent exceeds the claim.
- underpowered: no scores of so few canaries could have refuted the claim.
"""


@dataclass(frozen=True, kw_only=True)
class CanaryAudit(Measurement):
    """Lower bounds on epsilon from coin-flip canaries.

    Attributes:
        canaries: as they were given.
        scores: log-probability of each, in nats; less the reference model's, where there is one.
        one_run: the bound that needs nothing but fair coins. The verdict is its, first of all.
        f_dp: the bound for the mechanism that the claim states, of which the verdict is as well;
            for a Gaussian mechanism where none is stated, and then no verdict rests on it.
        threshold: the bound that also takes scores for independent; for a stated mechanism, too.
        separation: the chance that a canary trained on scores above one left out.
        copies: of each canary trained on.
        claimed: epsilon that the training claims for such groups; None without a claim.
        calibrated: whether a reference model's log-probabilities were taken off.
        mechanism_claimed: whether the claim states a mechanism.
        confidence: of the verdict, and of each bound by itself, as it was asked for. The two bounds
            that share it have more, each its own.
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
        """The largest of the bounds that the verdict rests on, whatever it is."""
        bounds = (self.one_run, self.f_dp) if self.mechanism_claimed else (self.one_run,)
        return max(bounds, key=lambda bound: bound.epsilon)

    @property
    def ceiling(self) -> float:
        """What perfect scores would have proven by those bounds."""
        assumed = self.f_dp.ceiling if self.mechanism_claimed else 0.0
        return max(self.one_run.ceiling, assumed)

    @property
    def verdict(self) -> Verdict | None:
        """Verdict on the claim, from the bounds that assume nothing beside it; None without one."""
        if self.claimed is None:
            return None
        if self.proven.epsilon > self.claimed:
            return "violated"
        if self.threshold.epsilon > self.claimed:
            return "violated if independent"
        return "consistent" if self.ceiling > self.claimed else "underpowered"

    def summary(self) -> dict[str, object]:
        """One row of a results table."""
        return {
            "unit": self.unit,
            "copies": self.copies,
            "canaries_in": self.one_run.canaries_in,
            "canaries_out": self.one_run.canaries_out,
            "delta": self.one_run.delta,
            "confidence": self.confidence,
            "claimed_epsilon": self.claimed,
            "verdict": self.verdict,
            "empirical_epsilon": self.one_run.epsilon,
            "ceiling": self.one_run.ceiling,
            "guesses": self.one_run.guesses,
            "correct": self.one_run.correct,
            "f_dp_epsilon": self.f_dp.epsilon,
            "f_dp_ceiling": self.f_dp.ceiling,
            "f_dp_assumes": self.f_dp.assumes,
            "mechanism_claimed": self.mechanism_claimed,
            "threshold_epsilon": self.threshold.epsilon,
            "threshold_ceiling": self.threshold.ceiling,
            **columns("auc", self.separation),
            "calibrated": self.calibrated,
        }

    def rows(self) -> Iterator[dict[str, object]]:
        """One row a canary, the highest score first."""
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
        canaries: of `coin_flip_canaries` or `sampled_canaries`, planted and controls; others among
            them are an error.
        delta: of the claim, in [0, 1).
        confidence: of each bound by itself, in (0, 1). With a mechanism, of the two bounds that the
            verdict rests on together (Bonferroni).
        reference: a model that saw no canary, or its `canary_scores`; they are taken off. Sampled
            canaries differ most in how likely they are unread: without one, take their `log_prob`.
        claimed: epsilon that the training claims at delta, for groups of `claimed_copies`.
        claimed_copies: must be the copies of each canary: a claim for one sequence does not
            speak of groups until `group_epsilon` converts it.
        mechanism: trade-off curves of the mechanism that the claim states, for single sequences.

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
                f"{claimed_copies}; group_epsilon converts a claim"
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
    inside, outside = scores[planted], scores[~planted]
    paid = confidence if mechanism is None else (1 + confidence) / 2
    return CanaryAudit(
        canaries=tuple(canaries),
        scores=tuple(scores.tolist()),
        one_run=one_run_epsilon(inside, outside, delta=delta, confidence=paid),
        f_dp=f_dp_epsilon(
            inside, outside, delta=delta, confidence=paid, family=mechanism or GAUSSIAN
        ),
        threshold=threshold_epsilon(
            inside, outside, delta=delta, confidence=confidence, family=mechanism
        ),
        separation=auc(inside, outside, confidence=confidence),
        copies=copies,
        claimed=claimed,
        calibrated=reference is not None,
        mechanism_claimed=mechanism is not None,
        confidence=confidence,
    )


def canary_scores(model: NextToken, canaries: Sequence[Canary]) -> NDArray[np.float64]:
    """(n,) log-probability of each whole canary, in nats."""
    read = enumerate(canaries, start=1)
    return text_log_probs(model, [canary_ids(n, canary, model.vocabulary) for n, canary in read])


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
        if canary.pattern not in BY_COIN:
            raise DataError(
                f"canary {number} is {canary.pattern!r}; this audit needs coin-flip canaries",
                remedy="Plant coin-flip canaries, and pass only those.",
            )
    copies = {canary.copies for canary in canaries if canary.planted}
    if not copies or all(canary.planted for canary in canaries):
        raise DataError(
            f"all {len(canaries)} canaries have the same coin flip",
            remedy=(
                "Plant more coin-flip canaries: a hundred give a weak bound, a thousand a better "
                "one."
            ),
        )
    if len(copies) > 1:
        raise DataError(
            f"the canaries have {', '.join(map(str, sorted(copies)))} copies; a bound needs one "
            "number of copies",
            remedy="Audit the canaries of each number of copies separately.",
        )
    return copies.pop()
