"""The triplet regularizer as a defence: see `vestige.defences.triplet`."""

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar, Literal

from vestige import _validate
from vestige.defences.private import check_not_negative
from vestige.defences.registry import Given, register, with_batches

if TYPE_CHECKING:
    from vestige.data.encoded import EncodedCorpus
    from vestige.models.protocols import LanguageModel
    from vestige.training.config import Batching, TrainingConfig
    from vestige.training.steps import StepFn


@register
@dataclass(frozen=True, kw_only=True)
class Triplet:
    """Privacy regularizer that pulls users' hidden states together; needs users.

    Attributes:
        weight: Weight of the privacy term.
        pairing: Pair with a second batch, as in the paper, or within the batch.
    """

    name: ClassVar[str] = "triplet"

    weight: float = 0.1  # near 1 the hidden states collapse
    pairing: Literal["auxiliary", "in-batch"] = "auxiliary"

    def __post_init__(self) -> None:
        check_not_negative(weight=self.weight)
        _validate.one_of(("auxiliary", "in-batch"), pairing=self.pairing)

    def suited(self, config: "TrainingConfig", given: Given | None = None) -> "TrainingConfig":
        """See `Defence`: one user at a time; within such a batch all pairs would be of one."""
        usual: Batching = "documents" if self.pairing == "in-batch" else "users"
        return with_batches(self, config, given, usual)

    def step(
        self, model: "LanguageModel", data: "EncodedCorpus", config: "TrainingConfig"
    ) -> "StepFn":
        """The step, which draws auxiliary batches from the data."""
        from vestige.defences.triplet import TripletStep
        from vestige.defences.user_hidden_states import require_users
        from vestige.training.loop import batches_of
        from vestige.training.precision import choose_precision
        from vestige.training.sequences import SequenceBatches

        require_users(data, self.name)
        batches = batches_of(data, model, config)
        own = batches if isinstance(batches, SequenceBatches) else None
        return TripletStep(
            weight=self.weight,
            auxiliary=own if self.pairing == "auxiliary" else None,
            max_grad_norm=config.max_grad_norm,
            precision=choose_precision(config.precision, model.device),
        )
