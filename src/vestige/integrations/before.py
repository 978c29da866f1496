"""What a model knew before its training, kept beside its checkpoints."""

import json
import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass, fields
from pathlib import Path

from vestige.data.atomic_write import write_text
from vestige.data.files import LARGEST, parse_object, read_bytes
from vestige.errors import VestigeError

BEFORE = "leakage-before.json"
"""In the trainer's own directory."""
SAME = 1e-5
"""Relative difference up to which two log-perplexities are one, read in other batches."""


@dataclass(frozen=True)
class Before:
    """What a model knew before its training, for a training that is resumed.

    Attributes:
        scores: of the canaries whose coins were flipped; None where there are none.
        losses: of the sample of training and of evaluation texts; None where there is none.
        sample: hash of the sample; None in files from before it was kept, and where there is none.
        answers: log-perplexity of each canary and control; None in files from before they were
            kept.
    """

    scores: list[float] | None = None
    losses: tuple[list[float], list[float]] | None = None
    sample: str | None = None
    answers: list[float] | None = None

    def save(self, file: Path) -> None:
        """Write it, for its owner alone."""
        file.parent.mkdir(parents=True, exist_ok=True)
        write_text(file, json.dumps(asdict(self)))

    @classmethod
    def load(cls, file: Path) -> "Before":
        """What `save` wrote.

        Raises:
            VestigeError: it is gone or damaged.
        """
        remedy = "Restore it, or resume without the callback."
        content = read_bytes(file, limit=LARGEST, error=VestigeError, remedy=remedy)
        found = parse_object(content, file, error=VestigeError, remedy=remedy)
        return cls(**{field.name: found.get(field.name) for field in fields(cls)})

    def require_sample(self, sample: str) -> None:
        """Check that the losses are of the sample that is compared now.

        Raises:
            VestigeError: they are of other rows, since the data set is another or in another order.
        """
        if self.sample not in (None, sample):
            raise VestigeError(
                "the compared training rows are not those from before the training",
                remedy="Resume with the same data in the same order, the same `texts` and `seed`.",
            )

    def same(self, answers: Sequence[float]) -> bool:
        """Whether the model answered alike, as one does that has learnt nothing since.

        Args:
            answers: log-perplexity of each canary and control now.
        """
        return self.answers is not None and all(map(_alike, self.answers, answers))


def _alike(one: float, other: float) -> bool:
    return math.isclose(one, other, rel_tol=SAME)
