"""Layers whose backward pass hands on what each row's gradient is made of.

Nothing is hooked and nothing is wrapped: while gradients are gathered, a layer's `forward` is one
whose backward pass gathers. So adapters may have been put on, moved or converted in any order, and
activations may be recomputed (gradient checkpointing).

Known are linear layers (GPT-2's `Conv1D` among them), embeddings (also those that scale what they
looked up, as Gemma's), and layers that multiply and shift by vectors: layer norms, and whatever
else is seen to do that alone, under any name (the RMS norms of Llama, Gemma or Qwen).
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
Maker = Callable[[Any, ExampleGradients], Forward]


def learning_layers(model: nn.Module) -> list[tuple[str, nn.Module]]:
    """Layers with parameters of their own that learn, and their names."""
    return [(name, layer) for name, layer in model.named_modules() if _learning(layer)]


def unknown_layers(model: nn.Module) -> list[tuple[str, nn.Module]]:
    """Those whose rows' gradients cannot be had here."""
    seen: dict[tuple[object, ...], bool] = {}

    def known(layer: nn.Module) -> bool:
        alike = _description(layer)
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
    make = _maker(layer)
    inner = make(layer, found)

    def forward(given: Tensor) -> Tensor:
        dimensions = given.dim()
        if make is _looking_up and dimensions == 2 and len(given) == 1:
            given = given.expand(found.rows, -1)  # positions that all rows share
        if len(given) != found.rows or dimensions != _DIMENSIONS.get(make, dimensions):
            raise TrainingError(
                f"{name} has an input of shape {tuple(given.shape)} for {found.rows} sequences, "
                "so gradients per sequence are unknown",
                remedy="Freeze this layer, or remove it from the adapter's target_modules.",
            )
        return inner(given)

    return forward


def _learning(layer: nn.Module) -> bool:
    own = layer._parameters.values()
    return any(parameter is not None and parameter.requires_grad for parameter in own)


def _forward_of(layer: nn.Module) -> str:
    forward = getattr(type(layer), "forward", None)
    return f"{getattr(forward, '__module__', '')}.{getattr(forward, '__qualname__', '')}"


def _maker(layer: nn.Module) -> Maker:
    by_class = _looking_up if isinstance(layer, nn.Embedding) else _scaling
    return _MAKERS.get(_forward_of(layer), by_class)


def _description(layer: nn.Module) -> tuple[object, ...]:
    """Class, settings and shapes: layers that agree in these are tried once."""
    own = ((name, p.shape) for name, p in layer._parameters.items() if p is not None)
    settings = (
        (name, repr(value) if isinstance(value, bool | int | float | str | tuple) else id(value))
        for name, value in vars(layer).items()
        if not name.startswith("_")
    )
    return type(layer), *own, *settings


def _known(layer: nn.Module) -> bool:
    if "forward" in layer.__dict__:
        return False
    if isinstance(layer, nn.Embedding):
        plain = layer.max_norm is None and not layer.scale_grad_by_freq and not layer.sparse
        return plain and (_forward_of(layer) == EMBEDDING or _looks_up_alone(layer))
    if _forward_of(layer) in _MAKERS:
        own = layer._parameters
        return set(own) <= {"weight", "bias"} and own.get("weight") is not None
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
        ctx.deliver(given.detach(), gradient)  # what is held must not hold the graph in turn
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
    """An embedding, also one that does more with what it has looked up."""

    def deliver(ids: Tensor, gradient: Tensor) -> None:
        if layer.padding_idx is not None:
            gradient = gradient.masked_fill((ids == layer.padding_idx)[..., None], 0)
        found.add_lookup(layer.weight, ids, gradient)

    def forward(ids: Tensor) -> Tensor:
        read: Tensor = _Lookup.apply(layer.weight, ids, deliver)  # type: ignore[no-untyped-call]
        return read if _forward_of(layer) == EMBEDDING else _of_looked_up(layer, read)

    return forward


def _of_looked_up(layer: nn.Module, read: Tensor) -> Tensor:
    """What an embedding answers whose rows are what was looked up, (rows, t, n), in order."""
    rows, places = read.shape[:2]
    ids = torch.arange(rows * places, device=read.device).view(rows, places)
    return _with(layer, ids, {"weight": read.flatten(0, 1), "padding_idx": None})


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
        own = dict(layer.named_parameters())
        return _with(layer, given, {name: _of_rows(own[name], given, found) for name in own})

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


def _with(layer: nn.Module, given: Tensor, others: dict[str, Any]) -> Tensor:
    """A layer's own `forward` with other things in the places of its parameters and settings."""
    before = {name: layer.__dict__[name] for name in others if name in layer.__dict__}
    layer.__dict__.update(others)  # found before the module's parameters are
    try:
        answer: Tensor = type(layer).forward(layer, given)
        return answer
    finally:
        for name in others:
            del layer.__dict__[name]
        layer.__dict__.update(before)


@torch.no_grad()
def _looks_up_alone(layer: nn.Embedding) -> bool:
    """Whether an embedding's answer follows from the rows that it looks up."""
    if set(layer._parameters) != {"weight"}:
        return False
    count = layer.num_embeddings
    ids = torch.tensor([[0, count - 1, 0], [count // 2, 0, count - 1]], device=layer.weight.device)
    return _alike(
        layer.weight,
        lambda: type(layer).forward(layer, ids),
        lambda: _of_looked_up(layer, functional.embedding(ids, layer.weight)),
    )


@torch.no_grad()
def _scales_alone(layer: nn.Module) -> bool:
    """Whether a layer, given vectors for each row, answers a row as by that row's own vectors.

    Two rows that differ, as do their vectors, are tried, and each by itself; and whether the answer
    follows from the vectors at all.
    """
    own = dict(layer.named_parameters())
    takes = inspect.signature(type(layer).forward).parameters
    shapes = {tuple(parameter.shape) for parameter in own.values()}
    some = next(iter(own.values()))
    if (
        len(shapes) > 1
        or some.dim() != 1
        or len(takes) != 2
        or [*layer.children(), *layer.buffers()]
    ):
        return False
    width = len(some)
    given = torch.arange(1.0, 1 + 6 * width).sin().view(2, 3, width).to(some)
    vectors = torch.arange(1.0, 1 + 2 * len(own) * width).cos().view(2, len(own), width).to(some)

    def answer(rows: Tensor, by: Tensor) -> Tensor:
        return _with(layer, rows, dict(zip(own, by.unbind(-2), strict=True)))

    return _alike(
        some,
        lambda: answer(given, vectors[:, None]),
        lambda: torch.cat([answer(given[:1], vectors[0]), answer(given[1:], vectors[1])]),
    ) and not _alike(some, lambda: answer(given, vectors[0]), lambda: answer(given, vectors[1]))


def _alike(weight: Tensor, one: Callable[[], Tensor], other: Callable[[], Tensor]) -> bool:
    """Whether two computations with a weight succeed, and give the same up to rounding."""
    try:
        with torch.autocast(weight.device.type, enabled=False):
            first, second = one(), other()
    except (RuntimeError, TypeError, ValueError, IndexError):
        return False
    if first.shape != second.shape or not first.is_floating_point():
        return False
    close = 100 * torch.finfo(first.dtype).eps
    return torch.allclose(first, second, rtol=close, atol=close)


_MAKERS: dict[str, Maker] = {
    LINEAR: _multiplying,
    TRANSPOSED: _multiplying,
    EMBEDDING: _looking_up,
    LAYER_NORM: _normalizing,
    RMS_NORM: _normalizing,
}
_DIMENSIONS: dict[Maker, int] = {_multiplying: 3, _looking_up: 2}
