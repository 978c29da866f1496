"""The goldfish loss as a defence: see `vestige.defences.goldfish`."""

from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, ClassVar

from annotated_types import Ge
from cyclopts import Parameter

from vestige import _validate
from vestige.defences.registry import Given, register, with_batches

if TYPE_CHECKING:
    from vestige.data.encoded import EncodedCorpus
    from vestige.models.protocols import LanguageModel
    from vestige.training.config import TrainingConfig
    from vestige.training.steps import StepFn


@register
@dataclass(frozen=True, kw_only=True)
class Goldfish:
    """One token in k is never learned, the same one in every copy of a text.

    Attributes:
        k: Leave one token in k out of the loss.
        context: Tokens whose hash decides which.
    """

    name: ClassVar[str] = "goldfish"

    k: Annotated[int, Ge(2), Parameter(name="--goldfish-k")] = 4
    context: Annotated[int, Parameter(parse=False)] = 13

    def __post_init__(self) -> None:
        _validate.at_least(2, k=self.k)
        _validate.at_least(1, context=self.context)

    def suited(self, config: "TrainingConfig", given: Given | None = None) -> "TrainingConfig":
        """See `Defence`: document by document."""
        return with_batches(self, config, given, "documents")

    def step(
        self, model: "LanguageModel", data: "EncodedCorpus", config: "TrainingConfig"
    ) -> "StepFn":
        """The step."""
        from vestige.defences.goldfish import GoldfishStep
        from vestige.training.precision import choose_precision

        return GoldfishStep(
            k=self.k,
            context=self.context,
            seed=config.seed,
            max_grad_norm=config.max_grad_norm,
            precision=choose_precision(config.precision, model.device),
        )
