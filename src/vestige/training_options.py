"""How a model is trained: options that several verbs share, each declared once."""

import math
from dataclasses import dataclass, fields
from typing import TYPE_CHECKING, Annotated, Any, Literal

from annotated_types import Ge, Lt
from cyclopts import Parameter

from vestige.arguments import Count, Number, Positive, Width
from vestige.training.config import Batching

if TYPE_CHECKING:
    from vestige.training.history import StopAtPerplexity

Share = Annotated[Number, Ge(0), Lt(1)]


@Parameter(name="*")
@dataclass(frozen=True, kw_only=True)
class LearningOptions:
    """Options of every training; None takes the default of the preset or model.

    Attributes:
        epochs: Passes over the data.
        batch_size: Texts or rows per step.
        sequence_length: Tokens per window; longer texts are cut into several.
        learning_rate: Learning rate before the schedule.
    """

    epochs: Count | None = None
    batch_size: Width | None = None
    sequence_length: Width | None = None
    learning_rate: Positive | None = None

    @property
    def chosen(self) -> dict[str, Any]:
        """The options that were given, as settings of `TrainingConfig`."""
        return {name: value for name, value in self.given.items() if value is not None}

    @property
    def given(self) -> dict[str, Any]:
        """All settings of `TrainingConfig` here; None for those that were not given."""
        return {one.name: getattr(self, one.name) for one in fields(LearningOptions)}


@Parameter(name="*")
@dataclass(frozen=True, kw_only=True)
class TrainingOptions(LearningOptions):
    """Options of `vestige train`.

    Attributes:
        optimizer: Optimizer.
        momentum: Momentum of sgd. Default: 0.
        precision: Precision of the computation. auto uses bfloat16 on GPUs that support it, and
            float32 elsewhere.
        checkpoint_every: Steps between two checkpoints.
        batching: stream reads all text as one. The others read each document by itself: documents
            in random order, users one user per batch, poisson and poisson-users by Poisson
            sampling of sequences or users. Default: what suits the defence.
        stop_at_perplexity: Stop once the validation perplexity is this low, to compare models of
            equal utility.
        evaluate_every: Steps between two evaluations. Default: one evaluation per epoch.
    """

    optimizer: Literal["adam", "sgd"] | None = None
    momentum: Share | None = None
    precision: Literal["auto", "float32", "bfloat16"] | None = None
    checkpoint_every: Count | None = None
    batching: Batching | None = None
    stop_at_perplexity: Positive | None = None
    evaluate_every: Count | None = None

    @property
    def given(self) -> dict[str, Any]:
        """All settings of `TrainingConfig` here; None for those that were not given."""
        names = [one.name for one in fields(self) if one.name != "stop_at_perplexity"]
        return {name: getattr(self, name) for name in names}

    def stop(self, *, validated: bool) -> "StopAtPerplexity | None":
        """When to stop before the last epoch; None for never.

        Args:
            validated: whether some text validates.

        Raises:
            ValueError: the perplexity is out of range, or no text validates.
        """
        from vestige.training.history import StopAtPerplexity

        perplexity = self.stop_at_perplexity
        if perplexity is None:
            return None
        if not 1 < perplexity < math.inf:
            raise ValueError("`stop_at_perplexity` must be above 1 and finite")
        if not validated:
            raise ValueError("`stop_at_perplexity` needs validation text. Pass `validation`")
        return StopAtPerplexity(perplexity)
