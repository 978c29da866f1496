"""Searches for the secrets of least loss: all of them, or coordinate descent.

Parikh, Dupuy and Gupta (2022), "Canary Extraction in Natural Language Understanding Models",
equation 3, minimized over the words themselves. Their own attacks, gradient descent over mixtures
of words and over vectors, are in `reproduction.nlu.paper_attacks`.

Differs from the paper: 10^4 secrets take a second, so all are tried; no search for the least loss
can find more. Longer secrets are searched without gradients, each step judged by the loss of real
words. Each of several random secrets takes, position by position, the word of least loss, then the
swap of two positions that helps most, until nothing does: near misses are often the right words in
another order (iterated conditional modes: Besag 1986, "On the Statistical Analysis of Dirty
Pictures").
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import combinations

import torch
from torch import Tensor

from vestige.audits.extraction.objective import ExtractionObjective

BUDGET = 10**6
"""Secrets of each trial that are tried at most."""

KEPT = 10
"""Guesses of each trial that are kept."""

RESTARTS, SWEEPS = 20, 20
"""Of coordinate descent: random secrets, and how often at most each position is tried."""

Progress = Callable[[int, int], None]


@dataclass(frozen=True, kw_only=True, eq=False)
class Candidates:
    """The best secrets of each trial that a search has tried.

    Attributes:
        choices: int64 (trials, k, n) numbers of candidates, best first, all different.
        losses: (trials, k) nats; infinite if a trial has fewer than k guesses.
        log_mass: (trials,) log of the summed exp(-loss) of all different secrets that were tried.
        tried: int64 (trials,) their number.
        evaluated: losses computed for each trial.
        gradients: gradients of an utterance's loss computed for each trial.
    """

    choices: Tensor
    losses: Tensor
    log_mass: Tensor
    tried: Tensor
    evaluated: int
    gradients: int = 0

    @property
    def certainty(self) -> Tensor:
        """(trials,) the best one's share of the summed exp(-loss) of those that were tried."""
        return (-self.losses[:, 0] - self.log_mass).exp()


Search = Callable[[ExtractionObjective, torch.Generator, Progress | None], Candidates]
"""A search for all trials at once; its generator, on the CPU, decides what is random."""


def every_loss(objective: ExtractionObjective, progress: Progress | None = None) -> Tensor:
    """Losses (trials, space) of every secret, in the order of codes."""
    space, parts = objective.space, []
    every = torch.arange(space, device=objective.device)
    for codes in torch.split(every, objective.at_once):
        guesses = objective.decoded(codes).expand(objective.trials, -1, -1)
        parts.append(objective.losses(guesses))
        if progress:
            progress(int(codes[-1]) + 1, space)
    return torch.cat(parts, 1)


def exhaust(objective: ExtractionObjective, losses: Tensor) -> Candidates:
    """The best of all secrets, from the losses of every one; of equals the first."""
    ordered, codes = losses.double().sort(dim=1, stable=True)
    tried = torch.full((objective.trials,), objective.space, device=objective.device)
    return Candidates(
        choices=objective.decoded(codes[:, :KEPT]),
        losses=ordered[:, :KEPT],
        log_mass=(-losses.double()).logsumexp(1),
        tried=tried,
        evaluated=objective.space,
    )


def coordinate_descent(
    objective: ExtractionObjective,
    generator: torch.Generator,
    progress: Progress | None = None,
) -> Candidates:
    """The best secrets on the way of random ones to a local minimum.

    The generator decides the random secrets, and the order of positions.
    """
    choices: list[Tensor] = []
    losses: list[Tensor] = []

    def best(options: Tensor) -> Tensor:
        """Of options (trials, k, o, n) those of least loss; the first of equals."""
        trials, number, moves, places = options.shape
        choices.append(options.reshape(trials, number * moves, places))
        losses.append(objective.losses(choices[-1]))
        least = losses[-1].view(trials, number, moves).argmin(2)
        return options.gather(2, least[..., None, None].expand(-1, -1, 1, places)).squeeze(2)

    current = objective.random(RESTARTS, generator)
    for sweep in range(SWEEPS):
        before = current
        for place in torch.randperm(len(objective.sizes), generator=generator).tolist():
            current = best(replaced(objective, current, place))
        current = still_moving(objective, before, best(swapped(current, objective.sizes)))
        if progress:
            progress(sweep + 1, SWEEPS)
        if not current.shape[1]:
            break
    return gathered(objective, torch.cat(choices, 1), torch.cat(losses, 1))


def replaced(objective: ExtractionObjective, secrets: Tensor, place: int) -> Tensor:
    """Secrets (trials, k, n), then with every other word at a position: (trials, k, o, n)."""
    size = objective.sizes[place]
    options = secrets[:, :, None].repeat(1, 1, size, 1)
    other = torch.arange(1, size, device=secrets.device)
    options[:, :, 1:, place] = (secrets[:, :, place, None] + other) % size
    return options


def swapped(secrets: Tensor, sizes: Sequence[int]) -> Tensor:
    """Secrets (trials, k, n), then with each two positions swapped: (trials, k, o, n).

    Positions with different numbers of candidates are never swapped.
    """
    orders = [list(range(len(sizes)))]
    for i, j in combinations(orders[0], 2):
        if sizes[i] == sizes[j]:
            orders.append(list(orders[0]))
            orders[-1][i], orders[-1][j] = j, i
    return secrets[:, :, torch.tensor(orders, device=secrets.device)]


def still_moving(objective: ExtractionObjective, before: Tensor, after: Tensor) -> Tensor:
    """The secrets (trials, k', n) that have moved, each once; k' is 0 if none has.

    Trials with fewer of them than others keep some that have not, which costs time only.
    """
    code = objective.codes(after)
    alike = code[:, :, None] == code[:, None, :]
    again = alike.tril(-1).any(2)
    moving = (after != before).any(2) & ~again
    order = (~moving).to(torch.int8).argsort(dim=1, stable=True)[:, : int(moving.sum(1).max())]
    return after.gather(1, order[:, :, None].expand(-1, -1, after.shape[2]))


def gathered(
    objective: ExtractionObjective, choices: Tensor, losses: Tensor, *, gradients: int = 0
) -> Candidates:
    """The best of the secrets (trials, k, n) that were tried, each once; losses (trials, k)."""
    code, order = objective.codes(choices).sort(dim=1, stable=True)
    ordered = losses.double().gather(1, order)
    again = torch.zeros_like(code, dtype=torch.bool)
    again[:, 1:] = code[:, 1:] == code[:, :-1]
    ordered = ordered.masked_fill(again, torch.inf)
    best, place = ordered.sort(dim=1, stable=True)
    kept = order.gather(1, place[:, :KEPT])
    return Candidates(
        choices=choices.gather(1, kept[:, :, None].expand(-1, -1, choices.shape[2])),
        losses=best[:, :KEPT],
        log_mass=(-ordered).logsumexp(1),
        tried=(~again).sum(1),
        evaluated=losses.shape[1],
        gradients=gradients,
    )
