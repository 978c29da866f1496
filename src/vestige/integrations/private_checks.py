"""What a private training refuses: settings, layers, optimizers and evaluations."""

from collections.abc import Iterator
from typing import Any

import torch
from torch.optim.lr_scheduler import ReduceLROnPlateau
from transformers import EarlyStoppingCallback

from vestige.errors import DataError, TrainingError
from vestige.integrations.private_plan import PrivateRows
from vestige.privacy.taps import trainable, untappable_layers

CROSS_ENTROPY = ("nll", "chunked_nll")
"""Losses by TRL's names that are the mean over a row's targets."""

OWN_LOSSES = ("transformers.Trainer", "trl.SFTTrainer")


def refuse_settings(trainer: Any) -> None:
    """Raise TrainingError for a setting that breaks the guarantee, or may break it."""
    args = trainer.args
    owner = next(one for one in type(trainer).__mro__ if "compute_loss" in vars(one))
    computes_loss = f"{owner.__module__.split('.')[0]}.{owner.__name__}" not in OWN_LOSSES
    other_loss = getattr(args, "loss_type", "nll") not in CROSS_ENTROPY
    offloads = getattr(args, "activation_offloading", False)
    copies = "DDP (torchrun), a copy of the model each"
    found = {
        "fp16": (args.fp16, "bf16=True"),
        "deepspeed": (trainer.is_deepspeed_enabled, copies),
        "fsdp": (trainer.is_fsdp_enabled, copies),
        "torch_compile": (args.torch_compile, "torch_compile=False"),
        "auto_find_batch_size": (args.auto_find_batch_size, "a batch size that fits"),
        "packing": (getattr(args, "packing", False), "packing=False: a row is one text"),
        "padding_free": (getattr(args, "padding_free", False), "padding_free=False"),
        "label_smoothing_factor": (args.label_smoothing_factor, "label_smoothing_factor=0"),
        "use_liger_kernel": (args.use_liger_kernel, "use_liger_kernel=False"),
        "neftune_noise_alpha": (args.neftune_noise_alpha, "no NEFTune noise"),
        "loss_type": (other_loss, "loss_type='nll'"),
        "compute_loss_func": (trainer.compute_loss_func, "the model's own cross-entropy"),
        "a compute_loss of its own": (computes_loss, "the model's own cross-entropy"),
        "activation_offloading": (offloads, "gradient_checkpointing=True"),
        "n_gpu": (args.n_gpu > 1, "torchrun with a process for each GPU"),
    }
    for name, (given, instead) in found.items():
        if given:
            raise TrainingError(
                f"a private training does not support {name}", remedy=f"Use {instead}."
            )


def refuse_layers(model: Any) -> None:
    """Raise TrainingError for trainable layers whose rows cannot be clipped, or if none learns."""
    learning, unknown = trainable(model), untappable_layers(model)
    half = sum(parameter.dtype.itemsize < 4 for parameter in learning)
    if unknown:
        name, layer = unknown[0]
        problem = (
            f"{name} is trainable and a {type(layer).__name__}, which has no gradients per row "
            f"({len(unknown)} such layers)"
        )
        remedy = (
            "Freeze them, or pass `peft_config=LoraConfig(...)` without DoRA. `vestige train "
            "--defence dp-sgd` trains any layer, a row at a time."
        )
    elif half:
        problem = (
            f"{half} of {len(learning)} trainable tensors have half precision, which rounds the "
            "noise and the sum under it"
        )
        remedy = (
            "Load the model with `dtype=torch.float32`; with `bf16=True` it still multiplies in "
            "half precision."
        )
    elif not learning:
        problem = f"{type(model).__name__} has no trainable weights"
        remedy = "Pass `peft_config=LoraConfig(...)`, or set requires_grad."
    else:
        return
    raise TrainingError(problem, remedy=remedy)


def refuse_optimizer(optimizer: torch.optim.Optimizer, model: Any) -> None:
    """Raise TrainingError for an optimizer that lacks some of the tensors that get the noise."""
    moved = {id(p) for group in optimizer.param_groups for p in group["params"]}
    learning = {id(p) for p in model.parameters() if p.requires_grad}
    if learning - moved:
        raise TrainingError(
            f"{len(learning - moved)} of {len(learning)} trainable tensors are not in the "
            "optimizer",
            remedy=(
                "Add the adapter and move the model before making the optimizer, or leave "
                "`optimizers` to the trainer."
            ),
        )


def held_out(trainer: Any, rows: PrivateRows, user_column: str | None) -> int:
    """Number of rows (or users) by whose evaluation weights or steps are chosen, without noise.

    Raises:
        TrainingError: some of them are protected.
        DataError: that cannot be known.
    """
    chooses, sets = _chooses(trainer), trainer.eval_dataset
    if not chooses or sets is None:
        return 0
    evaluated = sets.values() if isinstance(sets, dict) else [sets]
    found = {unit for data in evaluated for unit in _units(data, user_column)}
    protected = rows.names if rows.names is not None else set(_units(trainer.train_dataset, None))
    if shared := len(found & protected):
        kind = "rows" if user_column is None else "users"
        raise TrainingError(
            f"{chooses} chooses by an evaluation without noise on {shared:,} of the "
            f"{len(protected):,} {kind} that the training protects",
            remedy=f"Pass an `eval_dataset` with none of these {kind}, or leave out {chooses}.",
        )
    return len(found)


def _chooses(trainer: Any) -> str:
    """The setting by which an evaluation chooses weights or steps; "" if none does."""
    args, callbacks = trainer.args, trainer.callback_handler.callbacks
    plateau = "reduce_lr_on_plateau"
    found = {
        "load_best_model_at_end": args.load_best_model_at_end,
        "save_strategy='best'": args.save_strategy == "best",
        f"lr_scheduler_type='{plateau}'": args.lr_scheduler_type == plateau,
        "ReduceLROnPlateau": isinstance(trainer.lr_scheduler, ReduceLROnPlateau),
        "EarlyStoppingCallback": any(isinstance(o, EarlyStoppingCallback) for o in callbacks),
    }
    return next((name for name, given in found.items() if given), "")


def _units(data: Any, user_column: str | None) -> Iterator[str]:
    """Texts of a data set's rows as the trainer reads them, or names of its users."""
    if not (hasattr(data, "__len__") and hasattr(data, "__getitem__")):
        raise DataError(
            "the evaluation set has no length, so its overlap with the training set is unknown",
            remedy="Pass a `datasets.Dataset`, not a stream.",
        )
    columns = getattr(data, "column_names", None) or []
    if user_column is None:
        column = next((name for name in ("input_ids", "text") if name in columns), None)
        yield from map(str, data if column is None else data[column])
    elif user_column in columns:
        yield from map(str, data[user_column])
    else:
        raise DataError(
            f"the evaluation set has no column {user_column}, and can have rows of protected users",
            remedy="Add the column, or leave out what chooses by an evaluation.",
        )
