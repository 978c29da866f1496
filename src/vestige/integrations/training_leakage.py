"""What a training gives away, from its first measurement to its last, with one verdict."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from vestige import claims
from vestige.claims import Check, Claim
from vestige.integrations.moment import LIMITS, Moment
from vestige.results import Measurement


@dataclass(frozen=True, kw_only=True)
class TrainingLeakage(Measurement):
    """Leakage that was measured while a model trained.

    Attributes:
        moments: what was measured, the last of them at the end of the training.
        diverged: the step at which scores were no longer finite; None where they always were.
        limits: above which the training was to fail, by their names.
    """

    moments: tuple[Moment, ...]
    diverged: int | None = None
    limits: Mapping[str, float] = field(default_factory=dict)

    @property
    def claim(self) -> Claim:
        """The verdict on the trained model."""
        if self.diverged is None:
            return self.moments[-1].claim
        broken = f"The training diverged: at step {self.diverged:,} its scores are not finite."
        alive = Check("alive", "failed", broken)
        different = Check("different", "could not run", "A model without scores has no difference.")
        return Claim("callback", None, (alive, different, claims.powerful(None)))

    def summary(self) -> dict[str, object]:
        """The verdict, each number with its interval and limit, and what measuring took."""
        found: dict[str, object] = {**self.claim.summary(), "diverged": self.diverged}
        for name, limit in LIMITS.items():
            if self.diverged is None:
                one = self.moments[-1].measured(name)
                found |= {name: one.value, f"{name}_low": one.low, f"{name}_high": one.high}
                found[f"{name}_unit"] = limit.unit
            found[f"{name}_limit"] = self.limits.get(name)
        found["steps"] = max((one.step for one in self.moments), default=0)
        found["seconds"] = sum(one.seconds for one in self.moments)
        return found

    def rows(self) -> Iterator[dict[str, object]]:
        """One row a measurement, with its step."""
        for moment in self.moments:
            named = {name.partition("/")[2]: value for name, value in moment.logs().items()}
            yield {"step": moment.step, **named}
