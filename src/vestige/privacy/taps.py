"""Layers that hand over what their rows' gradients are made of.

While a batch is read, each layer that learns is tapped: its backward pass delivers its input and
the gradient of its output to `UnitGradients`, and forms no summed gradient of its weights. Nothing
is hooked and nothing is wrapped, so that adapters may have been put on, moved or converted in any
order, and activations may be recomputed (gradient checkpointing).

Linear layers (GPT-2's `Conv1D` among them), embeddings and LSTMs are held as factors. torch's own
norms multiply each row by a copy of their vectors, whose gradients are the rows'. Of every other
layer each row's gradient is recomputed by `torch.func`, and checked: the rows' gradients must add
up to that of the batch, which those of a layer that mixes rows do not.
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
"""Of the check that rows' gradients add up; half precision rounds each."""

_VARIABLE = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)

_CHECKED: WeakSet[nn.Module] = WeakSet()
"""Layers whose rows' gradients have added up."""


def trainable(model: nn.Module) -> list[Any]:
    """The parameters that learn, each once."""
    return [parameter for parameter in model.parameters() if parameter.requires_grad]


def untappable_layers(model: nn.Module) -> list[tuple[str, nn.Module]]:
    """Layers that learn and cannot be tapped: units of such a model take passes of their own."""
    return [(name, layer) for name, layer in _learning(model) if not _tappable(layer)]


@contextmanager
def tapped(model: nn.Module, gradients: UnitGradients) -> Iterator[None]:
    """Deliver the rows' gradients of forward and backward passes, in place of `.grad`.

    Args:
        model: without untappable layers; `.grad` is None throughout.
        gradients: that they are added to.

    Raises:
        TrainingError: a layer reads other rows than those of the batch, or mixes them, so that the
            gradient of one row is unknown; or a weight is used outside its layer.
    """
    layers = _learning(model)
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


def _learning(model: nn.Module) -> list[tuple[str, nn.Module]]:
    """Layers with parameters of their own that learn, and their names."""

    def learns(layer: nn.Module) -> bool:
        return any(p is not None and p.requires_grad for p in layer._parameters.values())

    return [(name, layer) for name, layer in model.named_modules() if learns(layer)]


def _tappable(layer: nn.Module) -> bool:
    if "forward" in layer.__dict__ or hasattr(layer, "parametrizations"):
        return False
    if isinstance(layer, nn.RNNBase):
        return lstm.is_known(layer)
    if isinstance(layer, nn.Embedding):
        plain = layer.max_norm is None and not layer.scale_grad_by_freq and not layer.sparse
        return plain and (_kind(layer) == _EMBEDDING or _looks_up_alone(layer))
    _, *takes = inspect.signature(type(layer).forward).parameters.values()
    needed = [one for one in takes if one.default is one.empty and one.kind not in _VARIABLE]
    return len(needed) == 1


