"""How likely is a sequence of tags, when each tag depends on the one before?

A linear-chain conditional random field (Lafferty, McCallum and Pereira 2001; as the output layer
of a bi-LSTM: Ma and Hovy 2016, "End-to-end Sequence Labeling via Bi-directional LSTM-CNNs-CRF",
arXiv:1603.01354, section 2.3): the score of a sequence is the sum of its emissions, of its
transitions and of how it begins and ends; its probability is the softmax over all sequences.

The forward algorithm adds probabilities and not logarithms: a step is one matrix product with
exp(transitions) instead of a logsumexp over (b, k, k). The best predecessor always stands in
the sum with a weight of exp(0), so that no logarithm of zero is taken while transitions are
above -80, which is where float32 ends. Its gradient is written by hand (the marginals, from the
last word to the first): a step back is one matrix product and two passes over (b, k).

A loss is never the difference of two large scores: each word's share of the asked tags' score is
taken from its emissions first, so that what is left is the loss.
"""

from typing import Any

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


def chain_loss(
    emissions: Tensor,
    tags: Tensor,
    begin: Tensor,
    transitions: Tensor,
    end: Tensor,
    *,
    weights: Tensor | None = None,
) -> Tensor:
    """Negative log-probabilities (..., b) of tags (..., b, t), in nats; differentiable once.

    Args:
        emissions: (..., b, t, k) scores of each tag at each word.
        tags: int64 (..., b, t).
        begin: (..., k) how sequences begin.
        transitions: (..., k, k) from a tag (row) to the next (column).
        end: (..., k) how sequences end.
        weights: exp(transitions), from whoever asks again and again and never changes them.
    """
    with torch.autocast(emissions.device.type, enabled=False):
        emissions = emissions.to(transitions.dtype)
        own = _scores(emissions, tags, begin, transitions, end)
        emissions = emissions - own.unsqueeze(-1)
        rest = log_partition(emissions, begin, transitions, end, weights=weights)
    return rest.clamp_min(0)  # the asked tags are one of all: what is below is rounding


def log_partition(
    emissions: Tensor,
    begin: Tensor,
    transitions: Tensor,
    end: Tensor,
    *,
    weights: Tensor | None = None,
) -> Tensor:
    """Logarithms (..., b) of the summed exp(score) of all sequences; see `chain_loss`."""
    weights = transitions.detach().exp() if weights is None else weights
    given = (emissions, begin, transitions, end, weights)
    partition: Tensor = _LogPartition.apply(*given)  # type: ignore[no-untyped-call]
    return partition


def _scores(
    emissions: Tensor, tags: Tensor, begin: Tensor, transitions: Tensor, end: Tensor
) -> Tensor:
    """What each word adds to the score of tags: (..., b, t)."""
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
    ) -> Tensor:
        alpha = begin.unsqueeze(-2) + emissions[..., 0, :]
        shares, sums = [], []
        for emitted in emissions.unbind(-2)[1:]:
            top = alpha.amax(-1, keepdim=True)
            share = (alpha - top).exp_()
            total = share @ weights
            alpha = total.log().add_(top).add_(emitted)
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
        by_begin, by_end = marginals[-1].sum(-2), marginals[0].sum(-2)
        return torch.stack(marginals[::-1], -2), by_begin, found, by_end, None
