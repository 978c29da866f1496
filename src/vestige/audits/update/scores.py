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

from dataclasses import dataclass
from math import inf, log
from typing import TYPE_CHECKING

from vestige import _validate

if TYPE_CHECKING:
    from torch import Tensor

NAMES = ("differential", "relative", "smoothed")
ROUNDING = 1e-6  # largest error of a float32 logarithm


@dataclass(frozen=True)
class TokenScore:
    """Score of a token: a term of the later model minus a term of the earlier one.

    Attributes:
        name: one of `NAMES`.
        delta: floor of the smoothed score, a probability.
        surprise: cost of each nat of the later model's surprise, -log p'. A model that mixes two
            texts promotes many tokens to one half; one that knows a text has little surprise.

    Example:
        >>> import torch
        >>> even, sure = torch.tensor([[0.5, 0.5]]).log(), torch.tensor([[1.0, 0.0]]).log()
        >>> TokenScore("differential").gains(even, sure)
        tensor([[ 0.5000, -0.5000]])
    """

    name: str
    delta: float = 0.1
    surprise: float = 0.0

    def __post_init__(self) -> None:
        _validate.one_of(NAMES, score=self.name)
        _validate.positive(delta=self.delta)
        _validate.at_least(0, surprise=self.surprise)

    @property
    def least(self) -> float:
        """Lower bound of the earlier model's term, so no gain exceeds `later - least`."""
        return {"differential": 0.0, "smoothed": log(self.delta) - ROUNDING}.get(self.name, -inf)

    @property
    def bound(self) -> float:
        """Upper bound of all gains."""
        smoothed = log(1 + self.delta) - log(self.delta)
        return {"differential": 1.0, "smoothed": smoothed}.get(self.name, inf)

    def earlier(self, logits: "Tensor") -> "Tensor":
        """(n, v) terms of the earlier model, in a new tensor."""
        if self.name == "relative":
            return logits.log_softmax(1)
        term = logits.softmax(1)
        return term.add_(self.delta).log_() if self.name == "smoothed" else term

    def later(self, logits: "Tensor") -> "Tensor":
        """(n, v) terms of the later model, in a new tensor."""
        term = self.earlier(logits)
        if self.surprise and self.name != "relative":
            term.add_(logits.log_softmax(1), alpha=self.surprise)
        return term

    def difference(self, later: "Tensor", earlier: "Tensor") -> "Tensor":
        """Gains from both terms; `later` may be overwritten."""
        if self.name != "relative":
            return later.sub_(earlier)
        # logarithms, so that an underflow of p gives a large number; if both models exclude a token
        # (-inf - -inf), its gain is 0
        gains = (later - earlier).expm1_().nan_to_num_(nan=0.0, posinf=inf, neginf=-1.0)
        return gains.add_(later, alpha=self.surprise) if self.surprise else gains

    def gains(self, before: "Tensor", after: "Tensor") -> "Tensor":
        """(n, v) logits of the earlier and the later model -> (n, v) gains."""
        if self.name != "smoothed":
            return self.difference(self.later(after), self.earlier(before))
        # one logarithm of the ratio instead of three: logarithms take most of the time here
        later = after.softmax(1)
        largest = later.amax(1, keepdim=True).log_()
        gains = later.add_(self.delta).div_(before.softmax(1).add_(self.delta)).log_()
        if self.surprise:  # log p' = logit - (largest logit - its log p')
            shift = after.amax(1, keepdim=True) - largest
            gains.add_(after, alpha=self.surprise).sub_(self.surprise * shift)
        return gains
