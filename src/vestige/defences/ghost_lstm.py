"""Clipped gradients of an LSTM language model at about the price of plain training.

For a linear map y_t = W a_t with output gradients g_t, an example's gradient is the sum over t of
g_t a_t^T, and its squared norm follows from two Gram matrices of the example's own tokens:

    ||sum_t g_t a_t^T||^2 = sum_{t,s} (a_t . a_s)(g_t . g_s)

so that no example's gradient is ever formed; the clipped sum over the batch is one product,
(c_b g_b)^T a, with c_b = min(1, C / norm_b). Li et al. (2022), "Large Language Models Can Be
Strong Differentially Private Learners", section 4 (ghost clipping); Bu et al. (2023),
"Differentially Private Optimization on Large Model at Small Cost" (one backward pass).

An LSTM layer is two such maps, of its input and of its hidden state before, with the same g, the
gradients of the gates (`lstm_layer`). An embedding is one whose a_t are one-hot: a_t . a_s says
whether two tokens are the same. Where the head's weight is the embedding's, both gradients lie in
one tensor and their product counts twice: sum_{t,s} g_t[x_s] (a_t . d_s), for the head's gradient
g_t at the token x_s and the embedding's gradient d_s.

Differs from the papers: they treat linear layers, embeddings and norms; the recurrent layer is
worked out here.
"""

from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn.functional import dropout

from vestige.defences import lstm_layer
from vestige.defences.clipping import Clipped, coefficients
from vestige.defences.lstm_layer import LayerWeights
from vestige.models.lstm import LSTMLanguageModel
from vestige.models.protocols import LanguageModel
from vestige.training.batches import IGNORED, Batch


@dataclass(frozen=True)
class _Head:
    """The head's part, over the n targets that count, example after example.

    Attributes:
        read: (n, h) what it read.
        grad: (n, v) gradients of the logits.
        counts: (b,) how many of the n belong to each example.
        inside: (b, t) where the n stand.
        loss: summed cross-entropy.
    """

    read: Tensor
    grad: Tensor
    counts: list[int]
    inside: Tensor
    loss: Tensor


@dataclass(frozen=True)
class _Layer:
    """One recurrent layer's part: gate gradients and what they multiply, all (b, t, ...)."""

    weights: LayerWeights
    inputs: Tensor
    hidden: Tensor
    gates: Tensor


@torch.no_grad()
def clip_lstm(
    model: LanguageModel, batch: Batch, max_grad_norm: float, tokens_per_sequence: float
) -> Clipped:
    """A `ClipFn` for `LSTMLanguageModel`: one forward and one backward pass.

    Norms cost O(t^2) per example and weight, less than the products themselves while
    t is below about half of a layer's width.
    """
    if not isinstance(model, LSTMLanguageModel):
        raise ValueError(f"model must be an LSTMLanguageModel, got {type(model).__name__}")
    shape, active = model.config, model.training
    weights = [LayerWeights.of(model.lstm, layer) for layer in range(shape.layers)]
    embedded = model.embedding.weight[batch.inputs.t()]  # (t, b, d)
    kept_in = _mask(embedded, shape.dropout_in, active)
    flow = embedded if kept_in is None else embedded.mul_(kept_in)
    traces = []
    for layer in weights:
        traces.append(lstm_layer.forward(flow, layer))
        flow = traces[-1].hidden[1:]
    kept_out = _mask(flow, shape.dropout_out, active)
    head, grad = _head(
        model, flow if kept_out is None else flow * kept_out, batch, tokens_per_sequence
    )
    if kept_out is not None:
        grad *= kept_out
    layers = []
    for layer, trace in zip(reversed(weights), reversed(traces), strict=True):
        gates = lstm_layer.backward(trace, grad, layer)
        grad = torch.matmul(gates, layer.from_input)
        rows = (trace.inputs, trace.hidden[:-1], gates)
        layers.append(_Layer(layer, *(part.transpose(0, 1).contiguous() for part in rows)))
    if kept_in is not None:
        grad *= kept_in
    grad = grad.transpose(0, 1).contiguous()
    norms = _squared_norms(model, batch.inputs, head, layers, grad).clamp_min(0).sqrt()
    _add_clipped(model, batch.inputs, head, layers, grad, coefficients(norms, max_grad_norm))
    return Clipped(norms, head.loss)


def _mask(like: Tensor, probability: float, active: bool) -> Tensor | None:
    """A dropout mask, scaled; None where nothing is dropped."""
    return dropout(torch.ones_like(like), probability) if active and probability else None


