"""Extraction attacks by name, and the choice between exact and approximate search.

Differs from Parikh, Dupuy and Gupta (2022), whose attack is one of them: what fits a budget is
tried exactly, and what does not is searched without gradients from many beginnings.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

import torch

from vestige import _validate
from vestige.attacks.extraction.candidates import Attack, Candidates, rescored
from vestige.attacks.extraction.coordinate_descent import CoordinateDescent
from vestige.attacks.extraction.discrete_optimization import DiscreteOptimization
from vestige.attacks.extraction.embedding_optimization import EmbeddingOptimization
from vestige.attacks.extraction.exhaustive_search import BUDGET, ExactSearch
from vestige.attacks.extraction.objective import ExtractionObjective
from vestige.monitor import Step as Progress


@dataclass(frozen=True, kw_only=True)
class Automatic:
    """Exact search where all secrets fit the budget, else another attack.

    Attributes:
        budget: secrets of each trial that are tried at most.
        otherwise: what longer secrets are searched by.
    """

    name = "auto"
    budget: int = BUDGET
    otherwise: Attack = field(default_factory=CoordinateDescent)

    def __post_init__(self) -> None:
        _validate.positive(budget=self.budget)

    def chosen(self, space: int) -> Attack:
        """The attack for so many secrets."""
        return ExactSearch(budget=self.budget) if space <= self.budget else self.otherwise

    def search(
        self,
        objective: ExtractionObjective,
        generator: torch.Generator,
        progress: Progress | None = None,
    ) -> Candidates:
        """What the chosen attack finds."""
        return self.chosen(objective.space).search(objective, generator, progress)


@dataclass(frozen=True, kw_only=True)
class RandomGuess:
    """One secret drawn at random for each trial: the floor that attacks are compared with."""

    name = "random"

    def search(
        self,
        objective: ExtractionObjective,
        generator: torch.Generator,
        progress: Progress | None = None,
    ) -> Candidates:
        """One guess, whatever the model says about it."""
        found = rescored(objective, objective.random(1, generator))
        if progress:
            progress(1, 1)
        return found


ATTACKS: Mapping[str, Callable[[], Attack]] = {
    "auto": Automatic,
    "exact": ExactSearch,
    "coordinate": CoordinateDescent,
    "paper": DiscreteOptimization,
    "embedding": EmbeddingOptimization,
    "random": RandomGuess,
}
"""Every attack by its name, with its default settings."""


def named_attack(attack: str | Attack) -> Attack:
    """An attack by its name; one with settings of its own stays as it is.

    Raises:
        ValueError: no attack has this name.

    Example:
        >>> named_attack("paper").epochs
        250
    """
    if not isinstance(attack, str):
        return attack
    if attack not in ATTACKS:
        raise ValueError(f"attack must be one of {', '.join(ATTACKS)}, got {attack!r}")
    return ATTACKS[attack]()
