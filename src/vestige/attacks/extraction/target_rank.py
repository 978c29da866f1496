r"""Ranks of true secrets among all secrets of their pattern.

Carlini et al. (2019), "The Secret Sharer", Definitions 2 to 4: the rank of the truth among all
secrets that there could be says how far it stands out, long before it is the first.

Differs from the paper: the loss is that of an utterance's labels and not of its words. Secrets that
lose as much as the truth stand before it (`metrics.exposure` counts alike).
"""

from dataclasses import dataclass

import torch
from torch import Tensor

from vestige import _validate
from vestige.attacks.extraction.candidates import check_numbers, codes
from vestige.attacks.extraction.objective import ExtractionObjective
from vestige.monitor import Step as Progress

SAMPLE = 20_000
"""Random secrets that a rank is estimated from where they are too many to try."""


@dataclass(frozen=True, kw_only=True)
class Standing:
    """Numbers of secrets below and beside one trial's truth.

    Attributes:
        loss: its own, in nats.
        below: others that lose less.
        tied: others that lose as much.
        others: secrets that it was compared with.
        whole: whether these are all there are.
    """

    loss: float
    below: int
    tied: int
    others: int
    whole: bool


class Counter:
    """Counts, batch by batch, how many secrets lose less than the true ones.

    Args:
        objective: the trials.
        truths: int64 (k, n), one a trial; of a single trial any number.
    """

    def __init__(self, objective: ExtractionObjective, truths: Tensor) -> None:
        self._own = truth_losses(objective, truths)[:, None]
        check_numbers(self._own)
        self._code = codes(objective, truths)[:, None]
        self._counts = torch.zeros(len(truths), 3, dtype=torch.int64, device=truths.device)

    def add(self, code: Tensor, losses: Tensor) -> None:
        """Count secrets of these codes (trials, b), or (b,) for all trials, and losses."""
        if len(losses) < len(self._own):
            self._counts += _counted(self._own, self._code, code.flatten(), losses[0])
            return
        other = code != self._code
        counted = (other & (losses < self._own), other & (losses == self._own), other)
        self._counts += torch.stack([one.sum(1) for one in counted], 1)

    def standings(self, *, whole: bool) -> tuple[Standing, ...]:
        """The standing of each truth."""
        rows = zip(self._own[:, 0].tolist(), self._counts.tolist(), strict=True)
        return tuple(
            Standing(loss=loss, below=below, tied=tied, others=others, whole=whole)
            for loss, (below, tied, others) in rows
        )


def _counted(own: Tensor, own_code: Tensor, code: Tensor, losses: Tensor) -> Tensor:
    """Below, tied and others (k, 3) of k truths (k, 1) beside b secrets (b,) of one trial.

    Sorted once, since a table of truths by secrets would cost more than the losses.
    """
    ordered = losses.sort().values
    least, most = (torch.searchsorted(ordered, own[:, 0], right=right) for right in (False, True))
    counts = torch.stack([least, most - least, torch.full_like(least, len(losses))], 1)
    codes, order = code.sort(stable=True)
    first, last = (
        torch.searchsorted(codes, own_code[:, 0], right=right) for right in (False, True)
    )
    itself = losses[order[first.clamp_max(len(order) - 1)]]
    again = torch.stack([itself < own[:, 0], itself == own[:, 0], torch.ones_like(first)], 1)
    return counts - again * (last - first)[:, None]


def truth_losses(objective: ExtractionObjective, truths: Tensor) -> Tensor:
    """Losses (k,) of truths (k, n), one a trial; of a single trial any number."""
    if objective.trials == 1:
        return objective.losses(truths[None])[0]
    return objective.losses(truths[:, None])[:, 0]


def sampled_standings(
    objective: ExtractionObjective,
    truths: Tensor,
    *,
    sample: int = SAMPLE,
    generator: torch.Generator,
    progress: Progress | None = None,
) -> tuple[Standing, ...]:
    """Standings of truths among secrets drawn at random with replacement.

    Args:
        objective: the trials.
        truths: int64 (k, n), one a trial; of a single trial any number.
        sample: secrets drawn, the same for every trial; a truth itself is not compared with.
        generator: draws them; on the CPU.
        progress: told (secrets done, secrets in all).
    """
    _validate.at_least(1, sample=sample)
    counter = Counter(objective, truths)
    done = 0
    while done < sample:
        drawn = objective.random(min(objective.at_once, sample - done), generator)
        losses = objective.losses(drawn)
        check_numbers(losses)
        counter.add(codes(objective, drawn), losses)
        done += drawn.shape[1]
        if progress:
            progress(done, sample)
    return counter.standings(whole=False)
