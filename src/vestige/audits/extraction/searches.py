"""Searches for the secrets of least loss: all of them, or coordinate descent.

Parikh, Dupuy and Gupta (2022), "Canary Extraction in Natural Language Understanding Models",
equation 3, minimized over the words themselves. Their own attacks, gradient descent over mixtures
of words and over vectors, are in `reproduction.nlu.paper_attacks`.

Differs from the paper: 10^4 secrets take a second, so all are tried; no search for the least loss
can find more. Longer secrets are searched without gradients: each step compares the losses of real
words. In each of several random secrets, the word of least loss is chosen for one position after
the other, and then the best swap of two positions, until the loss does not fall: near misses are
often the right words in another order (iterated conditional modes: Besag 1986, "On the Statistical
Analysis of Dirty Pictures").
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import combinations

import torch
from torch import Tensor

from vestige.audits.extraction.objective import ExtractionObjective

BUDGET = 10**6
"""Most secrets of each trial that are all tried."""

MAX_GUESSES = 10
"""Most guesses of each trial in a result."""

RESTARTS, SWEEPS = 20, 20
"""Of coordinate descent: random secrets, and most passes over all positions."""

Progress = Callable[[int, int], None]


@dataclass(frozen=True, kw_only=True, eq=False)
class Candidates:
    """The best secrets of each trial that a search has tried.

    Attributes:
        choices: int64 (trials, k, n) indices of candidates, best first, all different.
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
        """(trials,) share of the best secret in the summed exp(-loss) of all that were tried."""
        return (-self.losses[:, 0] - self.log_mass).exp()


Search = Callable[[ExtractionObjective, torch.Generator, Progress | None], Candidates]
"""A search for all trials at once, with a random generator on the CPU."""


def all_losses(objective: ExtractionObjective, progress: Progress | None = None) -> Tensor:
    """Losses (trials, space) of every secret, in the order of codes."""
    losses = []
    all_codes = torch.arange(objective.space, device=objective.device)
    for codes in torch.split(all_codes, objective.batch_size):
        guesses = objective.decode(codes).expand(objective.trials, -1, -1)
        losses.append(objective.losses(guesses))
        if progress:
            progress(int(codes[-1]) + 1, objective.space)
    return torch.cat(losses, 1)


def best_of_all(objective: ExtractionObjective, losses: Tensor) -> Candidates:
    """The best of all secrets, by `all_losses`; the first of equal ones."""
    ordered, codes = losses.double().sort(dim=1, stable=True)
    tried = torch.full((objective.trials,), objective.space, device=objective.device)
    return Candidates(
        choices=objective.decode(codes[:, :MAX_GUESSES]),
        losses=ordered[:, :MAX_GUESSES],
        log_mass=(-losses.double()).logsumexp(1),
        tried=tried,
        evaluated=objective.space,
    )


def coordinate_descent(
    objective: ExtractionObjective,
    generator: torch.Generator,
    progress: Progress | None = None,
) -> Candidates:
    """The best secrets tried while random ones descend to a local minimum.

    The generator gives the random secrets and the order of positions.
    """
    choices: list[Tensor] = []
    losses: list[Tensor] = []

    def best_move(moves: Tensor) -> Tensor:
        """Of moves (trials, k, m, n) those of least loss; the first of equal ones."""
        trials, secrets, number, words = moves.shape
        choices.append(moves.reshape(trials, secrets * number, words))
        losses.append(objective.losses(choices[-1]))
        least = losses[-1].view(trials, secrets, number).argmin(2)
        return moves.gather(2, least[..., None, None].expand(-1, -1, 1, words)).squeeze(2)

    current = objective.random(RESTARTS, generator)
    for sweep in range(SWEEPS):
        before = current
        for word in torch.randperm(len(objective.sizes), generator=generator).tolist():
            current = best_move(replace_word(objective, current, word))
        current = best_move(swap_words(current, objective.sizes))
        current = moved_secrets(objective, before, current)
        if progress:
            progress(sweep + 1, SWEEPS)
        if not current.shape[1]:
            break
    return best_of_tried(objective, torch.cat(choices, 1), torch.cat(losses, 1))


def replace_word(objective: ExtractionObjective, secrets: Tensor, word: int) -> Tensor:
    """Secrets (trials, k, n), and with each other candidate of one word: (trials, k, m, n)."""
    size = objective.sizes[word]
    moves = secrets[:, :, None].repeat(1, 1, size, 1)
    shift = torch.arange(1, size, device=secrets.device)
    moves[:, :, 1:, word] = (secrets[:, :, word, None] + shift) % size
    return moves


def swap_words(secrets: Tensor, sizes: Sequence[int]) -> Tensor:
    """Secrets (trials, k, n), and with each pair of words swapped: (trials, k, m, n).

    Words with different numbers of candidates are not swapped.
    """
    orders = [list(range(len(sizes)))]
    for i, j in combinations(orders[0], 2):
        if sizes[i] == sizes[j]:
            orders.append(list(orders[0]))
            orders[-1][i], orders[-1][j] = j, i
    return secrets[:, :, torch.tensor(orders, device=secrets.device)]


def moved_secrets(objective: ExtractionObjective, before: Tensor, after: Tensor) -> Tensor:
    """The secrets (trials, k', n) that have moved, each once; k' is 0 if none has.

    Trials with fewer of them also get secrets that have not moved, which costs time only.
    """
    codes = objective.codes(after)
    equal = codes[:, :, None] == codes[:, None, :]
    is_duplicate = equal.tril(-1).any(2)
    moved = (after != before).any(2) & ~is_duplicate
    order = (~moved).to(torch.int8).argsort(dim=1, stable=True)[:, : int(moved.sum(1).max())]
    return after.gather(1, order[:, :, None].expand(-1, -1, after.shape[2]))


def best_of_tried(
    objective: ExtractionObjective, choices: Tensor, losses: Tensor, *, gradients: int = 0
) -> Candidates:
    """The best of the secrets (trials, k, n) that were tried, each once; losses (trials, k)."""
    codes, order = objective.codes(choices).sort(dim=1, stable=True)
    ordered = losses.double().gather(1, order)
    is_duplicate = torch.zeros_like(codes, dtype=torch.bool)
    is_duplicate[:, 1:] = codes[:, 1:] == codes[:, :-1]
    ordered = ordered.masked_fill(is_duplicate, torch.inf)
    best, index = ordered.sort(dim=1, stable=True)
    selected = order.gather(1, index[:, :MAX_GUESSES])
    return Candidates(
        choices=choices.gather(1, selected[:, :, None].expand(-1, -1, choices.shape[2])),
        losses=best[:, :MAX_GUESSES],
        log_mass=(-ordered).logsumexp(1),
        tried=(~is_duplicate).sum(1),
        evaluated=losses.shape[1],
        gradients=gradients,
    )
