"""Measurements of one training, and the differences between two."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from math import isfinite
from typing import Any

import numpy as np

from vestige.audits.exposure.canary_result import CanaryExposure
from vestige.audits.exposure.epsilon import CanaryAudit
from vestige.audits.extraction.canaries import Completion
from vestige.claims import Check
from vestige.privacy.accounting import Mechanism
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
        at_ceiling: whether each planted one is likelier than every reference, so that its
            exposure is a lower bound; empty where none is.
    """

    canaries: tuple[str, ...]
    copies: tuple[int, ...]
    exposure: tuple[float, ...]
    shuffled: tuple[float | None, ...] = ()
    never: tuple[float, ...] = ()
    at_ceiling: tuple[bool, ...] = ()

    def __post_init__(self) -> None:
        sizes = {len(self.canaries), len(self.copies), len(self.exposure)}
        optional = {len(self.shuffled), len(self.at_ceiling)} - {0}
        if len(sizes) != 1 or not optional <= sizes:
            raise ValueError(
                "canaries, copies, exposure, shuffled and at_ceiling must have one length, got "
                f"{len(self.canaries)}, {len(self.copies)}, {len(self.exposure)}, "
                f"{len(self.shuffled)} and {len(self.at_ceiling)}"
            )

    def orders(self) -> dict[int, float]:
        """By place, what each canary has more than its words in another order."""
        pairs = enumerate(zip(self.exposure, self.shuffled, strict=False))
        return {place: own - other for place, (own, other) in pairs if other is not None}

    def stuck(self) -> tuple[bool, ...]:
        """`at_ceiling`, of every planted canary."""
        return self.at_ceiling or (False,) * len(self.canaries)


def canary_bits(found: CanaryExposure) -> CanaryBits:
    """The exposures of one model by rank, no more than the references resolve."""
    canaries, copies, exposure, shuffled, at_ceiling = (
        tuple(row[name] for row in found.planted)
        for name in ("phrase", "copies", "exposure", "shuffled_exposure", "at_ceiling")
    )
    return CanaryBits(
        canaries=canaries,
        copies=copies,
        exposure=exposure,
        shuffled=shuffled,
        never=tuple(row["exposure"] for row in found.controls),
        at_ceiling=at_ceiling,
    )


@dataclass(frozen=True, kw_only=True)
class Guarantee:
    """What a training promises: differential privacy.

    Attributes:
        epsilon: at least 0.
        delta: the probability that it fails, in (0, 1).
        unit: what is protected, "sequence" or "user".
        noise_multiplier: of the mechanism, or how it falls; None where it is not known.
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

    @classmethod
    def of(cls, summary: Mapping[str, Any]) -> "Guarantee | None":
        """What the summary of a training claims for every record that it read.

        With ancestors that read the same records it is epsilon of all of them, which has no single
        mechanism. None where it claims nothing finite, for some records or for all.
        """
        alone, delta = summary.get("epsilon"), summary.get("delta")
        epsilon = summary.get("epsilon_with_ancestors", alone)
        if epsilon is None or alone is None or delta is None or not isfinite(epsilon):
            return None
        single = epsilon == alone
        steps = summary.get("steps_planned", summary.get("steps"))
        noise, decay = summary.get("noise_multiplier"), summary.get("noise_decay", 1.0)
        if noise is not None:
            noise *= decay  # less than 1 in runs of older versions: the least noise of all steps
        return cls(
            epsilon=epsilon,
            delta=delta,
            unit=str(summary.get("unit", "sequence")),
            noise_multiplier=noise if single else None,
            sample_rate=summary.get("sample_rate") if single else None,
            steps=steps if single else None,
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
        mechanism = Mechanism(
            noise_multiplier=self.noise_multiplier,
            sample_rate=self.sample_rate,
            steps=self.steps,
            copies=copies,
        )
        return mechanism.epsilon(self.delta)

    def __str__(self) -> str:
        return f"ε = {self.epsilon:.3g} at δ = {self.delta:.1g} per {self.unit}".replace(
            "e-0", "e-"
        )


@dataclass(frozen=True, kw_only=True)
class TrainingCost:
    """What a training took; None where it is not known.

    Attributes:
        steps: of the whole training.
        tokens: read in the whole training.
        passes: how often the kept weights have read each document: epochs, or draws expected.
        seconds: of the whole training by the wall clock, evaluation left out. It depends on what
            else the machine was doing, which nobody recorded: no two trainings are compared by it.
        peak_memory_mib: above what was there before.
    """

    steps: int | None = None
    tokens: int | None = None
    passes: float | None = None
    seconds: float | None = None
    peak_memory_mib: float | None = None

    @classmethod
    def of(cls, summary: Mapping[str, Any]) -> "TrainingCost":
        """What the summary of a training says that it took."""
        return cls(
            steps=summary.get("steps"),
            tokens=summary.get("tokens"),
            passes=summary.get("epoch"),
            seconds=summary.get("seconds"),
            peak_memory_mib=summary.get("peak_memory_mib"),
        )


@dataclass(frozen=True, kw_only=True)
class MeasuredTraining:
    """One training with everything that was measured of it; None where nothing was.

    Attributes:
        name: what it is called in the table; trainings made alike with other seeds share it.
        defence: such as "goldfish"; "none" where there is none.
        scores: of each document of the test text, which is the same for all trainings.
        bits: exposure of the canaries, the same for all.
        completion: of the canaries.
        audit: lower bounds on epsilon, from canaries that a coin put in or left out.
        guarantee: what the training claims.
        cost: what it took.
        frequency_perplexity: what the frequencies of its training words reach on the test text.
        alive: the check that the model predicts at all.
    """

    name: str
    defence: str = "none"
    scores: DocumentScores | None = None
    bits: CanaryBits | None = None
    completion: Completion | None = None
    audit: CanaryAudit | None = None
    guarantee: Guarantee | None = None
    cost: TrainingCost = field(default_factory=TrainingCost)
    frequency_perplexity: float | None = None
    alive: Check | None = None

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
