"""Defences of a training, by name.

A defence is a frozen dataclass of its settings. It is registered in a file of
`vestige.defences.methods`, or in a module of another package with an entry point of the group
`vestige.defences`. These modules import torch only in functions, because the help of the command
line reads their fields.
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
"""Settings that the caller chose, by name; None: not chosen."""


@runtime_checkable
class Defence(Protocol):
    """A defence: its settings, its training configuration, and its step.

    Attributes:
        name: on the command line and in records.
    """

    name: ClassVar[str]

    def suited(self, config: "TrainingConfig", given: Given | None = None) -> "TrainingConfig":
        """The configuration with batches, and perhaps an optimizer, that suit this defence.

        Args:
            config: from preset and options.
            given: settings that the caller chose, which must stay; None: only batches may change.

        Raises:
            ValueError: a chosen setting does not suit it.
        """

    def step(
        self, model: "LanguageModel", data: "EncodedCorpus", config: "TrainingConfig"
    ) -> "StepFn | None":
        """The training step; None: the one without a defence.

        Raises:
            ValueError: the batches do not suit it.
            TrainingError: the data or the model do not suit it.
        """


@dataclass(frozen=True, kw_only=True)
class NoDefence:
    """Training without a defence."""

    name: ClassVar[str] = "none"

    def suited(self, config: "TrainingConfig", given: Given | None = None) -> "TrainingConfig":
        """The configuration, unchanged."""
        return config

    def step(
        self, model: "LanguageModel", data: "EncodedCorpus", config: "TrainingConfig"
    ) -> "StepFn | None":
        """None: the default step."""
        return None


DEFENCES = Registry[type[Defence]](
    "defence", package="vestige.defences.methods", group="vestige.defences"
)
"""Defence classes by name, including those of other packages."""

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
    """Name and parameters of a defence, for a run folder."""
    return {"name": defence.name, **asdict(defence)}  # type: ignore[call-overload]


def with_batches(
    defence: Defence, config: "TrainingConfig", given: Given | None, usual: "Batching"
) -> "TrainingConfig":
    """The configuration, with the default batches of a defence that needs separate documents.

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
    """Put the name of an argument in backticks in its errors."""
    try:
        yield
    except ValueError as error:
        raise ValueError(f"`{name}`{str(error).removeprefix(name)}") from error


def check_positive(**values: float | None) -> None:
    """Raise ValueError unless every value is None, or positive and finite."""
    for name, value in values.items():
        if value is not None and not 0 < value < math.inf:
            raise ValueError(f"`{name}` must be positive and finite, got {value}")


def check_not_negative(**values: float | None) -> None:
    """Raise ValueError unless every value is None, or at least 0 and finite."""
    for name, value in values.items():
        if value is not None and not 0 <= value < math.inf:
            raise ValueError(f"`{name}` must be at least 0 and finite, got {value}")
