"""Checks of a private training: settings, layers, optimizers and evaluations."""

from collections.abc import Iterator
from typing import Any

import torch
from torch.optim.lr_scheduler import ReduceLROnPlateau
from transformers import EarlyStoppingCallback

from vestige.errors import DataError, TrainingError
from vestige.integrations.private_rows import PrivateRows
from vestige.privacy.taps import trainable, untappable_layers

CROSS_ENTROPY = ("nll", "chunked_nll")
"""TRL's names of losses that are the mean over the targets of a row."""

KNOWN_TRAINERS = ("transformers.Trainer", "trl.SFTTrainer")


def refuse_settings(trainer: Any) -> None:
    """Raise TrainingError for a setting that may break the guarantee."""
    args = trainer.args
    loss_class = next(cls for cls in type(trainer).__mro__ if "compute_loss" in vars(cls))
    loss_owner = f"{loss_class.__module__.partition('.')[0]}.{loss_class.__name__}"
    has_own_loss = loss_owner not in KNOWN_TRAINERS
    has_other_loss = getattr(args, "loss_type", "nll") not in CROSS_ENTROPY
    has_offloading = getattr(args, "activation_offloading", False)
    ddp = "DDP (torchrun), a copy of the model each"
    unsupported = {
        "fp16": (args.fp16, "bf16=True"),
        "deepspeed": (trainer.is_deepspeed_enabled, ddp),
        "fsdp": (trainer.is_fsdp_enabled, ddp),
        "torch_compile": (args.torch_compile, "torch_compile=False"),
        "auto_find_batch_size": (args.auto_find_batch_size, "a batch size that fits"),
        "packing": (getattr(args, "packing", False), "packing=False: a row is one text"),
        "padding_free": (getattr(args, "padding_free", False), "padding_free=False"),
        "label_smoothing_factor": (args.label_smoothing_factor, "label_smoothing_factor=0"),
        "use_liger_kernel": (args.use_liger_kernel, "use_liger_kernel=False"),
        "neftune_noise_alpha": (args.neftune_noise_alpha, "no NEFTune noise"),
        "loss_type": (has_other_loss, "loss_type='nll'"),
        "compute_loss_func": (trainer.compute_loss_func, "the model's own cross-entropy"),
        "a compute_loss of its own": (has_own_loss, "the model's own cross-entropy"),
        "activation_offloading": (has_offloading, "gradient_checkpointing=True"),
        "n_gpu": (args.n_gpu > 1, "torchrun with a process for each GPU"),
    }
    for name, (is_set, instead) in unsupported.items():
        if is_set:
            raise TrainingError(
                f"a private training does not support {name}", remedy=f"Use {instead}."
            )


def refuse_layers(model: Any) -> None:
    """Raise TrainingError if a trainable layer has no gradients per row, or none is trainable."""
    tensors, layers = trainable(model), untappable_layers(model)
    half = sum(parameter.dtype.itemsize < 4 for parameter in tensors)
    if layers:
        name, layer = layers[0]
        problem = (
            f"{name} is trainable and a {type(layer).__name__}, which has no gradients per row "
            f"({len(layers)} such layers)"
        )
        remedy = (
            "Freeze them, or pass `peft_config=LoraConfig(...)` without DoRA. `vestige train "
            "--defence dp-sgd` trains any layer, a row at a time."
        )
    elif half:
        problem = (
            f"{half} of {len(tensors)} trainable tensors have half precision, which rounds the "
            "noise and the sum under it"
        )
        remedy = (
            "Load the model with `dtype=torch.float32`; with `bf16=True` it still multiplies in "
            "half precision."
        )
    elif not tensors:
        problem = f"{type(model).__name__} has no trainable weights"
        remedy = "Pass `peft_config=LoraConfig(...)`, or set requires_grad."
    else:
        return
    raise TrainingError(problem, remedy=remedy)


def refuse_optimizer(optimizer: torch.optim.Optimizer, model: Any) -> None:
    """Raise TrainingError if the optimizer lacks a trainable tensor."""
    optimized = {id(p) for group in optimizer.param_groups for p in group["params"]}
    trainable_ids = {id(p) for p in model.parameters() if p.requires_grad}
    if trainable_ids - optimized:
        raise TrainingError(
            f"{len(trainable_ids - optimized)} of {len(trainable_ids)} trainable tensors are not "
            "in the optimizer",
            remedy=(
                "Add the adapter and move the model before making the optimizer, or leave "
                "`optimizers` to the trainer."
            ),
        )


def evaluation_units(trainer: Any, rows: PrivateRows, user_column: str | None) -> int:
    """Number of evaluation rows or users by which weights or steps are chosen, without noise.

    Raises:
        TrainingError: the training protects some of them.
        DataError: the overlap is unknown.
    """
    setting, evaluated = _choosing_setting(trainer), trainer.eval_dataset
    if not setting or evaluated is None:
        return 0
    data_sets = evaluated.values() if isinstance(evaluated, dict) else [evaluated]
    units = {unit for data in data_sets for unit in _units_of(data, user_column)}
    protected = rows.users
    if protected is None:
        protected = frozenset(_units_of(trainer.train_dataset, None))
    if overlap := len(units & protected):
        kind = "rows" if user_column is None else "users"
        raise TrainingError(
            f"{setting} chooses by an evaluation without noise on {overlap:,} of the "
            f"{len(protected):,} {kind} that the training protects",
            remedy=f"Pass an `eval_dataset` with none of these {kind}, or leave out {setting}.",
        )
    return len(units)


def _choosing_setting(trainer: Any) -> str:
    """The setting by which an evaluation chooses weights or steps; "" without one."""
    args, plateau = trainer.args, "reduce_lr_on_plateau"
    stops_early = (
        isinstance(callback, EarlyStoppingCallback)
        for callback in trainer.callback_handler.callbacks
    )
    settings = {
        "load_best_model_at_end": args.load_best_model_at_end,
        "save_strategy='best'": args.save_strategy == "best",
        f"lr_scheduler_type='{plateau}'": args.lr_scheduler_type == plateau,
        "ReduceLROnPlateau": isinstance(trainer.lr_scheduler, ReduceLROnPlateau),
        "EarlyStoppingCallback": any(stops_early),
    }
    return next((name for name, is_set in settings.items() if is_set), "")


def _units_of(data: Any, user_column: str | None) -> Iterator[str]:
    """Rows of a data set as the trainer reads them, or names of its users."""
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
            f"the evaluation set has no column {user_column}, and may have rows of protected users",
            remedy="Add the column, or remove the setting that chooses by an evaluation.",
        )
