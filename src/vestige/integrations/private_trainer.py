"""Transformers' `Trainer`, and trainers built on it, with DP-SGD for adapters and whole models.

Abadi et al. (2016), "Deep Learning with Differential Privacy", Algorithm 1. A row of the training
set, or a user with all rows, is sampled for a step independently of the others; its gradient is
clipped (`vestige.privacy.dp_sgd`), and noise comes from the operating system's entropy.

Dropout masks follow from the same secret and from a row's number, never from `args.seed`, so that
one row more adds its own clipped gradient and changes nothing else (the argument:
`vestige.privacy.randomness`). Padding is moved after the rows.

Epsilon covers the weights after every planned step. What it cannot cover is refused: a choice by an
evaluation of protected rows (the best checkpoint, early stopping, a schedule that looks at it), and
more steps than planned. A data collator must draw nothing and read each row alone; callbacks that
choose by the training set are not noticed. Several trainings of one model in a process count
together, as if they had read the same rows; a model that something else has trained since it was
loaded has no guarantee (`private_plan`).

Differs from the paper: a row's loss is the mean over its own targets.
"""

import inspect
from collections.abc import Callable
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
from vestige.integrations.private_checks import (
    held_out,
    refuse_layers,
    refuse_optimizer,
    refuse_settings,
)
from vestige.integrations.private_plan import PrivateRows, PrivateTraining
from vestige.integrations.rows import Rows, from_the_left, other_loss, row_losses
from vestige.models.lora import only_our_warnings
from vestige.privacy.dp_sgd import NoisyStep
from vestige.privacy.randomness import StepRandomness, refuse_other_randomness
from vestige.training.directory import KEY, read_secret, write_secret
from vestige.training.secret import Secret


def private(trainer: type[Trainer]) -> type[Trainer]:
    """A class of trainers whose trainings are differentially private.

    It takes what `trainer` takes, and

    - privacy: the budget, the unit and the clipping norm, as `vestige.DPSGD(epsilon=8)`;
    - user_column: of the training set, with the user of each row; needed if the unit is a user;
    - peft_config: an adapter to put on the model, if `trainer` does not take one itself.

    A step has `per_device_train_batch_size` times `gradient_accumulation_steps` times processes
    rows (or users) on average; `per_device_train_batch_size` rows are computed at once.

    Example:
        >>> private(Trainer).__name__
        'PrivateTrainer'
    """
    return type(f"Private{trainer.__name__}", (_Private, trainer), {"__doc__": private.__doc__})


