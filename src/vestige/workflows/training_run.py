"""What trainings of every task share: the learning itself, its record, and what came of it."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from vestige import results
from vestige.data.encoded import EncodedCorpus
from vestige.defences.privacy_ledger import LedgerEntry
from vestige.monitor import Monitor
from vestige.result import Result
from vestige.training import loop
from vestige.training.config import TrainingConfig
from vestige.training.history import StopAtPerplexity, TrainingHistory
from vestige.training.word_frequencies import FREQUENCIES, frequency_perplexity
from vestige.training_runs import JUDGED_BY, RUN, useless_training
from vestige.workflows.privacy_files import end, registered
from vestige.workflows.privacy_plan import Lineages, entry_of
from vestige.workflows.train import Trained, TrainingRequest, train


def learn(
    request: TrainingRequest,
    model: Any,
    lesson: Any,
    config: TrainingConfig,
    *,
    lineages: Lineages,
    entry: LedgerEntry | None = None,
    **settings: Any,
) -> TrainingHistory:
    """Teach a model, and note before and after what it has read; see `training.loop.learn`."""
    entry = entry or entry_of(request, None, config, lineages)
    before = registered(request.out, entry, lineages.model, lineages.kept)
    with before, request.monitor.progress("training") as bar:
        history = loop.learn(
            model,
            lesson,
            config=config,
            directory=request.out,
            resume=request.resume,
            progress=lambda step, steps, *_: bar(step, steps),
            **settings,
        )
    end(request.out, history.epochs[-1].step)
    return history


def save(
    request: TrainingRequest,
    training: Result,
    configuration: Mapping[str, object],
    provenance: Mapping[str, Any],
    **more: object,
) -> None:
    """Write the run directory of a training."""
    recorded = request.call.record(
        training, configuration=configuration, seed=request.seed, **provenance
    )
    results.save(recorded, request.out / RUN, run={**recorded.record, **more})


def finished(request: TrainingRequest, history: TrainingHistory) -> Trained:
    """The training as its directory has it: one that was finished before knows what it cost."""
    run = results.load(request.out / RUN)
    found = Trained(directory=request.out, history=history, saved=run.summary)
    return replace(found, record={"verb": train.__name__, **run.run})


def frequencies(
    training: EncodedCorpus, held: EncodedCorpus | None, size: int
) -> dict[str, object]:
    """What word frequencies reach on the text held out; without one, on the training text."""
    alone = frequency_perplexity(training, training if held is None else held, size=size)
    return {FREQUENCIES: alone, JUDGED_BY: "training" if held is None else "validation"}


def log_kept(
    summary: Mapping[str, Any], tokens: int, stop: StopAtPerplexity | None, monitor: Monitor
) -> None:
    """Tell epoch and perplexity, and what to change where they are not what was hoped for.

    Args:
        tokens: in the vocabulary; guessing among them has that perplexity.
    """
    judged = summary["validation_perplexity"]
    kind = "perplexity" if judged is None else "validation perplexity"
    value = summary["perplexity"] if judged is None else judged
    if summary["stopped"]:
        monitor.log(f"Stopped after {summary['steps']:,} steps, as asked by --stop-at-perplexity")
    elif stop is not None and (judged is None or judged > stop.perplexity):
        monitor.log(
            f"Perplexity {stop.perplexity:g} was not reached: give more --epochs to get there"
        )
    if value is None:  # infinite, or Poisson sampling drew nothing
        monitor.log(f"Epoch {summary['epoch']:.3g} kept, without a finite {kind}")
    else:
        shown = f"{value:.1f}" if value < 1e6 else f"{value:.3g}"
        monitor.log(f"Epoch {summary['epoch']:.3g} kept, {kind} {shown}")
    warning = useless_training(summary)
    if warning is not None:
        monitor.log(warning)
    elif value is None or value > tokens:
        monitor.log(
            f"That is worse than guessing among {tokens:,} tokens: take a lower --learning-rate or "
            "more epochs or text; with dp-sgd, larger batches or a larger --epsilon"
        )
