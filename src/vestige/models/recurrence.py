"""Parallel LSTM layers: as few operations a step as one layer.

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
    # One step reads little, so that operations and views are what it costs: all steps are cut into
    # views at once, and each writes into its place of what is kept.

    @staticmethod
    def forward(
        ctx: Any, inputs: Tensor, by_input: Tensor, bias: Tensor, by_state: Tensor, back: Tensor
    ) -> Tensor:
        n, t, k, _ = inputs.shape
        h = by_state.shape[1]
        given = torch.baddbmm(bias, inputs.flatten(1, 2), by_input).view(n, t, k, -1)
        gates = given.transpose(0, 1).contiguous()  # a step is one piece of memory
        hidden, cells, bounded = gates.new_empty(3, t, n, k, h).unbind()
        shares = gates[..., : 3 * h]
        parts = (gates, shares, *torch.split(gates, h, -1), hidden, cells, bounded)
        state = cell = None
        for gate, share, leave, enter, keep, new, out, kept, bound in zip(
            *(part.unbind() for part in parts), strict=True
        ):
            if state is not None:
                gate.baddbmm_(state, by_state)
            share.sigmoid_()
            torch.mul(enter, new.tanh_(), out=kept)
            if cell is not None:
                kept.addcmul_(keep, cell)
            torch.tanh(kept, out=bound)
            state, cell = torch.mul(leave, bound, out=out), kept
        ctx.save_for_backward(gates, cells, bounded, by_input, back)
        return hidden.transpose(0, 1)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, ...]:
        gates, cells, bounded, by_input, back = ctx.saved_tensors
        t, n, k, h = cells.shape
        leave, enter, keep, new = torch.split(gates, h, -1)
        earlier = torch.cat([torch.zeros_like(cells[:1]), cells[:-1]])
        # What the gradient by a cell, and that by a state, is multiplied by at each gate.
        by_cell = torch.stack(
            [new * enter * (1 - enter), earlier * keep * (1 - keep), enter * (1 - new * new)], -2
        )
        by_state, to_cell = bounded * leave * (1 - leave), leave * (1 - bounded * bounded)
        found = torch.empty_like(gates)
        three = found[..., h:].view(by_cell.shape)
        of_cells = torch.zeros_like(cells)
        given = (gradient.transpose(0, 1), keep, to_cell, by_cell, by_state)
        parts = (*given, found, three, found[..., :h], of_cells, of_cells.unsqueeze(-2))
        steps = zip(*(part.unbind() for part in parts), strict=True)
        passed = later = None
        for of_state, kept, to, by, by_leave, whole, inner, outer, of_cell, row in reversed(
            list(steps)
        ):
            if later is not None:
                of_state = torch.baddbmm(of_state, later, back)
            torch.mul(of_state, to, out=of_cell)
            if passed is not None:
                of_cell.addcmul_(*passed)
            torch.mul(row, by, out=inner)
            torch.mul(of_state, by_leave, out=outer)
            passed, later = (of_cell, kept), whole
        of_gates = found.transpose(0, 1).flatten(1, 2)
        of_input = torch.bmm(of_gates, by_input.transpose(1, 2))
        return of_input.view(n, t, k, -1), None, None, None, None
