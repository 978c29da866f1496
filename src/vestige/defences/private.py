"""Defences with a guarantee of differential privacy: common parameters, noise, budget."""

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import TYPE_CHECKING, Annotated, Any, ClassVar

from cyclopts import Parameter

from vestige.arguments import Seed
from vestige.defences.registry import Given

if TYPE_CHECKING:
    from vestige.data.encoded import EncodedCorpus
    from vestige.defences.accounting import Accountant, PrivacySpent, Unit
    from vestige.defences.noise_schedule import Noise
    from vestige.models.protocols import LanguageModel
    from vestige.training.config import TrainingConfig
    from vestige.training.secret import Secret
    from vestige.training.sequences import SequenceBatches
    from vestige.training.steps import StepFn


@dataclass(frozen=True, kw_only=True)
class PrivateDefence(ABC):
    """A defence with a guarantee: `epsilon` sets the noise, or `noise_multiplier` gives it.

    Attributes:
        epsilon: Privacy budget of all planned epochs. Earlier private trainings on the same
            records add to it.
        delta: Probability with which the guarantee may fail: at least 1e-12, and below 1 /
            sequences (or users). Default: the power of ten below a tenth of that.
        noise_multiplier: Noise divided by the clipping norm, instead of --epsilon.
        max_grad_norm: Clipping norm of a sequence's or user's gradient or update. log.jsonl shows
            the share that is clipped; start with about half.
        accountant: Accountant of epsilon: prv, pld or rdp. Each computes an upper bound.
        noise_seed_without_guarantee: Random seed of noise and batches, for tests. It voids the
            guarantee: anyone who knows or guesses the seed can subtract the noise. Default: the
            entropy of the operating system.
        accept_private_vocabulary: Accept a vocabulary that was learned from the protected text.
            The model shows its words, without noise.

    Raises:
        ValueError: a value is out of range, or not exactly one of epsilon and noise is given.
    """

    name: ClassVar[str]

    epsilon: float | None = None
    delta: float | None = None
    noise_multiplier: float | None = None
    max_grad_norm: Annotated[float, Parameter(name="--clip")] = 1.0
    accountant: str = "prv"  # no Literal: the refusal of "gdp" gives a reason
    noise_seed_without_guarantee: Seed | None = None
    accept_private_vocabulary: bool = False

    def __post_init__(self) -> None:
        if (self.epsilon is None) == (self.noise_multiplier is None):
            raise ValueError(
                f"`defence` {self.name} must come with one of `epsilon` and `noise_multiplier`, "
                "got " + ("neither" if self.epsilon is None else "both")
            )
        if self.delta is not None or self.accountant != "prv":
            from vestige.defences.accounting import check_accountant, check_delta

            with in_backticks("accountant"):
                check_accountant(self.accountant)
            if self.delta is not None:
                with in_backticks("delta"):
                    check_delta(self.delta)
        check_positive(epsilon=self.epsilon, max_grad_norm=self.max_grad_norm)
        check_not_negative(noise_multiplier=self.noise_multiplier)

    @abstractmethod
    def suited(self, config: "TrainingConfig", given: Given | None = None) -> "TrainingConfig":
        """See `Defence`: with Poisson sampling, which privacy is amplified by."""

    @abstractmethod
    def step(
        self, model: "LanguageModel", data: "EncodedCorpus", config: "TrainingConfig"
    ) -> "StepFn":
        """See `Defence`; its noise must be known."""

    @property
    @abstractmethod
    def protected(self) -> "Unit":
        """The unit that the guarantee protects."""

    def turns(self, sample_rate: float, steps: int) -> tuple[float, int]:
        """The sample rate and the steps of the DP-SGD with independent noise whose budget this is.

        Args:
            sample_rate: units in a batch over all units.
            steps: updates.
        """
        return sample_rate, steps

    @property
    def noise(self) -> float:
        """The noise multiplier.

        Raises:
            ValueError: only a budget is given, which `planned` turns into noise.
        """
        if self.noise_multiplier is None:
            raise ValueError(
                f"noise_multiplier must be given for a step of {self.name}, got epsilon alone: "
                "ask `planned` for the defence with its noise"
            )
        return self.noise_multiplier

    def noise_from(self, first: float, steps: int) -> "Noise":
        """The noise of a training of so many steps that begins with a multiplier."""
        return first

    @property
    def void(self) -> tuple[str, ...]:
        """What voids the guarantee, in words."""
        if self.noise_seed_without_guarantee is None:
            return ()
        return (
            f"noise and lots come from a seed (--noise-seed-without-guarantee "
            f"{self.noise_seed_without_guarantee}), and anyone who guesses it can subtract them",
        )

    def secret(self) -> "Secret | None":
        """Secret of noise and batches; None: a fresh one, kept nowhere."""
        if self.noise_seed_without_guarantee is None:
            return None
        from vestige.training.secret import Secret

        return Secret.of_seed(self.noise_seed_without_guarantee)

    def batches(self, data: "EncodedCorpus", config: "TrainingConfig") -> "SequenceBatches":
        """The batches of a training, to be counted.

        Raises:
            VestigeError: the data has too few sequences or users.
        """
        import torch

        from vestige.training.sequences import SequenceBatches, Sequences

        sequences = Sequences.of(data, length=config.sequence_length)
        draw: Any = config.batching
        groups = getattr(self, "bands", 1)
        return SequenceBatches(sequences, config.batch_size, draw, 0, torch.device("cpu"), groups)

    def planned(
        self,
        data: "EncodedCorpus",
        config: "TrainingConfig",
        progress: Callable[[int], None] | None = None,
    ) -> "PrivacyPlan":
        """The defence with the noise that keeps within epsilon over all epochs.

        Args:
            data: the text.
            config: of the training, suited to the defence.
            progress: called with how many noises have been tried.

        Raises:
            VestigeError: no noise does, or the data has too few sequences or users.
        """
        from vestige.defences.accounting import check_delta, default_delta, noise_for

        batches = self.batches(data, config)
        delta = default_delta(batches.units) if self.delta is None else self.delta
        with in_backticks("delta"):
            check_delta(delta, batches.units)
        noise, steps = self.noise_multiplier, config.epochs * len(batches)
        accountant: Any = self.accountant
        if noise is None:
            assert self.epsilon is not None
            rate, turns = self.turns(batches.sample_rate, steps)
            noise = noise_for(
                epsilon=self.epsilon,
                delta=delta,
                sample_rate=rate,
                steps=turns,
                accountant=accountant,
                progress=progress,
                decay=getattr(self, "noise_decay", 1.0),
            )
        return PrivacyPlan(
            defence=replace(self, epsilon=None, noise_multiplier=noise, delta=delta),
            sample_rate=batches.sample_rate,
            unit=batches.unit,
            units=batches.units,
            steps=steps,
        )


