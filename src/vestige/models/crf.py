"""Linear-chain CRF: log-probabilities of tag sequences.

Lafferty, McCallum and Pereira (2001); as the output layer of a bi-LSTM: Ma and Hovy (2016),
arXiv:1603.01354, section 2.3. The score of a sequence is the sum of its emissions, its transitions
and of how it begins and ends; its probability is the softmax over all sequences.

The forward algorithm adds probabilities, not logarithms: a step is one matrix product with
exp(transitions), less the largest into each tag. Its gradient, the marginals, is written by hand
and costs one matrix product a step. Where transitions into a tag differ by more than `limit`, or
some are forbidden (-inf), the same recursion runs in log space, slower and as exact.
"""

from math import inf, log
from typing import Any

import torch
from torch import Tensor, nn
from torch.autograd.function import once_differentiable


class LinearChain(nn.Module):
    """The transitions of a linear-chain CRF over k tags, from a tag (row) to the next (column).

    -inf forbids a transition, a beginning or an end. All rows of a batch have one length t.

    Args:
        tags: k, the number of tags.
    """

    def __init__(self, tags: int) -> None:
        super().__init__()
        self.begin = nn.Parameter(torch.zeros(tags))
        self.end = nn.Parameter(torch.zeros(tags))
        self.transitions = nn.Parameter(torch.zeros(tags, tags))

    def loss(self, emissions: Tensor, tags: Tensor) -> Tensor:
        """Negative log-probabilities (b,) of tags (b, t), in nats; differentiable once.

        Args:
            emissions: (b, t, k) scores of each tag at each word.
            tags: int64 (b, t).

        Returns:
            infinity for forbidden tags, without a gradient.
        """
        with torch.autocast(emissions.device.type, enabled=False):
            emissions = emissions.to(self.transitions.dtype)
            own = self._scores(emissions, tags)
            forbidden = own.isneginf()
            # Less each word's own score, the sum is the loss and no difference of large numbers.
            rest = self.log_partition(emissions - own.masked_fill(forbidden, 0).unsqueeze(-1))
        return rest.clamp_min(0).masked_fill(forbidden.any(-1), inf)  # below 0 is rounding

    def score(self, emissions: Tensor, tags: Tensor) -> Tensor:
        """Scores (b,) of tags (b, t), before the softmax over all sequences."""
        return self._scores(emissions, tags).sum(-1)

    def log_partition(self, emissions: Tensor) -> Tensor:
        """(b,) logarithms of the summed exp(score) of all k^t sequences."""
        with torch.no_grad():
            top = self.transitions.amax(0)
            safe = bool((top - self.transitions.amin(0) <= limit(top.dtype)).all())
            weights = (self.transitions - top).exp_() if safe else None
        if weights is None:
            return self._in_log_space(emissions)
        given = (emissions, self.begin, self.transitions, self.end, weights, top)
        partition: Tensor = _LogPartition.apply(*given)  # type: ignore[no-untyped-call]
        return partition

    @torch.no_grad()
    def best(self, emissions: Tensor) -> Tensor:
        """int64 (b, t): the tags of the highest score (Viterbi); the first of equals."""
        best = self.begin + emissions[:, 0]
        came_from = []
        for step in range(1, emissions.shape[1]):
            scores, origin = (best.unsqueeze(2) + self.transitions).max(1)
            came_from.append(origin)
            best = scores + emissions[:, step]
        tags = [(best + self.end).argmax(1)]
        for origin in reversed(came_from):
            tags.append(origin.gather(1, tags[-1].unsqueeze(1)).squeeze(1))
        return torch.stack(tags[::-1], 1)

    def _scores(self, emissions: Tensor, tags: Tensor) -> Tensor:
        """Score per word, (b, t)."""
        moves = tags[:, :-1] * len(self.begin) + tags[:, 1:]
        moved = self.transitions.flatten().gather(0, moves.flatten()).view(moves.shape)
        before = torch.cat([self.begin.gather(0, tags[:, 0]).unsqueeze(1), moved], 1)
        last = self.end.gather(0, tags[:, -1]).unsqueeze(1)
        after = torch.cat([torch.zeros_like(moved), last], 1)
        return emissions.gather(2, tags.unsqueeze(2)).squeeze(2) + before + after

    def _in_log_space(self, emissions: Tensor) -> Tensor:
        alpha = self.begin + emissions[:, 0]
        for emitted in emissions.unbind(1)[1:]:
            alpha = _log_sum(alpha.unsqueeze(2) + self.transitions, 1) + emitted
        return _log_sum(alpha + self.end, 1)


def limit(dtype: torch.dtype) -> float:
    """Largest difference of transitions into a tag for the matrix product: 71 in float32.

    The best predecessor then weighs tiny / eps at least, beside which what underflows is below eps.
    """
    return log(torch.finfo(dtype).eps / torch.finfo(dtype).tiny)


def _log_sum(scores: Tensor, dim: int) -> Tensor:
    """`torch.logsumexp`, without a gradient where all that is summed is forbidden."""
    none = scores.isneginf().all(dim)
    return scores.masked_fill(none.unsqueeze(dim), 0).logsumexp(dim).masked_fill(none, -inf)


class _LogPartition(torch.autograd.Function):
    """(b,) from emissions (b, t, k) and the chain; `weights` is exp(transitions - top)."""

    @staticmethod
    def forward(
        ctx: Any,
        emissions: Tensor,
        begin: Tensor,
        transitions: Tensor,
        end: Tensor,
        weights: Tensor,
        top: Tensor,
    ) -> Tensor:
        alpha = begin + emissions[:, 0]
        shares, sums = [], []
        for emitted in (emissions[:, 1:] + top).unbind(1):
            most = alpha.amax(1, keepdim=True)
            shares.append((alpha - most).exp_())
            sums.append(shares[-1] @ weights)
            alpha = sums[-1].log().add_(most).add_(emitted)
        alpha = alpha + end
        partition = alpha.logsumexp(1)
        ctx.shares, ctx.sums = shares, sums
        ctx.save_for_backward(weights, (alpha - partition.unsqueeze(1)).exp_())
        return partition

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, ...]:
        weights, last = ctx.saved_tensors
        marginals, moves = [last * gradient.unsqueeze(1)], []
        for share, total in zip(reversed(ctx.shares), reversed(ctx.sums), strict=True):
            moves.append(marginals[-1] / total)
            marginals.append(share * (moves[-1] @ weights.T))
        found = torch.zeros_like(weights)
        if moves and ctx.needs_input_grad[2]:
            found = torch.cat(ctx.shares[::-1]).T @ torch.cat(moves) * weights
        ends = marginals[-1].sum(0), marginals[0].sum(0)
        return torch.stack(marginals[::-1], 1), ends[0], found, ends[1], None, None
