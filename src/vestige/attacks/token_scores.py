r"""How much did an update promote one token? The three scores that a search can maximise.

Zanella-Béguelin et al. (2020), "Analyzing Information Leakage of Updates to Natural
Language Models", arXiv:1912.07942, Definition 1: the differential and the relative
differential score. A phrase's score is the sum over its tokens.

Differs from the paper: the smoothed log-ratio is ours. On subword models both of the
paper's scores fail: the differential one saturates at 1 for a token, so that one surprise
counts no more than one common ending, and the relative one is driven by vanishing
denominators. With the floor delta a token must *become* likely to count, and a rise from
nothing counts more than a rise from half.
"""

from collections.abc import Callable
from dataclasses import dataclass
from math import inf, log

import torch
from torch import Tensor

from vestige import _validate

SCORES = ("smoothed", "differential", "relative")


@dataclass(frozen=True)
class TokenScore:
    """A score of one token under two models.

    Attributes:
        name: one of `SCORES`.
        gain: (n, v) logits before, (n, v) logits after -> (n, v) gains. Logits may be
            unnormalised; log-probabilities are logits too.
        bound: no gain exceeds this; infinite where there is no bound.
    """

    name: str
    gain: Callable[[Tensor, Tensor], Tensor]
    bound: float


def token_score(name: str, *, delta: float = 0.1) -> TokenScore:
    r"""The score called `name`.

    .. math::
        \mathrm{differential} = p' - p \qquad
        \mathrm{relative} = (p' - p) / p \qquad
        \mathrm{smoothed} = \log \frac{p' + \delta}{p + \delta}

    Args:
        name: "differential", "relative" or "smoothed".
        delta: the floor of the smoothed score, a probability; the others ignore it.

    Raises:
        ValueError: the name is none of the three, or delta is not positive.

    Example:
        >>> even, sure = torch.tensor([[0.5, 0.5]]).log(), torch.tensor([[1.0, 0.0]]).log()
        >>> token_score("differential").gain(even, sure)
        tensor([[ 0.5000, -0.5000]])
    """
    _validate.one_of(SCORES, score=name)
    _validate.positive(delta=delta)
    if name == "differential":
        return TokenScore(name, _differential, bound=1.0)
    if name == "relative":
        return TokenScore(name, _relative, bound=inf)
    return TokenScore(name, lambda b, a: _smoothed(b, a, delta), bound=log((1 + delta) / delta))


def less_surprise(score: TokenScore, weight: float) -> TokenScore:
    """A score less `weight` times the surprise, -log p', that the later model still feels.

    A rise from nothing to one half is a large promotion, and a model that mixes two texts makes
    many of them in a row; one that knows a text by heart is hardly surprised by it.

    Raises:
        ValueError: the weight is negative.

    Example:
        >>> even, sure = torch.tensor([[0.5, 0.5]]).log(), torch.tensor([[0.75, 0.25]]).log()
        >>> less_surprise(token_score("differential"), 1.0).gain(even, sure)
        tensor([[-0.0377, -1.6363]])
    """
    _validate.at_least(0, weight=weight)

    def gain(before: Tensor, after: Tensor) -> Tensor:
        return score.gain(before, after).add_(torch.log_softmax(after, 1), alpha=weight)

    return TokenScore(score.name, gain, score.bound) if weight else score


def _differential(before: Tensor, after: Tensor) -> Tensor:
    return torch.softmax(after, 1).sub_(torch.softmax(before, 1))


def _relative(before: Tensor, after: Tensor) -> Tensor:
    # p'/p - 1 through the logs, so that an underflowing p gives a large number, not 0/0
    ratio = torch.log_softmax(after, 1).sub_(torch.log_softmax(before, 1)).expm1_()
    # a token that both models rule out (-inf - -inf) has not changed
    return ratio.nan_to_num_(nan=0.0, posinf=inf, neginf=-1.0)


def _smoothed(before: Tensor, after: Tensor, delta: float) -> Tensor:
    ratio = torch.softmax(after, 1).add_(delta).div_(torch.softmax(before, 1).add_(delta))
    return ratio.log_()
