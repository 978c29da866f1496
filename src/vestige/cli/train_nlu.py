"""`vestige train --task nlu`: an intent-and-slot model from labelled utterances."""

from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from vestige.cli.privacy_files import end
from vestige.cli.privacy_plan import undefended
from vestige.cli.terminal import progress, say, show_json, show_table
from vestige.cli.training_directory import RUN, claimed
from vestige.cli.utterance_plan import Parts, WantedNlu, prepare
from vestige.workflows.utterance_sources import Sources, read_parts, secrets_of

if TYPE_CHECKING:
    from vestige.data.secret_manifest import SecretManifest
    from vestige.models.white_box import IntentSlotNetwork
    from vestige.training.config import TrainingConfig
    from vestige.training.history import EarlyStopping

SCORES = {
    "intent_accuracy": "intent accuracy",
    "slot_f1": "slot F1",
    "exact_match": "intent and all tags",
}
UNUSED = ("sequence_length", "batching", "evaluate_every")
"""Settings that a training of utterances does not look at."""


def run(
    context: typer.Context,
    sources: Sources,
    wanted: WantedNlu,
    out: Path,
    *,
    resume: bool,
    as_json: bool,
) -> None:
    """Read, train, score, save, and say what came of it."""
    from vestige.data.utterances import Utterances

    wanted.check()
    context.with_resource(claimed(out, resume))
    planted = secrets_of(sources.data)
    training, validation, test = read_parts(sources, wanted.seed, planted=planted)
    parts = Parts(training, validation, test or Utterances.of([]))
    stop = wanted.stop(validated=len(validation) > 0)
    model, config = prepare(wanted, parts, planted)
    record = _record(context, sources, wanted, parts, planted, model, config)
    summary = _train(model, parts, config, stop, out, resume, wanted, record)
    if as_json:
        show_json(summary)
    else:
        _report(summary, out)


def _record(
    context: typer.Context,
    sources: Sources,
    wanted: WantedNlu,
    parts: Parts,
    planted: "SecretManifest | None",
    model: "IntentSlotNetwork",
    config: "TrainingConfig",
) -> dict[str, object]:
    from vestige.cli import provenance
    from vestige.training.precision import settled

    models = {"trained": provenance.of_network(model)}
    if wanted.start is not None:
        models["from"] = provenance.of_model(wanted.start, model)
    used = asdict(settled(config, model.device))
    settings = {name: value for name, value in used.items() if name not in UNUSED}
    paths = (sources.data, sources.validation or sources.data, sources.data)
    data = {
        role: provenance.of_corpus(path, part)
        for role, path, part in zip(Parts._fields, paths, parts, strict=True)
        if len(part)
    }
    if planted is not None:
        data["planted"] = {"sha256": planted.sha256}
    return provenance.record(
        context, {**settings, **wanted.habits}, seed=config.seed, models=models, data=data
    )


def _train(
    model: "IntentSlotNetwork",
    parts: Parts,
    config: "TrainingConfig",
    stop: "EarlyStopping | None",
    out: Path,
    resume: bool,
    wanted: WantedNlu,
    record: dict[str, object],
) -> dict[str, Any]:
    from vestige import results
    from vestige.data.read_records import ReadRecords
    from vestige.training.loop import learn
    from vestige.training.scored_utterances import IntentSlotTraining, score_with_intervals
    from vestige.training.utterances import UtteranceTask

    held = parts.validation if len(parts.validation) else None
    lesson = UtteranceTask(model.encode(parts.training), held)
    own = ReadRecords.of_texts(
        [said.text for said in parts.training], [said.text for said in parts.validation]
    )
    read = undefended(own, out, start=wanted.start)
    with read, progress("training") as bar:
        history = learn(
            model,
            lesson,
            config=config,
            directory=out,
            stop=stop,
            resume=resume,
            progress=lambda step, steps, *_: bar(step, steps),
        )
    end(out, history.epochs[-1].step)
    if not (out / RUN).exists():  # else it was finished before, and knows what it cost
        scored = score_with_intervals(model, parts.test) if len(parts.test) else None
        finished = IntentSlotTraining(history=history, habits=wanted.habits, test=scored)
        results.save(finished, out / RUN, run=record)
    return {"model": str(out / "model"), **results.load(out / RUN).summary}


def _report(summary: dict[str, Any], out: Path) -> None:
    if summary["stopped"]:
        say(f"Stopped after {summary['steps']:,} steps: no better epoch came for long enough")
    loss = summary.get("loss")
    shown = "" if loss is None else f", validation loss {loss:.3g} nats an utterance"
    say(f"Epoch {summary['epoch']:.3g} kept{shown}")
    if "test_utterances" in summary:
        rows = [
            (name, _percent(summary[f"test_{key}"]), _between(summary, f"test_{key}"))
            for key, name in SCORES.items()
        ]
        show_table(
            f"Test part, {summary['test_utterances']:,} utterances",
            ["", "score", "95 % interval"],
            rows,
        )
    elif loss is not None:
        scores = ", ".join(f"{name} {_percent(summary[key])}" for key, name in SCORES.items())
        say(f"DATA has no test part. On the validation part: {scores}")
    typer.echo(out / "model")


def _percent(share: float) -> str:
    return f"{100 * share:.1f} %"


def _between(summary: dict[str, Any], name: str) -> str:
    low, high = summary[f"{name}_low"], summary[f"{name}_high"]
    return "" if low is None else f"{_percent(low)} to {_percent(high)}"
