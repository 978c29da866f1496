"""What does somebody reach who only guesses? The floor of every table.

Parikh, Dupuy and Gupta (2022), section 4.3: an attack is compared with a random choice of words.
"""

from dataclasses import dataclass

import torch

from vestige.attacks.extraction.candidates import Candidates, rescored
from vestige.attacks.extraction.objective import ExtractionObjective
from vestige.attacks.update.beam_search import Progress


@dataclass(frozen=True, kw_only=True)
class RandomGuess:
    """One secret drawn at random for each trial."""

    name = "random"

    def search(
        self,
        question: ExtractionObjective,
        generator: torch.Generator,
        progress: Progress | None = None,
    ) -> Candidates:
        """One guess, whatever the model says about it."""
        found = rescored(question, question.random(1, generator))
        if progress:
            progress(1, 1)
        return found
