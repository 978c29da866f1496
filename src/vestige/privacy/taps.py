"""Layers that deliver the factors of their per-row gradients.

While a batch is read, each trainable layer is tapped: its backward pass delivers its input and
the gradient of its output to `UnitGradients`, and computes no gradient of the whole batch. Layers
are neither hooked nor wrapped, so adapters can be added, moved or converted in any order, and
activations can be recomputed (gradient checkpointing).

Linear layers (also GPT-2's `Conv1D`), embeddings and LSTMs deliver factors. torch's own norms
multiply each row by a copy of their vectors; the gradients of the copies are those of the rows. For
every other layer `torch.func` recomputes the gradient of each row. A check then requires that they
sum to the gradient of the batch. This fails for a layer that mixes rows.
"""

import inspect
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any
from weakref import WeakSet

import torch
from torch import Tensor, nn
from torch.nn import functional

from vestige.errors import TrainingError
from vestige.privacy import lstm
from vestige.privacy.unit_gradients import UnitGradients, linear

_LINEAR = "torch.nn.modules.linear.Linear.forward"
_TRANSPOSED = "transformers.pytorch_utils.Conv1D.forward"
_EMBEDDING = "torch.nn.modules.sparse.Embedding.forward"
_NORMS = {
    "torch.nn.modules.normalization.LayerNorm.forward": functional.layer_norm,
    "torch.nn.modules.normalization.RMSNorm.forward": functional.rms_norm,
}
_TOLERANCE = 1e-2
"""Tolerance of the check that row gradients sum to the batch gradient in half precision."""

_VARIABLE = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)

_CHECKED: WeakSet[nn.Module] = WeakSet()
"""Layers that passed this check."""


def trainable(model: nn.Module) -> list[Any]:
    """Trainable parameters, each once."""
    return [parameter for parameter in model.parameters() if parameter.requires_grad]


def untappable_layers(model: nn.Module) -> list[tuple[str, nn.Module]]:
    """Trainable layers that cannot be tapped. Units of such a model are read one by one."""
    return [(name, layer) for name, layer in _trainable_layers(model) if not _tappable(layer)]


@contextmanager
def tapped(model: nn.Module, gradients: UnitGradients) -> Iterator[None]:
    """Deliver per-row gradients of forward and backward passes instead of filling `.grad`.

    Args:
        model: without untappable layers; `.grad` is None throughout.
        gradients: receives them.

    Raises:
        TrainingError: a layer does not read the rows of the batch, or mixes them, so the gradient
            of one row is unknown; or a weight is used outside its layer.
    """
    layers = _trainable_layers(model)
    for name, layer in layers:
        layer.__dict__["forward"] = partial(_forward, name, layer, gradients)
    try:
        yield
    finally:
        for _, layer in layers:
            del layer.__dict__["forward"]
    if any(parameter.grad is not None for parameter in model.parameters()):
        raise TrainingError(
            "a trainable weight is used outside its layer, so gradients per sequence are unknown",
            remedy="Freeze it, or train a plain LoRA adapter.",
        )


def _trainable_layers(model: nn.Module) -> list[tuple[str, nn.Module]]:
    """Layers with trainable parameters of their own, and their names."""

    def is_trainable(layer: nn.Module) -> bool:
        return any(p is not None and p.requires_grad for p in layer._parameters.values())

    return [(name, layer) for name, layer in model.named_modules() if is_trainable(layer)]


def _tappable(layer: nn.Module) -> bool:
    if "forward" in layer.__dict__ or hasattr(layer, "parametrizations"):
        return False
    if isinstance(layer, nn.RNNBase):
        return lstm.is_known(layer)
    if isinstance(layer, nn.Embedding):
        plain = layer.max_norm is None and not layer.scale_grad_by_freq and not layer.sparse
        return plain and (_kind(layer) == _EMBEDDING or _uses_only_lookups(layer))
    _, *parameters = inspect.signature(type(layer).forward).parameters.values()
    required = [
        parameter
        for parameter in parameters
        if parameter.default is parameter.empty and parameter.kind not in _VARIABLE
    ]
    return len(required) == 1


