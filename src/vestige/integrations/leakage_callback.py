"""Measure leakage during a training with Transformers' `Trainer`.

The measurements are those of `vestige exposure` and `vestige extract`, in evaluation mode on the
device of the training. They do not change the trained weights.

A diverged training continues without measurements, which is logged. With several processes, all of
them measure and get the same result; the first one measures the time, logs and saves.
"""

import logging
import math
import time
from collections.abc import Mapping
from os import PathLike
from pathlib import Path
from typing import Any

import torch
from transformers import TrainerCallback

from vestige import _validate, claims, new_files
from vestige.audits.exposure.canaries import FEWEST
from vestige.data.canaries.texts import Manifest
from vestige.errors import NotFinite, VestigeError
from vestige.integrations.canary_search import require_arrival
from vestige.integrations.leakage import LIMITS, LeakageSnapshot, training_leakage
from vestige.integrations.trainer_audit import BASELINE, Baseline, TrainerAudit
from vestige.results import Result

DEFAULT_REFERENCES = 2**8

_log = logging.getLogger("vestige")


class Leakage(VestigeError):
    """A training leaks more than a limit allows."""


class LeakageCallback(TrainerCallback):  # type: ignore[misc]
    """Measures leakage, reports it to the trackers, and stops or fails above a limit.

    It measures exposure and completion of planted canaries and, if coins were flipped, lower bounds
    of epsilon.

    Args:
        canaries: the folder of `plant`, or its manifest.
        trainer: the trainer of the callback,
            `trainer.add_callback(LeakageCallback("canaries", trainer))`. It has the rows and the
            trackers. It can also be set before the training.
        every: share of the training between two measurements, in (0, 1].
        budget: largest time of measurements as a share of the training time; infinity for any.
            Vestige always measures before the first and after the last step. It measures in between
            if there is time for this and the last measurement, judged by the previous one.
        fail_above: limits by the names of `vestige.integrations.leakage.LIMITS` ("exposure",
            "completed", "epsilon"). Above one, the end of the training raises `Leakage`; if the
            verdict is "undecided", it raises `VestigeError`.
        stop_above: limits above which the training stops.
        references: phrases to compare each canary with, at least 100. More references resolve
            higher exposures and take longer. None: 256, or as many as a limit of exposure needs.
        seed: random seed of the references.
        out: a folder to write at the end, with a run folder for each kind of measurement and a
            page.

    Attributes:
        snapshots: the measurements so far.
        skipped: number of measurements for which there was no time.
        diverged: the first step with scores that are not finite; None without one.
    """

    def __init__(  # noqa: PLR0913  it has the options of a verb
        self,
        canaries: str | PathLike[str] | Manifest,
        trainer: Any = None,
        *,
        every: float = 0.1,
        budget: float = 0.03,
        fail_above: Mapping[str, float] | None = None,
        stop_above: Mapping[str, float] | None = None,
        references: int | None = None,
        seed: int = 0,
        out: str | PathLike[str] | None = None,
    ) -> None:
        if not 0 < every <= 1:
            raise ValueError(f"every must be in (0, 1], got {every}")
        _validate.positive(budget=budget)
        self.fail_above, self.stop_above = dict(fail_above or {}), dict(stop_above or {})
        _check_limits("fail_above", self.fail_above)
        _check_limits("stop_above", self.stop_above)
        needed = _references_needed(self.fail_above, self.stop_above)
        if references is not None:
            _validate.at_least(FEWEST, references=references)
            if references < needed:
                raise ValueError(
                    f"references must be at least {needed:,} to show that the limit is exceeded, "
                    f"got {references:,}"
                )
        self.canaries, self.trainer, self.every, self.budget = canaries, trainer, every, budget
        self.seed = seed
        self.references = references or max(needed, DEFAULT_REFERENCES)
        self.out = None if out is None else Path(out)
        if self.out is not None:
            new_files.require_new(self.out)
        self.snapshots: list[LeakageSnapshot] = []
        self.skipped = 0
        self.diverged: int | None = None
        self._start_time = self._measuring_seconds = 0.0
        self._audit: TrainerAudit
        self._baseline: Baseline | None = None

    @property
    def history(self) -> list[dict[str, float]]:
        """The logged numbers, one row per measurement, for a data frame."""
        return [{"step": snapshot.step, **snapshot.logs()} for snapshot in self.snapshots]

    @property
    def result(self) -> Result:
        """All measurements, with the verdict on the trained model. Use it after the training."""
        record = {} if self.diverged is not None else self.snapshots[-1].exposure.record
        return training_leakage(
            self.snapshots,
            limits=self.fail_above,
            diverged=self.diverged,
            record={**record, "verb": "LeakageCallback"},
        )

    def on_train_begin(self, args: Any, state: Any, control: Any, **rest: Any) -> None:
        """Measure before the first step, as a baseline.

        Raises:
            DataError: canaries do not reach the loss.
            VestigeError: the callback has no trainer, the model is split over processes, or a
                training is resumed without the measurement before its first step.
        """
        trainer = self.trainer
        if trainer is None:
            raise VestigeError(
                "the callback has no trainer, which has the rows and the trackers",
                remedy=(
                    "Add it after making the trainer: "
                    "trainer.add_callback(LeakageCallback(CANARIES, trainer))."
                ),
            )
        self._start_time, self.diverged = time.perf_counter(), None
        require_whole(trainer)
        self._audit = TrainerAudit(
            trainer,
            self.canaries,
            references=self.references,
            seed=self.seed,
        )
        require_arrival(trainer, self._audit.search)
        self._measuring_seconds = time.perf_counter() - self._start_time
        file = Path(args.output_dir) / BASELINE
        if state.global_step:
            self._baseline = Baseline.load(file)
            return
        self._measure()
        if state.is_world_process_zero and self._baseline is not None:
            self._baseline.save(file)

    def on_step_end(self, args: Any, state: Any, control: Any, **rest: Any) -> None:
        """Measure if it is time, and stop above a limit."""
        step, steps = state.global_step, state.max_steps
        if step % max(1, round(self.every * steps)) or step == steps or self.diverged is not None:
            return
        if not _first_process_answer(self._has_time(step / steps)):
            self.skipped += 1
            return
        self._measure()
        if self.diverged is None and self.snapshots[-1].above(self.stop_above):
            control.should_training_stop = True

    def on_train_end(self, args: Any, state: Any, control: Any, **rest: Any) -> None:
        """Measure, save, and fail above a limit.

        Raises:
            Leakage: a number is above its limit in `fail_above`.
            VestigeError: `fail_above` is set, and the verdict is "undecided".
        """
        first = state.is_world_process_zero
        if first and self.diverged is None and self.snapshots:
            seconds = max(1, round(self.snapshots[-1].seconds * self._audit.cost_of_last))
            _log.warning("The final measurement of leakage takes about %s s.", f"{seconds:,}")
        self._measure(last=True)
        result = self.result
        if self.out is not None and first:
            self._save(result, self.out)
        claim = result.claim
        assert claim is not None
        exceeded = "" if self.diverged is not None else self.snapshots[-1].above(self.fail_above)
        if exceeded and not any(check.prevents(claims.LEAK) for check in claim.checks):
            raise Leakage(
                f"the training has {exceeded}",
                remedy="Train for fewer epochs, on fewer copies, or with a defence.",
            )
        if claim.verdict == claims.UNDECIDED:
            error = VestigeError(
                f"leakage could not be measured: {' '.join(dict.fromkeys(claim.reasons))}",
                remedy=(
                    "Check that the model learns (trainable weights are in the optimizer, an "
                    "adapter is on, the learning rate is neither 0 nor too high), and plant more "
                    "canaries."
                ),
            )
            if self.fail_above:
                raise error
            _log.warning("%s", error)

    def _measure(self, *, last: bool = False) -> None:
        """Measure and log, unless the training has diverged."""
        if self.diverged is not None:
            return
        trainer, state, start = self.trainer, self.trainer.state, time.perf_counter()
        step = state.global_step
        try:
            snapshot, self._baseline = self._audit.measure(self._baseline, step=step, last=last)
        except NotFinite:
            self.diverged, logs = step, {"vestige/diverged": 1.0}
            _log.warning(
                "The training diverged: at step %s scores are not finite. Leakage is no longer "
                "measured.", f"{step:,}"
            )  # fmt: skip
        else:
            logs = snapshot.logs()
            if self.snapshots and self.snapshots[-1].step == step:
                self.snapshots[-1] = snapshot  # already logged
                return
            self.snapshots.append(snapshot)
        finally:
            self._measuring_seconds += time.perf_counter() - start
        if state.is_world_process_zero:
            state.log_history.append({**logs, "epoch": state.epoch, "step": step})
            trainer.callback_handler.on_log(trainer.args, state, trainer.control, logs)

    def _save(self, result: Result, out: Path) -> None:
        from vestige.reports.page import write_page

        runs: dict[str, Any] = {"training": result}
        if self.diverged is None:
            last = self.snapshots[-1]
            runs |= {"exposure": last.exposure, "completion": last.completion}
        with new_files.new_directory(out) as staging:
            for name, run in runs.items():
                run.save(staging / name)
            write_page([staging / name for name in runs], staging / "page.html", show_secrets=False)

    def _has_time(self, share_done: float) -> bool:
        """Whether another measurement and the last one fit into the budget."""
        next_seconds = self.snapshots[-1].seconds if self.snapshots else self._measuring_seconds
        last_seconds = next_seconds * self._audit.cost_of_last
        elapsed = time.perf_counter() - self._start_time - self._measuring_seconds
        needed = self._measuring_seconds + next_seconds + last_seconds
        return needed <= self.budget * elapsed / share_done


