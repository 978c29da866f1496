"""Run a training of `vestige train`, of any task, in its directory.

`training_setup` and `utterance_setup` make the model and its data. This module does the rest:
record, ledger and guarantee, the training itself, the run folder, and the last lines of the log.
"""

from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

from vestige import results
from vestige.data.canaries.utterances import SecretManifest
from vestige.defences.methods.private import PrivateDefence
from vestige.defences.registry import Defence, NoDefence, settings_of
from vestige.models import folders
from vestige.monitor import Monitor
from vestige.preparation import privacy
from vestige.preparation.lineage import Lineage, begin_ledger, end_ledger
from vestige.preparation.texts import Texts
from vestige.preparation.trained import RUN, Trained
from vestige.preparation.training_setup import TrainingSetup, is_path
from vestige.privacy.statement import PrivacyStatement
from vestige.results import Result
from vestige.session import Session
from vestige.training import loop
from vestige.training.directory import LOG
from vestige.training.history import EarlyStopping, StopAtPerplexity, TrainingHistory
from vestige.training.steps import settled
from vestige.training.word_frequencies import useless_training


def run_training(run: Session, texts: Texts, setup: TrainingSetup, lineage: Lineage) -> Trained:
    """Train a model in the directory of the call, and save the run of the training.

    A private training logs its guarantee before the first step and after the last. A finished
    training is only reported. The caller has locked the directory.
    """
    out, model, config = Path(run.arguments["out"]), setup.model, setup.config
    record_inputs(run, texts, model)
    defence = setup.defence or NoDefence()
    plan = statement = None
    if isinstance(defence, PrivateDefence):
        with run.progress("computing the noise for epsilon") as step:
            plan = defence.planned(setup.task.data, config, lambda tried: step(tried))
        defence = plan.defence
    entry = privacy.entry_of(defence, plan, config, lineage)
    if plan is not None:
        statement = privacy.planned_statement(plan, entry, texts, lineage)
        privacy.announce(statement, config.batch_size, run.monitor)

    begin_ledger(out, entry, lineage)
    with run.progress("training") as step:
        history = loop.learn(
            model,
            setup.task,
            config=config,
            directory=out,
            resume=run.arguments["resume"],
            progress=lambda done, steps, *_: step(done, steps),
            step=defence.step(model, setup.task.data, config),
            stop=setup.stop,
            secret=None if plan is None else plan.defence.secret(),
        )
    steps = history.epochs[-1].step
    end_ledger(out, steps)
    if plan is not None and statement is not None:
        statement = privacy.conclude(statement, plan, steps, out / RUN, run.monitor)

    if not (out / RUN).exists():
        _measure_and_save(run, texts, setup, history, defence, statement)
    if statement and (advice := privacy.clip_advice(out / LOG)):
        run.log(advice)
    trained = Trained.load(out, history)
    log_result(trained.summary, setup, run.monitor)
    return trained


def record_inputs(run: Session, texts: Texts, model: Any) -> None:
    """Record the models and texts of a training."""
    start, data, validation = (run.arguments[name] for name in ("from_", "data", "validation"))
    trained = run.models["trained"] = folders.network_record(model)
    if hasattr(model, "source_vocabulary"):
        trained["source_vocabulary"] = model.source_vocabulary.fingerprint()
    if start is not None:
        run.models["from"] = folders.model_record(start, model if is_path(start) else start)
    run.data["training"] = folders.corpus_record(data, texts.training)
    if len(texts.validation):
        source = data if validation is None else validation
        run.data["validation"] = folders.corpus_record(source, texts.validation)
    if texts.test:
        run.data["test"] = folders.corpus_record(data, texts.test)
    if isinstance(texts.planted, SecretManifest):
        run.data["planted"] = {"sha256": texts.planted.sha256}


def _measure_and_save(
    run: Session,
    texts: Texts,
    setup: TrainingSetup,
    history: TrainingHistory,
    defence: Defence,
    statement: PrivacyStatement | None,
) -> None:
    """Measure the trained model, and write the run of its training."""
    config = settled(setup.config, setup.model.device)
    settings = {**asdict(config), **setup.recorded}
    summary = {**history.summary(), **setup.measure()}
    record: dict[str, object] = {}
    if setup.defence is not None:
        summary["defence"], settings["defence"] = defence.name, settings_of(defence)
    if texts.division is not None:
        record["division"] = texts.division.summary()
    if statement is not None:
        summary |= statement.summary()
        record["privacy"] = statement.terms()
    record["configuration"] = {n: value for n, value in settings.items() if n not in setup.unused}
    save(run, Result(kind=setup.kind, summary=summary, rows=history.rows()), **record)


def save(run: Session, result: Result, **record: object) -> None:
    """Write the run of a training; `record` are further entries of `run.json`."""
    results.save(result, Path(run.arguments["out"]) / RUN, run={**run.record(), **record})


def log_result(summary: Mapping[str, Any], setup: TrainingSetup, monitor: Monitor) -> None:
    """Log the chosen epoch and its score, with advice if the model is bad."""
    stop, epoch = setup.stop, f"Epoch {summary['epoch']:.3g} kept"
    if summary["stopped"]:
        option = "--early-stopping" if isinstance(stop, EarlyStopping) else "--stop-at-perplexity"
        monitor.log(f"Stopped after {summary['steps']:,} steps ({option})")
    if setup.kind == "IntentSlotTraining":
        loss = summary.get("loss")
        score = "" if loss is None else f", validation loss {loss:.3g} nats per utterance"
        monitor.log(f"{epoch}{score}")
        return
    validation, tokens = summary["validation_perplexity"], len(setup.model.vocabulary)
    name = "perplexity" if validation is None else "validation perplexity"
    value = summary["perplexity"] if validation is None else validation
    goal = stop.perplexity if isinstance(stop, StopAtPerplexity) else None
    if goal is not None and not summary["stopped"] and (validation is None or validation > goal):
        monitor.log(f"Perplexity {goal:g} was not reached. Train longer: --epochs")
    if value is None:  # infinite, or Poisson sampling chose no texts
        monitor.log(f"{epoch}, without a finite {name}")
    else:
        monitor.log(f"{epoch}, {name} " + (f"{value:.1f}" if value < 1e6 else f"{value:.3g}"))
    if useless_training(summary) is None and (value is None or value > tokens):
        monitor.log(
            f"That is worse than a random guess among {tokens:,} tokens. Lower --learning-rate, "
            "or use more epochs or text; with dp-sgd, larger batches or a larger --epsilon"
        )
