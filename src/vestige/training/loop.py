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
"""Steps between two looks at the loss: each makes an accelerator wait."""

MOST_NATS = 2.0**24
"""Mean loss of a token past which float32 cannot tell one nat from the next. A training that gets
there has diverged, whether the processor's kernels make NaN of it (256 bits wide) or not (512)."""

ProgressFn = Callable[[int, int, float, float], None]
"""Called every few steps: step, steps in all, mean loss since the last call, tokens per second."""

ObserveFn = Callable[[Any, EpochRecord], None]
"""Called with the model, in evaluation mode, after each evaluation; it must leave it as it is, and
is called again if a training resumes from an earlier checkpoint."""


class How(TypedDict, total=False):
    """How a training goes.

    Attributes:
        config: its settings.
        directory: for checkpoints, history, log and at last `model/`; see `training.directory`.
        step: how a batch becomes a gradient; the task's own unless a defence enters here.
        stop: called after each evaluation with all records so far; True ends the training.
        resume: resume the training in `directory`, if it holds one.
        progress: called every few steps.
        observe: called after each evaluation.
        secret: of a private training (`steps.Private`); None: that of the training which is
            resumed, or a fresh one.
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
    """Train a model on a text; see `learn`. `validation` decides which record is best."""
    return learn(model, TextTask(data, validation), **how)


def learn(model: Network, task: TrainingTask, **how: Unpack[How]) -> TrainingHistory:
    """Train a model in place; it ends with the weights of its best record, or the last.

    Same model, data, configuration and machine give the same bits, interrupted or not. The
    caller's random numbers are left as they were. A private step draws from a secret instead of
    the seed, and so do its batches; the secret is in `directory` until the model is.

    Args:
        model: to train; parameters with requires_grad off stay as they are.
        task: data, step and evaluation.
        **how: see `How`.

    Returns:
        One record an evaluation.

    Raises:
        TrainingError: the data is too short, the training diverges, `directory` holds a training
            that may not be resumed, its checkpoint is broken, or its secret is gone.
        RunError: another process trains in `directory`, or it cannot be written.
        ValueError: `resume` without `directory`.
    """
    config, place = how["config"], how.get("directory")
    if how.get("resume") and place is None:
        raise ValueError("resume must come with the directory of a training, got directory=None")
    memory = PeakMemory(model.device)
    training = _Training(model, task, how)
    with nullcontext() if place is None else lock_directory(place):
        resumed = place is not None and (place / directory.CHECKPOINT).exists()
        if place is not None:
            identity = checkpoint.identity(model, training.settings())
            directory.open_directory(place, identity, resume=how.get("resume", False))
        if training.private:
            training.secret = directory.secret_of(place, how.get("secret"))
        devices = [model.device] if model.device.type == "cuda" else []
        with torch.random.fork_rng(devices=devices):
            torch.manual_seed(config.seed)
            training.run()
        if place is not None and training.secret is not None:
            (place / directory.KEY).unlink(missing_ok=True)
    at = training.at
    return TrainingHistory(
        epochs=at.epochs,
        best_epoch=_kept(config, at.epochs),
        stopped=at.stopped,
        peak_memory_mib=None if resumed else memory.mib(),
    )


class _Training:
    """One training: `at` is its progress."""

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
        self.logged = (0, 0.0, 0.0)  # tokens, their loss and the time at the last line of the log

    def settings(self) -> dict[str, object]:
        """The settings that are part of the training's identity."""
        return {
            "config": asdict(self.config),
            "precision": str(self.precision),
            "step": _described(self.step),
            "stop": _described(self.stop),
            **self.task.identity(),
        }

    def run(self) -> None:
        """Train from the checkpoint, or the beginning, to the end, and write the model."""
        place = self.directory
        unwritten = place is not None and not (place / directory.MODEL).exists()
        if place is not None:
            found = checkpoint.load(place, self.model, self.optimizer, self.step)
            self.at = found or self.at
            if unwritten:  # the model is written last
                directory.cut_log(place, self.at.step)
                if found is not None:  # a kill may have come between checkpoint and history
                    _write_history(place, self.at)
        while self.at.step < self.steps and not self.at.stopped:
            self._learn()
            self._evaluate()
        if self.at.best:
            checkpoint.restore(self.model, self.at.best)
        self.model.eval()
        if place is not None and unwritten:
            save_model(self.model, place / directory.MODEL)

    def _learn(self) -> None:
        """Take the steps up to the next evaluation."""
        at, model, size = self.at, self.model.train(), len(self.batches)
        seed = self.config.seed if self.secret is None else self.secret.number("sampling")
        epoch, first = divmod(at.step, size)
        pause = self._pause(at.step)
        before, began = at.seconds, time.perf_counter()
        at.loss = at.loss.clone()
        self.logged = (at.tokens, at.loss.item(), began)
        for batch in self.batches.epoch(seed, epoch, first=first):
            if self.private and self.secret:
                self.private.draw_from(self.secret, at.step)
                key_torch(self.secret.key("step", at.step), model.device)
            rate = learning_rate(self.config, at.step, steps_per_epoch=size)
            for group in self.optimizer.param_groups:
                group["lr"] = rate
            try:
                mean, state = self.step(model, batch, at.state)
            except FloatingPointError as error:
                raise self._diverged(at.step + 1) from error
            self.optimizer.step()
            at.state = state if self.batches.carries else None
            at.step, at.tokens = at.step + 1, at.tokens + batch.tokens
            at.loss += mean.double() * batch.tokens
            if at.step % REPORT_EVERY == 0 or at.step == pause:
                self._log(rate)
            if at.step == pause:
                break
            if at.step % self.config.checkpoint_every == 0:
                at.seconds = before + time.perf_counter() - began
                self._save()
        at.seconds = before + time.perf_counter() - began
        if at.step % size == 0:
            at.state = None

    def _pause(self, step: int) -> int:
        """Step after which the next evaluation comes."""
        size, every = len(self.batches), self.config.evaluate_every
        end = (step // size + 1) * size
        return end if every is None else min(end, (step // every + 1) * every)

    def _evaluate(self) -> None:
        """Evaluate, keep the best weights, apply the stopping rule, write the checkpoint."""
        at, size, config = self.at, len(self.batches), self.config
        scores = self.task.judge(self.model, config)
        if scores is not None and math.isnan(scores.perplexity):
            raise self._diverged(at.step)
        mean = math.exp(min(at.loss.item() / at.tokens, 700)) if at.tokens else None
        record = EpochRecord(
            epoch=at.step / size if at.step % size else at.step // size,
            step=at.step,
            learning_rate=learning_rate(config, at.step - 1, steps_per_epoch=size),
            perplexity=mean,
            validation_perplexity=None if scores is None else scores.perplexity,
            validation_accuracy=None if scores is None else scores.accuracy,
            tokens=at.tokens,
            seconds=at.seconds,
            measures={} if scores is None else dict(scores.measures),
        )
        at.epochs = (*at.epochs, record)
        if scores is not None and _kept(config, at.epochs) == len(at.epochs):
            at.best = {name: one.clone() for name, one in checkpoint.weights(self.model).items()}
        if self.observe is not None:
            self.observe(self.model.eval(), record)
        at.loss, at.tokens, at.seconds = self._zero(), 0, 0.0
        at.stopped = at.step < self.steps and self.stop(at.epochs)
        self._save()
        if self.directory is not None:
            _write_history(self.directory, at)

    def _save(self) -> None:
        at = self.at
        trained = [w for w in checkpoint.weights(self.model).values() if w.is_floating_point()]
        largest = torch.nn.utils.get_total_norm(trained, norm_type=math.inf)
        if not largest.isfinite() or not _sane(at.loss.item() / max(at.tokens, 1)):
            raise self._diverged(at.step)
        if self.directory is not None:
            checkpoint.save(self.directory, at, self.model, self.optimizer, self.step)

    def _log(self, rate: float) -> None:
        """Add a line to the log and call `progress`; TrainingError if the training diverged."""
        tokens, loss, then = self.logged
        now, total, read = time.perf_counter(), self.at.loss.item(), self.at.tokens - tokens
        mean, speed = (total - loss) / max(read, 1), read / (now - then)
        if not _sane(mean):
            raise self._diverged(self.at.step)
        self.logged = (self.at.tokens, total, now)
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
        place = self.directory
        held = place is not None and (place / directory.CHECKPOINT).exists()
        kept = f"; the last good checkpoint is in {place}" if held else ""
        return TrainingError(
            f"The training diverged at step {step}: its loss is not below {MOST_NATS:.2g} nats per "
            f"token, or a weight is not finite{kept}",
            remedy=f"Train again with a learning_rate below {self.config.learning_rate:g}.",
        )


def _write_history(place: Path, at: Progress) -> None:
    history = [_strict(record.row()) for record in at.epochs]
    directory.write_json(place / directory.HISTORY, history)


def _kept(config: TrainingConfig, epochs: Sequence[EpochRecord]) -> int:
    """Number, from 1, of the record whose weights are kept."""
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


def _sane(loss: float) -> bool:
    """Whether a mean loss in nats is finite and below the divergence limit."""
    return abs(loss) <= MOST_NATS


def _strict(line: dict[str, Any]) -> dict[str, Any]:
    """Value for strict JSON: non-finite numbers become null."""
    lost = {key for key, n in line.items() if isinstance(n, float) and not math.isfinite(n)}
    return {key: None if key in lost else value for key, value in line.items()}


def _never(records: Sequence[EpochRecord]) -> bool:
    return False


def _described(function: object) -> object:
    """Description of a step or stopping rule, with its settings."""
    name = getattr(function, "__qualname__", type(function).__qualname__)
    settings: dict[str, Any] | None = getattr(function, "settings", None)
    if settings is not None:
        return {"name": name, **settings}
    if is_dataclass(function) and not isinstance(function, type):
        return {"name": name, **asdict(function)}
    return name
