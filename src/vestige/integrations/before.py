"""What a model knew before its training, kept beside its checkpoints."""

import json
from dataclasses import asdict, dataclass
from pathlib import Path

from vestige.data.atomic_write import write_text
from vestige.data.json_file import LARGEST_FILE, parse_object
from vestige.data.regular_file import read_bytes
from vestige.errors import VestigeError

BEFORE = "leakage-before.json"
"""In the trainer's own directory."""


@dataclass(frozen=True)
class Before:
    """What a model knew before its training, for a training that is resumed.

    Attributes:
        scores: of the canaries whose coins were flipped; None where there are none.
        losses: of the sample of training and of evaluation texts; None where there is none.
    """

    scores: list[float] | None = None
    losses: tuple[list[float], list[float]] | None = None

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
        remedy = "Put it back, or resume without the callback."
        content = read_bytes(file, limit=LARGEST_FILE, error=VestigeError, remedy=remedy)
        found = parse_object(content, file, error=VestigeError, remedy=remedy)
        return cls(found.get("scores"), found.get("losses"))
