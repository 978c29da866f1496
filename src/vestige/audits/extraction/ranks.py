r"""Ranks of true secrets among all secrets of their pattern.

Carlini et al. (2019), "The Secret Sharer", Definitions 2 to 4: the rank of the truth among all
possible secrets shows a leak long before it is the first.

Differs from the paper: the loss is that of an utterance's labels and not of its words. Secrets with
the same loss as the truth rank before it, as in `metrics.exposure`: a tie makes nothing look
exposed, and p-values of ranks are valid. If there are too many secrets to try, a random sample
gives an estimate, or only a bound.
"""

from collections.abc import Callable, Sequence
from math import log2
from typing import Any, Literal, NamedTuple

import torch
from torch import Tensor

from vestige import _validate
from vestige.audits.extraction.objective import ExtractionObjective
from vestige.metrics.estimates import clopper_pearson

Progress = Callable[[int, int], None]
Known = Literal["exact", "sampled", "bounded"]

COLUMNS = (
    *("rank", "rank_low", "rank_high", "rank_known", "compared_with"),
    *("exposure", "exposure_low", "exposure_high"),
)
"""Columns of a rank in a table; all None where there is none."""


class TargetRank(NamedTuple):
    """The rank of the truth among all secrets, 1 for the first.

    Attributes:
        rank: counted; estimated from a sample; or if it is only bounded, the highest.
        low: lower end of its interval; the rank itself where it was counted.
        high: upper end.
        space: number of possible secrets.
        known: "exact", "sampled", or "bounded": no secret of the sample has as low a loss.
        others: secrets that it was compared with.
    """

    rank: float
    low: float
    high: float
    space: int
    known: Known
    others: int

    def columns(self) -> dict[str, Any]:
        """`COLUMNS`; exposure in bits, its low end from the highest rank."""
        bits = [log2(self.space) - log2(one) for one in (self.rank, self.high, self.low)]
        values = (self.rank, self.low, self.high, self.known, self.others, *bits)
        return dict(zip(COLUMNS, values, strict=True))


def counted_rank(*, below: int, tied: int, space: int) -> TargetRank:
    """The rank of a truth that was compared with every other secret.

    Args:
        below: others with a lower loss.
        tied: others with the same loss; they rank before it.
        space: secrets, the truth among them.
    """
    _validate.at_least(0, below=below, tied=tied)
    _validate.at_least(below + tied + 1, space=space)
    rank = 1 + below + tied
    return TargetRank(rank, rank, rank, space, "exact", space - 1)


def estimated_rank(
    *,
    below: int,
    tied: int,
    others: int,
    space: int,
    better: int = 0,
    confidence: float = 0.95,
) -> TargetRank:
    """The rank of a truth that was compared with a random sample of other secrets.

    Its share of the space is that of the sample with the truth in it, ties counted, as
    (below + 1) / (others + 1). The share of secrets with a lower loss has the interval of Clopper
    and Pearson, whose upper end counts ties as lower and whose lower end does not.

    If no secret of the sample has as low a loss, that is no estimate: any rank up to the upper end,
    about 3.7 / others of the space, is as well supported. Only that end is known.

    Args:
        below: others in the sample with a lower loss.
        tied: others in the sample with the same loss.
        others: secrets in the sample without the truth.
        space: possible secrets.
        better: secrets with a lower loss that a search has found.
        confidence: of the interval, in (0, 1).

    Example:
        >>> found = estimated_rank(below=0, tied=0, others=1023, space=2**20)
        >>> found.known, found.low, round(found.high), round(found.columns()["exposure"], 2)
        ('bounded', 1.0, 3775, 8.12)
        >>> round(estimated_rank(below=9, tied=0, others=999, space=10**6).rank)
        10000
    """
    _validate.at_least(0, below=below, tied=tied, better=better)
    _validate.at_least(max(1, below + tied), others=others)
    _validate.at_least(better + 1, space=space)
    low = clopper_pearson(below, others, confidence=confidence).low
    high = clopper_pearson(below + tied, others, confidence=confidence).high
    rank = space * ((below + tied + 1) / (others + 1))
    ends = (1 + share * (space - 1) for share in (low, high))
    rank, least, most = (max(one, 1.0 + better) for one in (rank, *ends))
    if below + tied == 0:
        return TargetRank(most, least, max(most, rank), space, "bounded", others)
    return TargetRank(rank, least, max(most, rank), space, "sampled", others)


class Truths:
    """True secrets, and how many others have a lower loss, counted batch by batch.

    Args:
        objective: the trials.
        secrets: one a trial, or any number for a single trial.

    Attributes:
        numbers: int64 (k, n) their candidates.
        losses: their own in nats, k of them.
    """

    def __init__(self, objective: ExtractionObjective, secrets: Sequence[Sequence[str]]) -> None:
        self.numbers = objective.numbers(secrets)
        if objective.trials == 1:
            self._own = objective.losses(self.numbers[None])[0]
        else:
            self._own = objective.losses(self.numbers[:, None])[:, 0]
        self.losses: list[float] = self._own.tolist()
        self._objective = objective
        self._codes = objective.codes(self.numbers)
        self._counts = torch.zeros(len(secrets), 3, dtype=torch.int64, device=self._own.device)
        self._whole = False

    def count(self, codes: Tensor, losses: Tensor, *, whole: bool = False) -> None:
        """Compare with secrets of codes (trials, b) or (b,); `whole`: the last of all secrets."""
        self._whole = whole
        if len(losses) < len(self._own):
            self._counts += self._of_one_trial(codes.flatten(), losses[0])
            return
        own, other = self._own[:, None], codes != self._codes[:, None]
        below_tied_others = (other & (losses < own), other & (losses == own), other)
        self._counts += torch.stack([one.sum(1) for one in below_tied_others], 1)

    def _of_one_trial(self, codes: Tensor, losses: Tensor) -> Tensor:
        """Below, tied and others (k, 3), by sorting: a table of k x b would cost more."""
        ends = (False, True)
        ordered = losses.sort().values
        least, most = (torch.searchsorted(ordered, self._own, right=right) for right in ends)
        counts = torch.stack([least, most - least, torch.full_like(least, len(losses))], 1)
        ordered, order = codes.sort(stable=True)
        first, last = (torch.searchsorted(ordered, self._codes, right=right) for right in ends)
        itself = losses[order[first.clamp_max(len(order) - 1)]]
        again = (itself < self._own, itself == self._own, torch.ones_like(first))
        return counts - torch.stack(again, 1) * (last - first)[:, None]

    def sample(self, number: int, *, seed: int, progress: Progress | None = None) -> None:
        """Compare with random secrets, with replacement; a truth is not compared with itself."""
        _validate.at_least(1, sample=number)
        objective, done = self._objective, 0
        # not the search's generator: a rank must not depend on the search
        generator = torch.Generator().manual_seed(seed)
        while done < number:
            some = objective.random(min(objective.at_once, number - done), generator)
            self.count(objective.codes(some), objective.losses(some))
            done += some.shape[1]
            if progress:
                progress(done, number)

    def rank(self, place: int, *, better: int) -> TargetRank | None:
        """The rank of one truth; None if it was compared with none. `better`: as in a search."""
        below, tied, others = self._counts[place].tolist()
        space = self._objective.space
        if self._whole:
            return counted_rank(below=below, tied=tied, space=space)
        if not others:
            return None
        return estimated_rank(below=below, tied=tied, others=others, space=space, better=better)
