"""Which of these changes of a secret lowers its loss most?"""

import torch
from torch import Tensor

from vestige.attacks.extraction.candidates import CandidateTally, codes
from vestige.attacks.extraction.objective import ExtractionObjective


def best_move(
    question: ExtractionObjective, options: Tensor, tried: list[CandidateTally]
) -> Tensor:
    """The option of least loss for each secret; the first of equals.

    Args:
        question: the trials.
        options: int64 (trials, k, o, n), the first of them the secret as it is.
        tried: gets all that was tried.

    Returns:
        int64 (trials, k, n).
    """
    trials, number, moves, places = options.shape
    choices = options.reshape(trials, number * moves, places)
    losses = question.losses(choices)
    tried.append(CandidateTally(choices, losses))
    best = losses.view(trials, number, moves).argmin(2)
    return options.gather(2, best[..., None, None].expand(-1, -1, 1, places)).squeeze(2)


def still_moving(question: ExtractionObjective, before: Tensor, after: Tensor) -> Tensor:
    """The secrets (trials, k', n) that have moved, each once; k' is 0 where none has.

    Trials with fewer of them than others keep some that stand still, which costs time only.
    """
    code = codes(question, after)
    alike = code[:, :, None] == code[:, None, :]
    again = alike.tril(-1).any(2)
    moving = (after != before).any(2) & ~again
    order = (~moving).to(torch.int8).argsort(dim=1, stable=True)[:, : int(moving.sum(1).max())]
    return after.gather(1, order[:, :, None].expand(-1, -1, after.shape[2]))