def require_whole(trainer: Any) -> None:
    """Raise VestigeError if the model is split over processes."""
    parameters, modules = list(trainer.model.parameters()), trainer.model.modules()
    split = {
        "FSDP": trainer.is_fsdp_enabled
        or any(type(module).__name__.startswith("FSDP") for module in modules),
        "DeepSpeed ZeRO 3": any(hasattr(parameter, "ds_tensor") for parameter in parameters),
        "tensor parallelism": any(hasattr(parameter, "placements") for parameter in parameters),
    }
    for name, is_split in split.items():
        if is_split:
            raise VestigeError(
                f"the model is split over processes by {name}",
                remedy=(
                    "Train without the callback, then audit the saved model: `vestige exposure "
                    "MODEL CANARIES`, `vestige extract MODEL CANARIES`. With DDP (torchrun) each "
                    "process has a copy."
                ),
            )


def _check_limits(name: str, limits: Mapping[str, float]) -> None:
    if unknown := limits.keys() - LIMITS.keys():
        raise ValueError(f"{name} can have {', '.join(LIMITS)}, got {', '.join(sorted(unknown))}")
    for quantity, limit in limits.items():
        if math.isnan(limit):
            raise ValueError(f"{name} must hold numbers, got nan for {quantity}")


def _references_needed(*limits: Mapping[str, float]) -> int:
    """Number of references that can show an exposure above its limit.

    A canary above all n references has at least log2(n) - 1.88 bits
    (`vestige.metrics.exposure.sampled_exposure`).
    """
    highest = max(limit.get("exposure", 0.0) for limit in limits)
    return int(2 ** (math.ceil(highest) + 2)) if highest > 0 else 1


def _first_process_answer(answer: bool) -> bool:
    """Broadcast the answer of the first process."""
    if not (torch.distributed.is_available() and torch.distributed.is_initialized()):
        return answer
    shared = [answer]
    torch.distributed.broadcast_object_list(shared, src=0)
    return shared[0]
