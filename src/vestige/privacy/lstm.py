"""An LSTM whose backward pass delivers the gradients of its gates.

The kernels of torch sum the gradient of a weight over the batch. Each layer is two linear maps, of
its input and of its previous hidden state, whose outputs have one gradient: that of the gates
before their sigmoids. Per-unit gradients follow from these factors (`unit_gradients`).
"""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional

from vestige.privacy.unit_gradients import UnitGradients, linear

_NAMES = ("weight_ih", "weight_hh", "bias_ih", "bias_hh")


def is_known(layer: nn.Module) -> bool:
    """Whether `forward` computes what a layer does."""
    usual = isinstance(layer, nn.LSTM) and layer.batch_first and layer.bias
    return usual and not layer.bidirectional and not layer.proj_size


def forward(module: nn.LSTM, gradients: UnitGradients, inputs: Tensor) -> tuple[Tensor, Any]:
    """`nn.LSTM.forward` from a state of zeros, of inputs (b, t, d)."""
    hidden, last_states = inputs.float() if inputs.dtype.itemsize < 4 else inputs, []
    with torch.autocast(inputs.device.type, enabled=False):
        hidden = hidden.transpose(0, 1)
        for layer in range(module.num_layers):
            if layer and module.dropout:
                dropped = functional.dropout(
                    hidden.transpose(0, 1), module.dropout, module.training
                )
                hidden = dropped.transpose(0, 1)
            parameters = [getattr(module, f"{name}_l{layer}") for name in _NAMES]
            anchor = next((parameter for parameter in parameters if parameter.requires_grad), None)
            w_ih, w_hh, b_ih, b_hh = (parameter.detach() for parameter in parameters)
            deliver = _delivery(gradients, parameters)
            hidden, cell = _Layer.apply(hidden, w_ih, w_hh, b_ih + b_hh, anchor, deliver)  # type: ignore[no-untyped-call]
            last_states.append((hidden[-1].detach(), cell))
    return hidden.transpose(0, 1), tuple(
        torch.stack(part) for part in zip(*last_states, strict=True)
    )


def _delivery(gradients: UnitGradients, parameters: list[Any]) -> Callable[..., None]:
    """A function that adds the gradients of one layer's parameters from factors (t, b, .)."""

    def deliver(gates: Tensor, inputs: Tensor, hidden: Tensor) -> None:
        rows = gates.transpose(0, 1).contiguous()
        for weight, factor in zip(parameters[:2], (inputs, hidden), strict=True):
            if weight.requires_grad:
                gradients.add_product(weight, rows, factor.transpose(0, 1).contiguous())
        for bias in parameters[2:]:  # torch's two biases have the same gradient
            if bias.requires_grad:
                gradients.add(bias, gates.sum(0))

    return deliver


class _Layer(torch.autograd.Function):
    """Inputs (t, b, d) to hidden states (t, b, h) and the last cells (b, h)."""

    @staticmethod
    def forward(
        ctx: Any, inputs: Tensor, w_ih: Tensor, w_hh: Tensor, bias: Tensor, _: Any, deliver: Any
    ) -> tuple[Tensor, Tensor]:
        t, b, h = *inputs.shape[:2], w_hh.shape[1]
        hidden, cells = inputs.new_empty(t + 1, b, h), inputs.new_empty(t + 1, b, h)
        hidden[0], cells[0] = 0, 0
        gates = linear(inputs.reshape(t * b, -1), w_ih, bias).view(t, b, 4 * h)
        squashed = inputs.new_empty(t, b, h)
        for step in range(t):
            gate = gates[step].add_(linear(hidden[step], w_hh, times=t))
            gate[:, : 2 * h].sigmoid_()
            gate[:, 2 * h : 3 * h].tanh_()
            gate[:, 3 * h :].sigmoid_()
            i, f, c, o = torch.split(gate, h, 1)
            torch.mul(f, cells[step], out=cells[step + 1]).addcmul_(i, c)
            torch.tanh(cells[step + 1], out=squashed[step])
            torch.mul(o, squashed[step], out=hidden[step + 1])
        ctx.save_for_backward(inputs, w_ih, w_hh)
        ctx.trace, ctx.deliver = (hidden, cells, squashed, gates), deliver
        last = cells[-1].clone()
        ctx.mark_non_differentiable(last)
        return hidden[1:], last

    @staticmethod
    def backward(ctx: Any, *back: Any) -> tuple[Any, ...]:
        inputs, w_ih, w_hh = ctx.saved_tensors
        hidden, cells, squashed, gates = ctx.trace
        ctx.trace = None  # gates are overwritten, so a second backward pass must fail
        t, b, h = squashed.shape
        i, f, c, o = torch.split(gates, h, 2)
        # Local derivatives of all steps at once; only the recurrence is a loop. Each overwrites
        # values that are not needed any more.
        to_cell = (1 - squashed.square()).mul_(o)
        keep = f.clone()
        local_o = squashed * (o - o.square())
        local_f = cells[:-1] * (f - f.square())
        local_i, local_c = c * (i - i.square()), i * (1 - c.square())
        grad_h, grad_c = hidden.new_zeros(b, h), hidden.new_zeros(b, h)
        for step in range(t - 1, -1, -1):
            grad_h += back[0][step]
            grad_c.addcmul_(grad_h, to_cell[step])
            g = gates[step]
            torch.mul(grad_c, local_i[step], out=g[:, :h])
            torch.mul(grad_c, local_f[step], out=g[:, h : 2 * h])
            torch.mul(grad_c, local_c[step], out=g[:, 2 * h : 3 * h])
            torch.mul(grad_h, local_o[step], out=g[:, 3 * h :])
            grad_c *= keep[step]
            grad_h = linear(g, w_hh.t(), times=t)
        ctx.deliver(gates, inputs.detach(), hidden[:-1])
        grad_inputs = None
        if ctx.needs_input_grad[0]:
            grad_inputs = linear(gates.flatten(0, 1), w_ih.t()).view_as(inputs)
        return grad_inputs, None, None, None, None, None
