"""From the options of `vestige train` to a defence and, with dp-sgd, to what it will have spent."""

import math
from dataclasses import asdict, dataclass, replace
from typing import TYPE_CHECKING, Any

from vestige.cli.terminal import say

if TYPE_CHECKING:
    from vestige.data.encoded import EncodedCorpus
    from vestige.defences.accounting import PrivacySpent
    from vestige.defences.choice import Defence
    from vestige.training.config import TrainingConfig
    from vestige.training.history import TrainingHistory

DP_ONLY = ("epsilon", "delta", "noise_multiplier", "physical_batch_size")


@dataclass(frozen=True, kw_only=True)
class AskedDefence:
    """What was asked for; None where it is left open. See `defence_options`."""

    name: Any
    epsilon: float | None
    delta: float | None
    noise_multiplier: float | None
    clip: float
    unit: Any
    accountant: Any
    physical_batch_size: int | None
    weight: float | None
    pairing: Any
    goldfish_k: int

    def check(self) -> None:
        """Refuse options that do not go together, before anything is read.

        Raises:
            ValueError: naming the options.
        """
        dp = self.name == "dp-sgd"
        for name in DP_ONLY:
            if not dp and getattr(self, name) is not None:
                option = f"--{name.replace('_', '-')}"
                raise ValueError(f"{option} must come with --defence dp-sgd, got {self.name}")
        if dp and (self.epsilon is None) == (self.noise_multiplier is None):
            raise ValueError(
                "--defence dp-sgd must come with one of --epsilon and --noise-multiplier, got "
                + ("neither" if self.epsilon is None else "both")
            )
        if self.weight is not None and self.name not in ("adversarial", "triplet"):
            raise ValueError(f"--weight must come with adversarial or triplet, got {self.name}")
        if self.epsilon is not None and not 0 < self.epsilon < math.inf:
            raise ValueError(f"--epsilon must be positive and finite, got {self.epsilon}")
        if self.delta is not None and not 0 < self.delta < 1:
            raise ValueError(f"--delta must lie in (0, 1), got {self.delta}")
        if self.noise_multiplier is not None and not 0 <= self.noise_multiplier < math.inf:
            raise ValueError(f"--noise-multiplier must be at least 0, got {self.noise_multiplier}")
        if not 0 < self.clip < math.inf:
            raise ValueError(f"--clip must be positive and finite, got {self.clip}")

    def suited(self, config: "TrainingConfig", batching: Any) -> "TrainingConfig":
        """The configuration with batches that the defence can work with."""
        if batching is not None:
            config = replace(config, batching=batching)
        elif self.name == "dp-sgd" and self.unit == "user":
            config = replace(config, batching="poisson-users")
        suited = self._defence(noise=1.0).suited(config)
        drawn = "user" if suited.batching == "poisson-users" else "sequence"
        if self.name == "dp-sgd" and drawn != self.unit:
            raise ValueError(
                f"--unit {self.unit} must not come with --batching {suited.batching}, whose lots "
                f"are drawn for a {drawn}"
            )
        return suited

    def defence(self, data: "EncodedCorpus", config: "TrainingConfig") -> "PlannedDefence":
        """The defence, with the noise that keeps within --epsilon over all epochs.

        Raises:
            VestigeError: no noise does, or the data has too few sequences or users.
        """
        if self.name != "dp-sgd":
            return PlannedDefence(self._defence(noise=None))
        from vestige.defences.accounting import noise_for
        from vestige.training.sequences import SequenceBatches, Sequences

        sequences = Sequences.of(data, length=config.sequence_length)
        draw: Any = config.batching
        lots = SequenceBatches(sequences, config.batch_size, draw, 0, _cpu())
        delta = self.delta or 10.0 ** -math.ceil(math.log10(10 * lots.units))
        noise, steps = self.noise_multiplier, config.epochs * len(lots)
        if noise is None:
            assert self.epsilon is not None
            say(f"dp-sgd: looking for the noise that spends at most epsilon {self.epsilon:g}")
            noise = noise_for(
                epsilon=self.epsilon,
                delta=delta,
                sample_rate=lots.sample_rate,
                steps=steps,
                accountant=self.accountant,
            )
        budget = Budget(lots.sample_rate, delta, lots.unit, self.accountant)
        planned = PlannedDefence(self._defence(noise=noise), budget)
        _announce(planned, steps, lots.units, config.sequence_length)
        return planned

    def _defence(self, *, noise: float | None) -> "Defence":
        from vestige.defences.choice import Defence

        return Defence(
            name=self.name,
            weight=self.weight,
            pairing=self.pairing,
            noise_multiplier=noise,
            max_grad_norm=self.clip,
            physical_batch_size=self.physical_batch_size,
            k=self.goldfish_k,
        )


@dataclass(frozen=True)
class Budget:
    """What epsilon follows from, apart from the noise and the steps."""

    sample_rate: float
    delta: float
    unit: Any
    accountant: Any


@dataclass(frozen=True)
class PlannedDefence:
    """A defence, and how its budget is counted where it has one."""

    defence: "Defence"
    budget: Budget | None = None

    def spent(self, steps: int) -> "PrivacySpent | None":
        """After so many steps, whatever interruptions lay between them."""
        if self.budget is None:
            return None
        from vestige.defences.accounting import privacy_spent

        assert self.defence.noise_multiplier is not None
        return privacy_spent(
            noise_multiplier=self.defence.noise_multiplier,
            max_grad_norm=self.defence.max_grad_norm,
            steps=steps,
            **asdict(self.budget),
        )


@dataclass(frozen=True)
class DefendedTraining:
    """A finished training as a run directory holds it: history, defence and budget."""

    history: "TrainingHistory"
    planned: PlannedDefence

    def summary(self) -> dict[str, object]:
        """The kept record, the cost, the defence, and what it spent."""
        spent = self.planned.spent(self.history.epochs[-1].step)
        return {
            **self.history.summary(),
            "defence": self.planned.defence.name,
            **({} if spent is None else spent.summary()),
        }

    def rows(self) -> list[dict[str, Any]]:
        """One row an evaluation."""
        return self.history.rows()


def _announce(planned: PlannedDefence, steps: int, units: int, length: int) -> None:
    spent = planned.spent(steps)
    assert spent is not None
    what = f"sequence of at most {length} tokens" if spent.unit == "sequence" else "user"
    say(
        f"dp-sgd: {units:,} {spent.unit}s, noise multiplier {spent.noise_multiplier:.3g}, clip "
        f"{spent.max_grad_norm:g}; {steps:,} steps will spend epsilon {show_epsilon(spent)} at "
        f"delta {spent.delta:.0e} for a {what}"
    )


def show_epsilon(spent: "PrivacySpent") -> str:
    """Three digits, or that nothing is proven."""
    return f"{spent.epsilon:.3g}" if math.isfinite(spent.epsilon) else "infinity"


def _cpu() -> Any:
    import torch

    return torch.device("cpu")