def _head(
    model: LSTMLanguageModel, hidden: Tensor, batch: Batch, divisor: float
) -> tuple[_Head, Tensor]:
    """The head forward and backward; hidden is (t, b, h), and so is the gradient returned."""
    inside = batch.targets != IGNORED
    read, targets = hidden.transpose(0, 1)[inside], batch.targets[inside]
    logits = torch.addmm(model.head.bias, read, model.head.weight.t())
    total = torch.logsumexp(logits, 1)
    rows = torch.arange(len(targets), device=targets.device)
    loss = (total - logits[rows, targets]).sum()
    # d loss / d logits = softmax - one-hot, in the logits' own memory
    grad = logits.sub_(total[:, None]).exp_()
    grad[rows, targets] -= 1
    grad /= divisor
    into = hidden.new_zeros(*inside.shape, hidden.shape[2])
    into[inside] = grad @ model.head.weight
    counts = inside.sum(1).tolist()
    return _Head(read, grad, counts, inside, loss), into.transpose(0, 1)


def _squared_norms(
    model: LSTMLanguageModel,
    inputs: Tensor,
    head: _Head,
    layers: list[_Layer],
    grad_embedded: Tensor,
) -> Tensor:
    """(b,) of each example's whole gradient, over the parameters that learn."""
    own = dict(model.named_parameters())
    same_token = (inputs[:, :, None] == inputs[:, None, :]).to(grad_embedded.dtype)
    squared = grad_embedded.new_zeros(len(inputs))
    tied = model.config.tied
    embedding, weight, bias = model.embedding.weight, model.head.weight, model.head.bias
    if embedding.requires_grad:
        squared += (same_token * _gram(grad_embedded)).sum((1, 2))
    pieces = zip(head.read.split(head.counts), head.grad.split(head.counts), strict=True)
    for example, (read, grad) in enumerate(pieces):
        if weight.requires_grad:
            squared[example] += ((read @ read.t()) * (grad @ grad.t())).sum()
        if bias.requires_grad:
            squared[example] += grad.sum(0).square().sum()
        if tied and weight.requires_grad:
            across = grad[:, inputs[example]] * (read @ grad_embedded[example].t())
            squared[example] += 2 * across.sum()
    for layer in layers:
        w_ih, w_hh, *biases = (own[f"lstm.{name}"].requires_grad for name in layer.weights.names)
        if w_ih or w_hh:
            of_gates = _gram(layer.gates)
            for learns, part in ((w_ih, layer.inputs), (w_hh, layer.hidden)):
                if learns:
                    squared += (_gram(part) * of_gates).sum((1, 2))
        if any(biases):  # torch's two biases have the same gradient
            squared += sum(biases) * layer.gates.sum(1).square().sum(1)
    return squared


def _add_clipped(
    model: LSTMLanguageModel,
    inputs: Tensor,
    head: _Head,
    layers: list[_Layer],
    grad_embedded: Tensor,
    scale: Tensor,
) -> None:
    """Add the clipped sum to the gradients; the examples' own gradients are overwritten."""
    own = dict(model.named_parameters())
    of_rows = scale.repeat_interleave(torch.tensor(head.counts, device=scale.device))
    grad = head.grad.mul_(of_rows[:, None])
    _add_product(model.head.weight, grad, head.read)
    _add_sum(model.head.bias, grad)
    if model.embedding.weight.grad is not None:
        scaled = grad_embedded.mul_(scale[:, None, None]).flatten(0, 1)
        model.embedding.weight.grad.index_add_(0, inputs.flatten(), scaled)
    for layer in layers:
        gates = layer.gates.mul_(scale[:, None, None]).flatten(0, 1)
        w_ih, w_hh, b_ih, b_hh = (own[f"lstm.{name}"] for name in layer.weights.names)
        _add_product(w_ih, gates, layer.inputs.flatten(0, 1))
        _add_product(w_hh, gates, layer.hidden.flatten(0, 1))
        _add_sum(b_ih, gates)
        _add_sum(b_hh, gates)


def _gram(rows: Tensor) -> Tensor:
    """(b, t, n) -> (b, t, t) products of each example's rows."""
    return torch.bmm(rows, rows.transpose(1, 2))


def _add_product(parameter: Tensor, grad: Tensor, read: Tensor) -> None:
    if parameter.grad is not None:
        parameter.grad.addmm_(grad.t(), read)


def _add_sum(parameter: Tensor, grad: Tensor) -> None:
    if parameter.grad is not None:
        parameter.grad += grad.sum(0)
