"""Training loop, with hooks for defences and stopping rules.

Truncated back-propagation through time over contiguous rows for models that carry a state
(Zaremba et al. 2014, "Recurrent Neural Network Regularization", arXiv:1409.2329), shuffled
windows for the others; the best epoch on validation data is kept.
"""

import json
import math
import time
from collections.abc import Callable, Sequence
from contextlib import nullcontext
from dataclasses import asdict, is_dataclass
from pathlib import Path
from typing import Any, Required, TypedDict, Unpack

import torch
from torch import Tensor

from vestige.data.encoded import EncodedCorpus
from vestige.data.writing import append_line, lock_directory
from vestige.errors import TrainingError
from vestige.memory import PeakMemory
from vestige.models.checkpoints import save_model
from vestige.models.protocols import LanguageModel, Network
from vestige.training import checkpoint, directory
from vestige.training.batches import Batches
from vestige.training.checkpoint import Progress
from vestige.training.config import TrainingConfig, learning_rate
from vestige.training.history import EpochRecord, StopFn, TrainingHistory, best_epoch
from vestige.training.secret import Secret, key_torch
from vestige.training.steps import Measures, Private, StepFn, choose_precision
from vestige.training.tasks import TextTask, TrainingTask

REPORT_EVERY = 10
"""Steps between two reads of the loss, each of which makes an accelerator wait."""

MOST_NATS = 2.0**24
"""Mean loss of a token above which float32 cannot resolve one nat: the training has diverged. Some
kernels give NaN there (256-bit vectors), others do not (512)."""

ProgressFn = Callable[[int, int, float, float], None]
"""Called every few steps: step, steps in all, mean loss since the last call, tokens per second."""

ObserveFn = Callable[[Any, EpochRecord], None]
"""Called with the model in evaluation mode after each evaluation, and again if a training resumes
from an earlier checkpoint. It must not change the model."""


class How(TypedDict, total=False):
    """Options of a training.

    Attributes:
        config: its settings.
        directory: for checkpoints, history, log and finally `model/`; see `training.directory`.
        step: computes the gradient of a batch; default: the step of the task. Defences replace it.
        stop: called after each evaluation with all records so far; True ends the training.
        resume: resume the training in `directory`, if it holds one.
        progress: called every few steps.
        observe: called after each evaluation.
        secret: of a private training (`steps.Private`); None: a fresh one, or that of the resumed
            training.
    """

    config: Required[TrainingConfig]
    directory: Path | None
    step: StepFn | None
    stop: StopFn | None
    resume: bool
    progress: ProgressFn | None
    observe: ObserveFn | None
    secret: Secret | None


def train(
    model: LanguageModel,
    data: EncodedCorpus,
    *,
    validation: EncodedCorpus | None = None,
    **how: Unpack[How],
) -> TrainingHistory:
    """Train a model on a text; see `learn`. `validation` chooses the best epoch."""
    return learn(model, TextTask(data, validation), **how)


def learn(model: Network, task: TrainingTask, **how: Unpack[How]) -> TrainingHistory:
    """Train a model in place. It ends with the weights of the best epoch, or of the last.

    The same model, data, configuration and machine give the same bits, interrupted or not. The
    global random generators are restored. A private step and its batches use a secret instead of
    the seed; it is in `directory` until the model is written.

    Args:
        model: to train; parameters with requires_grad off stay as they are.
        task: data, step and evaluation.
        **how: see `How`.

    Returns:
        One record per evaluation.

    Raises:
        TrainingError: the data is too short, the training diverges, `directory` has a training
            that cannot be resumed, or its checkpoint is damaged, or its secret is missing.
        RunError: another process trains in `directory`, or it cannot be written.
        ValueError: `resume` without `directory`.
    """
    config, folder = how["config"], how.get("directory")
    if how.get("resume") and folder is None:
        raise ValueError("resume must come with the directory of a training, got directory=None")
    memory = PeakMemory(model.device)
    training = _Training(model, task, how)
    with nullcontext() if folder is None else lock_directory(folder):
        resumed = folder is not None and (folder / directory.CHECKPOINT).exists()
        if folder is not None:
            identity = checkpoint.identity(model, training.settings())
            directory.open_directory(folder, identity, resume=how.get("resume", False))
        if training.private:
            training.secret = directory.secret_of(folder, how.get("secret"))
        devices = [model.device] if model.device.type == "cuda" else []
        with torch.random.fork_rng(devices=devices):
            torch.manual_seed(config.seed)
            training.run()
        if folder is not None and training.secret is not None:
            (folder / directory.KEY).unlink(missing_ok=True)
    progress = training.at
    return TrainingHistory(
        epochs=progress.epochs,
        best_epoch=_chosen_epoch(config, progress.epochs),
        stopped=progress.stopped,
        peak_memory_mib=None if resumed else memory.mib(),
    )


