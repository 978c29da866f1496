"""How every training of `vestige train` goes, whatever its task: one model in one directory.

`prepared` and `utterances` prepare a model and its data. The rest is the same: the
record, the ledger and the guarantee, the training itself, the run folder, and the last lines.
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
from vestige.preparation.lineage import Lineage, end, registered
from vestige.preparation.prepared import Prepared, is_path
from vestige.preparation.texts import Texts
from vestige.preparation.trained import RUN, Trained
from vestige.privacy.statement import PrivacyStatement
from vestige.results import Result
from vestige.session import Session
from vestige.training import loop
from vestige.training.directory import LOG
from vestige.training.history import EarlyStopping, StopAtPerplexity, TrainingHistory
from vestige.training.steps import settled
from vestige.training.word_frequencies import useless_training


def learn(run: Session, texts: Texts, prepared: Prepared, descent: Lineage) -> Trained:
    """Train a prepared model in the directory of the call, and save the run of the training.

    A private training shows its guarantee before the first step and after the last. A training
    that had ended before is reported again. This process has claimed the directory.
    """
    out, model, config = Path(run.arguments["out"]), prepared.model, prepared.config
    record(run, texts, model)
    defence = prepared.defence or NoDefence()
    plan = statement = None
    if isinstance(defence, PrivateDefence):
        with run.progress("computing the noise for epsilon") as step:
            plan = defence.planned(prepared.task.data, config, lambda tried: step(tried))
        defence = plan.defence
    entry = privacy.entry_of(defence, plan, config, descent)
    if plan is not None:
        statement = privacy.statement_of(plan, entry, texts, descent)
        privacy.announce(statement, config.batch_size, run.monitor)

    with registered(out, entry, descent), run.progress("training") as step:
        history = loop.learn(
            model,
            prepared.task,
            config=config,
            directory=out,
            resume=run.arguments["resume"],
            progress=lambda done, steps, *_: step(done, steps),
            step=defence.step(model, prepared.task.data, config),
            stop=prepared.stop,
            secret=None if plan is None else plan.defence.secret(),
        )
    end(out, history.epochs[-1].step)
    if plan is not None and statement is not None:
        steps = history.epochs[-1].step
        statement = privacy.conclude(statement, plan, steps, out / RUN, run.monitor)

    if not (out / RUN).exists():
        _save_measured(run, texts, prepared, history, defence, statement)
    if statement and (advice := privacy.clip_advice(out / LOG)):
        run.log(advice)
    trained = Trained.in_folder(out, history)
    log_epoch(trained.summary, prepared, run.monitor)
    return trained


def record(run: Session, texts: Texts, model: Any) -> None:
    """Record the models and texts of a training."""
    given = run.arguments
    start, data, other = (given.get(name) for name in ("from_", "data", "validation"))
    trained = run.models["trained"] = folders.network_record(model)
    if hasattr(model, "source_vocabulary"):
        trained["source_vocabulary"] = model.source_vocabulary.fingerprint()
    if start is not None:
        run.models["from"] = folders.model_record(start, model if is_path(start) else start)
    run.data["training"] = folders.corpus_record(data, texts.training)
    if len(texts.held):
        held = data if other is None else other
        run.data["validation"] = folders.corpus_record(held, texts.held)
    if texts.test:
        run.data["test"] = folders.corpus_record(data, texts.test)
    if isinstance(texts.planted, SecretManifest):
        run.data["planted"] = {"sha256": texts.planted.sha256}


def _save_measured(
    run: Session,
    texts: Texts,
    prepared: Prepared,
    history: TrainingHistory,
    defence: Defence,
    statement: PrivacyStatement | None,
) -> None:
    """Measure the trained model, and write the run of its training."""
    config, more = prepared.config, dict[str, object]()
    summary = {**history.summary(), **prepared.scores()}
    settings = {**asdict(settled(config, prepared.model.device)), **prepared.recorded}
    if prepared.defence is not None:
        summary["defence"], settings["defence"] = defence.name, settings_of(defence)
    if texts.division is not None:
        more["division"] = texts.division.summary()
    if statement is not None:
        summary |= statement.summary()
        more["privacy"] = statement.terms()
    more["configuration"] = {n: one for n, one in settings.items() if n not in prepared.unused}
    save(run, Result(kind=prepared.kind, summary=summary, rows=history.rows()), **more)


def save(run: Session, result: Result, **more: object) -> None:
    """Write the run of a training; `more` are further entries of `run.json`."""
    results.save(result, Path(run.arguments["out"]) / RUN, run={**run.record(), **more})


def log_epoch(summary: Mapping[str, Any], prepared: Prepared, monitor: Monitor) -> None:
    """Log the epoch that was kept and how good it is, with advice if the model is bad."""
    stop, epoch = prepared.stop, f"Epoch {summary['epoch']:.3g} kept"
    if summary["stopped"]:
        why = "--early-stopping" if isinstance(stop, EarlyStopping) else "--stop-at-perplexity"
        monitor.log(f"Stopped after {summary['steps']:,} steps ({why})")
    if prepared.kind == "IntentSlotTraining":
        loss = summary.get("loss")
        shown = "" if loss is None else f", validation loss {loss:.3g} nats per utterance"
        monitor.log(f"{epoch}{shown}")
        return
    judged, tokens = summary["validation_perplexity"], len(prepared.model.vocabulary)
    kind = "perplexity" if judged is None else "validation perplexity"
    value = summary["perplexity"] if judged is None else judged
    goal = stop.perplexity if isinstance(stop, StopAtPerplexity) else None
    if goal is not None and not summary["stopped"] and (judged is None or judged > goal):
        monitor.log(f"Perplexity {goal:g} was not reached. Train longer: --epochs")
    if value is None:  # infinite, or Poisson sampling drew nothing
        monitor.log(f"{epoch}, without a finite {kind}")
    else:
        monitor.log(f"{epoch}, {kind} " + (f"{value:.1f}" if value < 1e6 else f"{value:.3g}"))
    if useless_training(summary) is None and (value is None or value > tokens):
        monitor.log(
            f"That is worse than a random guess among {tokens:,} tokens. Lower --learning-rate, "
            "or use more epochs or text; with dp-sgd, larger batches or a larger --epsilon"
        )
