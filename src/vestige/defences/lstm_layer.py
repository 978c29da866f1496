"""One LSTM layer forward and backward by hand, which exposes its gate gradients.

torch's own layer gives the gradient of a weight already summed over the batch. Clipping needs, for
every example, the gradients g_t of the gates before their sigmoids and what they multiply, from
which norms and clipped sums follow (`ghost_lstm`).
"""

from dataclasses import dataclass

import torch
from torch import Tensor, nn

from vestige.defences.products import linear


@dataclass(frozen=True)
class LayerWeights:
    """The parameters of one layer of an `nn.LSTM`; gates in torch's order: in, forget, cell, out.

    Attributes:
        names: of the four, as the module calls them.
        from_input: (4h, d).
        from_hidden: (4h, h).
        bias: (4h,), torch's two biases summed.
    """

    names: tuple[str, str, str, str]
    from_input: Tensor
    from_hidden: Tensor
    bias: Tensor

    @classmethod
    def of(cls, lstm: nn.LSTM, layer: int) -> "LayerWeights":
        """Those of one layer of a module that has biases and reads in one direction."""
        kinds = ("weight_ih", "weight_hh", "bias_ih", "bias_hh")
        w_ih, w_hh, b_ih, b_hh = (f"{kind}_l{layer}" for kind in kinds)
        return cls(
            (w_ih, w_hh, b_ih, b_hh),
            getattr(lstm, w_ih).detach(),
            getattr(lstm, w_hh).detach(),
            (getattr(lstm, b_ih) + getattr(lstm, b_hh)).detach(),
        )


@dataclass(frozen=True)
class LayerTrace:
    """What a layer computed, time first.

    Attributes:
        inputs: (t, b, d).
        hidden: (t + 1, b, h), zeros first.
        cells: (t + 1, b, h), zeros first.
        gates: (t, b, 4h) after their sigmoids and tanh.
        squashed: (t, b, h) tanh of the cells.
    """

    inputs: Tensor
    hidden: Tensor
    cells: Tensor
    gates: Tensor
    squashed: Tensor


def forward(inputs: Tensor, weights: LayerWeights) -> LayerTrace:
    """Run a layer from zeros over (t, b, d)."""
    t, b, d = inputs.shape
    h = weights.from_hidden.shape[1]
    hidden, cells = inputs.new_empty(t + 1, b, h), inputs.new_empty(t + 1, b, h)
    hidden[0], cells[0] = 0, 0
    gates = linear(inputs.reshape(t * b, d), weights.from_input, weights.bias)
    gates, squashed = gates.view(t, b, 4 * h), inputs.new_empty(t, b, h)
    for step in range(t):
        gate = gates[step].add_(linear(hidden[step], weights.from_hidden, times=t))
        gate[:, : 2 * h].sigmoid_()
        gate[:, 2 * h : 3 * h].tanh_()
        gate[:, 3 * h :].sigmoid_()
        i, f, c, o = torch.split(gate, h, 1)
        torch.mul(f, cells[step], out=cells[step + 1]).addcmul_(i, c)
        torch.tanh(cells[step + 1], out=squashed[step])
        torch.mul(o, squashed[step], out=hidden[step + 1])
    return LayerTrace(inputs, hidden, cells, gates, squashed)


def backward(trace: LayerTrace, grad_hidden: Tensor, weights: LayerWeights) -> Tensor:
    """Gradients of the gates before their sigmoids, (t, b, 4h).

    Args:
        trace: of the forward pass; its gates are overwritten.
        grad_hidden: (t, b, h) of the layer's outputs.
        weights: the layer's.
    """
    t, b, four_h = trace.gates.shape
    h = four_h // 4
    i, f, c, o = torch.split(trace.gates, h, 2)
    # Local derivatives of all steps at once; only the recurrence is a loop. Each overwrites what
    # it is the last to need.
    to_cell = (1 - trace.squashed.square()).mul_(o)
    keep = f.clone()
    local_o = trace.squashed * (o - o.square())
    local_f = trace.cells[:-1] * (f - f.square())
    local_i, local_c = c * (i - i.square()), i * (1 - c.square())
    grad_gates = trace.gates
    grad_h, grad_c = grad_hidden.new_zeros(b, h), grad_hidden.new_zeros(b, h)
    for step in range(t - 1, -1, -1):
        grad_h += grad_hidden[step]
        grad_c.addcmul_(grad_h, to_cell[step])
        g = grad_gates[step]
        torch.mul(grad_c, local_i[step], out=g[:, :h])
        torch.mul(grad_c, local_f[step], out=g[:, h : 2 * h])
        torch.mul(grad_c, local_c[step], out=g[:, 2 * h : 3 * h])
        torch.mul(grad_h, local_o[step], out=g[:, 3 * h :])
        grad_c *= keep[step]
        grad_h = linear(g, weights.from_hidden.t(), times=t)
    return grad_gates
