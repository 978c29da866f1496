"""Ghost clipping of an LSTM language model at about the price of plain training.

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

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from vestige.defences import lstm_layer
from vestige.defences.clipping import Clipped, Rule, numbers_of
from vestige.defences.ghost_norms import cancelled, exact_norm, exact_squares
from vestige.defences.lstm_layer import LayerWeights
from vestige.defences.products import linear
from vestige.defences.row_masks import kept, scale
from vestige.models.protocols import LanguageModel
from vestige.models.recurrent_network import LSTMLanguageModel
from vestige.training.batches import IGNORED, Batch

_IN_CACHE = 1 << 17
"""Logits that are turned into probabilities together."""
_AT_ONCE = 1 << 12
"""Rows of a gradient that are added together."""


@dataclass(frozen=True)
class _Head:
    """The head's part, over the n targets that count, example after example.

    Attributes:
        read: (n, h) what it read.
        grad: (n, v) gradients of the logits, over `rates`: a row is large, its rate is one number.
        rates: (n,).
        counts: (b,) how many of the n belong to each example.
        loss: summed cross-entropy.
    """

    read: Tensor
    grad: Tensor
    rates: Tensor
    counts: list[int]
    loss: Tensor

    def groups(self) -> Iterator[tuple[slice, Tensor, Tensor, Tensor]]:
        """Examples, and their (k, n, h), (k, n, v), (k, n): all at once where equally long."""
        size = len(self.counts) if len(set(self.counts)) == 1 else 1
        begin = 0
        for first in range(0, len(self.counts), size):
            count = self.counts[first]
            end = begin + size * count
            read, grad, rates = (
                part[begin:end].view(size, count, *part.shape[1:])
                for part in (self.read, self.grad, self.rates)
            )
            yield slice(first, first + size), read, grad, rates
            begin = end


@dataclass(frozen=True)
class _Layer:
    """One recurrent layer's part: gate gradients and what they multiply, all (t, b, ...)."""

    weights: LayerWeights
    inputs: Tensor
    hidden: Tensor
    gates: Tensor


@torch.no_grad()
def clip_lstm(model: LanguageModel, batch: Batch, rule: Rule) -> Clipped:
    """A `ClipFn` for `LSTMLanguageModel`: one forward and one backward pass.

    Norms cost O(t^2) per example and weight, less than the products themselves while
    t is below about half of a layer's width.
    """
    if not isinstance(model, LSTMLanguageModel):
        raise ValueError(f"model must be an LSTMLanguageModel, got {type(model).__name__}")
    shape, active = model.config, model.training
    weights = [LayerWeights.of(model.lstm, layer) for layer in range(shape.layers)]
    embedded = model.embedding.weight[batch.inputs.t()]  # (t, b, d)
    keys = rule.keys(numbers_of(batch))
    kept_in = _mask(keys, 0, embedded, shape.dropout_in if active else 0.0)
    flow = embedded if kept_in is None else embedded.mul_(kept_in)
    traces = []
    for layer in weights:
        traces.append(lstm_layer.forward(flow, layer))
        flow = traces[-1].hidden[1:]
    kept_out = _mask(keys, 1, flow, shape.dropout_out if active else 0.0)
    read = flow if kept_out is None else flow * kept_out
    head, grad = _head(model, read, batch, 1 / rule.tokens_per_sequence)
    if kept_out is not None:
        grad *= kept_out
    layers = []
    for layer in reversed(weights):
        trace = traces.pop()
        gates = lstm_layer.backward(trace, grad, layer)
        grad = linear(gates.flatten(0, 1), layer.from_input.t()).view_as(trace.inputs)
        layers.append(_Layer(layer, trace.inputs, trace.hidden[:-1], gates))
    if kept_in is not None:
        grad *= kept_in
    squared, scales = _squared_norms(model, batch.inputs, head, layers, grad)
    norms = squared.clamp_min(0).sqrt()
    for example in cancelled(squared, scales):
        norms[example] = _exact_norm(model, batch.inputs, head, layers, grad, example)
    _add_clipped(model, batch.inputs, head, layers, grad, rule.weights(norms))
    return Clipped(norms, head.loss)