@dataclass(frozen=True, kw_only=True)
class PrivacyPlan:
    """A private defence with its noise, and what its budget follows from.

    Attributes:
        defence: with noise multiplier and delta.
        sample_rate: of the Poisson sampling, over all steps.
        unit: what is sampled and protected.
        units: how many there are.
        steps: of all epochs.
    """

    defence: PrivateDefence
    sample_rate: float
    unit: "Unit"
    units: int
    steps: int

    def spent(self, steps: int) -> "PrivacySpent":
        """The budget after so many steps, whatever interruptions lay between them."""
        return _spent(self, steps)


@lru_cache(maxsize=8)  # it takes a second, and is asked before, after and for the record
def _spent(plan: PrivacyPlan, steps: int) -> "PrivacySpent":
    from vestige.defences.accounting import privacy_spent

    accountant: Accountant = plan.defence.accountant  # type: ignore[assignment]
    assert plan.defence.delta is not None
    rate, turns = plan.defence.turns(plan.sample_rate, steps)
    return privacy_spent(
        noise_multiplier=plan.defence.noise_from(plan.defence.noise, plan.steps),
        sample_rate=rate,
        steps=turns,
        delta=plan.defence.delta,
        max_grad_norm=plan.defence.max_grad_norm,
        unit=plan.unit,
        accountant=accountant,
    )


@contextmanager
def in_backticks(name: str) -> Iterator[None]:
    """Errors about an argument, with its name in backticks."""
    try:
        yield
    except ValueError as error:
        raise ValueError(f"`{name}`{str(error).removeprefix(name)}") from error


def check_positive(**values: float | None) -> None:
    """Raise ValueError unless every value that is given is positive and finite."""
    for name, value in values.items():
        if value is not None and not 0 < value < math.inf:
            raise ValueError(f"`{name}` must be positive and finite, got {value}")


def check_not_negative(**values: float | None) -> None:
    """Raise ValueError unless every value that is given is at least 0 and finite."""
    for name, value in values.items():
        if value is not None and not 0 <= value < math.inf:
            raise ValueError(f"`{name}` must be at least 0 and finite, got {value}")
