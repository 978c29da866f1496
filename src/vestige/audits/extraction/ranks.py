r"""Ranks of true secrets among all secrets of their pattern.

Carlini et al. (2019), "The Secret Sharer", Definitions 2 to 4: the rank of the truth among all
possible secrets shows a leak long before it is the first.

Differs from the paper: the loss is that of an utterance's labels and not of its words. Secrets with
the same loss as the truth rank before it, as in `metrics.exposure`: ties do not raise exposure, and
p-values of ranks are valid. If there are too many secrets to try, a random sample gives an estimate
or a bound.
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

RankKind = Literal["exact", "sampled", "bounded"]

COLUMNS = (
    *("rank", "rank_low", "rank_high", "rank_known", "compared_with"),
    *("exposure", "exposure_low", "exposure_high"),
)
"""Columns of a rank; the first rank is 1. rank_known says how it was determined: counted ("exact"),
estimated from a sample ("sampled"), or the upper end of its interval ("bounded": no secret of the
sample has as low a loss). Exposure is in bits. All are None if there is no rank."""


def _columns(
    rank: float, low: float, high: float, kind: RankKind, others: int, space: int
) -> dict[str, Any]:
    exposures = [log2(space) - log2(value) for value in (rank, high, low)]
    return dict(zip(COLUMNS, (rank, low, high, kind, others, *exposures), strict=True))


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

    If no secret of the sample has as low a loss, there is no estimate: all ranks up to the upper
    end, about 3.7 / others of the space, are equally plausible. Then the rank is this upper end.

    Args:
        below: other secrets in the sample with a lower loss.
        tied: other secrets in the sample with the same loss.
        others: secrets in the sample without the truth.
        space: possible secrets.
        better: secrets with a lower loss that a search has found.
    """
    _validate.at_least(max(1, below + tied), others=others)
    shares = clopper_pearson(below, others).low, clopper_pearson(below + tied, others).high
    rank = space * ((below + tied + 1) / (others + 1))
    ends = (1 + share * (space - 1) for share in shares)
    rank, low, high = (max(value, 1.0 + better) for value in (rank, *ends))
    if below + tied == 0:
        return _columns(high, low, max(high, rank), "bounded", others, space)
    return _columns(rank, low, max(high, rank), "sampled", others, space)


class Truths:
    """True secrets, and how many others have a lower loss.

    Args:
        objective: the trials.
        secrets: one a trial, or any number for a single trial.

    Attributes:
        indices: int64 (k, n) of their candidates.
        losses: k of them, in nats.
    """

    def __init__(self, objective: ExtractionObjective, secrets: Sequence[Sequence[str]]) -> None:
        self.indices = objective.indices(secrets)
        self._per_trial = len(secrets) // objective.trials
        guesses = self.indices.view(objective.trials, self._per_trial, -1)
        self._losses = objective.losses(guesses).flatten()
        self.losses: list[float] = self._losses.tolist()
        self._objective = objective
        self._codes = objective.codes(self.indices)
        self._counts = [[0, 0, 0]] * len(secrets)
        self._exact = False

    def compare(self, codes: Tensor, losses: Tensor, *, exact: bool = False) -> None:
        """Compare with secrets by codes and losses (trials, b); `exact` if these are all."""
        self._exact = exact
        truth_codes = torch.split(self._codes, self._per_trial)
        truth_losses = torch.split(self._losses, self._per_trial)
        self._counts = [
            counts
            for trial in zip(codes, losses, truth_codes, truth_losses, strict=True)
            for counts in _count_lower(*trial)
        ]

    def sample(self, number: int, *, seed: int, progress: Progress | None = None) -> None:
        """Compare with random secrets, with replacement."""
        objective, done = self._objective, 0
        # Not the search's generator: a rank must not depend on the search.
        generator = torch.Generator().manual_seed(seed)
        codes, losses = [], []
        while done < number:
            guesses = objective.random(min(objective.batch_size, number - done), generator)
            codes.append(objective.codes(guesses))
            losses.append(objective.losses(guesses))
            done += guesses.shape[1]
            if progress:
                progress(done, number)
        self.compare(torch.cat(codes, 1), torch.cat(losses, 1))

    def rank(self, index: int, *, better: int) -> dict[str, Any] | None:
        """`COLUMNS` of one truth; None if it was not compared.

        `better` is the number of secrets with a lower loss that a search has found.
        """
        below, tied, others = self._counts[index]
        space = self._objective.space
        if not others:
            return None
        if self._exact:
            return counted_rank(below=below, tied=tied, space=space)
        return estimated_rank(below=below, tied=tied, others=others, space=space, better=better)


def _count_lower(
    codes: Tensor, losses: Tensor, truth_codes: Tensor, truth_losses: Tensor
) -> list[list[int]]:
    """For each of k truths: how many of b secrets have a lower loss, how many the same, and b.

    The truth itself is not counted where it is among the secrets.
    """
    ordered = losses.sort().values
    below = torch.searchsorted(ordered, truth_losses)
    up_to = torch.searchsorted(ordered, truth_losses, right=True)
    counts = torch.stack([below, up_to - below, torch.full_like(below, len(losses))], 1)
    distinct, group = torch.unique(truth_codes, return_inverse=True)
    is_truth = torch.isin(codes, distinct)
    index, loss = torch.searchsorted(distinct, codes[is_truth]), losses[is_truth]
    truth = truth_losses.new_empty(len(distinct)).scatter(0, group, truth_losses)[index]
    for column, counted in enumerate((loss < truth, loss == truth, loss == loss)):
        counts[:, column] -= torch.bincount(index[counted], minlength=len(distinct))[group]
    rows: list[list[int]] = counts.tolist()
    return rows
