"""Training loop, with hooks for defences and stopping rules.

Truncated back-propagation through time over contiguous rows for models that carry a state
(Zaremba et al. 2014, "Recurrent Neural Network Regularization", arXiv:1409.2329), shuffled
windows for the others; the best epoch on validation data is kept.
"""

import json
import math
import time
from collections.abc import Sequence
from contextlib import nullcontext
from dataclasses import asdict, is_dataclass, replace
from pathlib import Path
from typing import Any

import torch

from vestige.data.encoded import EncodedCorpus
from vestige.data.writing import alone, append_line
from vestige.errors import TrainingError
from vestige.models.checkpoints import save_model
from vestige.models.protocols import LanguageModel, Network
from vestige.training import checkpoint, key_file
from vestige.training.checkpoint import Progress
from vestige.training.config import TrainingConfig, learning_rate
from vestige.training.history import EpochRecord, StopFn, TrainingHistory, best_epoch
from vestige.training.peak_memory import PeakMemory
from vestige.training.precision import choose_precision
from vestige.training.run import ObserveFn, ProgressFn, TrainingRun
from vestige.training.secret import Secret, key_torch
from vestige.training.steps import Measures, StepFn, plain_step
from vestige.training.training_task import TextTask, TrainingTask, batches_of

__all__ = [
    "EpochRecord",
    "ObserveFn",
    "ProgressFn",
    "StepFn",
    "StopFn",
    "TrainingConfig",
    "TrainingHistory",
    "batches_of",
    "learn",
    "plain_step",
    "train",
]

REPORT_EVERY = 10
"""Steps between two looks at the loss: each makes an accelerator wait."""

MOST_NATS = 2.0**24
"""Mean loss of a token past which float32 cannot tell one nat from the next. A training that gets
there has diverged, whether the processor's kernels make NaN of it (256 bits wide) or not (512)."""


def train(  # noqa: PLR0913 - a defence's two doors come on top of eight
    model: LanguageModel,
    data: EncodedCorpus,
    *,
    config: TrainingConfig,
    validation: EncodedCorpus | None = None,
    directory: Path | None = None,
    step: StepFn | None = None,
    stop: StopFn | None = None,
    resume: bool = False,
    progress: ProgressFn | None = None,
    observe: ObserveFn | None = None,
    secret: Secret | None = None,
) -> TrainingHistory:
    """Train a model in place; it ends with the weights of its best record, or the last.

    Same model, data, configuration and machine give the same bits, interrupted or not. The
    caller's random numbers are left as they were. A private step (`steps.Private`) draws from a
    secret instead of the seed, and so do its batches: there the secret decides, too, and stands in
    `directory` until the model does.

    Args:
        model: to train; parameters with requires_grad off stay as they are.
        data: the text.
        config: how.
        validation: text that decides which record is best; without it the last is.
        directory: where checkpoints, history, log and at last `model/` are written.
        step: how a batch becomes a gradient; a `plain_step` unless a defence enters here.
        stop: asked after each evaluation with all records so far; True ends the training.
        resume: go on with the training in `directory`, if it holds one.
        progress: told every few steps.
        observe: shown the model after each evaluation.
        secret: what a private training draws from; None: that of the training which is resumed, or
            else a fresh one. Others do not look at it.

    Returns:
        One record an evaluation.

    Raises:
        TrainingError: the data is too short, the training diverges, `directory` holds a training
            that may not be resumed, its checkpoint is broken, or its secret is gone.
        RunError: another process trains in `directory`, or it cannot be written.
        ValueError: `resume` without `directory`.
    """
    return learn(
        model,
        TextTask(data, validation),
        config=config,
        directory=directory,
        step=step,
        stop=stop,
        resume=resume,
        progress=progress,
        observe=observe,
        secret=secret,
    )


