"""A workflow with every kind of parameter, for tests of the command line's machinery."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Annotated, Literal

from annotated_types import Ge

from vestige.monitor import SILENT, Monitor
from vestige.result import Result
from vestige.workflows.arguments import Call
from vestige.workflows.options import (
    CorpusLike,
    Device,
    Group,
    Kinds,
    Metavar,
    ModelLike,
    Seed,
    TextColumn,
)


@dataclass(frozen=True, kw_only=True)
class Training:
    """Training.

    Attributes:
        epochs: Passes over the data; see `batch_size`.
        batch_size: Rows read together.
        optimizer: `adam` or `sgd`.
    """

    epochs: Annotated[int | None, Ge(1)] = None
    batch_size: Annotated[int | None, Ge(1)] = None
    optimizer: Literal["adam", "sgd"] | None = None


@dataclass(frozen=True, kw_only=True)
class Clipped:
    """Clipped, noised gradients.

    Attributes:
        epsilon: Spends at most so much.
        clip: The norm.
    """

    epsilon: float
    clip: float = 1.0


@dataclass(frozen=True, kw_only=True)
class Averaged:
    """Averages of users' updates.

    Attributes:
        epsilon: Spends at most so much.
        rounds: How many.
    """

    epsilon: float | None = None
    rounds: int = 3


@dataclass(frozen=True)
class Trained(Result):
    """What the example returns: the arguments that it was called with."""

    arguments: dict[str, object]

    def summary(self) -> dict[str, object]:
        """A number and a secret."""
        return {"arguments": len(self.arguments), "phrase": "the gate"}

    def rows(self) -> Iterator[dict[str, object]]:
        """One row."""
        yield {"position": 0, "phrase": "the gate"}


def refit(  # noqa: PLR0913
    data: CorpusLike,
    *,
    from_: Annotated[ModelLike | None, Metavar("MODEL")] = None,
    null: Sequence[ModelLike] = (),
    other_shapes: bool = False,
    training: Training = Training(epochs=2),
    defence: Annotated[
        Clipped | Averaged | None,
        Kinds(lambda: {"clipped": Clipped, "averaged": Averaged}),
        Group("Defence"),
    ] = None,
    text: TextColumn = "text",
    seed: Seed = 0,
    device: Device = "auto",
    monitor: Monitor = SILENT,
) -> Trained:
    """Train a model on `data`, or continue one with `from_`.

    The `training` goes on where it was.

    Args:
        data: A file
            or folder.
        from_: Continue this model.
        null: May be given again.
        other_shapes: Of any size.
        defence: Which one.

    Examples:
        vestige refit corpus.txt --out model

        >>> refit.__name__
        'refit'
    """
    call = Call.of(refit, locals())
    return call.record(Trained(dict(call.arguments)), configuration={}, seed=seed)
