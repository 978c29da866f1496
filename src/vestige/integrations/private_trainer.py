"""DP-SGD for Transformers' `Trainer` and trainers built on it, for adapters and whole models.

Abadi et al. (2016), "Deep Learning with Differential Privacy", Algorithm 1. Each step samples the
rows of the training set, or users with all their rows, independently. Gradients are clipped per
unit (`vestige.privacy.dp_sgd`), and the noise is seeded by the operating system.

Dropout masks depend on the same secret and on the index of a row, never on `args.seed`. One more
row therefore adds its clipped gradient and changes nothing else (see `vestige.privacy.randomness`).
Left padding is moved to the right.

Epsilon covers the weights after each planned step. The trainer refuses what epsilon cannot cover: a
choice by an evaluation of protected rows (best checkpoint, early stopping, or a schedule that uses
it), and more steps than planned. A data collator must not use randomness or combine rows. Callbacks
that choose by the training set are not detected. Several trainings of a model in one process
compose as if they had read the same rows. A model that something else has trained since it was
loaded has no guarantee (`model_history`).

Difference from the paper: the loss of a row is the mean over its own targets.
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
    evaluation_units,
    refuse_layers,
    refuse_optimizer,
    refuse_settings,
)
from vestige.integrations.private_plan import PrivateTraining
from vestige.integrations.private_rows import PrivateRows
from vestige.integrations.rows import Rows, left_aligned, loss_problem, row_losses
from vestige.models.lora import only_our_warnings
from vestige.privacy.dp_sgd import NoisyStep
from vestige.privacy.randomness import StepRandomness, refuse_other_randomness
from vestige.training.directory import KEY, read_secret, write_secret
from vestige.training.secret import Secret


def private(trainer: type[Trainer]) -> type[Trainer]:
    """Make a subclass of a trainer class whose trainings are differentially private.

    Its further arguments are

    - privacy: budget, unit and clipping norm, such as `vestige.DPSGD(epsilon=8)`;
    - user_column: column of users in the training set, needed if the unit is a user;
    - peft_config: an adapter for the model, if `trainer` has no such argument.

    The expected batch size is `per_device_train_batch_size` times `gradient_accumulation_steps`
    times the number of processes. `per_device_train_batch_size` rows are computed at once.

    Example:
        >>> private(Trainer).__name__
        'PrivateTrainer'
    """
    return type(f"Private{trainer.__name__}", (_Private, trainer), {"__doc__": private.__doc__})


class _Private(Trainer):  # type: ignore[misc]
    """The methods that a private trainer overrides. See `private`."""

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
        init = super().__init__
        if peft_config is not None and "peft_config" in inspect.signature(init).parameters:
            kwargs["peft_config"] = peft_config
        elif peft_config is not None:
            from peft import get_peft_model

            with only_our_warnings():
                model = get_peft_model(model, peft_config)
        bound = inspect.signature(init).bind_partial(model, *args, **kwargs)
        rows = PrivateRows.of(bound.arguments.get("train_dataset"), privacy, user_column)
        init(model, *args, **kwargs)
        refuse_settings(self)
        self._rows = rows.batched(self.train_dataset, privacy, self.args)
        self._privacy, self._user_column = privacy, user_column
        self._rows_at_once = privacy.physical_batch_size or self.args.per_device_train_batch_size
        self.args.gradient_accumulation_steps = 1  # a batch is one step
        self.args.max_grad_norm = 0.0  # the gradients of rows are clipped, not their noisy sum

    @property
    def privacy_statement(self) -> tuple[str, ...]:
        """The guarantee of the training in sentences. Use it after `train` has begun."""
        assert self._private is not None
        return self._private.statement(self.state.global_step or None).sentences()

    def train(self, resume_from_checkpoint: str | bool | None = None, **rest: Any) -> Any:
        """Train privately; see `Trainer.train`.

        Raises:
            TrainingError: a trainable layer has no gradients per row, combines rows, or has half
                precision; the loss is not the cross-entropy of next tokens; rows use randomness
                other than dropout; an evaluation of protected rows chooses weights; there are more
                steps than planned; or a training is resumed without its secret or with other
                settings.
        """
        refuse_layers(self.model)
        self._check_loss()
        held_out = evaluation_units(self, self._rows, self._user_column)
        out, privacy = Path(self.args.output_dir), self._privacy
        resumed, is_first_process = bool(resume_from_checkpoint), self.args.process_index == 0
        make_secret = partial(_secret_in_file, out / KEY, secret=privacy.secret(), resumed=resumed)
        self._secret = _share_secret(make_secret, self.args.process_index)
        training = self._private = PrivateTraining.of(
            self._rows, privacy, self, held_out=held_out, resumed_from=out if resumed else None
        )
        if is_first_process and not resumed:
            training.write(out)
        noise = training.plan.defence.noise
        self._noise = NoisyStep(noise, privacy.max_grad_norm, self._rows.expected_units)
        training.remember(self.model)
        result = super().train(resume_from_checkpoint=resume_from_checkpoint, **rest)
        training.remember(self.model, self.state.global_step)
        if is_first_process:
            (out / KEY).unlink(missing_ok=True)
        return result

    def get_train_dataloader(self) -> DataLoader[int]:
        """Step numbers instead of batches: the secret and the number determine the rows."""
        numbers: Any = range(self._rows.steps_per_epoch)
        return DataLoader(numbers, batch_size=1)

    def get_batch_samples(self, epoch_iterator: Any, num_batches: int, device: Any) -> Any:
        """A step number, without a count of items."""
        return [{"step": next(epoch_iterator)}], None

    def training_step(self, model: Any, inputs: Any, num_items_in_batch: Any = None) -> Tensor:
        """Write the noised mean of clipped gradients to `.grad`; returns the mean loss."""
        noise, training, step = self._noise, self._private, self.state.global_step
        assert noise is not None
        assert training is not None
        if step == self._initial_global_step:
            refuse_optimizer(self.optimizer, self.model)
        if step >= training.plan.steps:
            raise TrainingError(
                f"all {training.plan.steps:,} planned steps were taken; the guarantee allows no "
                "more",
                remedy="Set `max_steps` or `num_train_epochs` before `train`.",
            )
        self.model.train()
        process, processes = self.args.process_index, self.args.world_size
        noise.draw_from(self._secret, step)
        noise.begin(self.model, None, noised=process == 0)
        rows, units = self._rows.batch(self._secret, step, process, processes)
        device = self.args.device

        def losses(indices: Tensor) -> Tensor:
            return self._losses(rows[indices.cpu().numpy()])

        unit_ids, row_ids = torch.from_numpy(units).to(device), torch.from_numpy(rows)
        loss = noise.add_clipped(
            self.model, losses, unit_ids, row_ids, rows_at_once=self._rows_at_once
        )
        if _is_distributed():
            for parameter in self.model.parameters():
                if parameter.requires_grad:
                    torch.distributed.all_reduce(parameter.grad)
        return loss / max(len(rows), 1)

    def log(self, logs: dict[str, float], start_time: float | None = None) -> None:
        """See `Trainer.log`; adds the median norm and the share of clipped gradients."""
        if self._noise is not None and "loss" in logs:
            measured = self._noise.measured()
            logs.update({f"privacy/{name}": value for name, value in measured.items()})
        super().log(logs, start_time)

    def save_model(self, output_dir: str | None = None, _internal_call: bool = False) -> None:
        """See `Trainer.save_model`; also writes the ledger and the statement."""
        super().save_model(output_dir, _internal_call)
        if self.args.should_save and self._private is not None:
            self._private.write(Path(output_dir or self.args.output_dir), self.state.global_step)

    def _inputs(self, rows: list[int]) -> dict[str, Any]:
        data = Rows.of(self, self.train_dataset)
        assert data is not None  # `PrivateRows` needs its length
        inputs: dict[str, Any] = self._prepare_inputs(data.inputs(rows))
        return inputs

    def _losses(self, rows: np.ndarray[Any, Any]) -> Tensor:
        """(k,) mean cross-entropy of the targets of each row."""
        inputs = self._inputs(rows.tolist())
        with self.compute_loss_context_manager():
            return row_losses(self.model, left_aligned(inputs))

    @torch.no_grad()
    def _check_loss(self) -> None:
        """Check on the first row that `row_losses` is the loss, and that only dropout is random."""
        self.model.eval()
        inputs = self._inputs([0])
        with self.compute_loss_context_manager():
            problem = loss_problem(self.model, inputs)
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
            lambda indices: self._losses(indices.cpu().numpy()),
        )


def _secret_in_file(path: Path, *, secret: Secret | None, resumed: bool) -> Secret:
    """The secret of a resumed training, or a new secret that is written to a file."""
    if resumed:
        return read_secret(path)
    secret = secret or Secret.fresh()
    path.parent.mkdir(parents=True, exist_ok=True)
    write_secret(path, secret)
    return secret


def _is_distributed() -> bool:
    """Whether several processes train together."""
    return torch.distributed.is_available() and torch.distributed.is_initialized()


def _share_secret(make_secret: Callable[[], Secret], process: int) -> Secret:
    """Broadcast the secret of the first process."""
    if not _is_distributed():
        return make_secret()
    message: list[Any] = [None]
    if process == 0:
        try:
            message = [make_secret().reveal()]
        except TrainingError as error:
            message = [error]
    torch.distributed.broadcast_object_list(message, src=0)
    if isinstance(message[0], TrainingError):
        raise message[0]
    return Secret(message[0])


PrivateTrainer = private(Trainer)
