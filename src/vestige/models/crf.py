"""Linear-chain CRF: log-probabilities of tag sequences.

A linear-chain conditional random field (Lafferty, McCallum and Pereira 2001; as the output layer
of a bi-LSTM: Ma and Hovy 2016, "End-to-end Sequence Labeling via Bi-directional LSTM-CNNs-CRF",
arXiv:1603.01354, section 2.3): the score of a sequence is the sum of its emissions, of its
transitions and of how it begins and ends; its probability is the softmax over all sequences.

The forward algorithm adds probabilities and not logarithms: a step is one matrix product with
exp(transitions), less the largest into each tag, instead of a logsumexp over (b, k, k). Its
gradient is written by hand (the marginals, from the last word to the first): a step back is one
matrix product and two passes over (b, k). What the product may lose to underflow is less than
rounding while the transitions into a tag differ by no more than `limit` says; where they differ by
more, or where some are forbidden (-inf), the same recursion runs in log space, slower and as exact.

A loss is never the difference of two large scores: each word's share of the asked tags' score is
taken from its emissions first, so that what is left is the loss.
"""

from math import inf, log
from typing import Any, NamedTuple, Self

import torch
from torch import Tensor, nn
from torch.autograd.function import once_differentiable


class LinearChain(nn.Module):
    """The transitions of a linear-chain CRF over k tags.

    Rows that are asked together have one length t, so that nothing has to be masked.

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
        """
        return chain_loss(emissions, tags, self.begin, self.transitions, self.end)

    def score(self, emissions: Tensor, tags: Tensor) -> Tensor:
        """Scores (b,) of tags (b, t), before the softmax over all sequences."""
        return _scores(emissions, tags, self.begin, self.transitions, self.end).sum(-1)

    def log_partition(self, emissions: Tensor) -> Tensor:
        """(b,) logarithms of the summed exp(score) of all k^t sequences."""
        return log_partition(emissions, self.begin, self.transitions, self.end)

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


def limit(dtype: torch.dtype) -> float:
    """Largest difference of transitions into a tag for a product form: 71 in float32.

    The best predecessor then weighs tiny / eps at least, beside which what underflows is below eps.
    """
    return log(torch.finfo(dtype).eps / torch.finfo(dtype).tiny)


class TransitionFactors(NamedTuple):
    """Transition factors of the forward algorithm.

    Attributes:
        weights: (..., k, k) exp(transitions - top); None where a product would lose too much.
        top: (..., 1, k) the largest transition into each tag.
    """

    weights: Tensor | None
    top: Tensor

    @classmethod
    @torch.no_grad()
    def of(cls, transitions: Tensor) -> Self:
        """Factors of transitions (..., k, k)."""
        top = transitions.amax(-2, keepdim=True)
        spread = top - transitions.amin(-2, keepdim=True)
        safe = bool((spread <= limit(transitions.dtype)).all())
        return cls((transitions - top).exp_() if safe else None, top)


def chain_loss(
    emissions: Tensor,
    tags: Tensor,
    begin: Tensor,
    transitions: Tensor,
    end: Tensor,
    *,
    moves: TransitionFactors | None = None,
) -> Tensor:
    """Negative log-probabilities (..., b) of tags (..., b, t), in nats; differentiable once.

    Args:
        emissions: (..., b, t, k) scores of each tag at each word.
        tags: int64 (..., b, t).
        begin: (..., k) how sequences begin; -inf for a tag that none begins with.
        transitions: (..., k, k) from a tag (row) to the next (column); -inf for a forbidden one.
        end: (..., k) how sequences end; -inf likewise.
        moves: of the transitions, from whoever asks again and again and never changes them.

    Returns:
        infinity for forbidden tags, without a gradient.
    """
    with torch.autocast(emissions.device.type, enabled=False):
        emissions = emissions.to(transitions.dtype)
        own = _scores(emissions, tags, begin, transitions, end)
        forbidden = own.isneginf()
        emissions = emissions - own.masked_fill(forbidden, 0).unsqueeze(-1)
        rest = log_partition(emissions, begin, transitions, end, moves=moves)
    rest = rest.clamp_min(0)  # the asked tags are one of all: what is below is rounding
    return rest.masked_fill(forbidden.any(-1), inf)


