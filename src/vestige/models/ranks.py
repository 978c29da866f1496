"""Ranks of true tokens among the logits of a linear head, counted block by block.

The product is made in blocks that stay in the processor's cache while they are compared. The last
bit of a product may depend on its shape, and a tie on the last bit. The true logit is therefore
estimated first, then looked up in its block, and the rows are counted again where the two differ:
all numbers that are compared come from one product.
"""

from typing import Any

import torch
from torch import Tensor, nn

from vestige.errors import ModelError

ROWS, COLUMNS = 1024, 512
"""A block of logits whose ranks are counted in the processor's cache: 2 MiB."""

TILE = 16
"""Products of rows and columns in such steps agree to the last bit on the CPUs that we know."""

PASSES = 4


class LinearRanks:
    """Counts ranks among the logits of a linear head, which must not change meanwhile.

    Args:
        head: h -> v, finite, float32, on the CPU.
        log_probs: give log-probabilities too.
    """

    def __init__(self, head: nn.Linear, *, log_probs: bool = False) -> None:
        self._weight, self._log_probs = head.weight.detach(), log_probs
        bias = self._weight.new_zeros(len(self._weight)) if head.bias is None else head.bias
        self._bias = bias.detach()
        self._memory = self._weight.new_empty(ROWS * COLUMNS)

    @classmethod
    def of(cls, model: Any, *, log_probs: bool = False) -> "LinearRanks | None":
        """None for a model whose head is more than a finite float32 product on the CPU."""
        head = getattr(model, "head", None) if getattr(model, "separate_head", False) else None
        # A subclass, such as an adapter's, may do more than a product.
        plain = type(head) is nn.Linear and head.weight.dtype == torch.float32
        if head is None or not plain or head.weight.device.type != "cpu":
            return None
        parts = [head.weight] if head.bias is None else [head.weight, head.bias]
        finite = all(torch.stack(part.detach().aminmax()).isfinite().all() for part in parts)
        return cls(head, log_probs=log_probs) if finite else None

    @torch.no_grad()
    def __call__(self, hidden: Tensor, targets: Tensor) -> dict[str, Tensor]:
        """Columns `ranks` (m,) int32, and `log_probs` if wanted, from hidden vectors (m, h)."""
        blocks = [slice(first, first + ROWS) for first in range(0, len(targets), ROWS)]
        counted = [self._count(hidden[block], targets[block]) for block in blocks]
        return {name: torch.cat([one[name] for one in counted]) for name in counted[0]}

    def _count(self, hidden: Tensor, targets: Tensor) -> dict[str, Tensor]:
        m = len(targets)
        if m % TILE:  # the last row again
            padding = torch.arange(-(-m // TILE) * TILE).clamp(max=m - 1)
            hidden, targets = hidden[padding], targets[padding]
        own = self._estimate(hidden, targets)
        for _ in range(PASSES):
            ranks, met, total = self._pass(hidden, targets[:, None], own)
            if not bool(met.isfinite().all()):
                raise not_finite()
            if torch.equal(met, own):
                found = {"ranks": ranks[:m].int()}
                return found | ({} if total is None else {"log_probs": (met[:, 0] - total)[:m]})
            own = met
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
        self, hidden: Tensor, targets: Tensor, own: Tensor
    ) -> tuple[Tensor, Tensor, Tensor | None]:
        """Ranks (m,), true logits met (m, 1), and the log of the sum of all exp(logit) (m,)."""
        below = own.nextafter(own.new_tensor(-torch.inf))  # z > below is z >= own
        ranks, met = torch.ones(len(own)), own.clone()
        total = torch.full((len(own),), -torch.inf) if self._log_probs else None
        block_of = targets // COLUMNS
        for number, start in enumerate(range(0, len(self._weight), COLUMNS)):
            logits = self._block(hidden, start)
            if total is not None:
                total = torch.logaddexp(total, logits.logsumexp(1))
            here = (block_of == number).nonzero()[:, 0]
            if len(here):
                near, mine = logits[here], targets[here] - start
                met[here] = near.gather(1, mine)
                ranks[here] += _equal_before(near, own[here], mine)
            # Equal logits count where their ids are smaller.
            least = torch.where(block_of > number, below, own)
            ranks += torch.gt(logits, least, out=logits).sum(1)
        return ranks, met, total

    def _block(self, hidden: Tensor, start: int) -> Tensor:
        """Logits (m, c) of some tokens, in memory that the next block uses again."""
        weight, bias = self._weight[start : start + COLUMNS], self._bias[start : start + COLUMNS]
        out = self._memory[: len(hidden) * len(weight)].view(len(hidden), len(weight))
        return torch.addmm(bias, hidden, weight.t(), out=out)


def _equal_before(logits: Tensor, own: Tensor, ids: Tensor) -> Tensor | float:
    """(m,) logits (m, c) that equal the true one (m, 1) and have smaller ids than (m, 1)."""
    equal = torch.eq(logits, own, out=logits)  # sums of float32 are faster than of bool
    if float(equal.sum(1).amax()) <= 1:
        return 0.0  # only the token itself
    return (equal * (torch.arange(logits.shape[1]) < ids)).sum(1)


def not_finite() -> ModelError:
    return ModelError(
        "the model's logits are not finite",
        remedy="Train the model again, or pass an undamaged file.",
    )
