"""A verb with every kind of option."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import wraps
from typing import Annotated, Any, Literal, Unpack

from annotated_types import Gt
from cyclopts import Parameter

from vestige.arguments import Common, CorpusLike, Count, ModelLike, Number, TextColumn, group
from vestige.results import Result
from vestige.session import Session, verb

TRAINING = group("Training")


@Parameter(name="*")
@dataclass(frozen=True, kw_only=True)
class Training:
    """Options of a training.

    Attributes:
        epochs: Passes over the data.
        batch_size: Texts per step.
        optimizer: The optimizer.
        clip: Largest norm of a gradient.
    """

    epochs: Annotated[Count | None, TRAINING] = 2
    batch_size: Annotated[Count, TRAINING] = 4
    optimizer: Annotated[Literal["adam", "sgd"], TRAINING] = "adam"
    clip: Annotated[Annotated[Number, Gt(0)] | None, TRAINING] = None


@verb
def refit(
    run: Session,
    data: CorpusLike,
    *,
    from_: ModelLike | None = None,
    null: Sequence[str] = (),
    other_shapes: bool = False,
    training: Training = Training(),
    text: TextColumn = "text",
    **common: Unpack[Common],
) -> Result:
    """Train a model on DATA, or continue one.

    The training resumes where it stopped.

    Examples:
        vestige refit corpus.txt --out model
        vestige refit corpus.txt --from model --epochs 3 --out second

    Args:
        data: A file or folder.
        from_: Model to continue.
        null: Null model. Repeatable.
        other_shapes: Allow other shapes.
        training: Options of the training.
        text: Column with the text.
    """
    return Result(kind="Refit", summary={"epochs": training.epochs}, rows=[])


def with_result(change: Callable[[Result], Result | None]) -> Callable[..., Result]:
    """`refit` with another result, where `change` returns one."""
    verb = refit

    @wraps(verb)
    def changed(*args: Any, **kwargs: Any) -> Result:
        result = verb(*args, **kwargs)
        return change(result) or result

    changed.__wrapped__ = verb.__wrapped__
    return changed
