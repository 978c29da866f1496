"""The differential privacy that a training claims."""

from collections.abc import Mapping
from dataclasses import dataclass
from math import isfinite
from typing import Any

from vestige.defences.accounting import Accountant
from vestige.defences.group_privacy import group_epsilon
from vestige.defences.noise_schedule import Noise, NoiseSchedule, falling
from vestige.metrics.f_dp_epsilon import Curves


@dataclass(frozen=True, kw_only=True)
class Guarantee:
    """A claim of differential privacy, and its mechanism if it is known.

    Attributes:
        epsilon: at least 0.
        delta: probability that the guarantee fails, in (0, 1).
        unit: what is protected, "sequence" or "user".
        noise_multiplier: of the mechanism, or its schedule.
        sample_rate: in (0, 1].
        steps: of the training.
        accountant: that computed epsilon.
    """

    epsilon: float
    delta: float
    unit: str
    noise_multiplier: Noise | None = None
    sample_rate: float | None = None
    steps: int | None = None
    accountant: Accountant = "prv"

    @classmethod
    def of(cls, summary: Mapping[str, Any]) -> "Guarantee | None":
        """The claim in a training's summary, for every record; None unless it is finite.

        With ancestors that read the same records, epsilon is of all of them together, which has no
        single mechanism.
        """
        alone, delta = summary.get("epsilon"), summary.get("delta")
        epsilon = summary.get("epsilon_with_ancestors", alone)
        if epsilon is None or alone is None or delta is None or not isfinite(epsilon):
            return None
        single = epsilon == alone
        steps = summary.get("steps_planned", summary.get("steps"))
        noise, decay = summary.get("noise_multiplier"), summary.get("noise_decay", 1.0)
        if noise is not None and decay != 1:
            noise = None if steps is None else falling(noise, decay, steps)
        return cls(
            epsilon=epsilon,
            delta=delta,
            unit=str(summary.get("unit", "sequence")),
            noise_multiplier=noise if single else None,
            sample_rate=summary.get("sample_rate") if single else None,
            steps=steps if single else None,
            accountant=summary.get("accountant", "prv"),
        )

    def of_group(self, copies: int) -> float | None:
        """Epsilon for several copies of one text; None if the claim does not cover them.

        A claim for users bounds the influence of a whole user. Canaries among a user's other texts
        cannot refute it, and several canaries of one user are not independent.
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


def mechanism_of(claim: Guarantee) -> Curves | None:
    """The trade-off curves of DP-SGD, if the guarantee says how it was obtained."""
    if not claim.noise_multiplier or claim.sample_rate is None or not claim.steps:
        return None
    noise = claim.noise_multiplier
    if not isinstance(noise, NoiseSchedule):
        return Curves(claim.sample_rate, claim.steps)
    stages = tuple((one / noise.first, steps) for one, steps in noise.stages())
    return Curves(claim.sample_rate, claim.steps, stages)
