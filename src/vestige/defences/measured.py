"""What was measured of one training, and what of it is set against another."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from math import isfinite
from typing import Any, Literal

import numpy as np

from vestige.attacks.canary_audit import CanaryAudit
from vestige.attacks.completion import Completion
from vestige.attacks.exposure_result import CanaryExposure
from vestige.defences.accounting import Accountant
from vestige.defences.group_privacy import group_epsilon
from vestige.metrics.intervals import Interval, mean_interval
from vestige.training.evaluate import DocumentScores


@dataclass(frozen=True, kw_only=True)
class CanaryBits:
    """The exposure of canaries under one model, in bits.

    Attributes:
        canaries: the planted ones' phrases, to tell whether two models were asked the same.
        copies: how often each was planted, at least 1.
        exposure: of each.
        shuffled: of the same words in another order, for as many canaries as have one; empty
            or one for each, None where there is none.
        never: of sequences that were made alike and never planted.
    """

    canaries: tuple[str, ...]
    copies: tuple[int, ...]
    exposure: tuple[float, ...]
    shuffled: tuple[float | None, ...] = ()
    never: tuple[float, ...] = ()

    def __post_init__(self) -> None:
        sizes = {len(self.canaries), len(self.copies), len(self.exposure)}
        if len(sizes) != 1 or len(self.shuffled) not in (0, *sizes):
            raise ValueError(
                "canaries, copies, exposure and shuffled must have one length, got "
                f"{len(self.canaries)}, {len(self.copies)}, {len(self.exposure)} and "
                f"{len(self.shuffled)}"
            )

    def orders(self) -> dict[int, float]:
        """By place, what each canary has more than its words in another order."""
        pairs = enumerate(zip(self.exposure, self.shuffled, strict=False))
        return {place: own - other for place, (own, other) in pairs if other is not None}


def common_estimate(found: Sequence[CanaryExposure]) -> Literal["rank", "fit"]:
    """The estimate of exposure in which several models can be compared.

    The skew-normal fit where a canary of some model is likelier than every reference, so that its
    rank says too little, and where every canary of every model has a fit; else the rank.
    """
    wanted = any(one.estimate == "fit" for one in found)
    able = all(c.fit_exposure is not None for one in found for c in one.canaries)
    return "fit" if wanted and able else "rank"


def canary_bits(found: CanaryExposure, *, estimate: Literal["rank", "fit"]) -> CanaryBits:
    """The exposures of one model, by one estimate."""
    planted = [one for one in found.canaries if one.planted]
    own, other = (
        ("exposure", "shuffled_exposure")
        if estimate == "rank"
        else ("fit_exposure", "shuffled_fit_exposure")
    )
    return CanaryBits(
        canaries=tuple(one.phrase for one in planted),
        copies=tuple(one.copies for one in planted),
        exposure=tuple(getattr(one, own) for one in planted),
        shuffled=tuple(getattr(one, other) for one in planted),
        never=tuple(getattr(one, own) for one in found.canaries if not one.planted),
    )


@dataclass(frozen=True, kw_only=True)
class Guarantee:
    """What a training promises: differential privacy.

    Attributes:
        epsilon: at least 0.
        delta: the probability that it fails, in (0, 1).
        unit: what is protected, "sequence" or "user".
        noise_multiplier: of the mechanism; None where it is not known.
        sample_rate: likewise.
        steps: likewise.
        accountant: that the claim comes from.
    """

    epsilon: float
    delta: float
    unit: str
    noise_multiplier: float | None = None
    sample_rate: float | None = None
    steps: int | None = None
    accountant: Accountant = "prv"

    @classmethod
    def of(cls, summary: Mapping[str, Any]) -> "Guarantee | None":
        """What the summary of a training claims; None where it claims nothing finite."""
        epsilon, delta = summary.get("epsilon"), summary.get("delta")
        if epsilon is None or delta is None or not isfinite(epsilon):
            return None
        return cls(
            epsilon=epsilon,
            delta=delta,
            unit=str(summary.get("unit", "sequence")),
            noise_multiplier=summary.get("noise_multiplier"),
            sample_rate=summary.get("sample_rate"),
            steps=summary.get("steps"),
            accountant=summary.get("accountant", "prv"),
        )

    def of_group(self, copies: int) -> float | None:
        """Epsilon for so many copies of one text; None where the claim does not speak of them.

        A claim for users bounds what a whole user changes, by being there or not. A canary among a
        user's other texts is another change, and several of one user are no coins of their own, so
        that an audit with canaries can refute no such claim.
        """
        if self.unit == "user":
            return None
        if copies == 1:
            return self.epsilon
        if self.noise_multiplier is None or self.sample_rate is None or self.steps is None:
            return None
        return group_epsilon(
            noise_multiplier=self.noise_multiplier,
            sample_rate=self.sample_rate,
            steps=self.steps,
            delta=self.delta,
            copies=copies,
            accountant=self.accountant,
        )

    def __str__(self) -> str:
        return f"ε = {self.epsilon:.3g} at δ = {self.delta:.1g} per {self.unit}".replace(
            "e-0", "e-"
        )


@dataclass(frozen=True, kw_only=True)
class TrainingCost:
    """What a training took; None where it is not known.

    Attributes:
        steps: that led to the kept weights.
        passes: how often the kept weights have read each document: epochs, or draws expected.
        seconds_per_epoch: evaluation left out.
        peak_memory_mib: above what was there before.
        tokens_per_second: learnt.
    """

    steps: int | None = None
    passes: float | None = None
    seconds_per_epoch: float | None = None
    peak_memory_mib: float | None = None
    tokens_per_second: float | None = None

    @classmethod
    def of(cls, summary: Mapping[str, Any]) -> "TrainingCost":
        """What the summary of a training says that it took."""
        return cls(
            steps=summary.get("step", summary.get("steps")),
            passes=summary.get("epoch"),
            seconds_per_epoch=summary.get("seconds_per_epoch"),
            peak_memory_mib=summary.get("peak_memory_mib"),
            tokens_per_second=summary.get("tokens_per_second"),
        )


@dataclass(frozen=True, kw_only=True)
class MeasuredTraining:
    """One training with everything that was measured of it; None where nothing was.

    Attributes:
        name: what it is called in the table.
        defence: such as "goldfish"; "none" where there is none.
        scores: of each document of the test text, which is the same for all trainings.
        bits: exposure of the canaries, the same for all.
        completion: of the canaries.
        audit: lower bounds on epsilon, from canaries that a coin put in or left out.
        guarantee: what the training claims.
        cost: what it took.
    """

    name: str
    defence: str = "none"
    scores: DocumentScores | None = None
    bits: CanaryBits | None = None
    completion: Completion | None = None
    audit: CanaryAudit | None = None
    guarantee: Guarantee | None = None
    cost: TrainingCost = field(default_factory=TrainingCost)

    @property
    def perplexity(self) -> float | None:
        """Over all tokens of the test text."""
        if self.scores is None or not (tokens := int(self.scores.tokens.sum())):
            return None
        return float(np.exp(min(self.scores.loss.sum() / tokens, 700.0)))

    @property
    def accuracy(self) -> float | None:
        """Share of the test text's tokens that were the model's first choice."""
        if self.scores is None or not (tokens := int(self.scores.tokens.sum())):
            return None
        return int(self.scores.right.sum()) / tokens


def mean_of(values: Sequence[float], name: str, *, confidence: float) -> dict[str, float | None]:
    """The mean with its interval as entries `name`, `name_low` and `name_high` of a row.

    Example:
        >>> mean_of([1.0, 3.0], "bits", confidence=0.5)["bits"]
        2.0
    """
    mean = float(np.mean(values)) if len(values) else None
    return {name: mean, **ends(name, mean_interval(values, confidence=confidence))}


def ends(name: str, interval: Interval | None) -> dict[str, float | None]:
    """An interval as entries `name_low` and `name_high` of a row.

    Example:
        >>> ends("gap", Interval(1.0, 2.0))
        {'gap_low': 1.0, 'gap_high': 2.0}
    """
    low, high = (None, None) if interval is None else interval
    return {f"{name}_low": low, f"{name}_high": high}
