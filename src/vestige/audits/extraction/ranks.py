r"""Ranks of true secrets among all secrets of their pattern.

Carlini et al. (2019), "The Secret Sharer", Definitions 2 to 4: the rank of the truth among all
possible secrets shows a leak long before it is the first.

Differs from the paper: the loss is that of an utterance's labels and not of its words. Secrets with
the same loss as the truth rank before it, as in `metrics.exposure`: a tie makes nothing look
exposed, and p-values of ranks are valid. If there are too many secrets to try, a random sample
gives an estimate, or only a bound.
"""

from collections.abc import Sequence
from math import log2
from typing import Any, Literal

import torch
from torch import Tensor

from vestige import _validate
from vestige.audits.extraction.objective import ExtractionObjective
from vestige.audits.extraction.searches import Progress
from vestige.metrics.estimates import clopper_pearson

Known = Literal["exact", "sampled", "bounded"]

COLUMNS = (
    *("rank", "rank_low", "rank_high", "rank_known", "compared_with"),
    *("exposure", "exposure_low", "exposure_high"),
)
"""Columns of a rank, 1 for the first: counted ("exact"), estimated from a sample ("sampled"), or
the upper end of its interval ("bounded": no secret of the sample has as low a loss). Exposure is in
bits. All are None where there is no rank."""


def _columns(
    rank: float, low: float, high: float, known: Known, others: int, space: int
) -> dict[str, Any]:
    bits = [log2(space) - log2(one) for one in (rank, high, low)]
    return dict(zip(COLUMNS, (rank, low, high, known, others, *bits), strict=True))


def counted_rank(*, below: int, tied: int, space: int) -> dict[str, Any]:
    """The rank of a truth that was compared with every other secret.

    Args:
        below: others with a lower loss.
        tied: others with the same loss; they rank before it.
        space: secrets, the truth among them.
    """
    _validate.at_least(below + tied + 1, space=space)
    rank = 1 + below + tied
    return _columns(rank, rank, rank, "exact", space - 1, space)


def estimated_rank(
    *, below: int, tied: int, others: int, space: int, better: int = 0
) -> dict[str, Any]:
    """The rank of a truth that was compared with a random sample of other secrets.

    Its share of the space is that of the sample with the truth in it, ties counted, as
    (below + 1) / (others + 1). The share of secrets with a lower loss has the interval of Clopper
    and Pearson, whose upper end counts ties as lower and whose lower end does not.

    If no secret of the sample has as low a loss, that is no estimate: any rank up to the upper end,
    about 3.7 / others of the space, is as well supported. Only that end is known.

    Args:
        below: others in the sample with a lower loss; tied: with the same one.
        others: secrets in the sample without the truth.
        space: possible secrets.
        better: secrets with a lower loss that a search has found.
    """
    _validate.at_least(max(1, below + tied), others=others)
    shares = clopper_pearson(below, others).low, clopper_pearson(below + tied, others).high
    rank = space * ((below + tied + 1) / (others + 1))
    ends = (1 + share * (space - 1) for share in shares)
    rank, least, most = (max(one, 1.0 + better) for one in (rank, *ends))
    if below + tied == 0:
        return _columns(most, least, max(most, rank), "bounded", others, space)
    return _columns(rank, least, max(most, rank), "sampled", others, space)


class Truths:
    """True secrets, and how many others have a lower loss.

    Args:
        objective: the trials.
        secrets: one a trial, or any number for a single trial.

    Attributes:
        numbers: int64 (k, n) their candidates.
        losses: their own in nats, k of them.
    """

    def __init__(self, objective: ExtractionObjective, secrets: Sequence[Sequence[str]]) -> None:
        self.numbers = objective.numbers(secrets)
        self._each = len(secrets) // objective.trials
        self._own = objective.losses(self.numbers.view(objective.trials, self._each, -1)).flatten()
        self.losses: list[float] = self._own.tolist()
        self._objective = objective
        self._codes = objective.codes(self.numbers)
        self._counts = [[0, 0, 0]] * len(secrets)
        self._whole = False

    def compare(self, codes: Tensor, losses: Tensor, *, whole: bool = False) -> None:
        """Compare with secrets of codes (trials, b) and losses; `whole`: with every one."""
        self._whole = whole
        truths = (torch.split(one, self._each) for one in (self._codes, self._own))
        parts = zip(codes, losses, *truths, strict=True)
        self._counts = [counts for part in parts for counts in _counts(*part)]

    def sample(self, number: int, *, seed: int, progress: Progress | None = None) -> None:
        """Compare with random secrets, with replacement."""
        objective, done = self._objective, 0
        # not the search's generator: a rank must not depend on the search
        generator = torch.Generator().manual_seed(seed)
        codes, losses = [], []
        while done < number:
            some = objective.random(min(objective.at_once, number - done), generator)
            codes.append(objective.codes(some))
            losses.append(objective.losses(some))
            done += some.shape[1]
            if progress:
                progress(done, number)
        self.compare(torch.cat(codes, 1), torch.cat(losses, 1))

    def rank(self, place: int, *, better: int) -> dict[str, Any] | None:
        """`COLUMNS` of one truth; None if it was compared with none. `better`: as in a search."""
        below, tied, others = self._counts[place]
        space = self._objective.space
        if not others:
            return None
        if self._whole:
            return counted_rank(below=below, tied=tied, space=space)
        return estimated_rank(below=below, tied=tied, others=others, space=space, better=better)


def _counts(codes: Tensor, losses: Tensor, own_codes: Tensor, own: Tensor) -> list[list[int]]:
    """Of secrets (b,), those below each of k truths, tied with it, and all but itself."""
    ordered = losses.sort().values
    least, most = (torch.searchsorted(ordered, own, right=right) for right in (False, True))
    counts = torch.stack([least, most - least, torch.full_like(least, len(losses))], 1)
    known, group = torch.unique(own_codes, return_inverse=True)
    mine = torch.isin(codes, known)
    place, loss = torch.searchsorted(known, codes[mine]), losses[mine]
    truth = own.new_empty(len(known)).scatter(0, group, own)[place]  # that each of mine is
    for column, itself in enumerate((loss < truth, loss == truth, loss == loss)):
        counts[:, column] -= torch.bincount(place[itself], minlength=len(known))[group]
    found: list[list[int]] = counts.tolist()
    return found
