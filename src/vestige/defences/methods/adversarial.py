"""The adversarial regularizer as a defence: see `vestige.defences.adversarial`."""

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

from vestige.defences.private import check_not_negative
from vestige.defences.registry import Given, register, with_batches

if TYPE_CHECKING:
    from vestige.data.encoded import EncodedCorpus
    from vestige.models.protocols import LanguageModel
    from vestige.training.config import TrainingConfig
    from vestige.training.steps import StepFn


@register
@dataclass(frozen=True, kw_only=True)
class Adversarial:
    """Privacy regularizer against a discriminator of authors; needs users.

    Attributes:
        weight: Weight of the privacy term.
    """

    name: ClassVar[str] = "adversarial"

    weight: float = 1.0

    def __post_init__(self) -> None:
        check_not_negative(weight=self.weight)

    def suited(self, config: "TrainingConfig", given: Given | None = None) -> "TrainingConfig":
        """See `Defence`: one user at a time, as the paper advises."""
        return with_batches(self, config, given, "users")

    def step(
        self, model: "LanguageModel", data: "EncodedCorpus", config: "TrainingConfig"
    ) -> "StepFn":
        """The step, with a fresh discriminator."""
        from vestige.defences.adversarial import AdversarialStep
        from vestige.defences.user_hidden_states import require_users, width
        from vestige.training.precision import choose_precision

        require_users(data, self.name)
        return AdversarialStep(
            weight=self.weight,
            width=width(model),
            users=len(data.names),
            seed=config.seed,
            max_grad_norm=config.max_grad_norm,
            precision=choose_precision(config.precision, model.device),
            device=model.device,
        )