def _mask(keys: Tensor, call: int, like: Tensor, p: float) -> Tensor | None:
    """A dropout mask (t, b, .), scaled; None where nothing is dropped."""
    if not p:
        return None
    return kept(keys, call, like.shape, p, rows=1).to(like.dtype).mul_(scale(p))


def _head(
    model: LSTMLanguageModel, hidden: Tensor, batch: Batch, share: float
) -> tuple[_Head, Tensor]:
    """The head forward and backward; hidden is (t, b, h), and so is the gradient returned.

    What is as large as the logits is touched as little as can be: a row's softmax stays over its
    sum, which is divided by where rows are narrow.
    """
    inside = batch.targets != IGNORED
    read, targets = hidden.transpose(0, 1)[inside], batch.targets[inside]
    logits = linear(read, model.head.weight, model.head.bias)
    rows = torch.arange(len(targets), device=targets.device)
    loss, sums = _softmax_in_place(logits, targets, rows)
    logits[rows, targets] -= sums  # d loss / d logits = softmax - one-hot, here over 1 / sums
    rates = share / sums
    into = hidden.new_zeros(*inside.shape, hidden.shape[2])
    into[inside] = linear(logits, model.head.weight.t()).mul_(rates[:, None])
    return _Head(read, logits, rates, inside.sum(1).tolist(), loss), into.transpose(0, 1)


