"""Transformers' `Trainer`, and what is built on it, with DP-SGD for adapters and whole models.

Abadi et al. (2016), "Deep Learning with Differential Privacy", Algorithm 1. A row of the training
set, or a user with all of theirs, joins a step by a lot of its own; each one's gradient is clipped
(`vestige.privacy.clipping`), and noise comes from the operating system's entropy.

Dropout masks follow from the same secret and from a row's number, never from `args.seed`, so that
one row more adds its own clipped gradient and changes nothing else, with dropout as without
(`vestige.privacy.masks` has the argument). Rows are moved to the left of what pads them.

Epsilon covers the weights after every step that was planned. What it cannot cover is refused: a
choice by an evaluation of protected rows (the best checkpoint, early stopping, a schedule that
looks at it), and more steps than planned. Callbacks that choose by what they read of the training
set are not seen, and a data collator must draw nothing and read each row alone. Several trainings
of one model in a process count together, as if they had read the same rows; a model that something
else has trained since it was loaded has no guarantee (`model_history`).

Differs from the paper: a row's loss is the mean over its own targets.
"""

import inspect
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.utils.data import DataLoader
from transformers import Trainer

from vestige.defences.methods.private import DPSGD
from vestige.errors import TrainingError
from vestige.integrations.private_plan import PrivateRows, PrivateTraining
from vestige.integrations.private_settings import held_out, refuse_settings
from vestige.integrations.row_losses import Rows, from_the_left, other_loss, row_losses
from vestige.models.lora import only_our_warnings
from vestige.privacy.clipping import Rule, clip_gradients
from vestige.privacy.dp_sgd import NoisyStep
from vestige.privacy.masks import StepChance, refuse_other_chance
from vestige.privacy.taps import trainable, untappable_layers
from vestige.training.key_file import KEY, read_secret, write_secret
from vestige.training.secret import Secret


def private(trainer: type[Trainer]) -> type[Trainer]:
    """A class of trainers whose trainings are differentially private.

    It takes what `trainer` takes, and

    - privacy: the budget, the unit and the clipping norm, as `vestige.DPSGD(epsilon=8)`;
    - user_column: of the training set, whose each row is; needed where the unit is a user;
    - peft_config: an adapter to put on the model, where `trainer` does not take one itself.

    A lot has `per_device_train_batch_size` times `gradient_accumulation_steps` times processes rows
    (or users) on average; so many rows as `per_device_train_batch_size` are computed at once.

    Example:
        >>> private(Trainer).__name__
        'PrivateTrainer'
    """
    return type(f"Private{trainer.__name__}", (_Private, trainer), {"__doc__": private.__doc__})


