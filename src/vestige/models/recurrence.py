"""Many LSTM layers that run in lock-step, and cost as few operations a step as one.

Hochreiter and Schmidhuber (1997), "Long Short-Term Memory", with forget gates (Gers, Schmidhuber
and Cummins 2000, "Learning to Forget"), as `torch.nn.LSTM` computes it. The gradient is written by
hand, for the input only: what each gate's derivative is made of is computed for all steps at once,
so that a step back is one batched matrix product and four products.
"""

from collections.abc import Iterable
from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable


def recur(inputs: Tensor, weights: Tensor, back: Tensor) -> Tensor:
    """Hidden states (t, n, k, h) of n LSTM layers that read k rows each from a state of zeros.

    Differentiable once, by the inputs and not by the weights.

    Args:
        inputs: (t, n, k, 4h) what each step gives to the gates, biases included; the gates stand
            in the order output, input, forget, cell.
        weights: (n, h, 4h) from a state to the gates of the next step.
        back: (n, 4h, h) the same transposed, in memory too: the way back reads it so.
    """
    hidden: Tensor = _Recurrence.apply(inputs, weights, back)  # type: ignore[no-untyped-call]
    return hidden


class _Recurrence(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, inputs: Tensor, weights: Tensor, back: Tensor) -> Tensor:
        h = weights.shape[1]
        gates = inputs.clone()
        cells, bounded, hidden = (gates.new_empty(*gates.shape[:3], h) for _ in range(3))
        parts = (gates, gates[..., : 3 * h], *_by_gate(gates, h), cells, bounded, hidden)
        state = cell = None
        for gate, opening, leave, enter, keep, new, now, bound, out in _steps(*parts):
            if state is not None:
                gate.baddbmm_(state, weights)
            opening.sigmoid_()
            new.tanh_()
            torch.mul(enter, new, out=now)
            if cell is not None:
                now.addcmul_(keep, cell)
            torch.tanh(now, out=bound)
            state, cell = torch.mul(leave, bound, out=out), now
        ctx.save_for_backward(gates, cells, bounded, back)
        return hidden

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, None, None]:
        gates, cells, bounded, back = ctx.saved_tensors
        h = back.shape[2]
        leave, enter, keep, new = _by_gate(gates, h)
        earlier = torch.cat([torch.zeros_like(cells[:1]), cells[:-1]])
        # What the gradient by a cell, and that by a state, is multiplied by at each gate.
        by_cell = torch.stack(
            [new * enter * (1 - enter), earlier * keep * (1 - keep), enter * (1 - new * new)], -2
        )
        by_state, to_cell = bounded * leave * (1 - leave), leave * (1 - bounded * bounded)
        found = torch.empty_like(gates)
        three = found[..., h:].view(by_cell.shape)
        parts = (gradient, keep, to_cell, by_cell, by_state, found, three, found[..., :h])
        of_cell, later = torch.zeros_like(cells[0]), None
        for of_state, kept, to, by, by_leave, whole, inner, outer in reversed(list(_steps(*parts))):
            of_state = of_state if later is None else torch.baddbmm(of_state, later, back)
            of_cell = torch.addcmul(of_cell, of_state, to)
            torch.mul(of_cell.unsqueeze(-2), by, out=inner)
            torch.mul(of_state, by_leave, out=outer)
            of_cell, later = of_cell * kept, whole
        return found, None, None


def _by_gate(gates: Tensor, h: int) -> tuple[Tensor, ...]:
    return torch.split(gates, h, -1)


def _steps(*parts: Tensor) -> Iterable[tuple[Tensor, ...]]:
    """The parts of each step, all taken apart at once: a view costs as much as a small product."""
    return zip(*(part.unbind() for part in parts), strict=True)