class _Training:
    """One training; `at` is its progress."""

    def __init__(self, model: Network, task: TrainingTask, how: How) -> None:
        self.model, self.task, self.config = model, task, how["config"]
        self.precision = choose_precision(self.config.precision, model.device)
        self.step: Any = how.get("step") or task.step(self.config, self.precision)
        self.batches: Batches = task.batches(model, self.config)
        self.optimizer = _optimizer(model, self.config)
        self.stop, self.directory = how.get("stop") or _never, how.get("directory")
        self.progress, self.observe = how.get("progress"), how.get("observe")
        self.private: Private | None = self.step if isinstance(self.step, Private) else None
        self.secret: Secret | None = None
        self.steps = self.config.epochs * len(self.batches)
        self.at = Progress(loss=self._zero())
        self.logged = (0, 0.0, 0.0)  # tokens, summed loss and time at the last log line

    def settings(self) -> dict[str, object]:
        """The settings that are part of the training's identity."""
        return {
            "config": asdict(self.config),
            "precision": str(self.precision),
            "step": _description(self.step),
            "stop": _description(self.stop),
            **self.task.identity(),
        }

    def run(self) -> None:
        """Train from the checkpoint, or the beginning, to the end, and write the model."""
        folder = self.directory
        unwritten = folder is not None and not (folder / directory.MODEL).exists()
        if folder is not None:
            checkpointed = checkpoint.load(folder, self.model, self.optimizer, self.step)
            self.at = checkpointed or self.at
            if unwritten:  # the model is written last
                directory.cut_log(folder, self.at.step)
                if checkpointed is not None:  # a kill may have come between checkpoint and history
                    _write_history(folder, self.at)
        while self.at.step < self.steps and not self.at.stopped:
            self._learn()
            self._evaluate()
        if self.at.best:
            checkpoint.restore(self.model, self.at.best)
        self.model.eval()
        if folder is not None and unwritten:
            save_model(self.model, folder / directory.MODEL)

    def _learn(self) -> None:
        """Take the steps up to the next evaluation."""
        progress, model, steps_per_epoch = self.at, self.model.train(), len(self.batches)
        seed = self.config.seed if self.secret is None else self.secret.number("sampling")
        epoch, first = divmod(progress.step, steps_per_epoch)
        next_evaluation = self._next_evaluation(progress.step)
        seconds_before, started = progress.seconds, time.perf_counter()
        progress.loss = progress.loss.clone()
        self.logged = (progress.tokens, progress.loss.item(), started)
        for batch in self.batches.epoch(seed, epoch, first=first):
            if self.private and self.secret:
                self.private.draw_from(self.secret, progress.step)
                key_torch(self.secret.key("step", progress.step), model.device)
            rate = learning_rate(self.config, progress.step, steps_per_epoch=steps_per_epoch)
            for group in self.optimizer.param_groups:
                group["lr"] = rate
            try:
                mean, state = self.step(model, batch, progress.state)
            except FloatingPointError as error:
                raise self._diverged(progress.step + 1) from error
            self.optimizer.step()
            progress.state = state if self.batches.carries else None
            progress.step, progress.tokens = progress.step + 1, progress.tokens + batch.tokens
            progress.loss += mean.double() * batch.tokens
            if progress.step % REPORT_EVERY == 0 or progress.step == next_evaluation:
                self._log(rate)
            if progress.step == next_evaluation:
                break
            if progress.step % self.config.checkpoint_every == 0:
                progress.seconds = seconds_before + time.perf_counter() - started
                self._save()
        progress.seconds = seconds_before + time.perf_counter() - started
        if progress.step % steps_per_epoch == 0:
            progress.state = None

    def _next_evaluation(self, step: int) -> int:
        """Step before the next evaluation."""
        steps_per_epoch, interval = len(self.batches), self.config.evaluate_every
        end = (step // steps_per_epoch + 1) * steps_per_epoch
        return end if interval is None else min(end, (step // interval + 1) * interval)

    def _evaluate(self) -> None:
        """Evaluate, store the best weights, apply the stopping rule, write the checkpoint."""
        progress, steps_per_epoch, config = self.at, len(self.batches), self.config
        scores = self.task.judge(self.model, config)
        if scores is not None and math.isnan(scores.perplexity):
            raise self._diverged(progress.step)
        mean = None
        if progress.tokens:
            mean = math.exp(min(progress.loss.item() / progress.tokens, 700))
        whole, rest = divmod(progress.step, steps_per_epoch)
        record = EpochRecord(
            epoch=progress.step / steps_per_epoch if rest else whole,
            step=progress.step,
            learning_rate=learning_rate(config, progress.step - 1, steps_per_epoch=steps_per_epoch),
            perplexity=mean,
            validation_perplexity=None if scores is None else scores.perplexity,
            validation_accuracy=None if scores is None else scores.accuracy,
            tokens=progress.tokens,
            seconds=progress.seconds,
            measures={} if scores is None else dict(scores.measures),
        )
        progress.epochs = (*progress.epochs, record)
        if scores is not None and _chosen_epoch(config, progress.epochs) == len(progress.epochs):
            weights = checkpoint.weights(self.model)
            progress.best = {name: tensor.clone() for name, tensor in weights.items()}
        if self.observe is not None:
            self.observe(self.model.eval(), record)
        progress.loss, progress.tokens, progress.seconds = self._zero(), 0, 0.0
        progress.stopped = progress.step < self.steps and self.stop(progress.epochs)
        self._save()
        if self.directory is not None:
            _write_history(self.directory, progress)

    def _save(self) -> None:
        progress = self.at
        trained = [w for w in checkpoint.weights(self.model).values() if w.is_floating_point()]
        largest = torch.nn.utils.get_total_norm(trained, norm_type=math.inf)
        if not largest.isfinite() or not _is_plausible(
            progress.loss.item() / max(progress.tokens, 1)
        ):
            raise self._diverged(progress.step)
        if self.directory is not None:
            checkpoint.save(self.directory, progress, self.model, self.optimizer, self.step)

    def _log(self, rate: float) -> None:
        """Add a line to the log and call `progress`; TrainingError if the training diverged."""
        tokens, loss, previous_time = self.logged
        now, total_loss = time.perf_counter(), self.at.loss.item()
        tokens_read = self.at.tokens - tokens
        mean = (total_loss - loss) / max(tokens_read, 1)
        speed = tokens_read / (now - previous_time)
        if not _is_plausible(mean):
            raise self._diverged(self.at.step)
        self.logged = (self.at.tokens, total_loss, now)
        measured: dict[str, float] = self.step.measured() if isinstance(self.step, Measures) else {}
        if self.directory is not None:
            line = {
                "step": self.at.step,
                "loss": mean,
                "learning_rate": rate,
                "tokens_per_second": round(speed, 1),
                **measured,
            }
            append_line(self.directory / directory.LOG, json.dumps(_strict(line)))
        if self.progress is not None:
            self.progress(self.at.step, self.steps, mean, speed)

    def _zero(self) -> Tensor:
        return torch.zeros((), dtype=torch.float64, device=self.model.device)

    def _diverged(self, step: int) -> TrainingError:
        folder = self.directory
        has_checkpoint = folder is not None and (folder / directory.CHECKPOINT).exists()
        hint = f"; the last good checkpoint is in {folder}" if has_checkpoint else ""
        return TrainingError(
            f"The training diverged at step {step}: its loss is not below {MOST_NATS:.2g} nats per "
            f"token, or a weight is not finite{hint}",
            remedy=f"Train again with a learning_rate below {self.config.learning_rate:g}.",
        )


def _write_history(folder: Path, progress: Progress) -> None:
    history = [_strict(record.row()) for record in progress.epochs]
    directory.write_json(folder / directory.HISTORY, history)


def _chosen_epoch(config: TrainingConfig, epochs: Sequence[EpochRecord]) -> int:
    """Number, from 1, of the record whose weights the training ends with."""
    return len(epochs) if config.keep == "last" else best_epoch(epochs)


def _optimizer(model: Network, config: TrainingConfig) -> torch.optim.Optimizer:
    trainable = [p for p in model.parameters() if p.requires_grad]
    if not trainable:
        raise TrainingError(
            "No parameter of the model is trainable",
            remedy="Set requires_grad on the parameters to train.",
        )
    if config.optimizer == "adam":
        return torch.optim.Adam(trainable, lr=config.learning_rate, fused=True)
    return torch.optim.SGD(trainable, lr=config.learning_rate, momentum=config.momentum, fused=True)


def _is_plausible(loss: float) -> bool:
    """Whether a mean loss in nats is finite and below the divergence limit."""
    return abs(loss) <= MOST_NATS


def _strict(line: dict[str, Any]) -> dict[str, Any]:
    """Value for strict JSON: non-finite numbers become null."""
    return {
        key: None if isinstance(value, float) and not math.isfinite(value) else value
        for key, value in line.items()
    }


def _never(records: Sequence[EpochRecord]) -> bool:
    return False


def _description(function: object) -> object:
    """Description of a step or stopping rule, with its settings."""
    name = getattr(function, "__qualname__", type(function).__qualname__)
    settings: dict[str, Any] | None = getattr(function, "settings", None)
    if settings is not None:
        return {"name": name, **settings}
    if is_dataclass(function) and not isinstance(function, type):
        return {"name": name, **asdict(function)}
    return name
