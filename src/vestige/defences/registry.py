"""Defences of a training, by name.

A defence is a frozen dataclass of its settings, registered where it is defined: in a file of
`vestige.defences.methods`, or in a module of another package that an entry point of the group
`vestige.defences` names. None of these imports torch before a step is made, since the command
line's help reads their fields.
"""

import math
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from typing import TYPE_CHECKING, Any, ClassVar, Protocol, TypeVar, runtime_checkable

from vestige.registry import Registry

if TYPE_CHECKING:
    from vestige.data.encoded import EncodedCorpus
    from vestige.models.protocols import LanguageModel
    from vestige.training.config import Batching, TrainingConfig
    from vestige.training.steps import StepFn

Given = Mapping[str, object]
"""Settings of a training that the caller chose, by name; None: not chosen."""


@runtime_checkable
class Defence(Protocol):
    """A defence: its settings, the training that suits it, and its step.

    Attributes:
        name: of it, on the command line and in records.
    """

    name: ClassVar[str]

    def suited(self, config: "TrainingConfig", given: Given | None = None) -> "TrainingConfig":
        """The training with batches, and perhaps an optimizer, that this defence can work with.

        Args:
            config: as preset and options have it.
            given: what the caller chose and must stay; None: all but the batches must.

        Raises:
            ValueError: what the caller chose does not suit it.
        """

    def step(
        self, model: "LanguageModel", data: "EncodedCorpus", config: "TrainingConfig"
    ) -> "StepFn | None":
        """How a batch becomes a gradient; None: as without a defence.

        Raises:
            ValueError: the batches do not suit it.
            TrainingError: the data does not, or the model.
        """


@dataclass(frozen=True, kw_only=True)
class NoDefence:
    """Undefended training."""

    name: ClassVar[str] = "none"

    def suited(self, config: "TrainingConfig", given: Given | None = None) -> "TrainingConfig":
        """The training as it is."""
        return config

    def step(
        self, model: "LanguageModel", data: "EncodedCorpus", config: "TrainingConfig"
    ) -> "StepFn | None":
        """No other than the loop's own."""
        return None


DEFENCES = Registry[type[Defence]](
    "defence", package="vestige.defences.methods", group="vestige.defences"
)
"""The class of every defence by name, those of other packages among them."""

Kind = TypeVar("Kind", bound=type[Defence])


def register(cls: Kind) -> Kind:
    """Add a defence under its name; a class decorator.

    Raises:
        ValueError: another one has that name.
    """
    DEFENCES.add(cls.name, cls)
    return cls


def defences() -> dict[str, type[Defence]]:
    """The classes by name.

    Example:
        >>> sorted(defences())
        ['adversarial', 'dp-fedavg', 'dp-sgd', 'goldfish', 'triplet']
    """
    return dict(zip(DEFENCES.names(), DEFENCES.values(), strict=True))


def settings_of(defence: Defence) -> dict[str, Any]:
    """A defence as a run folder records it: its name and its parameters."""
    return {"name": defence.name, **asdict(defence)}  # type: ignore[call-overload]


def with_batches(
    defence: Defence, config: "TrainingConfig", given: Given | None, usual: "Batching"
) -> "TrainingConfig":
    """The training, with the usual batches of a defence that reads documents, not a stream.

    Raises:
        ValueError: the caller chose a stream.
    """
    if given is not None and given.get("batching") == "stream":
        raise ValueError(
            f"`batching` stream must not come with `defence` {defence.name}, which needs "
            "documents one by one"
        )
    return replace(config, batching=usual) if config.batching == "stream" else config


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