class _Private(Trainer):  # type: ignore[misc]
    """The methods that a private trainer replaces. See `private`."""

    _private: PrivateTraining | None = None
    _noise: NoisyStep | None = None

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
        rows = PrivateRows.of(bound.arguments.get("train_dataset"), privacy, user_column)
        plain(model, *args, **kwargs)
        refuse_settings(self)
        self._rows = rows.batched(self.train_dataset, privacy, self.args)
        self._privacy, self._user_column = privacy, user_column
        self._rows_at_once = privacy.physical_batch_size or self.args.per_device_train_batch_size
        self.args.gradient_accumulation_steps = 1  # a batch is a step, however it is computed
        self.args.max_grad_norm = 0.0  # each row's gradient is clipped, and not their noisy sum

    @property
    def privacy_statement(self) -> tuple[str, ...]:
        """The guarantee of the training, in sentences: once it has begun."""
        assert self._private is not None
        return self._private.statement(self.state.global_step or None).sentences()

    def train(self, resume_from_checkpoint: str | bool | None = None, **rest: Any) -> Any:
        """Train privately; see `Trainer.train`.

        Raises:
            TrainingError: a trainable layer cannot be tapped, mixes rows, or is in half precision;
                the loss is not the next tokens' cross-entropy; rows use randomness other than
                dropout; an evaluation of protected rows chooses; more steps are taken than were
                planned; or a training is resumed without its secret, or as another one.
        """
        refuse_layers(self.model)
        self._check_loss()
        judging = held_out(self, self._rows, self._user_column)
        place, privacy = Path(self.args.output_dir), self._privacy
        resumed, first = bool(resume_from_checkpoint), self.args.process_index == 0
        make = partial(_secret, place / KEY, given=privacy.secret(), resumed=resumed)
        self._secret = _shared(make, self.args.process_index)
        training = self._private = PrivateTraining.of(
            self._rows, privacy, self, held_out=judging, begun=place if resumed else None
        )
        if first and not resumed:
            training.write(place)
        noise = training.plan.defence.noise
        self._noise = NoisyStep(noise, privacy.max_grad_norm, self._rows.expected_units)
        training.remember(self.model)
        result = super().train(resume_from_checkpoint=resume_from_checkpoint, **rest)
        training.remember(self.model, self.state.global_step)
        if first:
            (place / KEY).unlink(missing_ok=True)
        return result

    def get_train_dataloader(self) -> DataLoader[int]:
        """Numbers in place of batches: a step's rows follow from its number and the secret."""
        numbers: Any = range(self._rows.steps_per_epoch)
        return DataLoader(numbers, batch_size=1)

    def get_batch_samples(self, epoch_iterator: Any, num_batches: int, device: Any) -> Any:
        """A number, and no count of items."""
        return [{"step": next(epoch_iterator)}], None

    def training_step(self, model: Any, inputs: Any, num_items_in_batch: Any = None) -> Tensor:
        """Put the noised, clipped mean gradient of a batch into `.grad`; the batch's mean loss."""
        noise, private, step = self._noise, self._private, self.state.global_step
        assert noise is not None
        assert private is not None
        if step == self._initial_global_step:
            refuse_optimizer(self.optimizer, self.model)
        if step >= private.plan.steps:
            raise TrainingError(
                f"all {private.plan.steps:,} planned steps were taken; the guarantee allows no "
                "more",
                remedy="Set `max_steps` or `num_train_epochs` before `train`.",
            )
        self.model.train()
        process, processes = self.args.process_index, self.args.world_size
        noise.draw_from(self._secret, step)
        noise.begin(self.model, None, noised=process == 0)
        rows, units = self._rows.batch(self._secret, step, process, processes)
        device = self.args.device

        def losses(places: Tensor) -> Tensor:
            return self._losses(rows[places.cpu().numpy()])

        owners, numbers = torch.from_numpy(units).to(device), torch.from_numpy(rows)
        loss = noise.add_clipped(
            self.model, losses, owners, numbers, rows_at_once=self._rows_at_once
        )
        if _together():
            for parameter in self.model.parameters():
                if parameter.requires_grad:
                    torch.distributed.all_reduce(parameter.grad)
        return loss / max(len(rows), 1)

    def log(self, logs: dict[str, float], start_time: float | None = None) -> None:
        """See `Trainer.log`; with the median norm and the share that was clipped."""
        if self._noise is not None and "loss" in logs:
            found = self._noise.measured()
            logs.update({f"privacy/{name}": value for name, value in found.items()})
        super().log(logs, start_time)

    def save_model(self, output_dir: str | None = None, _internal_call: bool = False) -> None:
        """See `Trainer.save_model`; ledger and statement are written beside the weights."""
        super().save_model(output_dir, _internal_call)
        if self.args.should_save and self._private is not None:
            self._private.write(Path(output_dir or self.args.output_dir), self.state.global_step)

    def _inputs(self, rows: list[int]) -> dict[str, Any]:
        own = Rows.of(self, self.train_dataset)
        assert own is not None  # `PrivateRows` needs its length
        inputs: dict[str, Any] = self._prepare_inputs(own.inputs(rows))
        return inputs

    def _losses(self, rows: np.ndarray[Any, Any]) -> Tensor:
        """(k,) mean cross-entropy of the targets of each row."""
        inputs = self._inputs(rows.tolist())
        with self.compute_loss_context_manager():
            return row_losses(self.model, from_the_left(inputs))

    @torch.no_grad()
    def _check_loss(self) -> None:
        """Whether the loss and the randomness of the first row are those of `row_losses`."""
        self.model.eval()
        inputs = self._inputs([0])
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
        refuse_other_randomness(
            StepRandomness(bytes(32), self.args.device),
            lambda places: self._losses(places.cpu().numpy()),
        )


def _secret(path: Path, *, given: Secret | None, resumed: bool) -> Secret:
    """The secret of a resumed training, or a new one in a file."""
    if resumed:
        return read_secret(path)
    secret = given or Secret.fresh()
    path.parent.mkdir(parents=True, exist_ok=True)
    write_secret(path, secret)
    return secret


def _together() -> bool:
    """Whether several processes train together."""
    return torch.distributed.is_available() and torch.distributed.is_initialized()


def _shared(make: Callable[[], Secret], process: int) -> Secret:
    """The first process's secret, for all."""
    if not _together():
        return make()
    shared: list[Any] = [None]
    if process == 0:
        try:
            shared = [make().reveal()]
        except TrainingError as error:
            shared = [error]
    torch.distributed.broadcast_object_list(shared, src=0)
    if isinstance(shared[0], TrainingError):
        raise shared[0]
    return Secret(shared[0])


PrivateTrainer = private(Trainer)