def log_partition(
    emissions: Tensor,
    begin: Tensor,
    transitions: Tensor,
    end: Tensor,
    *,
    moves: TransitionFactors | None = None,
) -> Tensor:
    """Logarithms (..., b) of the summed exp(score) of all sequences; see `chain_loss`."""
    weights, top = TransitionFactors.of(transitions) if moves is None else moves
    if weights is None:
        return _in_log_space(emissions, begin, transitions, end)
    given = (emissions, begin, transitions, end, weights, top)
    partition: Tensor = _LogPartition.apply(*given)  # type: ignore[no-untyped-call]
    return partition


def _in_log_space(emissions: Tensor, begin: Tensor, transitions: Tensor, end: Tensor) -> Tensor:
    """Forward algorithm in log space."""
    alpha = begin.unsqueeze(-2) + emissions[..., 0, :]
    for emitted in emissions.unbind(-2)[1:]:
        alpha = _log_sum(alpha.unsqueeze(-1) + transitions.unsqueeze(-3), -2) + emitted
    return _log_sum(alpha + end.unsqueeze(-2), -1)


def _log_sum(scores: Tensor, dim: int) -> Tensor:
    """`torch.logsumexp`, without a gradient where all that is summed is forbidden."""
    none = scores.isneginf().all(dim)
    return scores.masked_fill(none.unsqueeze(dim), 0).logsumexp(dim).masked_fill(none, -inf)


def _scores(
    emissions: Tensor, tags: Tensor, begin: Tensor, transitions: Tensor, end: Tensor
) -> Tensor:
    """Score per word: (..., b, t)."""
    first, last = tags[..., 0], tags[..., -1]
    moves = tags[..., :-1] * transitions.shape[-1] + tags[..., 1:]
    moved = transitions.flatten(-2).gather(-1, moves.flatten(-2)).view(moves.shape)
    before = torch.cat([begin.gather(-1, first).unsqueeze(-1), moved], -1)
    after = torch.cat([torch.zeros_like(moved), end.gather(-1, last).unsqueeze(-1)], -1)
    return emissions.gather(-1, tags.unsqueeze(-1)).squeeze(-1) + before + after


class _LogPartition(torch.autograd.Function):
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
        alpha = begin.unsqueeze(-2) + emissions[..., 0, :]
        shares, sums = [], []
        for emitted in (emissions[..., 1:, :] + top.unsqueeze(-2)).unbind(-2):
            most = alpha.amax(-1, keepdim=True)
            share = (alpha - most).exp_()
            total = share @ weights
            alpha = total.log().add_(most).add_(emitted)
            shares.append(share)
            sums.append(total)
        alpha = alpha + end.unsqueeze(-2)
        partition = alpha.logsumexp(-1)
        ctx.shares, ctx.sums = shares, sums
        ctx.save_for_backward(weights, (alpha - partition.unsqueeze(-1)).exp_())
        return partition

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, ...]:
        weights, last = ctx.saved_tensors
        marginals = [last * gradient.unsqueeze(-1)]
        moves, back = [], weights.transpose(-1, -2)
        for share, total in zip(reversed(ctx.shares), reversed(ctx.sums), strict=True):
            moves.append(marginals[-1] / total)
            marginals.append(share * (moves[-1] @ back))
        found = torch.zeros_like(weights) if ctx.needs_input_grad[2] else None
        if moves and found is not None:
            shares = torch.cat(ctx.shares[::-1], -2).transpose(-1, -2)
            found = shares @ torch.cat(moves, -2) * weights
        asked = zip((marginals[-1], marginals[0]), ctx.needs_input_grad[1:4:2], strict=True)
        by_begin, by_end = (one.sum(-2) if needed else None for one, needed in asked)
        return torch.stack(marginals[::-1], -2), by_begin, found, by_end, None, None
