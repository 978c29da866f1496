"""The base of every result: a frozen dataclass with scalars, rows, and where its numbers come from.

Other libraries are imported when a method needs them: a result can be made without any.
"""

from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from os import PathLike

    import altair
    import pandas  # type: ignore[import-untyped]

    from vestige.claims import Claim
    from vestige.reports.notebook import Shown


@dataclass(frozen=True)
class Result(ABC):
    """What a workflow returns.

    Attributes:
        record: provenance, as `run.json` has it: verb, arguments, configuration, seed, models and
            data with their hashes. Empty where no workflow made the result. It is not compared.
    """

    record: Mapping[str, Any] = field(default_factory=dict, kw_only=True, compare=False, repr=False)

    @abstractmethod
    def summary(self) -> Mapping[str, object]:
        """Scalars by name: one row of a table of results."""

    @abstractmethod
    def rows(self) -> Iterable[Mapping[str, object]]:
        """One mapping for each phrase, canary, position or user."""

    @property
    def claim(self) -> "Claim | None":
        """The verdict with its test and checks; None for results that have no verdict.

        A result with a claim has the entries `**self.claim.summary()` in its summary.
        """
        return None

    def to_frame(self) -> "pandas.DataFrame":
        """`rows()` as a pandas data frame, texts in the clear."""
        import pandas

        from vestige.results import plain

        return pandas.DataFrame.from_records([plain(row) for row in self.rows()])

    def save(self, directory: "str | PathLike[str]") -> Path:
        """Write a run directory, from which `vestige report` makes a page.

        Args:
            directory: a path that does not exist yet.

        Returns:
            The directory.

        Raises:
            RunError: it exists, or cannot be written.
        """
        from vestige import results

        return results.save(self, Path(directory), run=self.record)

    def plot(self, *, show_secrets: bool = False) -> "altair.Chart":
        """The headline chart of the result's page.

        Args:
            show_secrets: phrases and names in the clear.

        Raises:
            ValueError: this kind of result has no chart.
        """
        from vestige.reports.notebook import plot

        return plot(self, show_secrets=show_secrets)

    def show(self, *, show_secrets: bool = True) -> "Shown":
        """What a notebook shows of the result, phrases and names in the clear."""
        from vestige.reports.notebook import Shown, html

        return Shown(html(self, show_secrets=show_secrets))

    def _repr_html_(self) -> str:
        from vestige.reports.notebook import html

        return html(self)

    def _repr_mimebundle_(self, **_: object) -> dict[str, str]:
        """The short text in place of `repr`, which holds texts in the clear: for notebooks."""
        return {"text/plain": str(self)}

    def __str__(self) -> str:
        from vestige.reports.notebook import text

        return text(self)
