"""Options of the shadow models of `vestige membership`."""

from dataclasses import dataclass, fields
from typing import Annotated, Any

from annotated_types import Le
from cyclopts import Group, Parameter

from vestige.arguments import Count, Natural, PathTo, Positive, Width

TRAINING = ("epochs", "batch_size", "sequence_length", "learning_rate")
OF_USERS = ("other_shapes", "hidden_size", "processes")
"""Options that only `unit` user has."""


@Parameter(name="*", group=Group("Shadow models", sort_key=3))
@dataclass(frozen=True, kw_only=True)
class ShadowOptions:
    """Shadow models.

    Attributes:
        shadows: Models to train, each on half of the shadow texts; for users, of the reference
            users that Vestige does not compare with. 0 for none. Default: 4 for texts, 10 for
            users.
        shadow_dir: Folder of shadow models, reused by later audits. Default: OUT.shadows.
        epochs: Passes over the data. Default: those of MODEL if known, else the preset's.
        batch_size: Texts per step. Default: as for epochs.
        learning_rate: Highest learning rate. Default: as for epochs.
        sequence_length: Most tokens of a text read at once. Default: as for epochs.
        other_shapes: Use GRUs of 64 to 352 units, if the architecture of MODEL is unknown. For
            users only.
        hidden_size: Units of a layer. Default: those of MODEL if known. For users only.
        processes: Models to train at a time. For users only.
    """

    shadows: Annotated[Natural, Le(10_000)] | None = None
    shadow_dir: PathTo | None = None
    epochs: Count | None = None
    batch_size: Width | None = None
    learning_rate: Positive | None = None
    sequence_length: Width | None = None
    other_shapes: bool = False
    hidden_size: Width | None = None
    processes: Annotated[Count, Le(1024)] = 1

    def __post_init__(self) -> None:
        if self.other_shapes and self.hidden_size is not None:
            raise ValueError("`hidden_size` does not go with `other_shapes`, which has its own")

    def changed(self) -> list[str]:
        """The options that were set."""
        usual = ShadowOptions()
        names = [one.name for one in fields(self)]
        return [name for name in names if getattr(self, name) != getattr(usual, name)]

    def set_of(self, names: tuple[str, ...]) -> dict[str, Any]:
        """Those of the named options that were set."""
        return {name: value for name in names if (value := getattr(self, name)) is not None}

    def reject_of_users(self) -> None:
        """Raise ValueError if an option is set that only `unit` user has."""
        for name in self.changed():
            if name in OF_USERS:
                raise ValueError(f"`{name}` needs `unit` user")
