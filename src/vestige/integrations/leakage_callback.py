"""Leakage measured while Transformers' `Trainer` trains.

What it measures is what `vestige exposure` and `vestige extract` measure of the same model: the
model is asked in evaluation mode, on the training's own device, and goes on as it was.

A training that diverges is no longer measured, which is logged, and goes on. Its verdict, and that
of a model that is too weak, of one that has not changed, and of too few canaries, is "undecided".

Where several processes train, all of them measure and come to the same; whether there is time for
it is the first one's to say, which also tells and saves.
"""

import inspect
import logging
import math
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from transformers import TrainerCallback

from vestige import _validate, claims, new_files
from vestige.audits.exposure.canaries import FEWEST
from vestige.data.manifest import Manifest
from vestige.errors import NotFinite, VestigeError
from vestige.integrations.arrival import require_arrival
from vestige.integrations.before import BEFORE, Before
from vestige.integrations.measurement import Measurement, training_precision
from vestige.integrations.moment import LIMITS, Moment
from vestige.integrations.training_leakage import TrainingLeakage
from vestige.integrations.whole_model import require_whole

if TYPE_CHECKING:
    from vestige.integrations.training_texts import TextSample

FEW = 2**8


_log = logging.getLogger("vestige")


class Leakage(VestigeError):
    """A training leaks more than its limit."""


