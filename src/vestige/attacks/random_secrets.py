"""What does somebody reach who only guesses? The floor of every table.

Parikh, Dupuy and Gupta (2022), section 4.3: an attack is compared with a random choice of words.
"""

from dataclasses import dataclass

import torch

from vestige.attacks.beam_search import Progress
from vestige.attacks.secret_guesses import Guesses, rescored
from vestige.attacks.secret_question import Question


@dataclass(frozen=True, kw_only=True)
class RandomGuess:
    """One secret drawn at random for each trial."""

    name = "random"

    def search(
        self, question: Question, generator: torch.Generator, progress: Progress | None = None
    ) -> Guesses:
        """One guess, whatever the model says about it."""
        found = rescored(question, question.random(1, generator))
        if progress:
            progress(1, 1)
        return found
