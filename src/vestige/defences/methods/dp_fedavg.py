"""DP-FedAvg as a defence: see `vestige.defences.dp_fedavg` for the step and its paper."""

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Annotated, ClassVar

from annotated_types import Ge

from vestige.defences.private import PrivateDefence, check_positive
from vestige.defences.registry import Given, register, with_batches

if TYPE_CHECKING:
    from vestige.data.encoded import EncodedCorpus
    from vestige.defences.accounting import Unit
    from vestige.models.protocols import LanguageModel
    from vestige.training.config import TrainingConfig
    from vestige.training.steps import StepFn

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
        """See `Defence`: the server moves by the users' average unless Adam is asked for."""
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
        from vestige.defences.dp_fedavg import DPFedAvgStep
        from vestige.training.precision import choose_precision

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

    def _check(self, config: "TrainingConfig") -> None:
        if config.batching != "poisson-users":
            raise ValueError(
                "batching must be poisson-users with dp-fedavg, which draws lots for users, got "
                f"{config.batching!r}"
            )