@torch.no_grad()
def _looks_up_alone(layer: nn.Embedding) -> bool:
    """Whether the output of an embedding with a `forward` of its own follows from its rows."""
    last = layer.num_embeddings - 1
    ids = torch.tensor([[0, last, 0], [last // 2, 0, last]], device=layer.weight.device)
    try:
        with torch.autocast(layer.weight.device.type, enabled=False):
            plain = type(layer).forward(layer, ids)
            ours = _of_looked_up(layer, functional.embedding(ids, layer.weight))
        return set(layer._parameters) == {"weight"} and torch.allclose(plain, ours)
    except (RuntimeError, TypeError, ValueError, IndexError):
        return False


def _kind(layer: nn.Module) -> str:
    forward = type(layer).forward
    return f"{forward.__module__}.{getattr(forward, '__qualname__', '')}"


def _forward(
    name: str, layer: Any, gradients: UnitGradients, given: Tensor, *rest: Any, **more: Any
) -> Any:
    """What a tapped layer computes in place of its `forward`."""
    embeds, kind = isinstance(layer, nn.Embedding), _kind(layer)
    if embeds and given.dim() == 2 and len(given) == 1:
        given = given.expand(gradients.rows, -1)  # positions that all rows share
    dimensions = 2 if embeds else 3 if kind in (_LINEAR, _TRANSPOSED) else given.dim()
    if len(given) != gradients.rows or given.dim() != dimensions:
        raise TrainingError(
            f"{name} has an input of shape {tuple(given.shape)} for {gradients.rows} sequences, "
            "so gradients per sequence are unknown",
            remedy="Freeze this layer, or remove it from the adapter's target_modules.",
        )
    if isinstance(layer, nn.LSTM):
        if any(state is not None for state in (*rest, *more.values())):
            raise ValueError("state must be None: state between steps is not protected")
        return lstm.forward(layer, gradients, given)
    if embeds:
        return _look_up(layer, gradients, given)
    if kind in (_LINEAR, _TRANSPOSED) and set(layer._parameters) <= {"weight", "bias"}:
        weight = layer.weight.t() if kind == _TRANSPOSED else layer.weight
        deliver: Any = partial(_deliver_product, layer, gradients, kind == _TRANSPOSED)
        return _Product.apply(given, weight, layer.bias, deliver)  # type: ignore[no-untyped-call]
    if kind in _NORMS:
        return _normalize(layer, _NORMS[kind], gradients, given)
    with _holding(layer, _detached(layer)):
        output = type(layer).forward(layer, given, *rest, **more)
    deliver = partial(_deliver_recomputed, name, layer, gradients, (rest, more))
    anchor = next(p for p in layer._parameters.values() if p is not None and p.requires_grad)
    return _Tap.apply(output, given, anchor, deliver)  # type: ignore[no-untyped-call]


class _Product(torch.autograd.Function):
    """x W^T + b, whose backward pass delivers the input and the gradient of the output."""

    @staticmethod
    def forward(
        ctx: Any, given: Tensor, weight: Tensor, bias: Tensor | None, deliver: Any
    ) -> Tensor:
        product = linear(given.flatten(0, -2), weight, bias).view(*given.shape[:-1], -1)
        # Autocast multiplies in half precision; the backward pass then does, too.
        ctx.save_for_backward(given.to(product.dtype), weight)
        ctx.deliver = deliver
        return product

    @staticmethod
    def backward(ctx: Any, *back: Tensor) -> tuple[Tensor | None, None, None, None]:
        given, weight = ctx.saved_tensors
        (gradient,) = back
        ctx.deliver(given.detach(), gradient)  # what is held must not hold the graph in turn
        if not ctx.needs_input_grad[0]:
            return None, None, None, None
        own = linear(gradient.flatten(0, -2), weight.t().to(gradient.dtype))
        return own.view(given.shape), None, None, None


class _Tap(torch.autograd.Function):
    """An output unchanged, whose backward pass delivers what was read and the gradient.

    The anchor learns, so that there is a backward pass; it gets no gradient.
    """

    @staticmethod
    def forward(ctx: Any, output: Tensor, given: Tensor, anchor: Tensor, deliver: Any) -> Tensor:
        ctx.save_for_backward(given)
        ctx.deliver = deliver
        return output.view_as(output)

    @staticmethod
    def backward(ctx: Any, *back: Tensor) -> tuple[Tensor, None, None, None]:
        ctx.deliver(ctx.saved_tensors[0].detach(), back[0])
        return back[0], None, None, None


def _deliver_product(
    layer: Any, gradients: UnitGradients, transposed: bool, given: Tensor, gradient: Tensor
) -> None:
    if layer.weight.requires_grad:
        factors = (given, gradient) if transposed else (gradient, given)
        gradients.add_product(layer.weight, *factors)
    if layer.bias is not None and layer.bias.requires_grad:
        gradients.add(layer.bias, gradient.sum(1))


def _look_up(layer: Any, gradients: UnitGradients, ids: Tensor) -> Tensor:
    """What an embedding gives, also one that does more with what it has looked up (Gemma's)."""

    def deliver(ids: Tensor, gradient: Tensor) -> None:
        if layer.padding_idx is not None:
            gradient = gradient.masked_fill((ids == layer.padding_idx)[..., None], 0)
        gradients.add_lookup(layer.weight, ids, gradient)

    found = functional.embedding(ids, layer.weight.detach())
    found = _Tap.apply(found, ids, layer.weight, deliver)  # type: ignore[no-untyped-call]
    return found if _kind(layer) == _EMBEDDING else _of_looked_up(layer, found)


def _of_looked_up(layer: Any, found: Tensor) -> Tensor:
    """What an embedding computes from rows (rows, t, n) that were looked up."""
    rows, t = found.shape[:2]
    places = torch.arange(rows * t, device=found.device).view(rows, t)
    padding, layer.padding_idx = layer.padding_idx, None
    try:
        with _holding(layer, {"weight": found.flatten(0, 1)}):
            answer: Tensor = type(layer).forward(layer, places)
            return answer
    finally:
        layer.padding_idx = padding


def _normalize(layer: Any, norm: Any, gradients: UnitGradients, given: Tensor) -> Tensor:
    """torch's own norms."""
    scaled = norm(given, layer.normalized_shape, eps=layer.eps)
    kept = scaled.dtype
    scaled = scaled * _of_rows(layer.weight, given, gradients)
    if layer._parameters.get("bias") is not None:
        scaled = scaled + _of_rows(layer.bias, given, gradients)
    answer: Tensor = scaled.to(kept)
    return answer


def _of_rows(vector: Any, given: Tensor, gradients: UnitGradients) -> Tensor:
    """A vector as (rows, 1, ..., n), as many dimensions as what goes in."""
    own: Tensor = vector.detach()
    if not vector.requires_grad:
        return own
    own = own.expand(len(given), *[1] * (given.dim() - 1 - vector.dim()), *vector.shape)

    def deliver(given: Tensor, gradient: Tensor) -> None:
        gradients.add(vector, gradient)

    repeated: Tensor = _Tap.apply(own, given, vector, deliver)  # type: ignore[no-untyped-call]
    return repeated


def _deliver_recomputed(
    name: str, layer: Any, gradients: UnitGradients, rest: Any, given: Tensor, back: Tensor
) -> None:
    """The gradients of each row by itself, once checked against that of all rows together."""
    own = {n: p.detach() for n, p in layer._parameters.items() if p is not None and p.requires_grad}
    positional, named = rest

    def of(rows: Tensor, back: Tensor) -> dict[str, Tensor]:
        def run(parameters: dict[str, Tensor]) -> Tensor:
            with _holding(layer, _detached(layer) | parameters):
                answer: Tensor = type(layer).forward(layer, rows, *positional, **named)
                return answer

        answer, pullback, *_ = torch.func.vjp(run, own)
        found: dict[str, Tensor] = pullback(back.to(answer.dtype))[0]
        return found

    try:
        with torch.enable_grad():
            each: dict[str, Tensor] = torch.vmap(lambda row, one: of(row[None], one[None]))(
                given, back
            )
            unknown = layer not in _CHECKED and len(given) > 1
            together = of(given, back) if unknown else {}
    except RuntimeError as error:
        raise _mixing(name, layer) from error
    for which, summed in together.items():
        scale = summed.abs().max().clamp_min(1e-12)
        total = each[which].sum(0)
        if not torch.allclose(total / scale, summed / scale, _TOLERANCE, _TOLERANCE):
            raise _mixing(name, layer)
        _CHECKED.add(layer)
    for which, found in each.items():
        gradients.add(layer._parameters[which], found)


def _mixing(name: str, layer: nn.Module) -> TrainingError:
    return TrainingError(
        f"{name} is a {type(layer).__name__}, whose gradients per sequence are unknown: it mixes "
        "the rows of a batch, or cannot be run row by row",
        remedy="Freeze it, or train a LoRA adapter (--lora-rank) on frozen layers.",
    )


def _detached(layer: nn.Module) -> dict[str, Tensor]:
    return {name: p.detach() for name, p in layer._parameters.items() if p is not None}


@contextmanager
def _holding(layer: nn.Module, tensors: dict[str, Tensor]) -> Iterator[None]:
    """A layer with tensors in the places of its parameters."""
    layer.__dict__.update(tensors)  # found before the module's parameters are
    parameters = dict(layer._parameters)
    layer._parameters.update(tensors)  # type: ignore[arg-type]
    try:
        yield
    finally:
        layer._parameters.update(parameters)
        for name in tensors:
            del layer.__dict__[name]
