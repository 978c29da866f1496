r"""How much an update promoted one token. The score of a phrase is the sum over its tokens.

.. math::
    \mathrm{differential} = p' - p \qquad
    \mathrm{relative} = (p' - p) / p \qquad
    \mathrm{smoothed} = \log \frac{p' + \delta}{p + \delta}

The first two are Definition 1 of Zanella-Béguelin et al. (2020), "Analyzing Information Leakage of
Updates to Natural Language Models", arXiv:1912.07942. Differs from the paper: the smoothed
log-ratio is ours. On subword models the differential score saturates at 1 per token, and vanishing
denominators drive the relative one. With the floor delta a token must become probable to count, and
a rise from nothing counts more than a rise from half.

The module does not import torch, so that the command line can name the scores quickly.
"""

from abc import ABC, abstractmethod
from dataclasses import dataclass
from math import inf, log
from typing import TYPE_CHECKING

from vestige import _validate
from vestige.registry import Registry

if TYPE_CHECKING:
    from torch import Tensor

ROUNDING = 1e-6
"""Error of a float32 logarithm, at most."""


@dataclass(frozen=True, kw_only=True)
class TokenScore(ABC):
    """Score of a token: a part of the later model less a part of the earlier one.

    Attributes:
        delta: floor of the smoothed score, a probability.
        surprise: subtracted per nat of the later model's surprise, -log p'. A model that mixes two
            texts promotes many tokens to one half; one that knows a text is hardly surprised.
    """

    delta: float = 0.1
    surprise: float = 0.0

    def __post_init__(self) -> None:
        _validate.positive(delta=self.delta)
        _validate.at_least(0, surprise=self.surprise)

    @property
    def name(self) -> str:
        """As it is registered."""
        return type(self).__name__.lower()

    @property
    def least(self) -> float:
        """The earlier model's part is at least this, so no gain exceeds `later - least`."""
        return -inf

    @property
    def bound(self) -> float:
        """No gain exceeds this."""
        return inf

    @abstractmethod
    def later(self, logits: "Tensor") -> "Tensor":
        """(n, v) part of the later model, as a new tensor."""

    @abstractmethod
    def earlier(self, logits: "Tensor") -> "Tensor":
        """(n, v) part of the earlier model."""

    def difference(self, later: "Tensor", earlier: "Tensor") -> "Tensor":
        """Gains from both parts; `later` may be overwritten."""
        return later.sub_(earlier)

    def gains(self, before: "Tensor", after: "Tensor") -> "Tensor":
        """(n, v) logits of the earlier and the later model -> (n, v) gains."""
        return self.difference(self.later(after), self.earlier(before))

    def _less_surprise(self, part: "Tensor", logits: "Tensor") -> "Tensor":
        return part.add_(logits.log_softmax(1), alpha=self.surprise) if self.surprise else part


SCORES: Registry[type[TokenScore]] = Registry("score")


@SCORES.register("differential")
class Differential(TokenScore):
    """p' - p."""

    least, bound = 0.0, 1.0

    def later(self, logits: "Tensor") -> "Tensor":
        return self._less_surprise(logits.softmax(1), logits)

    def earlier(self, logits: "Tensor") -> "Tensor":
        return logits.softmax(1)


@SCORES.register("relative")
class Relative(TokenScore):
    """(p' - p) / p, from the logarithms, so that an underflow of p gives a large number."""

    def later(self, logits: "Tensor") -> "Tensor":
        return logits.log_softmax(1)

    earlier = later

    def difference(self, later: "Tensor", earlier: "Tensor") -> "Tensor":
        # a token that both models exclude (-inf - -inf) has not changed
        gains = (later - earlier).expm1_().nan_to_num_(nan=0.0, posinf=inf, neginf=-1.0)
        return gains.add_(later, alpha=self.surprise) if self.surprise else gains


@SCORES.register("smoothed")
class Smoothed(TokenScore):
    """log((p' + delta) / (p + delta))."""

    @property
    def least(self) -> float:
        return log(self.delta) - ROUNDING

    @property
    def bound(self) -> float:
        return log(1 + self.delta) - log(self.delta)

    def later(self, logits: "Tensor") -> "Tensor":
        return self._less_surprise(self.earlier(logits), logits)

    def earlier(self, logits: "Tensor") -> "Tensor":
        return logits.softmax(1).add_(self.delta).log_()

    def gains(self, before: "Tensor", after: "Tensor") -> "Tensor":
        """One logarithm of the ratio in place of three: it costs more than all else here."""
        later = after.softmax(1)
        largest = later.amax(1, keepdim=True).log_()
        gains = later.add_(self.delta).div_(before.softmax(1).add_(self.delta)).log_()
        if self.surprise:  # log p' = logit - (largest logit - its log p')
            shift = after.amax(1, keepdim=True) - largest
            gains.add_(after, alpha=self.surprise).sub_(self.surprise * shift)
        return gains


def token_score(name: str, *, delta: float = 0.1) -> TokenScore:
    """Registered score of a name.

    Raises:
        ValueError: no score has this name, or delta is not positive.

    Example:
        >>> import torch
        >>> even, sure = torch.tensor([[0.5, 0.5]]).log(), torch.tensor([[1.0, 0.0]]).log()
        >>> token_score("differential").gains(even, sure)
        tensor([[ 0.5000, -0.5000]])
    """
    return SCORES[name](delta=delta)