def learn(  # noqa: PLR0913 - as `train`
    model: Network,
    lesson: TrainingTask,
    *,
    config: TrainingConfig,
    directory: Path | None = None,
    step: StepFn | None = None,
    stop: StopFn | None = None,
    resume: bool = False,
    progress: ProgressFn | None = None,
    observe: ObserveFn | None = None,
    secret: Secret | None = None,
) -> TrainingHistory:
    """Train a model on any `TrainingTask`, in place; see `train`."""
    if resume and directory is None:
        raise ValueError("resume must come with the directory of a training, got directory=None")
    memory = PeakMemory(model.device)
    precision = choose_precision(config.precision, model.device)
    step = step or lesson.step(config, precision)
    run = TrainingRun(
        model=model,
        lesson=lesson,
        batches=lesson.batches(model, config),
        config=config,
        directory=directory,
        optimizer=_optimizer(model, config),
        step=step,
        stop=stop or _never,
        progress=progress,
        observe=observe,
        secret=None,
    )
    with nullcontext() if directory is None else alone(directory):
        resumed = directory is not None and (directory / checkpoint.CHECKPOINT).exists()
        if directory is not None:
            settings = {
                "config": asdict(config),
                "precision": str(precision),
                "step": _described(run.step),
                "stop": _described(run.stop),
            }
            asked = checkpoint.identity(model, {**settings, **lesson.identity()})
            checkpoint.open_directory(directory, asked, resume=resume)
        if run.private:
            run = replace(run, secret=key_file.secret_of(directory, secret))
        devices = [model.device] if model.device.type == "cuda" else []
        with torch.random.fork_rng(devices=devices):
            torch.manual_seed(config.seed)
            position = _run(run)
        if directory is not None and run.secret is not None:
            key_file.forget(directory)
    return TrainingHistory(
        epochs=position.epochs,
        best_epoch=_kept(config, position.epochs),
        stopped=position.stopped,
        peak_memory_mib=None if resumed else memory.mib(),
    )


def _run(run: TrainingRun) -> Progress:
    position = None
    if run.directory is not None:
        position = checkpoint.load(run.directory, run.model, run.optimizer, run.step)
        if not (run.directory / checkpoint.MODEL).exists():  # it is written last: the rest is whole
            checkpoint.cut_log(run.directory, 0 if position is None else position.step)
            if position is not None:  # a kill may have come between checkpoint and history
                _write_history(run.directory, position)
    if position is None:
        zero = torch.zeros((), dtype=torch.float64, device=run.model.device)
        position = Progress(step=0, loss=zero, tokens=0, state=None, epochs=(), best={})
    while position.step < run.steps and not position.stopped:
        position = _evaluate(run, _learn(run, position))
    if position.best:
        checkpoint.restore(run.model, position.best)
    run.model.eval()
    if run.directory is not None and not (run.directory / checkpoint.MODEL).exists():
        save_model(run.model, run.directory / checkpoint.MODEL)
    return position


def _learn(run: TrainingRun, position: Progress) -> Progress:
    """Run the steps up to the next evaluation."""
    model, optimizer, size = run.model.train(), run.optimizer, len(run.batches)
    step, tokens, state = position.step, position.tokens, position.state
    loss, told, pause = position.loss.clone(), _Told(position), run.pause(position.step)
    epoch, first = divmod(step, size)
    before, began = position.seconds, time.perf_counter()

    def reached() -> Progress:
        seconds = before + time.perf_counter() - began
        return replace(position, step=step, loss=loss, tokens=tokens, state=state, seconds=seconds)

    for batch in run.batches.epoch(run.order, epoch, first=first):
        if run.private and run.secret:
            run.private.draw_from(run.secret, step)
            key_torch(run.secret.key("step", step), model.device)
        rate = learning_rate(run.config, step, steps_per_epoch=size)
        for group in optimizer.param_groups:
            group["lr"] = rate
        try:
            mean, carried = run.step(model, batch, state)
        except FloatingPointError as error:
            raise _diverged(run, step + 1) from error
        optimizer.step()
        state = carried if run.batches.carries else None
        step, tokens = step + 1, tokens + batch.tokens
        loss += mean.double() * batch.tokens
        if step % REPORT_EVERY == 0 or step == pause:
            told.tell(run, step, tokens, loss.item(), rate)
        if step == pause:
            break
        if step % run.config.checkpoint_every == 0:
            _save(run, reached())
    return replace(reached(), state=state if step % size else None)


