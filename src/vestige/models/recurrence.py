"""Many LSTM layers that run in lock-step, and cost as few operations a step as one.

Hochreiter and Schmidhuber (1997), "Long Short-Term Memory", with forget gates (Gers, Schmidhuber
and Cummins 2000, "Learning to Forget"), as `torch.nn.LSTM` computes it. The gradient is written by
hand, for the input only: what each gate's derivative is made of is computed for all steps at once,
so that a step back is one batched matrix product and four products.
"""

from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable


class Cells(NamedTuple):
    """The weights of n LSTM layers; gates stand in the order output, input, forget, cell.

    Attributes:
        by_input: (n, d, 4h) from the input to the gates.
        bias: (n, 1, 4h).
        by_state: (n, h, 4h) from a state to the gates of the next step.
        back: (n, 4h, h) `by_state` transposed, in memory too: the way back reads it so.
    """

    by_input: Tensor
    bias: Tensor
    by_state: Tensor
    back: Tensor


def recur(inputs: Tensor, cells: Cells) -> Tensor:
    """Hidden states (n, t, k, h) of n layers that read k rows each from a state of zeros.

    Differentiable once, by the inputs (n, t, k, d) and not by the weights.
    """
    hidden: Tensor = _Recurrence.apply(inputs, *cells)  # type: ignore[no-untyped-call]
    return hidden


class _Recurrence(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any, inputs: Tensor, by_input: Tensor, bias: Tensor, by_state: Tensor, back: Tensor
    ) -> Tensor:
        n, t, k, _ = inputs.shape
        h = by_state.shape[1]
        given = torch.baddbmm(bias, inputs.flatten(1, 2), by_input).view(n, t, k, -1)
        steps: list[tuple[Tensor, ...]] = []
        for gates in given.unbind(1):
            if steps:
                gates = torch.baddbmm(gates, steps[-1][-1], by_state)
            gates[..., : 3 * h].sigmoid_()
            leave, enter, keep, new = torch.split(gates, h, -1)
            cell = enter * new.tanh_()
            if steps:
                cell.addcmul_(keep, steps[-1][1])
            bounded = cell.tanh()
            steps.append((gates, cell, bounded, leave * bounded))
        *kept, hidden = zip(*steps, strict=True)
        ctx.save_for_backward(*map(torch.stack, kept), by_input, back)
        return torch.stack(hidden, 1)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, ...]:
        gates, cells, bounded, by_input, back = ctx.saved_tensors
        h = back.shape[2]
        leave, enter, keep, new = torch.split(gates, h, -1)
        earlier = torch.cat([torch.zeros_like(cells[:1]), cells[:-1]])
        # What the gradient by a cell, and that by a state, is multiplied by at each gate.
        by_cell = torch.stack(
            [new * enter * (1 - enter), earlier * keep * (1 - keep), enter * (1 - new * new)], -2
        )
        by_state, to_cell = bounded * leave * (1 - leave), leave * (1 - bounded * bounded)
        found = torch.empty_like(gates)
        three = found[..., h:].view(by_cell.shape)
        parts = (keep, to_cell, by_cell, by_state, found, three, found[..., :h])
        steps = zip(gradient.unbind(1), *(part.unbind() for part in parts), strict=True)
        of_cell, later = torch.zeros_like(cells[0]), None
        for of_state, kept, to, by, by_leave, whole, inner, outer in reversed(list(steps)):
            of_state = of_state if later is None else torch.baddbmm(of_state, later, back)
            of_cell = torch.addcmul(of_cell, of_state, to)
            torch.mul(of_cell.unsqueeze(-2), by, out=inner)
            torch.mul(of_state, by_leave, out=outer)
            of_cell, later = of_cell * kept, whole
        of_gates = found.transpose(0, 1)
        of_input = torch.bmm(of_gates.flatten(1, 2), by_input.transpose(1, 2))
        return of_input.view(*of_gates.shape[:3], -1), None, None, None, None
