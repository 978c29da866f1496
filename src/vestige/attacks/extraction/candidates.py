"""Candidate secrets of least loss, and the attacks' protocol.

Every attack ends here: whatever it optimised on its way, its guesses are ranked by the loss of the
words themselves. A soft loss is below that of its own likeliest words in most starts.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol, runtime_checkable

import torch
from torch import Tensor

from vestige.attacks.extraction.objective import ExtractionObjective
from vestige.errors import ModelError
from vestige.monitor import Step as Progress

KEPT = 10
"""Guesses of each trial that are kept."""

_EXACT_CODES = 2**62


@dataclass(frozen=True, kw_only=True, eq=False)
class Candidates:
    """The best secrets of each trial that a search has tried.

    Attributes:
        choices: int64 (trials, k, n) numbers of candidates, best first, all different.
        losses: (trials, k) nats; infinite where a trial has fewer than k guesses.
        log_mass: (trials,) log of the summed exp(-loss) of all different secrets that were tried.
        tried: int64 (trials,) how many different ones they are.
        evaluated: losses computed for each trial.
        gradients: gradients of an utterance's loss computed for each trial.
        whole: whether every secret was tried.
    """

    choices: Tensor
    losses: Tensor
    log_mass: Tensor
    tried: Tensor
    evaluated: int
    gradients: int = 0
    whole: bool = False

    @property
    def certainty(self) -> Tensor:
        """(trials,) the best one's share of the summed exp(-loss) of what was tried."""
        return (-self.losses[:, 0] - self.log_mass).exp()


@runtime_checkable
class Attack(Protocol):
    """A way to look for secrets, with settings of its own."""

    @property
    def name(self) -> str:
        """Its name in summaries."""
        ...

    def search(
        self,
        objective: ExtractionObjective,
        generator: torch.Generator,
        progress: Progress | None = None,
    ) -> Candidates:
        """Look for the secrets of least loss, all trials at once.

        Args:
            objective: the trials.
            generator: decides every choice that is left to chance; on the CPU.
            progress: told (steps done, steps in all).
        """
        ...


def gathered(
    objective: ExtractionObjective, choices: Tensor, losses: Tensor, *, gradients: int = 0
) -> Candidates:
    """The best of all that was tried, each secret once.

    Args:
        objective: the trials.
        choices: int64 (trials, k, n) secrets.
        losses: (trials, k).
        gradients: that were computed for each trial.

    Raises:
        ModelError: a loss is no number.
    """
    losses = losses.double()
    check_numbers(losses)
    code, order = codes(objective, choices).sort(dim=1, stable=True)
    losses = losses.gather(1, order)
    again = torch.zeros_like(code, dtype=torch.bool)
    again[:, 1:] = code[:, 1:] == code[:, :-1]
    losses = losses.masked_fill(again, torch.inf)
    best, place = losses.sort(dim=1, stable=True)
    kept = order.gather(1, place[:, :KEPT])
    return Candidates(
        choices=choices.gather(1, kept[:, :, None].expand(-1, -1, choices.shape[2])),
        losses=best[:, :KEPT],
        log_mass=(-losses).logsumexp(1),
        tried=(~again).sum(1),
        evaluated=losses.shape[1],
        gradients=gradients,
        whole=bool((~again).sum(1).min() == objective.space),
    )


def rescored(objective: ExtractionObjective, choices: Tensor, *, gradients: int = 0) -> Candidates:
    """Guesses (trials, k, n) by the loss of their words; see `gathered`."""
    return gathered(objective, choices, objective.losses(choices), gradients=gradients)


def codes(objective: ExtractionObjective, choices: Tensor) -> Tensor:
    """A number (..., ) for each secret (..., n): equal numbers are equal secrets.

    Where the space has more than 2^62 secrets it is a hash of 64 bits.
    """
    if objective.space < _EXACT_CODES:
        factors = radix(objective.sizes)
    else:
        drawn = torch.Generator().manual_seed(0)
        factors = torch.randint(-(2**62), 2**62, (len(objective.sizes),), generator=drawn) * 2 + 1
    return (choices * factors.to(choices.device)).sum(-1)


def radix(sizes: Sequence[int]) -> Tensor:
    """Place values (n,) of a number of secrets; the last place counts ones.

    Example:
        >>> radix([10, 3, 2]).tolist()
        [6, 2, 1]
    """
    factors = [1]
    for size in reversed(sizes[1:]):
        factors.append(factors[-1] * size)
    return torch.tensor(factors[::-1])


def check_numbers(losses: Tensor) -> None:
    """Raise ModelError where a loss is no number."""
    if not bool(losses.isfinite().all()):
        raise ModelError(
            "the model's loss is not finite for some of the secrets",
            remedy="Check that its training did not diverge.",
        )
