"""What trainings of every task share: one training in its directory, from its record to its run."""

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from os import PathLike
from pathlib import Path
from typing import Any

from vestige import results
from vestige.defences.privacy_ledger import LedgerEntry
from vestige.models import provenance
from vestige.monitor import Monitor
from vestige.preparation.lineage import Lineage, end, registered
from vestige.preparation.trained import MODEL, Trained
from vestige.results import Result
from vestige.session import Session
from vestige.training import loop
from vestige.training.config import TrainingConfig
from vestige.training.directory import IDENTITY
from vestige.training.history import StopAtPerplexity, TrainingHistory
from vestige.training.precision import settled
from vestige.training_runs import RUN, useless_training


@dataclass(frozen=True, kw_only=True)
class TrainingRun:
    """One training in its directory.

    Attributes:
        run: the call; each training of several seeds has its own.
        out: the directory, which this process has claimed.
        resume: continue the training in it.
        start: the model that it continues, or None.
        data: where its texts come from.
        validation: where its validation texts come from, if from elsewhere.
    """

    run: Session
    out: Path
    resume: bool
    start: Any
    data: Any
    validation: Any

    @property
    def begun(self) -> bool:
        """Whether an earlier process began it."""
        return (self.out / IDENTITY).exists()

    @property
    def finished(self) -> bool:
        """Whether its run was saved."""
        return (self.out / RUN).exists()

    def record(self, model: Any, training: Any, validation: Any = None, test: Any = None) -> None:
        """Record the models and texts of the training; None for a text that there is not."""
        models = {"trained": provenance.of_network(model)}
        if self.start is not None:
            path = isinstance(self.start, str | PathLike)
            models["from"] = provenance.of_model(self.start, model if path else self.start)
        self.run.models |= models
        other = self.data if self.validation is None else self.validation
        read = {
            "training": (self.data, training),
            "validation": (other, validation),
            "test": (self.data, test),
        }
        self.run.data |= {
            role: provenance.of_corpus(*one) for role, one in read.items() if one[1] is not None
        }

    def learn(
        self,
        model: Any,
        task: Any,
        config: TrainingConfig,
        *,
        lineage: Lineage,
        entry: LedgerEntry,
        **settings: Any,
    ) -> TrainingHistory:
        """Train, and write the ledger before and after; see `training.loop.learn`."""
        with registered(self.out, entry, lineage), self.run.progress("training") as step:
            history = loop.learn(
                model,
                task,
                config=config,
                directory=self.out,
                resume=self.resume,
                progress=lambda done, steps, *_: step(done, steps),
                **settings,
            )
        end(self.out, history.epochs[-1].step)
        return history

    def save(self, trained: Any, configuration: Mapping[str, object], **more: object) -> None:
        """Write the run of the training.

        Args:
            trained: the measured training, with `summary` and `rows`.
            configuration: every setting that it depends on.
            **more: further entries of `run.json`.
        """
        record = {**self.run.record(), "configuration": configuration, **more}
        results.save(Result.of(trained), self.out / RUN, run=record)

    def found(self, history: TrainingHistory) -> Trained:
        """The training as its directory has it; one that was finished before knows its cost."""
        saved = results.load(self.out / RUN)
        return Trained(
            kind=saved.result,
            summary={"model": str(self.out / MODEL), **saved.summary},
            rows=tuple(history.rows()),
            record={"verb": "train", **saved.run},
            directory=self.out,
            history=history,
        )


def used(config: TrainingConfig, model: Any) -> dict[str, Any]:
    """The settings of a training as the record has them, with the precision on this device."""
    return asdict(settled(config, model.device))


def log_kept(
    summary: Mapping[str, Any], tokens: int, stop: StopAtPerplexity | None, monitor: Monitor
) -> None:
    """Log the epoch that was kept and its perplexity, with advice if the model is bad.

    Args:
        summary: of a training on texts.
        tokens: in the vocabulary; their number is the perplexity of a random guess.
        stop: when the training was to stop.
        monitor: receives the lines.
    """
    judged = summary["validation_perplexity"]
    kind = "perplexity" if judged is None else "validation perplexity"
    value = summary["perplexity"] if judged is None else judged
    if summary["stopped"]:
        monitor.log(f"Stopped after {summary['steps']:,} steps (--stop-at-perplexity)")
    elif stop is not None and (judged is None or judged > stop.perplexity):
        monitor.log(f"Perplexity {stop.perplexity:g} was not reached. Train longer: --epochs")
    if value is None:  # infinite, or Poisson sampling drew nothing
        monitor.log(f"Epoch {summary['epoch']:.3g} kept, without a finite {kind}")
    else:
        shown = f"{value:.1f}" if value < 1e6 else f"{value:.3g}"
        monitor.log(f"Epoch {summary['epoch']:.3g} kept, {kind} {shown}")
    if useless_training(summary) is None and (value is None or value > tokens):
        monitor.log(
            f"That is worse than a random guess among {tokens:,} tokens. Lower --learning-rate, "
            "or use more epochs or text; with dp-sgd, larger batches or a larger --epsilon"
        )
