"""Settings of a trainer that a private training cannot take, or that its promise must name."""

from collections.abc import Iterator
from typing import Any

import torch
from transformers import EarlyStoppingCallback

from vestige.errors import DataError, TrainingError
from vestige.integrations.private_plan import PrivateRows

CROSS_ENTROPY = ("nll", "chunked_nll")
"""Losses by TRL's names that are the mean over a row's targets."""


def refuse_settings(trainer: Any) -> None:
    """Refuse what would make a guarantee untrue, or is not known to keep it.

    Raises:
        TrainingError: naming the setting.
    """
    args = trainer.args
    found = {
        "fp16": (args.fp16, "bf16=True"),
        "deepspeed": (trainer.is_deepspeed_enabled, "DDP (torchrun), a copy of the model each"),
        "fsdp": (trainer.is_fsdp_enabled, "DDP (torchrun), a copy of the model each"),
        "torch_compile": (args.torch_compile, "torch_compile=False"),
        "auto_find_batch_size": (args.auto_find_batch_size, "a batch size that fits"),
        "packing": (getattr(args, "packing", False), "packing=False: a row is one text"),
        "padding_free": (getattr(args, "padding_free", False), "padding_free=False"),
        "label_smoothing_factor": (args.label_smoothing_factor, "label_smoothing_factor=0"),
        "use_liger_kernel": (args.use_liger_kernel, "use_liger_kernel=False"),
        "neftune_noise_alpha": (args.neftune_noise_alpha, "no NEFTune noise"),
        "loss_type": (getattr(args, "loss_type", "nll") not in CROSS_ENTROPY, "loss_type='nll'"),
        "compute_loss_func": (trainer.compute_loss_func, "the model's own cross-entropy"),
        "a compute_loss of its own": (_computes_loss(trainer), "the model's own cross-entropy"),
        "activation_offloading": (
            getattr(args, "activation_offloading", False),
            "gradient_checkpointing=True",
        ),
        "n_gpu": (args.n_gpu > 1, "torchrun with a process for each GPU"),
    }
    for name, (given, instead) in found.items():
        if given:
            raise TrainingError(
                f"a private training does not support {name}", remedy=f"Use {instead}."
            )


def _computes_loss(trainer: Any) -> bool:
    """Whether a loss is computed elsewhere than in Transformers' or TRL's trainer of texts."""
    owner = next(one for one in type(trainer).__mro__ if "compute_loss" in vars(one))
    return f"{owner.__module__.split('.')[0]}.{owner.__name__}" not in (
        "transformers.Trainer",
        "trl.SFTTrainer",
    )


def held_out(trainer: Any, rows: PrivateRows, user_column: str | None) -> int:
    """How many rows (or users) choose weights or steps by an evaluation, which has no noise.

    They are not protected. Without a setting that evaluates in order to choose, 0.

    Args:
        trainer: with its data sets as it reads them.
        rows: that the training protects.
        user_column: whose each row is; None where a row is the unit.

    Raises:
        TrainingError: some of them are to be protected.
        DataError: it cannot be told.
    """
    chooses = _chooses(trainer)
    sets = trainer.eval_dataset
    if not chooses or sets is None:
        return 0
    evaluated = list(sets.values()) if isinstance(sets, dict) else [sets]
    found: set[str] = set()
    for data in evaluated:
        found.update(_units(data, user_column))
    protected = rows.names if rows.names is not None else set(_units(trainer.train_dataset, None))
    shared = len(found & protected)
    if shared:
        kind = "rows" if user_column is None else "users"
        raise TrainingError(
            f"{chooses} chooses by an evaluation without noise on {shared:,} of the "
            f"{len(protected):,} {kind} that the training protects",
            remedy=f"Pass an `eval_dataset` with none of these {kind}, or leave out {chooses}.",
        )
    return len(found)


def _chooses(trainer: Any) -> str:
    """The setting by which an evaluation chooses weights or steps; "" where none does."""
    args, scheduler = trainer.args, trainer.lr_scheduler
    callbacks = trainer.callback_handler.callbacks
    found = {
        "load_best_model_at_end": args.load_best_model_at_end,
        "save_strategy='best'": args.save_strategy == "best",
        "lr_scheduler_type='reduce_lr_on_plateau'": args.lr_scheduler_type
        == "reduce_lr_on_plateau",
        "ReduceLROnPlateau": isinstance(scheduler, torch.optim.lr_scheduler.ReduceLROnPlateau),
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
