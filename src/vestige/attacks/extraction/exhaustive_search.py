"""Exhaustive search over all secrets of a pattern.

Parikh, Dupuy and Gupta (2022), "Canary Extraction in Natural Language Understanding Models",
equation 3, minimised over the words themselves.

Differs from the paper: it never tries them all, although 10^4 secrets take a second. What this
search does not find, no search for the least loss can find.
"""

from dataclasses import dataclass

import torch
from torch import Tensor

from vestige import _validate
from vestige.attacks.extraction.candidates import KEPT, Candidates, check_numbers, radix
from vestige.attacks.extraction.objective import ExtractionObjective
from vestige.attacks.extraction.target_rank import Counter, Standing
from vestige.errors import DataError
from vestige.monitor import Step as Progress

BUDGET = 10**6
"""Secrets of each trial that are tried at most, unless more are asked for."""


@dataclass(frozen=True, kw_only=True)
class ExactSearch:
    """Every secret, in a fixed order and with bounded memory.

    Attributes:
        budget: secrets of each trial at most.
    """

    name = "exact"
    budget: int = BUDGET

    def __post_init__(self) -> None:
        _validate.positive(budget=self.budget)

    def search(
        self,
        objective: ExtractionObjective,
        generator: torch.Generator,
        progress: Progress | None = None,
    ) -> Candidates:
        """The secrets of least loss; nothing is left to chance.

        Raises:
            DataError: there are more than the budget.
        """
        return exhaust(objective, budget=self.budget, progress=progress)[0]


def exhaust(
    objective: ExtractionObjective,
    truths: Tensor | None = None,
    *,
    budget: int = BUDGET,
    progress: Progress | None = None,
) -> tuple[Candidates, tuple[Standing, ...]]:
    """The loss of every secret, and the standings of the true ones.

    Args:
        objective: the trials.
        truths: int64 (k, n), if known: one a trial, or of a single trial any number.
        budget: secrets of each trial at most.
        progress: told (secrets done, secrets in all).

    Returns:
        the best secrets and each truth's standing, none without truths.

    Raises:
        DataError: there are more secrets than the budget.
        ModelError: a loss is no number.
    """
    space = objective.space
    if space > budget:
        raise DataError(
            f"there are {space:,} secrets; the budget is {budget:,}",
            remedy="Raise the budget, or use an attack that does not try all.",
        )
    counter = None if truths is None else Counter(objective, truths)
    best = torch.empty(objective.trials, 0, dtype=torch.float64, device=objective.device)
    place = torch.empty(objective.trials, 0, dtype=torch.int64, device=objective.device)
    mass = torch.full((objective.trials,), -torch.inf, dtype=torch.float64, device=objective.device)
    for first in range(0, space, objective.at_once):
        code = torch.arange(first, min(space, first + objective.at_once), device=objective.device)
        found = objective.losses(secrets(objective, code).expand(objective.trials, -1, -1))
        check_numbers(found)
        if counter:
            counter.add(code, found)
        losses = found.double()
        mass = torch.logaddexp(mass, (-losses).logsumexp(1))
        best, order = torch.cat([best, losses], 1).sort(dim=1, stable=True)
        best = best[:, :KEPT]
        place = torch.cat([place, code.expand_as(losses)], 1).gather(1, order[:, :KEPT])
        if progress:
            progress(first + len(code), space)
    guesses = Candidates(
        choices=secrets(objective, place),
        losses=best,
        log_mass=mass,
        tried=torch.full_like(place[:, 0], space),
        evaluated=space,
        whole=True,
    )
    return guesses, counter.standings(whole=True) if counter else ()


def secrets(objective: ExtractionObjective, code: Tensor) -> Tensor:
    """The secrets (..., n) of their numbers (...), which count up from the last word."""
    sizes = torch.tensor(objective.sizes, device=code.device)
    return code[..., None] // radix(objective.sizes).to(code.device) % sizes
