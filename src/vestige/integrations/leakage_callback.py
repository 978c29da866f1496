"""Exposure of planted canaries while Transformers' `Trainer` trains.

What it measures is what `vestige exposure` measures of the same model: the model is asked in
evaluation mode, on the training's own device, and goes on as it was.

Where several processes train, all of them measure, since a model may be spread over them, and come
to the same; whether there is time for it is the first one's to say, which also tells and saves.
"""

import inspect
import time
from collections.abc import Mapping
from dataclasses import dataclass
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from transformers import TrainerCallback

from vestige import _validate
from vestige.errors import VestigeError
from vestige.reports.quantities import QUANTITIES

if TYPE_CHECKING:
    from vestige.attacks.exposure.exposure_result import CanaryExposure
    from vestige.data.manifest import Manifest
    from vestige.models.hugging_face import HuggingFaceLanguageModel

MEASURED = "exposure"
"""The quantity on which a limit can be set."""


class Leakage(VestigeError):
    """A training leaks more than its limit."""


@dataclass(frozen=True)
class Moment:
    """What was measured at a step.

    Attributes:
        step: of the optimizer.
        found: as `vestige exposure` finds it.
        seconds: that it took.
    """

    step: int
    found: "CanaryExposure"
    seconds: float


class LeakageCallback(TrainerCallback):  # type: ignore[misc]
    """Measures the exposure of canaries, tells the trackers, and stops or fails above a limit.

    Args:
        canaries: the directory of `plant`, or its manifest.
        every: share of the training between two measurements, in (0, 1]; one is at its end.
        budget: share of the training's time that measuring may take, in (0, 1]. A measurement is
            left out where those before it have spent more; the one at the end is not.
        fail_above: bits of exposure, under "exposure", above which the end of the training raises
            `Leakage`.
        stop_above: bits above which the training stops.
        references: phrases that each canary is compared with.
        seed: of the references.
        out: a run directory to make at the end, for `vestige report` and `vestige gate`.

    Attributes:
        moments: what was measured so far.
        left_out: measurements for which there was no time.
    """

    def __init__(
        self,
        canaries: "str | PathLike[str] | Manifest",
        *,
        every: float = 0.1,
        budget: float = 0.03,
        fail_above: Mapping[str, float] | None = None,
        stop_above: Mapping[str, float] | None = None,
        references: int = 2**10,
        seed: int = 0,
        out: str | PathLike[str] | None = None,
    ) -> None:
        for name, share in (("every", every), ("budget", budget)):
            if not 0 < share <= 1:
                raise ValueError(f"{name} must be in (0, 1], got {share}")
        for name, limits in (("fail_above", fail_above), ("stop_above", stop_above)):
            if other := set(limits or ()) - {MEASURED}:
                raise ValueError(
                    f"{name} can have {MEASURED} alone, got {', '.join(sorted(other))}"
                )
        _validate.at_least(1, references=references)
        self.canaries, self.every, self.budget = canaries, every, budget
        self.fail_above, self.stop_above = dict(fail_above or {}), dict(stop_above or {})
        self.references, self.seed = references, seed
        self.out = None if out is None else Path(out)
        self.moments: list[Moment] = []
        self.left_out = 0
        self._began = 0.0
        if self.out is not None:
            from vestige.results import require_new

            require_new(self.out)

    def on_train_begin(self, args: Any, state: Any, control: Any, **rest: Any) -> None:
        """Note when the training begins."""
        self._began = time.perf_counter()

    def on_step_end(
        self, args: Any, state: Any, control: Any, *, model: Any, processing_class: Any, **rest: Any
    ) -> None:
        """Measure where it is time to, and stop above the limit."""
        if state.global_step % max(1, round(self.every * state.max_steps)):
            return
        if state.global_step == state.max_steps:
            return  # the end measures
        spent, passed = sum(one.seconds for one in self.moments), time.perf_counter() - self._began
        if not _as_the_first(spent <= self.budget * passed):
            self.left_out += 1
            return
        self._measure(args, state, control, model, processing_class)
        if _above(self.moments[-1].found, self.stop_above):
            control.should_training_stop = True

    def on_train_end(
        self, args: Any, state: Any, control: Any, *, model: Any, processing_class: Any, **rest: Any
    ) -> None:
        """Measure, save, and fail above the limit.

        Raises:
            Leakage: the canaries are more exposed than `fail_above`.
        """
        if not self.moments or self.moments[-1].step != state.global_step:
            self._measure(args, state, control, model, processing_class)
        last = self.moments[-1].found
        if self.out is not None and state.is_world_process_zero:
            last.save(self.out)
        if told := _above(last, self.fail_above):
            raise Leakage(
                f"the canaries have {told}",
                remedy="Train for fewer epochs, on fewer copies, or with a defence.",
            )

    def _measure(
        self, args: Any, state: Any, control: Any, model: Any, processing_class: Any
    ) -> None:
        began = time.perf_counter()
        found = self.measured(model, processing_class)
        seconds = time.perf_counter() - began
        self.moments.append(Moment(state.global_step, found, seconds))
        if not state.is_world_process_zero:
            return
        summary = found.summary()
        logs = {
            "vestige/exposure": summary["exposure_planted"],
            "vestige/exposure_controls": summary["exposure_controls"],
            "vestige/seconds": seconds,
        }
        state.log_history.append({**logs, "epoch": state.epoch, "step": state.global_step})
        handler = _handler(self)
        if handler is not None:
            handler.on_log(args, state, control, logs)

    def measured(self, model: Any, processing_class: Any) -> "CanaryExposure":
        """The exposure now, as `vestige exposure` finds it; the model goes on as it was.

        Args:
            model: as Transformers or PEFT has it.
            processing_class: its tokenizer.
        """
        import vestige

        modes = {name: module.training for name, module in model.named_modules()}
        devices = [model.device] if model.device.type == "cuda" else []
        try:
            with torch.random.fork_rng(devices=devices), torch.no_grad():
                return vestige.exposure(
                    _language_model(model, processing_class),
                    self.canaries,
                    references=self.references,
                    seed=self.seed,
                )
        finally:
            for name, module in model.named_modules():
                module.training = modes[name]


