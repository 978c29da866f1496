"""Leakage measured while Transformers' `Trainer` trains.

The measurements are those of `vestige exposure` and `vestige extract`, in evaluation mode on the
training's own device. The training continues to the same weights.

A training that diverges is no longer measured, which is logged, and continues. With several
processes all of them measure and get the same result; the first one keeps the time, logs and saves.
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
from vestige.integrations.measurement import BASELINE, Baseline, Measurement
from vestige.results import Result

REFERENCES = 2**8

_log = logging.getLogger("vestige")


class Leakage(VestigeError):
    """A training leaks more than its limit."""


class LeakageCallback(TrainerCallback):  # type: ignore[misc]
    """Measures what a model reveals, reports it to the trackers, and stops or fails above a limit.

    Exposure and completion of planted canaries, as of the verbs, and lower bounds of epsilon if
    coins were flipped.

    Args:
        canaries: the folder of `plant`, or its manifest.
        trainer: that it is added to, `trainer.add_callback(LeakageCallback("canaries", trainer))`:
            it has the rows, and the trackers. It can also be set before the training.
        every: share of the training between two measurements, in (0, 1].
        budget: share of the training's own time that measuring may take; infinity: any. The
            measurements before the first step and after the last one are always made, those
            between them if there is time for one more and the last, judged by the one before.
        fail_above: limits by the names of `vestige.integrations.leakage.LIMITS` ("exposure",
            "completed", "epsilon"), above which the end of the training raises `Leakage`. It raises
            `VestigeError` if the verdict is "undecided".
        stop_above: limits above which the training stops.
        references: phrases that each canary is compared with, at least 100; more resolve higher
            exposures and take longer. None: 256, or as many as a limit of exposure needs.
        seed: of the references.
        out: a folder to make at the end, with a run folder for each kind of measurement and a
            page.

    Attributes:
        moments: the measurements so far.
        left_out: measurements for which there was no time.
        diverged: the step at which scores were no longer finite; None if they always were.
    """

    def __init__(  # noqa: PLR0913  as a verb has options
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
        needed = _references_for(self.fail_above, self.stop_above)
        if references is not None:
            _validate.at_least(FEWEST, references=references)
            if references < needed:
                raise ValueError(
                    f"references must be at least {needed:,} to show that the limit is exceeded, "
                    f"got {references:,}"
                )
        self.canaries, self.trainer, self.every, self.budget = canaries, trainer, every, budget
        self.seed = seed
        self.references = references or max(needed, REFERENCES)
        self.out = None if out is None else Path(out)
        if self.out is not None:
            new_files.require_new(self.out)
        self.moments: list[LeakageSnapshot] = []
        self.left_out = 0
        self.diverged: int | None = None
        self._began = self._spent = 0.0
        self._measurement: Measurement
        self._before: Baseline | None = None

    @property
    def history(self) -> list[dict[str, float]]:
        """One row per measurement with its step, as logged: for a data frame."""
        return [{"step": moment.step, **moment.logs()} for moment in self.moments]

    @property
    def result(self) -> Result:
        """All measurements, with the verdict on the trained model: after the training."""
        record = {} if self.diverged is not None else self.moments[-1].found.record
        return training_leakage(
            self.moments,
            limits=self.fail_above,
            diverged=self.diverged,
            record={**record, "verb": "LeakageCallback"},
        )

    def on_train_begin(self, args: Any, state: Any, control: Any, **rest: Any) -> None:
        """Measure before the first step: what epsilon and texts are compared with.

        Raises:
            DataError: canaries do not reach the loss.
            VestigeError: the callback has no trainer, the model is split over processes, or a
                training is resumed without the measurement before its first step.
        """
        trainer = self.trainer
        if trainer is None:
            raise VestigeError(
                "the callback does not have its trainer, which has the rows and the trackers",
                remedy=(
                    "Add it after making the trainer: "
                    "trainer.add_callback(LeakageCallback(CANARIES, trainer))."
                ),
            )
        self._began, self.diverged = time.perf_counter(), None
        require_whole(trainer)
        self._measurement = Measurement(
            trainer,
            self.canaries,
            references=self.references,
            seed=self.seed,
        )
        require_arrival(trainer, self._measurement.search)
        self._spent = time.perf_counter() - self._began
        file = Path(args.output_dir) / BASELINE
        if state.global_step:
            self._before = Baseline.load(file)
            return
        self._measure()
        if state.is_world_process_zero and self._before is not None:
            self._before.save(file)

    def on_step_end(self, args: Any, state: Any, control: Any, **rest: Any) -> None:
        """Measure if it is time to, and stop above a limit."""
        step, steps = state.global_step, state.max_steps
        if step % max(1, round(self.every * steps)) or step == steps or self.diverged is not None:
            return
        if not _of_first_process(self._has_time(step / steps)):
            self.left_out += 1
            return
        self._measure()
        if self.diverged is None and self.moments[-1].above(self.stop_above):
            control.should_training_stop = True

    def on_train_end(self, args: Any, state: Any, control: Any, **rest: Any) -> None:
        """Measure, save, and fail above a limit.

        Raises:
            Leakage: more leaks than `fail_above` allows.
            VestigeError: `fail_above` was given, and the verdict is "undecided".
        """
        first = state.is_world_process_zero
        if first and self.diverged is None and self.moments:
            seconds = max(1, round(self.moments[-1].seconds * self._measurement.cost_of_last))
            _log.warning("The final measurement of leakage takes about %s s.", f"{seconds:,}")
        self._measure(last=True)
        result = self.result
        if self.out is not None and first:
            self._save(result, self.out)
        claim = result.claim
        assert claim is not None
        exceeded = "" if self.diverged is not None else self.moments[-1].above(self.fail_above)
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
        trainer, state, began = self.trainer, self.trainer.state, time.perf_counter()
        step, logs = state.global_step, {"vestige/diverged": 1.0}
        try:
            moment, self._before = self._measurement.measure(self._before, step=step, last=last)
            logs = moment.logs()
        except NotFinite:
            self.diverged = step
            _log.warning(
                "The training diverged: at step %s scores are not finite. Leakage is no longer "
                "measured.", f"{step:,}"
            )  # fmt: skip
        else:
            if self.moments and self.moments[-1].step == step:
                self.moments[-1] = moment  # it was logged
                return
            self.moments.append(moment)
        finally:
            self._spent += time.perf_counter() - began
        if state.is_world_process_zero:
            state.log_history.append({**logs, "epoch": state.epoch, "step": step})
            trainer.callback_handler.on_log(trainer.args, state, trainer.control, logs)

    def _save(self, result: Result, out: Path) -> None:
        from vestige.reports.page import write_page

        runs: dict[str, Any] = {"training": result}
        if self.diverged is None:
            last = self.moments[-1]
            runs |= {"exposure": last.found, "completion": last.completion}
        with new_files.new_directory(out) as hidden:
            for name, one in runs.items():
                one.save(hidden / name)
            write_page([hidden / name for name in runs], hidden / "page.html", show_secrets=False)

    def _has_time(self, done: float) -> bool:
        """Whether another measurement and the last one fit into the budget, by the share done."""
        one = self.moments[-1].seconds if self.moments else self._spent
        last = one * self._measurement.cost_of_last
        training = (time.perf_counter() - self._began - self._spent) / done
        return self._spent + one + last <= self.budget * training


def require_whole(trainer: Any) -> None:
    """Raise VestigeError if no process has the whole model."""
    parameters, modules = list(trainer.model.parameters()), trainer.model.modules()
    split = {
        "FSDP": trainer.is_fsdp_enabled
        or any(type(module).__name__.startswith("FSDP") for module in modules),
        "DeepSpeed ZeRO 3": any(hasattr(one, "ds_tensor") for one in parameters),
        "tensor parallelism": any(hasattr(one, "placements") for one in parameters),
    }
    for name, given in split.items():
        if given:
            raise VestigeError(
                f"the model is split over processes by {name}",
                remedy=(
                    "Train without the callback, then audit the saved model: `vestige exposure "
                    "MODEL CANARIES`, `vestige extract MODEL CANARIES`. With DDP (torchrun) each "
                    "process has a copy."
                ),
            )


def _check_limits(name: str, limits: Mapping[str, float]) -> None:
    if other := limits.keys() - LIMITS.keys():
        raise ValueError(f"{name} can have {', '.join(LIMITS)}, got {', '.join(sorted(other))}")
    for own, limit in limits.items():
        if math.isnan(limit):
            raise ValueError(f"{name} must hold numbers, got nan for {own}")


def _references_for(*limits: Mapping[str, float]) -> int:
    """References that can resolve a limit of exposure: a canary above all n of them has at least
    log2(n) - 1.88 bits (`vestige.metrics.exposure.sampled_exposure`).
    """
    most = max(one.get("exposure", 0.0) for one in limits)
    return int(2 ** (math.ceil(most) + 2)) if most > 0 else 1


def _of_first_process(answer: bool) -> bool:
    """The answer of the first process, for all."""
    if not (torch.distributed.is_available() and torch.distributed.is_initialized()):
        return answer
    shared = [answer]
    torch.distributed.broadcast_object_list(shared, src=0)
    return shared[0]
