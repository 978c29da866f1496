"""Ranks of true tokens among the logits of a linear head, counted block by block.

Each block of the product stays in the processor's cache while it is compared. The last bit of a
product may depend on its shape, and the last bit can decide a tie. So the true logit is estimated
first and then looked up in its block. Where the two differ, the rows are counted again with the
value from the block: all compared numbers come from one product.
"""

from typing import Any

import torch
from torch import Tensor, nn

from vestige.errors import ModelError

ROWS, COLUMNS = 1024, 512
"""A block of logits whose ranks are counted in the processor's cache: 2 MiB."""

TILE = 16
"""On the CPUs tested, products of sizes in such steps agree to the last bit."""

PASSES = 4
"""Most counts of the same rows."""


class LinearRanks:
    """Counts ranks among the logits of a linear head, which must not change meanwhile.

    Args:
        head: h -> v, finite, float32, on the CPU.
        log_probs: compute log-probabilities as well.
    """

    def __init__(self, head: nn.Linear, *, log_probs: bool = False) -> None:
        self._weight, self._log_probs = head.weight.detach(), log_probs
        bias = self._weight.new_zeros(len(self._weight)) if head.bias is None else head.bias
        self._bias = bias.detach()
        self._memory = self._weight.new_empty(ROWS * COLUMNS)

    @classmethod
    def of(cls, model: Any, *, log_probs: bool = False) -> "LinearRanks | None":
        """None for a model whose head is not a finite float32 product on the CPU."""
        head = getattr(model, "head", None) if getattr(model, "separate_head", False) else None
        # A subclass, such as an adapter's, may compute more than a product.
        is_linear = type(head) is nn.Linear and head.weight.dtype == torch.float32
        if head is None or not is_linear or head.weight.device.type != "cpu":
            return None
        tensors = [head.weight] if head.bias is None else [head.weight, head.bias]
        finite = all(torch.stack(tensor.detach().aminmax()).isfinite().all() for tensor in tensors)
        return cls(head, log_probs=log_probs) if finite else None

    @torch.no_grad()
    def __call__(self, hidden: Tensor, targets: Tensor) -> dict[str, Tensor]:
        """Columns `ranks` (m,) int32 and, if wanted, `log_probs`, from hidden vectors (m, h)."""
        blocks = [slice(first, first + ROWS) for first in range(0, len(targets), ROWS)]
        parts = [self._count(hidden[block], targets[block]) for block in blocks]
        return {name: torch.cat([part[name] for part in parts]) for name in parts[0]}

    def _count(self, hidden: Tensor, targets: Tensor) -> dict[str, Tensor]:
        m = len(targets)
        if m % TILE:  # repeat the last row
            padding = torch.arange(-(-m // TILE) * TILE).clamp(max=m - 1)
            hidden, targets = hidden[padding], targets[padding]
        expected = self._estimate(hidden, targets)
        for _ in range(PASSES):
            ranks, true_logits, log_sums = self._pass(hidden, targets[:, None], expected)
            if not bool(true_logits.isfinite().all()):
                raise not_finite_error()
            if torch.equal(true_logits, expected):
                columns = {"ranks": ranks[:m].int()}
                if log_sums is not None:
                    columns["log_probs"] = (true_logits[:, 0] - log_sums)[:m]
                return columns
            expected = true_logits
        raise ModelError(
            "the device computes another product each time",
            remedy="Pass --device cpu.",
        )

    def _estimate(self, hidden: Tensor, targets: Tensor) -> Tensor:
        """(m, 1) true logits: the diagonals of small square products."""
        shape = (-1, TILE, hidden.shape[1])
        weight, bias = self._weight[targets].view(shape), self._bias[targets].view(-1, 1, TILE)
        squares = torch.baddbmm(bias, hidden.view(shape), weight.transpose(1, 2))
        return squares.diagonal(dim1=1, dim2=2).reshape(-1, 1)

    def _pass(
        self, hidden: Tensor, targets: Tensor, expected: Tensor
    ) -> tuple[Tensor, Tensor, Tensor | None]:
        """Ranks (m,), true logits (m, 1) in the blocks, and log-sum-exp of all logits (m,)."""
        below = expected.nextafter(expected.new_tensor(-torch.inf))  # z > below means z >= expected
        ranks, true_logits = torch.ones(len(expected)), expected.clone()
        log_sums = torch.full((len(expected),), -torch.inf) if self._log_probs else None
        block_of = targets // COLUMNS
        for number, start in enumerate(range(0, len(self._weight), COLUMNS)):
            logits = self._block_logits(hidden, start)
            if log_sums is not None:
                log_sums = torch.logaddexp(log_sums, logits.logsumexp(1))
            rows = (block_of == number).nonzero()[:, 0]
            if len(rows):
                block, columns = logits[rows], targets[rows] - start
                true_logits[rows] = block.gather(1, columns)
                ranks[rows] += _smaller_ties(block, expected[rows], columns)
            # Equal logits count only if their ids are smaller.
            threshold = torch.where(block_of > number, below, expected)
            ranks += torch.gt(logits, threshold, out=logits).sum(1)
        return ranks, true_logits, log_sums

    def _block_logits(self, hidden: Tensor, start: int) -> Tensor:
        """Logits (m, c) of c tokens, in memory that the next block reuses."""
        weight, bias = self._weight[start : start + COLUMNS], self._bias[start : start + COLUMNS]
        out = self._memory[: len(hidden) * len(weight)].view(len(hidden), len(weight))
        return torch.addmm(bias, hidden, weight.t(), out=out)


def _smaller_ties(logits: Tensor, true_logits: Tensor, ids: Tensor) -> Tensor | float:
    """(m,) logits (m, c) that equal the true one (m, 1) and have smaller ids than (m, 1)."""
    equal = torch.eq(logits, true_logits, out=logits)  # sums of float32 are faster than of bool
    if float(equal.sum(1).amax()) <= 1:
        return 0.0  # only the token itself
    return (equal * (torch.arange(logits.shape[1]) < ids)).sum(1)


def not_finite_error() -> ModelError:
    return ModelError(
        "the model's logits are not finite",
        remedy="Train the model again, or pass an undamaged file.",
    )
