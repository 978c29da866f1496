"""Ghost clipping by Opacus, of models with a layer that `example_layers` does not know.

Ghost clipping (Li et al. 2022, "Large Language Models Can Be Strong Differentially Private
Learners", section 4) as Opacus has it: a backward pass for the norms, and one for the sum of the
losses, each times its coefficient. It takes twice the time of ours, and forms the gradients of
layers that it has no norm for. Where a weight is used twice (tied embeddings), Opacus' norms do
not know of each other; then the examples' gradients are formed, a layer at a time.
"""

import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch

from vestige.defences.clipping import Clipped, Rule, numbers_of, summed_losses, trainable
from vestige.defences.example_layers import unknown_layers
from vestige.errors import TrainingError
from vestige.models.protocols import LanguageModel
from vestige.training.batches import Batch


def clip_opacus(model: LanguageModel, batch: Batch, rule: Rule) -> Clipped:
    """A `ClipFn` for any model that Opacus can hook into.

    Raises:
        TrainingError: it cannot, as with a GRU, or layers that mix the examples of a batch.
    """
    if any(isinstance(module, torch.nn.RNNBase) for module in model.modules()):
        raise TrainingError(
            f"{model.architecture} has no gradients per sequence",
            remedy="Train an LSTM (--architecture lstm), or use --unit user.",
        )
    learning = trainable(model)
    before = [parameter.grad for parameter in learning]
    ghost = not shares_weights(model)
    with rule.by_row(numbers_of(batch)), _hooked(model, rule.max_grad_norm, ghost=ghost) as hooks:
        losses = summed_losses(model, batch)
        for parameter in learning:
            parameter.grad = None
        (losses.sum() / rule.tokens_per_sequence).backward(retain_graph=True)  # type: ignore[no-untyped-call]
        norms = _norms(hooks, learning)
        hooks.disable_hooks()
        for parameter, gradient in zip(learning, before, strict=True):
            parameter.grad = gradient
        weights = rule.weights(norms) / rule.tokens_per_sequence
        (losses * weights).sum().backward()  # type: ignore[no-untyped-call]
    return Clipped(norms, losses.sum().detach())


def shares_weights(model: LanguageModel) -> bool:
    """Whether two modules use one trainable tensor."""
    named = model.named_parameters(remove_duplicate=False)
    learning = [parameter for _, parameter in named if parameter.requires_grad]
    return len(learning) > len({id(parameter) for parameter in learning})


def _norms(hooks: Any, learning: list[Any]) -> torch.Tensor:
    missing = [p for p in learning if getattr(p, "_norm_sample", None) is None]
    if missing:
        raise TrainingError(
            f"{len(missing)} trainable tensors have no gradient per example, one of shape "
            f"{tuple(missing[0].shape)}",
            remedy="Unset requires_grad for parameters that the model does not use.",
        )
    norms: torch.Tensor = hooks.get_norm_sample().detach()
    return norms


@contextmanager
def _hooked(model: LanguageModel, max_grad_norm: float, *, ghost: bool) -> Iterator[Any]:
    """Opacus' hooks on a model, for one batch; nothing of them stays."""
    from opacus.grad_sample.grad_sample_module_fast_gradient_clipping import (
        GradSampleHooksFastGradientClipping,
    )

    with warnings.catch_warnings():
        # Hooks on inputs that need no gradient, such as ids: Opacus uses the outputs' alone.
        warnings.filterwarnings("ignore", message="Full backward hook is firing")
        try:
            hooks = GradSampleHooksFastGradientClipping(
                model,
                loss_reduction="sum",
                strict=False,
                max_grad_norm=max_grad_norm,
                use_ghost_clipping=ghost,
            )
        except NotImplementedError as error:
            ours = [f"the {type(one).__name__} {name}" for name, one in unknown_layers(model)]
            own = f"; Vestige cannot either, because of {ours[0]}" if ours else ""
            raise TrainingError(
                f"Opacus cannot clip this model's gradients ({error}){own}",
                remedy="Train a LoRA adapter (--lora-rank) on frozen layers, or use --unit user.",
            ) from error
        try:
            yield hooks
        finally:
            hooks.remove_hooks()
            for module in model.modules():
                for name in ("activations", "max_batch_len"):
                    module.__dict__.pop(name, None)
            for parameter in model.parameters():
                for name in (
                    "_norm_sample",
                    "grad_sample",
                    "_forward_counter",
                    "_current_grad_sample",
                ):
                    parameter.__dict__.pop(name, None)