class LeakageCallback(TrainerCallback):  # type: ignore[misc]
    """Measures what a model gives away, tells the trackers, and stops or fails above a limit.

    Exposure and completion of planted canaries, as the verbs measure them; lower bounds of epsilon
    where coins were flipped; and, of a sample of texts, how much better the training's are known
    than the evaluation's.

    Args:
        canaries: the directory of `plant`, or its manifest.
        every: share of the training between two measurements, in (0, 1]; one is at its end.
        budget: share of the training's own time that measuring may take; infinity: any. The model
            is measured before its first step and after its last one, whatever that takes; between
            them only where there is time left for one more and the last, by what the one before
            took.
        fail_above: limits, by their names in `vestige.integrations.moment.LIMITS` ("exposure",
            "completed", "epsilon", "loss_gap", "auc"), above which the end of the training raises
            `Leakage`. It raises `VestigeError` where the verdict is "undecided".
        stop_above: limits above which the training stops.
        texts: rows of the training and of the evaluation set to compare; 0: none.
        references: phrases that each canary is compared with, at least 100; more show more, and
            take longer. None: 256, or as many as it takes to be above a limit of exposure.
        seed: of the references, and of the sample of texts.
        out: a directory to make at the end, with a run folder for each kind of measurement and a
            page.

    Attributes:
        moments: what was measured so far.
        left_out: measurements for which there was no time.
        diverged: the step at which scores were no longer finite; None where they always were.
    """

    def __init__(  # noqa: PLR0913  as a verb has options
        self,
        canaries: "str | PathLike[str] | Manifest",
        *,
        every: float = 0.1,
        budget: float = 0.03,
        fail_above: Mapping[str, float] | None = None,
        stop_above: Mapping[str, float] | None = None,
        texts: int = 0,
        references: int | None = None,
        seed: int = 0,
        out: str | PathLike[str] | None = None,
    ) -> None:
        if not 0 < every <= 1:
            raise ValueError(f"every must be in (0, 1], got {every}")
        _validate.positive(budget=budget)
        for name, limits in (("fail_above", fail_above), ("stop_above", stop_above)):
            if other := set(limits or ()) - LIMITS.keys():
                raise ValueError(
                    f"{name} can have {', '.join(LIMITS)}, got {', '.join(sorted(other))}"
                )
            for own, limit in (limits or {}).items():
                if math.isnan(limit):
                    raise ValueError(f"{name} must hold numbers, got nan for {own}")
        if references is not None:
            _validate.at_least(FEWEST, references=references)
        needed = _references_for(fail_above or {}, stop_above or {})
        if references is not None and references < needed:
            raise ValueError(
                f"references must be at least {needed:,} to show that the limit is exceeded, got "
                f"{references:,}"
            )
        _validate.at_least(0, texts=texts)
        self.canaries, self.every, self.budget = canaries, every, budget
        self.fail_above, self.stop_above = dict(fail_above or {}), dict(stop_above or {})
        self.texts, self.references, self.seed = texts, references or max(needed, FEW), seed
        self.out = None if out is None else Path(out)
        self.moments: list[Moment] = []
        self.left_out = 0
        self.diverged: int | None = None
        self._began = self._spent = 0.0
        self._asking: Measurement | None = None
        self._before: Before | None = None
        if self.out is not None:
            from vestige.new_files import require_new

            require_new(self.out)

    @property
    def share(self) -> float:
        """Share of the training's time that measuring took so far."""
        return self._spent / max(time.perf_counter() - self._began, 1e-9)

    @property
    def history(self) -> list[dict[str, float]]:
        """A row a measurement, with its step, as trackers are told: for a data frame."""
        return [{"step": moment.step, **moment.logs()} for moment in self.moments]

    def on_train_begin(
        self, args: Any, state: Any, control: Any, *, model: Any, processing_class: Any, **rest: Any
    ) -> None:
        """Measure before the first step: epsilon and texts are measured against it.

        Raises:
            DataError: canaries do not reach the loss.
            VestigeError: the model is spread over processes, or a training is resumed without what
                was measured before its first step.
        """
        self._began, self._asking, self.diverged = time.perf_counter(), None, None
        trainer = _caller(self, "callback_handler")
        require_whole(model, trainer)
        if trainer is not None:
            require_arrival(trainer, self._manifest(), processing_class)
        kept = Path(args.output_dir) / BEFORE
        if state.global_step:
            self._before = Before.load(kept)
            return
        self._measure(args, state, control, model, processing_class)
        if state.is_world_process_zero and self._before is not None:
            self._before.save(kept)

    def on_step_end(
        self, args: Any, state: Any, control: Any, *, model: Any, processing_class: Any, **rest: Any
    ) -> None:
        """Measure where it is time to, and stop above a limit."""
        if state.global_step % max(1, round(self.every * state.max_steps)):
            return
        if state.global_step == state.max_steps:
            return  # the end measures
        if self.diverged is not None:
            return
        if not _as_the_first(self._has_time(state.global_step / state.max_steps)):
            self.left_out += 1
            return
        self._measure(args, state, control, model, processing_class)
        if self.diverged is None and self.moments[-1].above(self.stop_above):
            control.should_training_stop = True

    def on_train_end(
        self, args: Any, state: Any, control: Any, *, model: Any, processing_class: Any, **rest: Any
    ) -> None:
        """Measure, save, and fail above a limit.

        Raises:
            Leakage: more leaks than `fail_above` allows.
            VestigeError: `fail_above` was given, and the verdict is "undecided".
        """
        if state.is_world_process_zero:
            self._announce()
        self._measure(args, state, control, model, processing_class, whole=True)
        found = self.result
        if self.out is not None and state.is_world_process_zero:
            self._save(self.out, found)
        told = "" if self.diverged is not None else self.moments[-1].above(self.fail_above)
        if told and not any(check.prevents(claims.LEAK) for check in found.claim.checks):
            raise Leakage(
                f"the training has {told}",
                remedy="Train for fewer epochs, on fewer copies, or with a defence.",
            )
        if found.claim.verdict == claims.UNDECIDED:
            error = _undecided(found.claim.reasons)
            if self.fail_above:
                raise error
            _log.warning("%s", error)

    @property
    def result(self) -> TrainingLeakage:
        """All that was measured, with the verdict on the trained model: after the training."""
        record = {} if self.diverged is not None else self.moments[-1].found.record
        return TrainingLeakage(
            moments=tuple(self.moments),
            diverged=self.diverged,
            limits=self.fail_above,
            record={**record, "verb": "LeakageCallback"},
        )

    def _announce(self) -> None:
        if self.diverged is None and self.moments and self._asking is not None:
            seconds = max(1, round(self.moments[-1].seconds * self._asking.dearer))
            _log.warning("The final measurement of leakage takes about %s s.", f"{seconds:,}")

    def measured(self, model: Any, processing_class: Any, *, step: int = 0) -> Moment:
        """What the model gives away now, as the verbs find it; it goes on as it was.

        Args:
            model: as Transformers or PEFT has it.
            processing_class: its tokenizer.
            step: of the optimizer.
        """
        asking = self._questions(model, processing_class)
        return asking.moment(self._before or Before(), step=step)[0]

    def _measure(
        self,
        args: Any,
        state: Any,
        control: Any,
        model: Any,
        processing_class: Any,
        *,
        whole: bool = False,
    ) -> None:
        if self.diverged is not None:
            return
        moment, logs = None, {"vestige/diverged": 1.0}
        try:
            with self._timed(), training_precision(args, model):
                asking, step = self._questions(model, processing_class), state.global_step
                moment, self._before = asking.moment(self._before, step=step, whole=whole)
                logs = moment.logs()
        except NotFinite:
            self.diverged = state.global_step
            _log.warning(
                "The training diverged: at step %s scores are not finite. Leakage is no longer "
                "measured.", f"{state.global_step:,}"
            )  # fmt: skip
        if moment is not None:
            if self.moments and self.moments[-1].step == moment.step:
                self.moments[-1] = moment  # trackers were told
                return
            self.moments.append(moment)
        if not state.is_world_process_zero:
            return
        state.log_history.append({**logs, "epoch": state.epoch, "step": state.global_step})
        handler = _caller(self, "callbacks")
        if handler is not None:
            handler.on_log(args, state, control, logs)

    def _questions(self, model: Any, processing_class: Any) -> Measurement:
        """Questions to a model, which are put together once."""
        if self._asking is None or self._asking.network is not model:
            self._asking = Measurement(
                self.canaries,
                model,
                processing_class,
                references=self.references,
                seed=self.seed,
                sample=self._drawn(processing_class) if self.texts else None,
            )
        return self._asking

    def _has_time(self, done: float) -> bool:
        """Whether one more measurement, and the one at the end, stay within the budget.

        Args:
            done: share of the training that is over.
        """
        one = self.moments[-1].seconds if self.moments else self._spent
        last = one * (1 if self._asking is None else self._asking.dearer)
        training = (time.perf_counter() - self._began - self._spent) / done
        return self._spent + one + last <= self.budget * training

    @contextmanager
    def _timed(self) -> Iterator[None]:
        began = time.perf_counter()
        try:
            yield
        finally:
            self._spent += time.perf_counter() - began

    def _manifest(self) -> Manifest:
        from vestige.data.manifest import manifest_file

        given = self.canaries
        return given if isinstance(given, Manifest) else Manifest.load(manifest_file(given))

    def _drawn(self, tokenizer: Any) -> "TextSample":
        from vestige.integrations.canary_search import CanarySearch
        from vestige.integrations.training_texts import TextSample

        trainer = _caller(self, "callback_handler")
        if trainer is None:
            raise VestigeError(
                "texts can be compared only if Transformers' own trainer calls the callback",
                remedy="Leave out `texts`.",
            )
        search = CanarySearch(self._manifest(), tokenizer)
        return TextSample.of(trainer, number=self.texts, search=search, seed=self.seed)

    def _save(self, out: Path, found: TrainingLeakage) -> None:
        from vestige.reports.page import write_page

        with new_files.new_directory(out) as hidden:
            found.save(hidden / "training")
            parts = [hidden / "training"]
            if self.diverged is None:
                self.moments[-1].save(hidden)
                parts += [hidden / "exposure", hidden / "completion"]
            write_page(parts, hidden / "page.html", show_secrets=False)


