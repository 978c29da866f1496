r"""Scores of one token's promotion by an update, which a search can maximise.

Zanella-Béguelin et al. (2020), "Analyzing Information Leakage of Updates to Natural
Language Models", arXiv:1912.07942, Definition 1: the differential and the relative
differential score. A phrase's score is the sum over its tokens.

Differs from the paper: the smoothed log-ratio is ours. On subword models both of the
paper's scores fail: the differential one saturates at 1 for a token, so that one surprise
counts no more than one common ending, and the relative one is driven by vanishing
denominators. With the floor delta a token must *become* likely to count, and a rise from
nothing counts more than a rise from half.

A score is one function here, registered under its name. The module imports no torch, so that a
command line can name the scores.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from math import inf, log
from typing import TYPE_CHECKING

from vestige import _validate
from vestige.registry import Registry

if TYPE_CHECKING:
    from torch import Tensor

ROUNDING = 1e-6
"""How far float32 may put a logarithm from its place."""


LogitTransform = Callable[["Tensor"], "Tensor"]
"""(n, v) logits of one model -> (n, v) numbers; the logits are left as they are."""


@dataclass(frozen=True)
class TokenScore:
    """A score of one token under two models: the later model's part less the earlier one's.

    Attributes:
        name: as it is registered.
        later: of the model after the update.
        earlier: of the model before it.
        least: `earlier` is never under this, so that no gain exceeds `later - least`.
        bound: no gain exceeds this; infinite where there is no bound.
        relative: the gain is exp(difference) - 1 and not the difference itself.
        surprise: what a nat of the later model's surprise costs such a gain; the others have
            that in `later`.
        joint: gains of the logits before and after, where there is a quicker way than by parts.
    """

    name: str
    later: LogitTransform
    earlier: LogitTransform
    least: float
    bound: float
    relative: bool = False
    surprise: float = 0.0
    joint: "Callable[..., Tensor] | None" = None

    def gain(self, before: "Tensor", after: "Tensor") -> "Tensor":
        """(n, v) logits before, (n, v) logits after -> (n, v) gains.

        Logits may be unnormalised; log-probabilities are logits too.
        """
        if self.joint is not None:
            return self.joint(before, after)
        return self.difference(self.later(after), self.earlier(before))

    def difference(self, later: "Tensor", earlier: "Tensor") -> "Tensor":
        """Gains from the two models' parts; `later` may be overwritten."""
        if not self.relative:
            return later.sub_(earlier)
        # a token that both models rule out (-inf - -inf) has not changed
        gains = (later - earlier).expm1_().nan_to_num_(nan=0.0, posinf=inf, neginf=-1.0)
        return gains.add_(later, alpha=self.surprise) if self.surprise else gains


SCORES: Registry[Callable[[float], TokenScore]] = Registry("score")
"""Each gives a score for a floor delta."""


@SCORES.register("differential")
def _differential(delta: float) -> TokenScore:
    return TokenScore("differential", _probabilities, _probabilities, least=0.0, bound=1.0)


@SCORES.register("relative")
def _relative(delta: float) -> TokenScore:
    # through the logs, so that an underflowing p gives a large number, not 0/0
    part = _log_probabilities
    return TokenScore("relative", part, part, least=-inf, bound=inf, relative=True)


@SCORES.register("smoothed")
def _smoothed(delta: float) -> TokenScore:
    part = partial(_floored, delta=delta)
    most, least = log(1 + delta), log(delta) - ROUNDING
    joint = partial(_smoothed_ratio, delta=delta, weight=0.0)
    return TokenScore("smoothed", part, part, least, bound=most - log(delta), joint=joint)


def token_score(name: str, *, delta: float = 0.1) -> TokenScore:
    r"""Registered score of a name.

    .. math::
        \mathrm{differential} = p' - p \qquad
        \mathrm{relative} = (p' - p) / p \qquad
        \mathrm{smoothed} = \log \frac{p' + \delta}{p + \delta}

    Args:
        name: "differential", "relative" or "smoothed".
        delta: the floor of the smoothed score, a probability; the others ignore it.

    Raises:
        ValueError: no score has this name, or delta is not positive.

    Example:
        >>> import torch
        >>> even, sure = torch.tensor([[0.5, 0.5]]).log(), torch.tensor([[1.0, 0.0]]).log()
        >>> token_score("differential").gain(even, sure)
        tensor([[ 0.5000, -0.5000]])
    """
    score = SCORES[name]
    _validate.positive(delta=delta)
    return score(delta)


def less_surprise(score: TokenScore, weight: float) -> TokenScore:
    """A score less `weight` times the surprise, -log p', that the later model still feels.

    A rise from nothing to one half is a large promotion, and a model that mixes two texts makes
    many of them in a row; one that knows a text by heart is hardly surprised by it.

    Raises:
        ValueError: the weight is negative.

    Example:
        >>> import torch
        >>> even, sure = torch.tensor([[0.5, 0.5]]).log(), torch.tensor([[0.75, 0.25]]).log()
        >>> less_surprise(token_score("differential"), 1.0).gain(even, sure)
        tensor([[-0.0377, -1.6363]])
    """
    _validate.at_least(0, weight=weight)

    if score.relative:  # its `later` is the logarithm of p' itself
        return replace(score, surprise=score.surprise + weight)

    def later(after: "Tensor") -> "Tensor":
        return score.later(after).add_(_log_probabilities(after), alpha=weight)

    # the same ratio, with the surprise
    joint = partial(score.joint, weight=weight) if score.joint is not None else None
    return replace(score, later=later, joint=joint) if weight else score


def _probabilities(logits: "Tensor") -> "Tensor":
    return logits.softmax(1)


def _log_probabilities(logits: "Tensor") -> "Tensor":
    return logits.log_softmax(1)


def _floored(logits: "Tensor", delta: float) -> "Tensor":
    return logits.softmax(1).add_(delta).log_()


def _smoothed_ratio(before: "Tensor", after: "Tensor", *, delta: float, weight: float) -> "Tensor":
    """log((p' + delta) / (p + delta)) + weight log p': a logarithm is dearer than all else here."""
    later = after.softmax(1)
    sure = later.amax(1, keepdim=True).log_()
    gains = later.add_(delta).div_(before.softmax(1).add_(delta)).log_()
    if weight:  # log p' = l' - (the largest l' - its log p')
        gains.add_(after, alpha=weight).sub_(weight * (after.amax(1, keepdim=True) - sure))
    return gains