@torch.no_grad()
def _uses_only_lookups(layer: nn.Embedding) -> bool:
    """Whether an embedding with its own `forward` uses nothing but the rows that it looks up."""
    last_row = layer.num_embeddings - 1
    ids = torch.tensor([[0, last_row, 0], [last_row // 2, 0, last_row]], device=layer.weight.device)
    try:
        with torch.autocast(layer.weight.device.type, enabled=False):
            expected = type(layer).forward(layer, ids)
            computed = _embedded(layer, functional.embedding(ids, layer.weight))
        return set(layer._parameters) == {"weight"} and torch.allclose(expected, computed)
    except (RuntimeError, TypeError, ValueError, IndexError):
        return False


def _kind(layer: nn.Module) -> str:
    forward = type(layer).forward
    return f"{forward.__module__}.{getattr(forward, '__qualname__', '')}"


def _forward(
    name: str, layer: Any, gradients: UnitGradients, inputs: Tensor, *arguments: Any, **options: Any
) -> Any:
    """Replacement for the `forward` of a tapped layer."""
    is_embedding, kind = isinstance(layer, nn.Embedding), _kind(layer)
    if is_embedding and inputs.dim() == 2 and len(inputs) == 1:
        inputs = inputs.expand(gradients.rows, -1)  # positions that all rows share
    dimensions = 2 if is_embedding else 3 if kind in (_LINEAR, _TRANSPOSED) else inputs.dim()
    if len(inputs) != gradients.rows or inputs.dim() != dimensions:
        raise TrainingError(
            f"{name} has an input of shape {tuple(inputs.shape)} for {gradients.rows} sequences, "
            "so gradients per sequence are unknown",
            remedy="Freeze this layer, or remove it from the adapter's target_modules.",
        )
    if isinstance(layer, nn.LSTM):
        if any(state is not None for state in (*arguments, *options.values())):
            raise ValueError("state must be None: state between steps is not protected")
        return lstm.forward(layer, gradients, inputs)
    if is_embedding:
        return _look_up(layer, gradients, inputs)
    if kind in (_LINEAR, _TRANSPOSED) and set(layer._parameters) <= {"weight", "bias"}:
        weight = layer.weight.t() if kind == _TRANSPOSED else layer.weight
        deliver: Any = partial(_deliver_product, layer, gradients, kind == _TRANSPOSED)
        return _Product.apply(inputs, weight, layer.bias, deliver)  # type: ignore[no-untyped-call]
    if kind in _NORMS:
        return _normalize(layer, _NORMS[kind], gradients, inputs)
    with _with_parameters(layer, _detached(layer)):
        output = type(layer).forward(layer, inputs, *arguments, **options)
    deliver = partial(_deliver_recomputed, name, layer, gradients, (arguments, options))
    anchor = next(p for p in layer._parameters.values() if p is not None and p.requires_grad)
    return _Tap.apply(output, inputs, anchor, deliver)  # type: ignore[no-untyped-call]


class _Product(torch.autograd.Function):
    """x W^T + b, whose backward pass delivers the input and the gradient of the output."""

    @staticmethod
    def forward(
        ctx: Any, inputs: Tensor, weight: Tensor, bias: Tensor | None, deliver: Any
    ) -> Tensor:
        product = linear(inputs.flatten(0, -2), weight, bias).view(*inputs.shape[:-1], -1)
        # Autocast multiplies in half precision; the backward pass then does, too.
        ctx.save_for_backward(inputs.to(product.dtype), weight)
        ctx.deliver = deliver
        return product

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, None, None, None]:
        inputs, weight = ctx.saved_tensors
        (gradient,) = gradients
        ctx.deliver(inputs.detach(), gradient)  # stored tensors must not keep the graph
        if not ctx.needs_input_grad[0]:
            return None, None, None, None
        input_gradient = linear(gradient.flatten(0, -2), weight.t().to(gradient.dtype))
        return input_gradient.view(inputs.shape), None, None, None


class _Tap(torch.autograd.Function):
    """The identity, whose backward pass delivers the input and the gradient.

    The anchor is trainable, so that there is a backward pass. It gets no gradient.
    """

    @staticmethod
    def forward(ctx: Any, output: Tensor, inputs: Tensor, anchor: Tensor, deliver: Any) -> Tensor:
        ctx.save_for_backward(inputs)
        ctx.deliver = deliver
        return output.view_as(output)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, None, None, None]:
        ctx.deliver(ctx.saved_tensors[0].detach(), gradients[0])
        return gradients[0], None, None, None


def _deliver_product(
    layer: Any, gradients: UnitGradients, transposed: bool, inputs: Tensor, gradient: Tensor
) -> None:
    if layer.weight.requires_grad:
        factors = (inputs, gradient) if transposed else (gradient, inputs)
        gradients.add_product(layer.weight, *factors)
    if layer.bias is not None and layer.bias.requires_grad:
        gradients.add(layer.bias, gradient.sum(1))


def _look_up(layer: Any, gradients: UnitGradients, ids: Tensor) -> Tensor:
    """Output of an embedding, including one that transforms the looked-up vectors (Gemma)."""

    def deliver(ids: Tensor, gradient: Tensor) -> None:
        if layer.padding_idx is not None:
            gradient = gradient.masked_fill((ids == layer.padding_idx)[..., None], 0)
        gradients.add_lookup(layer.weight, ids, gradient)

    vectors = functional.embedding(ids, layer.weight.detach())
    vectors = _Tap.apply(vectors, ids, layer.weight, deliver)  # type: ignore[no-untyped-call]
    return vectors if _kind(layer) == _EMBEDDING else _embedded(layer, vectors)


def _embedded(layer: Any, vectors: Tensor) -> Tensor:
    """Output of an embedding for looked-up vectors (rows, t, n)."""
    rows, t = vectors.shape[:2]
    positions = torch.arange(rows * t, device=vectors.device).view(rows, t)
    padding, layer.padding_idx = layer.padding_idx, None
    try:
        with _with_parameters(layer, {"weight": vectors.flatten(0, 1)}):
            output: Tensor = type(layer).forward(layer, positions)
            return output
    finally:
        layer.padding_idx = padding


def _normalize(layer: Any, norm: Any, gradients: UnitGradients, inputs: Tensor) -> Tensor:
    """torch's own norms."""
    scaled = norm(inputs, layer.normalized_shape, eps=layer.eps)
    dtype = scaled.dtype
    scaled = scaled * _per_row(layer.weight, inputs, gradients)
    if layer._parameters.get("bias") is not None:
        scaled = scaled + _per_row(layer.bias, inputs, gradients)
    output: Tensor = scaled.to(dtype)
    return output


def _per_row(vector: Any, inputs: Tensor, gradients: UnitGradients) -> Tensor:
    """A vector repeated to (rows, 1, ..., n), with as many dimensions as the input."""
    values: Tensor = vector.detach()
    if not vector.requires_grad:
        return values
    values = values.expand(len(inputs), *[1] * (inputs.dim() - 1 - vector.dim()), *vector.shape)

    def deliver(inputs: Tensor, gradient: Tensor) -> None:
        gradients.add(vector, gradient)

    row_vectors: Tensor = _Tap.apply(values, inputs, vector, deliver)  # type: ignore[no-untyped-call]
    return row_vectors


def _deliver_recomputed(
    name: str,
    layer: Any,
    gradients: UnitGradients,
    arguments: Any,
    inputs: Tensor,
    gradient: Tensor,
) -> None:
    """Recompute the gradient of each row; check once that they sum to that of the batch."""
    parameters = {
        name: parameter.detach()
        for name, parameter in layer._parameters.items()
        if parameter is not None and parameter.requires_grad
    }
    args, kwargs = arguments

    def gradients_of(rows: Tensor, gradient: Tensor) -> dict[str, Tensor]:
        def run(parameters: dict[str, Tensor]) -> Tensor:
            with _with_parameters(layer, _detached(layer) | parameters):
                output: Tensor = type(layer).forward(layer, rows, *args, **kwargs)
                return output

        output, pullback, *_ = torch.func.vjp(run, parameters)
        values: dict[str, Tensor] = pullback(gradient.to(output.dtype))[0]
        return values

    try:
        with torch.enable_grad():
            row_gradients: dict[str, Tensor] = torch.vmap(
                lambda row, back: gradients_of(row[None], back[None])
            )(inputs, gradient)
            unchecked = layer not in _CHECKED and len(inputs) > 1
            batch_gradients = gradients_of(inputs, gradient) if unchecked else {}
    except RuntimeError as error:
        raise _mixing(name, layer) from error
    for parameter_name, summed in batch_gradients.items():
        scale = summed.abs().max().clamp_min(1e-12)
        total = row_gradients[parameter_name].sum(0)
        if not torch.allclose(total / scale, summed / scale, _TOLERANCE, _TOLERANCE):
            raise _mixing(name, layer)
        _CHECKED.add(layer)
    for parameter_name, values in row_gradients.items():
        gradients.add(layer._parameters[parameter_name], values)


def _mixing(name: str, layer: nn.Module) -> TrainingError:
    return TrainingError(
        f"{name} is a {type(layer).__name__}, whose gradients per sequence are unknown: it mixes "
        "the rows of a batch, or cannot be run row by row",
        remedy="Freeze it, or train a LoRA adapter (--lora-rank) on frozen layers.",
    )


def _detached(layer: nn.Module) -> dict[str, Tensor]:
    return {name: p.detach() for name, p in layer._parameters.items() if p is not None}


@contextmanager
def _with_parameters(layer: nn.Module, tensors: dict[str, Tensor]) -> Iterator[None]:
    """Use tensors instead of the parameters of a layer."""
    layer.__dict__.update(tensors)  # found before the module's parameters are
    parameters = dict(layer._parameters)
    layer._parameters.update(tensors)  # type: ignore[arg-type]
    try:
        yield
    finally:
        layer._parameters.update(parameters)
        for name in tensors:
            del layer.__dict__[name]
