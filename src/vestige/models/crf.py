"""Linear-chain CRF: log-probabilities of tag sequences.

Lafferty, McCallum and Pereira (2001); as the output layer of a bi-LSTM: Ma and Hovy (2016),
arXiv:1603.01354, section 2.3. The score of a sequence is the sum of its emissions, its transitions
and its first and last tags' scores; its probability is the softmax over all sequences.

The forward algorithm adds probabilities, not logarithms: each step is one matrix product with
exp(transitions), scaled by the largest transition into each tag. The gradient, the marginals, is
explicit and also costs one matrix product per step. If transitions into a tag differ by more than
`limit`, or some are forbidden (-inf), the same recursion runs in log space, slower and as exact.
"""

from math import inf, log
from typing import Any

import torch
from torch import Tensor, nn
from torch.autograd.function import once_differentiable


class LinearChain(nn.Module):
    """The transitions of a linear-chain CRF over k tags, from a tag (row) to the next (column).

    -inf forbids a transition or a first or last tag. All rows of a batch have one length t.

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
            word_scores = self._word_scores(emissions, tags)
            forbidden = word_scores.isneginf()
            # Subtracted per word: the loss is then a sum, not a difference of large numbers.
            losses = self.log_partition(
                emissions - word_scores.masked_fill(forbidden, 0).unsqueeze(-1)
            )
        return losses.clamp_min(0).masked_fill(forbidden.any(-1), inf)  # below 0 is rounding

    def score(self, emissions: Tensor, tags: Tensor) -> Tensor:
        """Scores (b,) of tags (b, t), before the softmax over all sequences."""
        return self._word_scores(emissions, tags).sum(-1)

    def log_partition(self, emissions: Tensor) -> Tensor:
        """(b,) logarithms of the summed exp(score) of all k^t sequences."""
        with torch.no_grad():
            top = self.transitions.amax(0)
            safe = bool((top - self.transitions.amin(0) <= limit(top.dtype)).all())
            weights = (self.transitions - top).exp_() if safe else None
        if weights is None:
            return self._in_log_space(emissions)
        partition: Tensor = _LogPartition.apply(  # type: ignore[no-untyped-call]
            emissions, self.begin, self.transitions, self.end, weights, top
        )
        return partition

    @torch.no_grad()
    def best(self, emissions: Tensor) -> Tensor:
        """int64 (b, t): the tags of the highest score (Viterbi); the first of equal ones."""
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

    def _word_scores(self, emissions: Tensor, tags: Tensor) -> Tensor:
        """Score per word, (b, t)."""
        pairs = tags[:, :-1] * len(self.begin) + tags[:, 1:]
        transition_scores = self.transitions.flatten().gather(0, pairs.flatten()).view(pairs.shape)
        before = torch.cat([self.begin.gather(0, tags[:, 0]).unsqueeze(1), transition_scores], 1)
        last = self.end.gather(0, tags[:, -1]).unsqueeze(1)
        after = torch.cat([torch.zeros_like(transition_scores), last], 1)
        return emissions.gather(2, tags.unsqueeze(2)).squeeze(2) + before + after

    def _in_log_space(self, emissions: Tensor) -> Tensor:
        alpha = self.begin + emissions[:, 0]
        for emitted in emissions.unbind(1)[1:]:
            alpha = _log_sum(alpha.unsqueeze(2) + self.transitions, 1) + emitted
        return _log_sum(alpha + self.end, 1)


def limit(dtype: torch.dtype) -> float:
    """Largest difference of transitions into a tag for the matrix product: 71 in float32.

    Then the best predecessor weighs at least tiny / eps; underflowing values are below eps of it.
    """
    return log(torch.finfo(dtype).eps / torch.finfo(dtype).tiny)


def _log_sum(scores: Tensor, dim: int) -> Tensor:
    """`torch.logsumexp`, without a gradient where every summand is forbidden."""
    all_forbidden = scores.isneginf().all(dim)
    return (
        scores.masked_fill(all_forbidden.unsqueeze(dim), 0)
        .logsumexp(dim)
        .masked_fill(all_forbidden, -inf)
    )


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
            scale = alpha.amax(1, keepdim=True)
            shares.append((alpha - scale).exp_())
            sums.append(shares[-1] @ weights)
            alpha = sums[-1].log().add_(scale).add_(emitted)
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
        transition_gradient = torch.zeros_like(weights)
        if moves and ctx.needs_input_grad[2]:
            transition_gradient = torch.cat(ctx.shares[::-1]).T @ torch.cat(moves) * weights
        ends = marginals[-1].sum(0), marginals[0].sum(0)
        return torch.stack(marginals[::-1], 1), ends[0], transition_gradient, ends[1], None, None
