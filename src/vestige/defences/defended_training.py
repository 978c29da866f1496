"""A finished training under a defence: history, guarantee, and utility."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from statistics import fmean, median
from typing import Any

from vestige.defences.privacy_statement import PrivacyStatement
from vestige.results import Measurement
from vestige.training.checkpoint import log_lines
from vestige.training.history import TrainingHistory

HARDLY = 0.1
"""Share of gradients, or updates, below which clipping does nothing."""


@dataclass(frozen=True)
class DefendedTraining(Measurement):
    """A finished training of a language model, as a run directory holds it.

    Attributes:
        history: what it went through.
        defence: name of the defence.
        statement: what a private one promises.
        frequencies: what word frequencies alone reach on the text that judges the model.
    """

    history: TrainingHistory
    defence: str
    statement: PrivacyStatement | None = None
    frequencies: Mapping[str, object] = field(default_factory=dict)

    def summary(self) -> dict[str, object]:
        """The kept record, the cost, the defence, and what it promises."""
        return {
            **self.history.summary(),
            **self.frequencies,
            "defence": self.defence,
            **({} if self.statement is None else self.statement.summary()),
        }

    def rows(self) -> list[dict[str, Any]]:
        """One row an evaluation."""
        return self.history.rows()


def clip_advice(log: Path) -> str | None:
    """A better clipping norm where hardly anything was clipped; else None.

    Args:
        log: `log.jsonl` of the training.
    """
    lines = [entry for _, entry in log_lines(log)]
    known = [line for line in lines if line.get("clipped") is not None]
    if not known or fmean(line["clipped"] for line in known) > HARDLY:
        return None
    norm = median(line["median_norm"] for line in known)
    return (
        f"Almost nothing was clipped. Use --clip {norm:.1g}, near the median norm: less noise, "
        "same privacy"
    )