def _softmax_in_place(logits: Tensor, targets: Tensor, rows: Tensor) -> tuple[Tensor, Tensor]:
    """Turn (n, v) logits into exp(logit - largest of the row).

    Returns:
        the summed cross-entropy and (n,) the sums of the new rows, at least 1.
    """
    picked = logits[rows, targets]
    largest, sums = torch.empty_like(picked), torch.empty_like(picked)
    at_once = max(1, _IN_CACHE // logits.shape[1])
    slices = (torch.split(whole, at_once) for whole in (logits, largest, sums))
    for part, top, total in zip(*slices, strict=True):
        torch.amax(part, 1, out=top)
        torch.sum(part.sub_(top[:, None]).exp_(), 1, out=total)
    return (sums.log() + largest - picked).sum(), sums


def _squared_norms(
    model: LSTMLanguageModel,
    inputs: Tensor,
    head: _Head,
    layers: list[_Layer],
    grad_embedded: Tensor,
) -> tuple[Tensor, Tensor]:
    """(b,) of each example's whole gradient, over the parameters that learn, and S^2.

    S^2 is as in `ghost_norms`: what it would be if nothing cancelled.
    """
    own = dict(model.named_parameters())
    of_embedded = grad_embedded.transpose(0, 1)
    squared, scales = _squared_of_head(model, inputs, head, of_embedded)
    if model.embedding.weight.requires_grad:
        same_token = inputs[:, :, None] == inputs[:, None, :]
        products = _gram(of_embedded)
        squared += (same_token * products).sum((1, 2))
        scales += products.diagonal(0, 1, 2).clamp_min(0).sqrt().sum(1).square()
    for layer in layers:
        w_ih, w_hh, *biases = (own[f"lstm.{name}"].requires_grad for name in layer.weights.names)
        if w_ih or w_hh:
            of_gates = _gram(layer.gates.transpose(0, 1))
            for learns, part in ((w_ih, layer.inputs), (w_hh, layer.hidden)):
                if learns:
                    products = _gram(part.transpose(0, 1)).mul_(of_gates)
                    squared += products.sum((1, 2))
                    scales += products.diagonal(0, 1, 2).clamp_min(0).sqrt().sum(1).square()
        if any(biases):  # torch's two biases have the same gradient
            squared += sum(biases) * layer.gates.sum(0).square().sum(1)
    return squared, scales


def _squared_of_head(
    model: LSTMLanguageModel, inputs: Tensor, head: _Head, of_embedded: Tensor
) -> tuple[Tensor, Tensor]:
    """(b,) of the head's part, where it is tied with twice its product with the embedding's."""
    weight, bias = model.head.weight, model.head.bias
    squared, scales = of_embedded.new_zeros(2, len(inputs))
    for examples, read, grad, rates in head.groups():
        rated = read * rates[:, :, None]
        if weight.requires_grad:
            products = _gram(rated).mul_(_gram(grad))
            squared[examples] += products.sum((1, 2))
            scales[examples] += products.diagonal(0, 1, 2).clamp_min(0).sqrt().sum(1).square()
        if bias.requires_grad:
            squared[examples] += torch.bmm(rates[:, None], grad).square().sum((1, 2))
        if model.config.tied and weight.requires_grad:
            tokens = inputs[examples, None, :].expand(-1, grad.shape[1], -1)
            across = grad.gather(2, tokens) * torch.bmm(rated, of_embedded[examples].mT)
            squared[examples] += 2 * across.sum((1, 2))
    return squared, scales


def _exact_norm(
    model: LSTMLanguageModel,
    inputs: Tensor,
    head: _Head,
    layers: list[_Layer],
    grad_embedded: Tensor,
    example: int,
) -> Tensor:
    """One example's, whose tokens cancel."""
    own, ids = dict(model.named_parameters()), inputs[example]
    begin = sum(head.counts[:example])
    rows = slice(begin, begin + head.counts[example])
    rated = head.grad[rows] * head.rates[rows, None]
    learns = model.embedding.weight.requires_grad
    lookups = [(ids, grad_embedded[:, example])] if learns else []
    found = []
    if model.head.weight.requires_grad:
        tied = lookups if model.config.tied else []
        found.append(exact_squares(len(model.head.weight), [(rated, head.read[rows])], tied))
    if learns and not model.config.tied:
        found.append(exact_squares(len(model.embedding.weight), [], lookups))
    ones = torch.ones(len(rated), 1, device=rated.device)
    if model.head.bias.requires_grad:
        found.append(exact_squares(len(model.head.bias), [(rated, ones)], []))
    for layer in layers:
        gates, ones = layer.gates[:, example], torch.ones_like(layer.gates[:, example, :1])
        factors = (layer.inputs[:, example], layer.hidden[:, example], ones, ones)
        for name, factor in zip(layer.weights.names, factors, strict=True):
            if own[f"lstm.{name}"].requires_grad:
                found.append(exact_squares(gates.shape[1], [(gates, factor)], []))
    return exact_norm(found)


def _add_clipped(
    model: LSTMLanguageModel,
    inputs: Tensor,
    head: _Head,
    layers: list[_Layer],
    grad_embedded: Tensor,
    scale: Tensor,
) -> None:
    """Add the clipped sum to the gradients."""
    own = dict(model.named_parameters())
    counts = torch.tensor(head.counts, device=scale.device)
    of_targets = scale.repeat_interleave(counts) * head.rates
    _add_products(model.head.weight, head.grad, head.read, of_targets)
    _add_sums([model.head.bias], head.grad, of_targets)
    of_tokens = scale.repeat(inputs.shape[1])  # time first, as all that follows
    if model.embedding.weight.grad is not None:
        scaled = grad_embedded.flatten(0, 1) * of_tokens[:, None]
        model.embedding.weight.grad.index_add_(0, inputs.t().flatten(), scaled)
    for layer in layers:
        gates = layer.gates.flatten(0, 1)
        w_ih, w_hh, *biases = (own[f"lstm.{name}"] for name in layer.weights.names)
        _add_products(w_ih, gates, layer.inputs.flatten(0, 1), of_tokens)
        _add_products(w_hh, gates, layer.hidden.flatten(0, 1), of_tokens)
        _add_sums(biases, gates, of_tokens)


def _gram(rows: Tensor) -> Tensor:
    """(b, t, n) -> (b, t, t) products of each example's rows."""
    return torch.bmm(rows, rows.mT)


def _add_products(parameter: Tensor, grad: Tensor, read: Tensor, scale: Tensor) -> None:
    """The sum over rows of scale * grad read^T; the narrower factor is the one scaled."""
    if parameter.grad is not None:
        scaled = (read * scale[:, None]).t()
        parts = -(-len(parameter) // _AT_ONCE)  # no second gradient of a whole vocabulary
        for rows, into in zip(
            torch.tensor_split(grad.t(), parts),
            torch.tensor_split(parameter.grad, parts),
            strict=True,
        ):
            into += linear(rows, scaled)


def _add_sums(parameters: Sequence[Tensor], grad: Tensor, scale: Tensor) -> None:
    learning = [parameter.grad for parameter in parameters if parameter.grad is not None]
    if learning:
        summed = torch.mv(grad.t(), scale)
        for gradient in learning:
            gradient += summed
