"""The base of what an attack or a training measures: a frozen dataclass with scalars and rows."""

from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from os import PathLike
from pathlib import Path
from typing import Any


@dataclass(frozen=True)
class Measurement(ABC):
    """A measurement; `Result.of` makes the result of a verb from it.

    Attributes:
        record: provenance, if something other than a verb measured.
    """

    record: Mapping[str, Any] = field(default_factory=dict, kw_only=True, compare=False, repr=False)

    @abstractmethod
    def summary(self) -> Mapping[str, object]:
        """Scalars by name."""

    @abstractmethod
    def rows(self) -> Iterable[Mapping[str, object]]:
        """One mapping per phrase, canary, position or user."""

    def __str__(self) -> str:
        from vestige.results import Result

        return str(Result.of(self))

    def _repr_html_(self) -> str:
        from vestige.results import Result

        return Result.of(self)._repr_html_()

    def _repr_mimebundle_(self, **_: object) -> dict[str, str]:
        """The redacted text; `repr` would hold unredacted texts."""
        return {"text/plain": str(self)}

    def save(self, directory: str | PathLike[str]) -> Path:
        """Write a run folder.

        Raises:
            RunError: it exists, or cannot be written.
        """
        from vestige import results

        return results.save(self, Path(directory), run=self.record)