class _Private(Trainer):  # type: ignore[misc]
    """What a private trainer does in another way. See `private`."""

    def __init__(
        self,
        model: Any = None,
        *args: Any,
        privacy: DPSGD,
        user_column: str | None = None,
        peft_config: Any = None,
        **kwargs: Any,
    ) -> None:
        plain = super().__init__
        if peft_config is not None and "peft_config" in inspect.signature(plain).parameters:
            kwargs["peft_config"] = peft_config
        elif peft_config is not None:
            from peft import get_peft_model

            with only_our_warnings():
                model = get_peft_model(model, peft_config)
        bound = inspect.signature(plain).bind_partial(model, *args, **kwargs)
        given = PrivateRows.of(bound.arguments.get("train_dataset"), privacy, user_column)
        plain(model, *args, **kwargs)
        refuse_settings(self)
        self._private = PrivateTraining.of(given.read_by(self.train_dataset), privacy, self.args)
        self._physical = privacy.physical_batch_size or self.args.per_device_train_batch_size
        self.args.gradient_accumulation_steps = 1  # a lot is a step, however it is computed
        self.args.max_grad_norm = 0.0  # each row's gradient is clipped, and not their noisy sum
        self._noise: NoisyStep | None = None
        self._user_column = user_column

    @property
    def privacy_statement(self) -> tuple[str, ...]:
        """What the training promises, in sentences."""
        return self._private.statement(self.state.global_step or None).sentences()

    def train(self, resume_from_checkpoint: str | bool | None = None, **rest: Any) -> Any:
        """Train privately; see `Trainer.train`.

        Raises:
            TrainingError: a layer that learns cannot be tapped, mixes rows, or is in half
                precision; the loss is not the next tokens' cross-entropy; rows use randomness other
                than dropout; an evaluation of protected rows chooses; more steps are taken than
                were planned; or a training is resumed without its secret, or as another one.
        """
        self._check_learning()
        self._check_loss()
        judging = held_out(self, self._private.rows, self._user_column)
        self._private = replace(self._private, held_out=judging)
        place = Path(self.args.output_dir)
        resumed = bool(resume_from_checkpoint)
        given = self._private.privacy.secret()
        make = partial(_secret, place / KEY, given=given, resumed=resumed)
        self._secret = _shared(make, self.args.process_index)
        self._private = self._private.planned(self.args, place if resumed else None, self.model)
        first = self.args.process_index == 0
        if first and not resumed:
            self._private.write(place)
        self._noise = NoisyStep(
            self._private.noise, self._private.clip, self._private.expected_units
        )
        self._private.remembered(self.model)
        result = super().train(resume_from_checkpoint=resume_from_checkpoint, **rest)
        self._private.remembered(self.model, self.state.global_step)
        if first:
            (place / KEY).unlink(missing_ok=True)
        return result

    def get_train_dataloader(self) -> DataLoader[int]:
        """Numbers in place of batches: what a step reads follows from its number and the secret."""
        numbers: Any = range(self._private.steps_per_epoch)
        return DataLoader(numbers, batch_size=1)

    def get_batch_samples(self, epoch_iterator: Any, num_batches: int, device: Any) -> Any:
        """A number, and no count of items."""
        return [{"lot": next(epoch_iterator)}], None

    def training_step(self, model: Any, inputs: Any, num_items_in_batch: Any = None) -> Tensor:
        """Put the noised, clipped mean gradient of a lot into `.grad`; the lot's mean loss."""
        assert self._noise is not None
        if self.state.global_step == self._initial_global_step:
            self._check_optimizer()
        if self.state.global_step >= self._private.steps:
            raise TrainingError(
                f"all {self._private.steps:,} planned steps were taken; the guarantee allows no "
                "more",
                remedy="Set `max_steps` or `num_train_epochs` before `train`.",
            )
        self.model.train()
        step, world = self.state.global_step, self.args.world_size
        self._noise.draw_from(self._secret, step)
        self._noise.begin(self.model, None, noised=not self.args.process_index)
        rows, users = self._private.lot(self._secret, step, self.args.process_index, world)
        clipped = clip_gradients(
            self.model,
            lambda places: self._losses(rows[places.numpy()]),
            torch.from_numpy(users),
            torch.from_numpy(rows),
            self._rule,
        )
        self._noise.end(clipped.norms)
        loss = clipped.loss.to(self.args.device)
        _sum_over_processes([p.grad for p in self.model.parameters() if p.requires_grad])
        return loss / max(len(rows), 1)

    def log(self, logs: dict[str, float], start_time: float | None = None) -> None:
        """See `Trainer.log`; with the median norm and the share that was clipped."""
        if self._noise is not None and "loss" in logs:
            found = self._noise.measured()
            logs.update({f"privacy/{name}": value for name, value in found.items()})
        super().log(logs, start_time)

    def save_model(self, output_dir: str | None = None, _internal_call: bool = False) -> None:
        """See `Trainer.save_model`; the privacy statement stands beside the weights."""
        super().save_model(output_dir, _internal_call)
        if self.args.should_save and self._private.entry is not None:
            folder = Path(output_dir or self.args.output_dir)
            self._private.write(folder, self.state.global_step)

    @property
    def _rule(self) -> Rule:
        assert self._noise is not None
        return Rule(
            max_grad_norm=self._private.clip,
            expected_units=self._private.expected_units,
            chance=self._noise.chance(self.args.device),
            rows_at_once=self._physical,
        )

    def _losses(self, rows: np.ndarray[Any, Any]) -> Tensor:
        """(k,) mean cross-entropy of the targets of each row."""
        inputs = self._prepare_inputs(Rows.of(self, self.train_dataset).inputs(rows.tolist()))
        with self.compute_loss_context_manager():
            return row_losses(self.model, from_the_left(inputs))

    def _check_learning(self) -> None:
        learning, unknown = trainable(self.model), untappable_layers(self.model)
        half = sum(parameter.dtype.itemsize < 4 for parameter in learning)
        if unknown:
            name, layer = unknown[0]
            problem = (
                f"{name} is trainable and a {type(layer).__name__}, which has no gradients per "
                f"row ({len(unknown)} such layers)"
            )
            remedy = (
                "Freeze them, or pass `peft_config=LoraConfig(...)` without DoRA. `vestige train "
                "--defence dp-sgd` trains any layer, a row at a time."
            )
        elif half:
            problem = (
                f"{half} of {len(learning)} trainable tensors have half precision, which rounds "
                "the noise and the sum under it"
            )
            remedy = (
                "Load the model with `dtype=torch.float32`; with `bf16=True` it still multiplies "
                "in half precision."
            )
        elif not learning:
            problem = f"{type(self.model).__name__} has no trainable weights"
            remedy = "Pass `peft_config=LoraConfig(...)`, or set requires_grad."
        else:
            return
        raise TrainingError(problem, remedy=remedy)

    @torch.no_grad()
    def _check_loss(self) -> None:
        """A row's loss is the model's own: that of the first row, which nothing tells of."""
        self.model.eval()
        inputs = self._prepare_inputs(Rows.of(self, self.train_dataset).inputs([0]))
        with self.compute_loss_context_manager():
            problem = other_loss(self.model, inputs)
        self.model.train()
        if problem:
            raise TrainingError(
                f"{problem}; a private step needs the loss of each row",
                remedy=(
                    "Pass a causal language model, and a collator such as "
                    "`DataCollatorForLanguageModeling(tokenizer, mlm=False)`."
                ),
            )
        refuse_other_chance(
            StepChance(bytes(32), self.args.device), lambda places: self._losses(places.numpy())
        )

    def _check_optimizer(self) -> None:
        """What the noise goes into is what the optimizer moves, wherever it was moved before."""
        moved = {id(p) for group in self.optimizer.param_groups for p in group["params"]}
        learning = {id(p) for p in self.model.parameters() if p.requires_grad}
        if learning - moved:
            raise TrainingError(
                f"{len(learning - moved)} of {len(learning)} trainable tensors are not in the "
                "optimizer",
                remedy=(
                    "Add the adapter and move the model before making the optimizer, or leave "
                    "`optimizers` to the trainer."
                ),
            )


def _secret(path: Path, *, given: Secret | None, resumed: bool) -> Secret:
    """The secret of a training that goes on, or a new one in its place."""
    if resumed:
        return read_secret(path)
    secret = given or Secret.fresh()
    path.parent.mkdir(parents=True, exist_ok=True)
    write_secret(path, secret)
    return secret


def _shared(make: Callable[[], Secret], process: int) -> Secret:
    """The first process's secret, for all."""
    if not (torch.distributed.is_available() and torch.distributed.is_initialized()):
        return make()
    told: list[Any] = [None]
    if process == 0:
        try:
            told = [make().reveal()]
        except TrainingError as error:
            told = [error]
    torch.distributed.broadcast_object_list(told, src=0)
    if isinstance(told[0], TrainingError):
        raise told[0]
    return Secret(told[0])


def _sum_over_processes(gradients: list[Any]) -> None:
    if not (torch.distributed.is_available() and torch.distributed.is_initialized()):
        return
    for gradient in gradients:
        torch.distributed.all_reduce(gradient)


PrivateTrainer = private(Trainer)
