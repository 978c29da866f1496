"""Candidate secrets of least loss, and the attacks' protocol.

Every attack ends here: whatever it optimised on its way, its guesses are ranked by the loss of the
words themselves. A soft loss is below that of its own likeliest words in most starts.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol, runtime_checkable

import torch
from torch import Tensor

from vestige.attacks.extraction.objective import ExtractionObjective
from vestige.attacks.update.beam_search import Progress
from vestige.errors import ModelError

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
        evaluated: losses computed for each trial, those of mixtures of words counted as well.
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


@dataclass(frozen=True, eq=False)
class CandidateTally:
    """Secrets and what they lose.

    Attributes:
        choices: int64 (trials, k, n).
        losses: (trials, k).
    """

    choices: Tensor
    losses: Tensor


def gathered(
    objective: ExtractionObjective,
    tried: Sequence[CandidateTally],
    *,
    gradients: int = 0,
    besides: int = 0,
) -> Candidates:
    """The best of all that was tried, each secret once.

    Args:
        objective: the trials.
        tried: secrets and their losses.
        gradients: that were computed for each trial.
        besides: losses of mixtures that were computed for each trial.

    Raises:
        ModelError: a loss is no number.
    """
    choices = torch.cat([one.choices for one in tried], 1)
    losses = torch.cat([one.losses for one in tried], 1).double()
    check_numbers(losses)
    code, order = codes(objective, choices).sort(dim=1, stable=True)
    losses, evaluated = losses.gather(1, order), losses.shape[1] + besides
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
        evaluated=evaluated,
        gradients=gradients,
        whole=bool((~again).sum(1).min() == objective.space),
    )


def rescored(
    objective: ExtractionObjective, choices: Tensor, *, gradients: int = 0, besides: int = 0
) -> Candidates:
    """Guesses (trials, k, n) by the loss of their words; see `gathered`."""
    tried = CandidateTally(choices, objective.losses(choices))
    return gathered(objective, [tried], gradients=gradients, besides=besides)


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


def climb(
    objective: ExtractionObjective,
    start: Tensor,
    step: Callable[[Tensor, list[CandidateTally]], Tensor],
    *,
    steps: int,
    progress: Progress | None,
) -> list[CandidateTally]:
    """Secrets changed for the better, step by step, until none changes.

    Args:
        objective: the trials.
        start: int64 (trials, k, n).
        step: the secrets after one step; it adds all that it tries to the list.
        steps: at most so many.
        progress: told (steps done, steps in all).

    Returns:
        all secrets that were tried.
    """
    tried: list[CandidateTally] = []
    current = start
    for number in range(steps):
        current = still_moving(objective, current, step(current, tried))
        if progress:
            progress(number + 1, steps)
        if not current.shape[1]:
            break
    return tried


def best_move(
    objective: ExtractionObjective, options: Tensor, tried: list[CandidateTally]
) -> Tensor:
    """The option of least loss for each secret; the first of equals.

    Args:
        objective: the trials.
        options: int64 (trials, k, o, n), the first of them the secret as it is.
        tried: gets all that was tried.

    Returns:
        int64 (trials, k, n).
    """
    trials, number, moves, places = options.shape
    choices = options.reshape(trials, number * moves, places)
    losses = objective.losses(choices)
    tried.append(CandidateTally(choices, losses))
    best = losses.view(trials, number, moves).argmin(2)
    return options.gather(2, best[..., None, None].expand(-1, -1, 1, places)).squeeze(2)


def still_moving(objective: ExtractionObjective, before: Tensor, after: Tensor) -> Tensor:
    """The secrets (trials, k', n) that have moved, each once; k' is 0 where none has.

    Trials with fewer of them than others keep some that stand still, which costs time only.
    """
    code = codes(objective, after)
    alike = code[:, :, None] == code[:, None, :]
    again = alike.tril(-1).any(2)
    moving = (after != before).any(2) & ~again
    order = (~moving).to(torch.int8).argsort(dim=1, stable=True)[:, : int(moving.sum(1).max())]
    return after.gather(1, order[:, :, None].expand(-1, -1, after.shape[2]))
