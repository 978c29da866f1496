"""Layers whose backward pass hands on what each row's gradient is made of.

Nothing is hooked and nothing is wrapped: while gradients are gathered, a layer's `forward` is one
whose backward pass gathers. So adapters may have been put on, moved or converted in any order, and
activations may be recomputed (gradient checkpointing).

Known are linear layers (GPT-2's `Conv1D` among them), embeddings, and layers that multiply and
shift by one vector each: layer norms, and whatever else is seen to do that alone, under any name
(RMS norms, those of Llama, Gemma or Qwen).
"""

import inspect
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional

from vestige.defences.ghost_norms import ExampleGradients
from vestige.errors import TrainingError

LINEAR = "torch.nn.modules.linear.Linear.forward"
TRANSPOSED = "transformers.pytorch_utils.Conv1D.forward"
EMBEDDING = "torch.nn.modules.sparse.Embedding.forward"
LAYER_NORM = "torch.nn.modules.normalization.LayerNorm.forward"
RMS_NORM = "torch.nn.modules.normalization.RMSNorm.forward"

Forward = Callable[[Tensor], Tensor]


def learning_layers(model: nn.Module) -> list[tuple[str, nn.Module]]:
    """Layers with parameters of their own that learn, and their names."""
    return [(name, layer) for name, layer in model.named_modules() if _learning(layer)]


def unknown_layers(model: nn.Module) -> list[tuple[str, nn.Module]]:
    """Those whose rows' gradients cannot be had here."""
    seen: dict[tuple[object, ...], bool] = {}

    def known(layer: nn.Module) -> bool:
        shapes = tuple(tuple(parameter.shape) for parameter in layer._parameters.values() if parameter is not None)
        alike = (type(layer), "forward" in layer.__dict__, *layer._parameters, *shapes)
        if alike not in seen:
            seen[alike] = _known(layer)
        return seen[alike]

    return [(name, layer) for name, layer in learning_layers(model) if not known(layer)]


def gathering_forward(name: str, layer: nn.Module, found: ExampleGradients) -> Forward:
    """A layer's `forward`, whose backward pass adds to `found` and not to `.grad`.

    Args:
        name: for errors.
        layer: a known one.
        found: what the rows' gradients are added to.

    Raises:
        TrainingError: where it is called, if the layer sees other rows than those of `found`.
    """
    kind = _forward_of(layer)
    make = _MAKERS.get(kind, _scaling)
    inner = make(layer, found)

    def forward(given: Tensor) -> Tensor:
        if kind == EMBEDDING and given.dim() == 2 and len(given) == 1:
            given = given.expand(found.rows, -1)  # positions that all rows share
        if len(given) != found.rows or (kind in _PRODUCTS and given.dim() != 3):
            raise TrainingError(
                f"{name} sees an input of shape {tuple(given.shape)} for {found.rows} sequences, "
                "so that their gradients cannot be told apart",
                remedy="Freeze this layer, or leave it out of the adapter's target_modules.",
            )
        return inner(given)

    return forward


def _learning(layer: nn.Module) -> bool:
    own = layer._parameters.values()
    return any(parameter is not None and parameter.requires_grad for parameter in own)


def _forward_of(layer: nn.Module) -> str:
    forward = getattr(type(layer), "forward", None)
    return f"{getattr(forward, '__module__', '')}.{getattr(forward, '__qualname__', '')}"


def _known(layer: nn.Module) -> bool:
    if "forward" in layer.__dict__ or not set(layer._parameters) <= {"weight", "bias"}:
        return False
    kind = _forward_of(layer)
    if kind == EMBEDDING:
        plain = layer.max_norm is None and not layer.scale_grad_by_freq and not layer.sparse
        return plain
    if kind in _MAKERS:
        return layer._parameters.get("weight") is not None
    return _scales_alone(layer)


class _Product(torch.autograd.Function):
    """x W^T + b whose backward pass hands on what the gradients of W and b are made of."""

    @staticmethod
    def forward(
        ctx: Any, given: Tensor, weight: Tensor, bias: Tensor | None, deliver: Any
    ) -> Tensor:
        product = functional.linear(given, weight, bias)
        # Autocast multiplies in half precision; the backward pass then does, too.
        ctx.save_for_backward(given.to(product.dtype), weight)
        ctx.deliver = deliver
        return product

    @staticmethod
    def backward(ctx: Any, *back: Tensor) -> tuple[Tensor | None, None, None, None]:
        given, weight = ctx.saved_tensors
        (gradient,) = back
        ctx.deliver(given, gradient)
        wanted = ctx.needs_input_grad[0]
        return gradient @ weight.to(gradient.dtype) if wanted else None, None, None, None


class _Lookup(torch.autograd.Function):
    """Rows of a weight, whose backward pass hands on their gradients."""

    @staticmethod
    def forward(ctx: Any, weight: Tensor, ids: Tensor, deliver: Any) -> Tensor:
        ctx.save_for_backward(ids)
        ctx.deliver = deliver
        return functional.embedding(ids, weight)

    @staticmethod
    def backward(ctx: Any, *back: Tensor) -> tuple[None, None, None]:
        ctx.deliver(ctx.saved_tensors[0], back[0])
        return None, None, None


