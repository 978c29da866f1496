"""Defences without a guarantee: the goldfish loss and the regularizers that hide authors.

The steps and their papers: `vestige.defences.goldfish` and `vestige.defences.regularizers`.
"""

from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, ClassVar, Literal

from annotated_types import Ge
from cyclopts import Parameter

from vestige import _validate
from vestige.defences.registry import Given, check_not_negative, register, with_batches

if TYPE_CHECKING:
    from vestige.data.encoded import EncodedCorpus
    from vestige.models.protocols import LanguageModel
    from vestige.training.config import Batching, TrainingConfig
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
        from vestige.training.steps import choose_precision

        return GoldfishStep(
            k=self.k,
            context=self.context,
            seed=config.seed,
            max_grad_norm=config.max_grad_norm,
            precision=choose_precision(config.precision, model.device),
        )


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
        """See `Defence`: batches of one user, as in the paper."""
        return with_batches(self, config, given, "users")

    def step(
        self, model: "LanguageModel", data: "EncodedCorpus", config: "TrainingConfig"
    ) -> "StepFn":
        """The step, with a new discriminator."""
        from vestige.defences.regularizers import AdversarialStep, require_users, width_of
        from vestige.training.steps import choose_precision

        require_users(data, self.name)
        return AdversarialStep(
            weight=self.weight,
            width=width_of(model),
            users=len(data.names),
            seed=config.seed,
            max_grad_norm=config.max_grad_norm,
            precision=choose_precision(config.precision, model.device),
            device=model.device,
        )


@register
@dataclass(frozen=True, kw_only=True)
class Triplet:
    """Privacy regularizer that pulls users' hidden states together; needs users.

    Attributes:
        weight: Weight of the privacy term.
        pairing: Pair with a second batch, as in the paper, or within the batch.
    """

    name: ClassVar[str] = "triplet"

    weight: float = 0.1  # near 1, hidden states collapse
    pairing: Literal["auxiliary", "in-batch"] = "auxiliary"

    def __post_init__(self) -> None:
        check_not_negative(weight=self.weight)
        _validate.one_of(("auxiliary", "in-batch"), pairing=self.pairing)

    def suited(self, config: "TrainingConfig", given: Given | None = None) -> "TrainingConfig":
        """See `Defence`: batches of one user, except for in-batch pairs, which need several."""
        usual: Batching = "documents" if self.pairing == "in-batch" else "users"
        return with_batches(self, config, given, usual)

    def step(
        self, model: "LanguageModel", data: "EncodedCorpus", config: "TrainingConfig"
    ) -> "StepFn":
        """The step, with auxiliary batches from the data."""
        from vestige.defences.regularizers import TripletStep, require_users
        from vestige.training.sequences import SequenceBatches
        from vestige.training.steps import choose_precision
        from vestige.training.tasks import batches_of

        require_users(data, self.name)
        batches = batches_of(data, model, config)
        sequences = batches if isinstance(batches, SequenceBatches) else None
        return TripletStep(
            weight=self.weight,
            auxiliary=sequences if self.pairing == "auxiliary" else None,
            max_grad_norm=config.max_grad_norm,
            precision=choose_precision(config.precision, model.device),
        )