def _references_for(*limits: Mapping[str, float]) -> int:
    """Phrases that resolve more than the limits of exposure: all of n references below a canary
    prove log2(n) - 1.88 bits (`vestige.metrics.exposure.sampled_exposure`).
    """
    most = max((one.get("exposure", 0.0) for one in limits), default=0.0)
    return int(2 ** (math.ceil(max(most, 0.0)) + 2)) if most > 0 else 1


def _undecided(reasons: Sequence[str]) -> VestigeError:
    return VestigeError(
        f"leakage could not be measured: {' '.join(dict.fromkeys(reasons))}",
        remedy=(
            "Check that the model learns (trainable weights are in the optimizer, an adapter is "
            "on, the learning rate is neither 0 nor too high), and plant more canaries."
        ),
    )


def _as_the_first(answer: bool) -> bool:
    """The answer of the first of the processes that train, which all of them take."""
    if not (torch.distributed.is_available() and torch.distributed.is_initialized()):
        return answer
    told = [answer]
    torch.distributed.broadcast_object_list(told, src=0)
    return told[0]


def _caller(callback: TrainerCallback, of: str) -> Any:
    """Who calls a callback, by what they hold: only they reach the trackers and the data, and they
    name themselves to nobody. None where a callback is called by somebody else.

    Args:
        callback: that is called.
        of: "callbacks" of the one who calls all callbacks of a training, "callback_handler" of the
            trainer.
    """
    frame = inspect.currentframe()
    while frame is not None:
        caller = frame.f_locals.get("self")
        held = getattr(caller, of, None) if caller is not callback else None
        if of == "callback_handler" and held is not None:
            held = held.callbacks
        if isinstance(held, list) and callback in held:
            return caller
        frame = frame.f_back
    return None