class _OfRows(torch.autograd.Function):
    """A vector once for each row, (rows, 1, ..., n), whose backward pass hands on its gradients."""

    @staticmethod
    def forward(ctx: Any, vector: Tensor, shape: tuple[int, ...], deliver: Any) -> Tensor:
        ctx.deliver = deliver
        return vector.expand(shape)

    @staticmethod
    def backward(ctx: Any, *back: Tensor) -> tuple[None, None, None]:
        ctx.deliver(back[0])
        return None, None, None


def _multiplying(layer: Any, found: ExampleGradients) -> Forward:
    """A linear layer, also one whose weight is stored as (in, out)."""
    weight, bias = layer.weight, layer._parameters.get("bias")
    transposed = _forward_of(layer) == TRANSPOSED

    def deliver(given: Tensor, gradient: Tensor) -> None:
        if weight.requires_grad:
            factors = (given, gradient) if transposed else (gradient, given)
            found.add_product(weight, *factors)
        if bias is not None and bias.requires_grad:
            found.add(bias, gradient.sum(1))

    def forward(given: Tensor) -> Tensor:
        used = weight.t() if transposed else weight
        product: Tensor = _Product.apply(given, used, bias, deliver)  # type: ignore[no-untyped-call]
        return product

    return forward


def _looking_up(layer: Any, found: ExampleGradients) -> Forward:
    def deliver(ids: Tensor, gradient: Tensor) -> None:
        if layer.padding_idx is not None:
            gradient = gradient.masked_fill((ids == layer.padding_idx)[..., None], 0)
        found.add_lookup(layer.weight, ids, gradient)

    def forward(ids: Tensor) -> Tensor:
        read: Tensor = _Lookup.apply(layer.weight, ids, deliver)  # type: ignore[no-untyped-call]
        return read

    return forward


def _normalizing(layer: Any, found: ExampleGradients) -> Forward:
    """torch's own norms, which take no vector for each row."""
    rms = _forward_of(layer) == RMS_NORM

    def forward(given: Tensor) -> Tensor:
        normalize = functional.rms_norm if rms else functional.layer_norm
        scaled = normalize(given, layer.normalized_shape, eps=layer.eps)
        kept = scaled.dtype
        scaled = scaled * _of_rows(layer.weight, given, found)
        if layer._parameters.get("bias") is not None:
            scaled = scaled + _of_rows(layer.bias, given, found)
        return scaled.to(kept)

    return forward


def _scaling(layer: nn.Module, found: ExampleGradients) -> Forward:
    """A layer that multiplies and shifts by vectors: it is given one of each row."""

    def forward(given: Tensor) -> Tensor:
        return _with_vectors(
            layer,
            given,
            {name: _of_rows(own, given, found) for name, own in layer.named_parameters()},
        )

    return forward


def _of_rows(vector: Tensor, given: Tensor, found: ExampleGradients) -> Tensor:
    """A vector as (rows, 1, ..., n), as many dimensions as what goes in."""
    if not vector.requires_grad:
        return vector
    shape = (len(given), *[1] * (given.dim() - 1 - vector.dim()), *vector.shape)

    def deliver(gradient: Tensor) -> None:
        found.add(vector, gradient)

    repeated: Tensor = _OfRows.apply(vector, shape, deliver)  # type: ignore[no-untyped-call]
    return repeated


def _with_vectors(layer: nn.Module, given: Tensor, vectors: dict[str, Tensor]) -> Tensor:
    """A layer's own `forward` with other tensors in its parameters' places."""
    layer.__dict__.update(vectors)  # found before the module's parameters are
    try:
        answer: Tensor = type(layer).forward(layer, given)
        return answer
    finally:
        for name in vectors:
            del layer.__dict__[name]


@torch.no_grad()
def _scales_alone(layer: nn.Module) -> bool:
    """Whether a layer, given vectors for each row, answers a row as by that row's own vectors.

    Two rows that are equal and differ in their vectors are tried, and each by itself.
    """
    own = dict(layer.named_parameters())
    takes = inspect.signature(type(layer).forward).parameters
    (width, *others) = {tuple(parameter.shape) for parameter in own.values()}
    if others or len(width) != 1 or len(takes) != 2 or [*layer.children(), *layer.buffers()]:
        return False
    some = next(iter(own.values()))
    given = torch.arange(1.0, 1 + 3 * width[0]).sin().view(1, 3, -1).to(some)
    first, second = (
        {
            name: (torch.arange(1.0, 1 + width[0]) * (number + place)).cos().to(some)
            for place, name in enumerate(own)
        }
        for number in (2, 5)
    )
    both = {name: torch.stack([first[name], second[name]])[:, None] for name in own}
    try:
        with torch.autocast(some.device.type, enabled=False):
            answer = _with_vectors(layer, given.expand(2, -1, -1), both)
            alone = [_with_vectors(layer, given, vectors) for vectors in (first, second)]
    except (RuntimeError, TypeError, ValueError, IndexError):
        return False
    close = 100 * torch.finfo(some.dtype).eps
    expected = torch.cat(alone)
    same = answer.shape == expected.shape and torch.allclose(answer, expected, rtol=close, atol=close)
    return bool(same and not torch.allclose(alone[0], alone[1]))


_PRODUCTS = (LINEAR, TRANSPOSED)
_MAKERS = {
    LINEAR: _multiplying,
    TRANSPOSED: _multiplying,
    EMBEDDING: _looking_up,
    LAYER_NORM: _normalizing,
    RMS_NORM: _normalizing,
}
