"""The differential privacy that a training claims."""

from collections.abc import Mapping
from dataclasses import dataclass
from math import isfinite
from typing import Any

from vestige.metrics.f_dp_epsilon import Curves
from vestige.privacy.accounting import Mechanism


@dataclass(frozen=True, kw_only=True)
class Guarantee:
    """A claim of differential privacy, and its mechanism if it is known.

    Attributes:
        epsilon: at least 0.
        delta: probability that the guarantee fails, in (0, 1).
        unit: what is protected, "sequence" or "user".
        noise_multiplier: of the mechanism.
        sample_rate: in (0, 1].
        steps: of the training.
    """

    epsilon: float
    delta: float
    unit: str
    noise_multiplier: float | None = None
    sample_rate: float | None = None
    steps: int | None = None

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


def mechanism_of(claim: Guarantee) -> Curves | None:
    """The trade-off curves of DP-SGD, if the guarantee says how it was obtained."""
    if not claim.noise_multiplier or claim.sample_rate is None or not claim.steps:
        return None
    return Curves(claim.sample_rate, claim.steps)
