"""Defences with a guarantee of differential privacy: DP-SGD, DP-FedAvg, their noise and budget.

The steps and their papers: `vestige.privacy.dp_sgd` and `vestige.privacy.dp_fedavg`.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Literal

from annotated_types import Ge
from cyclopts import Parameter

from vestige import _validate
from vestige.arguments import Seed
from vestige.defences.registry import (
    Given,
    check_not_negative,
    check_positive,
    in_backticks,
    register,
    with_batches,
)

if TYPE_CHECKING:
    from vestige.data.encoded import EncodedCorpus
    from vestige.models.protocols import LanguageModel
    from vestige.privacy.accounting import PrivacySpent, Unit
    from vestige.training.config import Batching, TrainingConfig
    from vestige.training.secret import Secret
    from vestige.training.sequences import SequenceBatches
    from vestige.training.steps import StepFn


@dataclass(frozen=True, kw_only=True)
class PrivateDefence(ABC):
    """A defence with a guarantee. Either `epsilon` or `noise_multiplier` sets the noise.

    Attributes:
        epsilon: Privacy budget of all planned epochs. Earlier private trainings on the same
            records add to it.
        delta: Probability with which the guarantee may fail: at least 1e-12, and below 1 /
            sequences (or users). Default: the power of ten below a tenth of that.
        noise_multiplier: Noise divided by the clipping norm, instead of --epsilon.
        max_grad_norm: Clipping norm of a sequence's or user's gradient or update. log.jsonl shows
            the share that is clipped; start with about half.
        accountant: Accountant of epsilon: pld or rdp. Both compute an upper bound; rdp is looser.
        noise_seed_without_guarantee: Random seed of noise and batches, for tests. It voids the
            guarantee: anyone who knows or guesses the seed can subtract the noise. Default: the
            entropy of the operating system.
        accept_private_vocabulary: Accept a vocabulary that was learned from the protected text.
            The model shows its words, without noise.

    Raises:
        ValueError: a value is out of range, or not exactly one of `epsilon` and `noise_multiplier`.
    """

    name: ClassVar[str]
    batchings: ClassVar[tuple[str, ...]]

    epsilon: float | None = None
    delta: float | None = None
    noise_multiplier: float | None = None
    max_grad_norm: Annotated[float, Parameter(name="--clip")] = 1.0
    accountant: Literal["pld", "rdp"] = "pld"
    noise_seed_without_guarantee: Seed | None = None
    accept_private_vocabulary: bool = False

    def __post_init__(self) -> None:
        if (self.epsilon is None) == (self.noise_multiplier is None):
            raise ValueError(
                f"`defence` {self.name} must come with one of `epsilon` and `noise_multiplier`, "
                "got " + ("neither" if self.epsilon is None else "both")
            )
        _validate.one_of(("pld", "rdp"), accountant=self.accountant)
        if self.delta is not None:
            from vestige.privacy.accounting import check_delta

            with in_backticks("delta"):
                check_delta(self.delta)
        check_positive(epsilon=self.epsilon, max_grad_norm=self.max_grad_norm)
        check_not_negative(noise_multiplier=self.noise_multiplier)

    @abstractmethod
    def suited(self, config: "TrainingConfig", given: Given | None = None) -> "TrainingConfig":
        """See `Defence`: with Poisson sampling, which amplifies privacy."""

    @abstractmethod
    def step(
        self, model: "LanguageModel", data: "EncodedCorpus", config: "TrainingConfig"
    ) -> "StepFn":
        """See `Defence`; the noise must be known."""

    @property
    @abstractmethod
    def protected(self) -> "Unit":
        """The unit that the guarantee protects."""

    @property
    def noise(self) -> float:
        """The noise multiplier.

        Raises:
            ValueError: there is only a budget; `planned` computes the noise.
        """
        if self.noise_multiplier is None:
            raise ValueError(
                f"noise_multiplier must be given for a step of {self.name}, got epsilon alone: "
                "call `planned` for the defence with its noise"
            )
        return self.noise_multiplier

    def _check(self, config: "TrainingConfig") -> None:
        if config.batching not in self.batchings:
            raise ValueError(
                f"batching must be {' or '.join(self.batchings)} with {self.name}, whose guarantee "
                f"needs Poisson sampling, got {config.batching!r}"
            )

    @property
    def void(self) -> tuple[str, ...]:
        """Reasons that void the guarantee."""
        if self.noise_seed_without_guarantee is None:
            return ()
        return (
            f"noise and batches come from a seed (--noise-seed-without-guarantee "
            f"{self.noise_seed_without_guarantee}), and anyone who guesses it can subtract them",
        )

    def secret(self) -> "Secret | None":
        """Secret of noise and batches; None: a fresh one."""
        if self.noise_seed_without_guarantee is None:
            return None
        from vestige.training.secret import Secret

        return Secret.of_seed(self.noise_seed_without_guarantee)

    def batches(self, data: "EncodedCorpus", config: "TrainingConfig") -> "SequenceBatches":
        """The batches of a training, to count them.

        Raises:
            VestigeError: the data has too few sequences or users.
        """
        import torch

        from vestige.training.sequences import SequenceBatches, Sequences

        sequences = Sequences.of(data, length=config.sequence_length)
        draw: Any = config.batching
        return SequenceBatches(sequences, config.batch_size, draw, 0, torch.device("cpu"))

    def planned(
        self,
        data: "EncodedCorpus",
        config: "TrainingConfig",
        progress: Callable[[int], None] | None = None,
    ) -> "PrivacyPlan":
        """`plan` for a configuration that suits the defence.

        Raises:
            VestigeError: no noise is enough for epsilon, or there are too few sequences or users.
        """
        batches, epochs = self.batches(data, config), config.epochs
        units, sample_rate = batches.units, batches.sample_rate
        return self.plan(batches.unit, units, sample_rate, epochs * len(batches), progress)

    def plan(
        self,
        unit: "Unit",
        units: int,
        sample_rate: float,
        steps: int,
        progress: Callable[[int], None] | None = None,
    ) -> "PrivacyPlan":
        """The defence with the noise for its epsilon.

        Args:
            unit: unit of sampling and of the guarantee.
            units: number of units.
            sample_rate: of the Poisson sampling.
            steps: of all epochs.
            progress: called with the number of noises tried.
        """
        from vestige.privacy.accounting import check_delta, default_delta, noise_for

        delta = default_delta(units) if self.delta is None else self.delta
        with in_backticks("delta"):
            check_delta(delta, units)
        noise = self.noise_multiplier
        if noise is None:
            assert self.epsilon is not None
            noise = noise_for(
                epsilon=self.epsilon,
                delta=delta,
                sample_rate=sample_rate,
                steps=steps,
                accountant=self.accountant,
                progress=progress,
            )
        defence = replace(self, epsilon=None, noise_multiplier=noise, delta=delta)
        return PrivacyPlan(defence, sample_rate, unit, units, steps)


@dataclass(frozen=True)
class PrivacyPlan:
    """A private defence with noise and delta, and the parameters of its budget; see `plan`."""

    defence: PrivateDefence
    sample_rate: float
    unit: "Unit"
    units: int
    steps: int

    def spent(self, steps: int) -> "PrivacySpent":
        """The budget of a number of steps, with or without interruptions."""
        from vestige.privacy.accounting import Mechanism, PrivacySpent

        defence, rate = self.defence, self.sample_rate
        assert defence.delta is not None
        return PrivacySpent.of(
            Mechanism(noise_multiplier=defence.noise, sample_rate=rate, steps=steps),
            delta=defence.delta,
            max_grad_norm=defence.max_grad_norm,
            unit=self.unit,
            accountant=defence.accountant,
        )


ADAM_RATE = 1e-3


@register
@dataclass(frozen=True, kw_only=True)
class DPSGD(PrivateDefence):
    """Clipped, noised gradients, with a guarantee of differential privacy.

    Attributes:
        unit: Protected unit: a sequence (a document, or each piece of a document that is longer
            than --sequence-length), or a user with all their documents. Default: sequence.
        physical_batch_size: Sequences computed at once, if a batch does not fit in memory.

    Example:
        >>> DPSGD(epsilon=8, max_grad_norm=0.5).unit is None
        True
    """

    name: ClassVar[str] = "dp-sgd"
    batchings: ClassVar[tuple[str, ...]] = ("poisson", "poisson-users")

    unit: Literal["sequence", "user"] | None = None
    physical_batch_size: Annotated[int | None, Ge(1)] = None

    @property
    def protected(self) -> "Unit":
        """A sequence by default, or a user."""
        return self.unit or "sequence"

    def suited(self, config: "TrainingConfig", given: Given | None = None) -> "TrainingConfig":
        """See `Defence`: Adam instead of SGD, whose large steps have more noise than signal."""
        default: Batching = "poisson-users" if self.unit == "user" else "poisson"
        chosen = given is not None and given.get("batching") is not None
        if self.unit == "user" and given is not None and not chosen:
            config = replace(config, batching=default)
        config = with_batches(self, config, given, default)
        self._check(config)
        if given is None:
            return config
        sampled = "user" if config.batching == "poisson-users" else "sequence"
        if sampled != self.protected:
            raise ValueError(
                f"`unit` {self.protected} must not come with `batching` "
                f"{config.batching}, which samples a {sampled} at a time"
            )
        if config.optimizer == "adam" or given.get("optimizer") is not None:
            return config
        rate = given.get("learning_rate") or ADAM_RATE
        return replace(config, optimizer="adam", learning_rate=rate)  # type: ignore[arg-type]

    def step(
        self, model: "LanguageModel", data: "EncodedCorpus", config: "TrainingConfig"
    ) -> "StepFn":
        """The step, with the unit of the Poisson sampling."""
        from vestige.privacy.dp_sgd import DPSGDStep

        self._check(config)
        return DPSGDStep(
            noise_multiplier=self.noise,
            max_grad_norm=self.max_grad_norm,
            expected_units=config.batch_size,
            sequence_length=config.sequence_length,
            unit="user" if config.batching == "poisson-users" else "sequence",
            physical_batch_size=self.physical_batch_size,
        )


SERVER_RATE = 1.0


@register
@dataclass(frozen=True, kw_only=True)
class DPFedAvg(PrivateDefence):
    """Clipped, noised updates of users who train by themselves; a step is a round.

    Attributes:
        local_epochs: Passes of a sampled user over their own text in a round. --batch-size is the
            average number of users in a round.
        local_batch_size: Texts per step of a user.
        local_learning_rate: Learning rate of a user's steps, which are plain SGD. --learning-rate
            is the server's; it is 1 unless --optimizer is adam.
    """

    name: ClassVar[str] = "dp-fedavg"
    batchings: ClassVar[tuple[str, ...]] = ("poisson-users",)

    local_epochs: Annotated[int, Ge(1)] = 1
    local_batch_size: Annotated[int, Ge(1)] = 8
    local_learning_rate: float = 1.0

    def __post_init__(self) -> None:
        super().__post_init__()
        check_positive(local_learning_rate=self.local_learning_rate)

    @property
    def protected(self) -> "Unit":
        """A user."""
        return "user"

    def suited(self, config: "TrainingConfig", given: Given | None = None) -> "TrainingConfig":
        """See `Defence`: the server applies the average update, unless Adam is chosen."""
        config = with_batches(self, config, given, "poisson-users")
        self._check(config)
        if given is None or given.get("optimizer") == "adam":
            return config
        rate = given.get("learning_rate") or SERVER_RATE
        return replace(
            config,
            optimizer="sgd",
            learning_rate=rate,  # type: ignore[arg-type]
            schedule="constant",
            warmup_steps=0,
        )

    def step(
        self, model: "LanguageModel", data: "EncodedCorpus", config: "TrainingConfig"
    ) -> "StepFn":
        """The step: one round."""
        from vestige.privacy.dp_fedavg import DPFedAvgStep
        from vestige.training.steps import choose_precision

        self._check(config)
        return DPFedAvgStep(
            noise_multiplier=self.noise,
            max_grad_norm=self.max_grad_norm,
            expected_units=config.batch_size,
            local_epochs=self.local_epochs,
            local_batch_size=self.local_batch_size,
            local_learning_rate=self.local_learning_rate,
            precision=choose_precision(config.precision, model.device),
        )