def _as_the_first(answer: bool) -> bool:
    """The answer of the first of the processes that train, which all of them take."""
    if not (torch.distributed.is_available() and torch.distributed.is_initialized()):
        return answer
    told = [answer]
    torch.distributed.broadcast_object_list(told, src=0)
    return told[0]


def _language_model(model: Any, tokenizer: Any) -> "HuggingFaceLanguageModel":
    from vestige.data.subwords import SubwordVocabulary
    from vestige.models.hugging_face import HuggingFaceLanguageModel

    if tokenizer is None:
        raise VestigeError(
            "the trainer has no tokenizer", remedy="Give it as `processing_class` to the trainer."
        )
    return HuggingFaceLanguageModel(model, SubwordVocabulary(tokenizer))


def _above(found: "CanaryExposure", limits: Mapping[str, float]) -> str:
    """What is above a limit, in words; "" where nothing is."""
    for name, limit in limits.items():
        measured = QUANTITIES[name].of["CanaryExposure"](found.summary())
        if measured.value is not None and measured.value > limit:
            return f"{name} {measured.amount(QUANTITIES[name].unit)}: more than {limit:g}"
    return ""


def _handler(callback: TrainerCallback) -> Any:
    """Whoever calls the callbacks of a training: only it reaches the trackers, and it names itself
    to nobody. None where a callback is called by somebody else.
    """
    frame = inspect.currentframe()
    while frame is not None:
        caller = frame.f_locals.get("self")
        if callback in getattr(caller, "callbacks", ()):
            return caller
        frame = frame.f_back
    return None