def _evaluate(run: TrainingRun, position: Progress) -> Progress:
    """Evaluate, keep the best weights, apply the stopping rule, write the checkpoint."""
    scores = run.lesson.judge(run.model, run.config)
    if scores is not None and math.isnan(scores.perplexity):
        raise _diverged(run, position.step)
    size, tokens = len(run.batches), position.tokens
    record = EpochRecord(
        epoch=position.step / size if position.step % size else position.step // size,
        step=position.step,
        learning_rate=learning_rate(run.config, position.step - 1, steps_per_epoch=size),
        perplexity=math.exp(min(position.loss.item() / tokens, 700)) if tokens else None,
        validation_perplexity=None if scores is None else scores.perplexity,
        validation_accuracy=None if scores is None else scores.accuracy,
        tokens=tokens,
        seconds=position.seconds,
        measures={} if scores is None else dict(scores.measures),
    )
    epochs = (*position.epochs, record)
    best = position.best
    if scores is not None and _kept(run.config, epochs) == len(epochs):
        best = {name: tensor.clone() for name, tensor in checkpoint.weights(run.model).items()}
    if run.observe is not None:
        run.observe(run.model.eval(), record)
    position = replace(
        position,
        loss=torch.zeros_like(position.loss),
        tokens=0,
        seconds=0.0,
        epochs=epochs,
        best=best,
        stopped=position.step < run.steps and run.stop(epochs),
    )
    _save(run, position)
    if run.directory is not None:
        _write_history(run.directory, position)
    return position


def _write_history(directory: Path, position: Progress) -> None:
    history = [_strict(record.row()) for record in position.epochs]
    checkpoint.write_json(directory / checkpoint.HISTORY, history)


def _save(run: TrainingRun, position: Progress) -> None:
    trained = [w for w in checkpoint.weights(run.model).values() if w.is_floating_point()]
    largest = torch.nn.utils.get_total_norm(trained, norm_type=math.inf)
    if not largest.isfinite() or not _sane(position.loss.item() / max(position.tokens, 1)):
        raise _diverged(run, position.step)
    if run.directory is not None:
        checkpoint.save(run.directory, position, run.model, run.optimizer, run.step)


class _Told:
    """Progress logger: mean losses since its last line."""

    def __init__(self, position: Progress) -> None:
        self.tokens, self.loss = position.tokens, position.loss.item()
        self.at = time.perf_counter()

    def tell(self, run: TrainingRun, step: int, tokens: int, loss: float, rate: float) -> None:
        """Add a line to the log and call `progress`.

        Raises:
            TrainingError: the training has diverged.
        """
        now, read = time.perf_counter(), tokens - self.tokens
        mean, speed = (loss - self.loss) / max(read, 1), read / (now - self.at)
        if not _sane(mean):
            raise _diverged(run, step)
        self.tokens, self.loss, self.at = tokens, loss, now
        measured: dict[str, float] = run.step.measured() if isinstance(run.step, Measures) else {}
        if run.directory is not None:
            line = {
                "step": step,
                "loss": mean,
                "learning_rate": rate,
                "tokens_per_second": round(speed, 1),
                **measured,
            }
            append_line(run.directory / checkpoint.LOG, json.dumps(_strict(line)))
        if run.progress is not None:
            run.progress(step, run.steps, mean, speed)


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


def _diverged(run: TrainingRun, step: int) -> TrainingError:
    held = run.directory is not None and (run.directory / checkpoint.CHECKPOINT).exists()
    kept = f"; the last good checkpoint is in {run.directory}" if held else ""
    return TrainingError(
        f"The training diverged at step {step}: its loss is not below {MOST_NATS:.2g} nats per "
        f"token, or a weight is not finite{kept}",
        remedy=f"Train again with a learning_rate below {run.config.learning_rate:g}.",
    )


def _strict(line: dict[str, Any]) -> dict[str, Any]:
    """Value for strict JSON: non-finite numbers become null."""
    lost = {key for key, n in line.items() if isinstance(n, float) and not math.isfinite(n)}
    return {key: None if key in lost else value for key, value in line.items()}


def _never(records: Sequence[EpochRecord]) -> bool:
    return False


def _described(function: object) -> object:
    """Description of a step or stopping rule, with its settings.

    An `identity` stands for the name of a class that was renamed, so that old trainings go on.
    """
    kind = getattr(function, "__qualname__", type(function).__qualname__)
    name = str(getattr(function, "identity", kind))
    settings: dict[str, Any] | None = getattr(function, "settings", None)
    if settings is not None:
        return {"name": name, **settings}
    if is_dataclass(function) and not isinstance(function, type):
        return {"name": name, **asdict(function)}
    return name
