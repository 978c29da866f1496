"""`vestige train` of running text and of users' texts: train, save, and say what it promises."""

from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import typer

from vestige.cli import privacy_files
from vestige.cli.defence_plan import AskedDefence, DefendedTraining, PlannedDefence, clip_advice
from vestige.cli.privacy_plan import Lineages, announce, conclude, entry_of, statement_of
from vestige.cli.terminal import progress, say, show_json
from vestige.cli.trained import frequencies, say_kept
from vestige.cli.training_directory import DATA, IDENTITY, RUN
from vestige.cli.training_plan import Wanted, prepare

if TYPE_CHECKING:
    from vestige.data.corpus import Corpus
    from vestige.data.division import Division
    from vestige.data.encoded import EncodedCorpus
    from vestige.models.protocols import LanguageModel
    from vestige.training.config import TrainingConfig
    from vestige.training.history import StopAtPerplexity, TrainingHistory

LOG = "log.jsonl"


class Texts(NamedTuple):
    """What is learnt from and what validates, where both were read, and how much of it at most."""

    data: str
    validation: str
    division: "Division"
    held: "Corpus"
    limit: int | None


def run(
    context: typer.Context,
    texts: Texts,
    wanted: Wanted,
    asked: AskedDefence,
    out: Path,
    *,
    batching: str | None,
    stop: "StopAtPerplexity | None",
    resume: bool,
    as_json: bool,
) -> None:
    """Train, save, and say what came of it."""
    from vestige.data.read_records import ReadRecords

    own = ReadRecords.of(texts.division.training, texts.held)
    lineages = Lineages.of(own, out, start=wanted.start, vocabulary=wanted.vocabulary)
    if asked.private:
        lineages.check_vocabulary(asked, wanted)
    model, config = prepare(wanted, texts.division.within_cap)
    config = asked.suited(config, batching, wanted.training)
    record = _record(context, config, model, wanted.start, texts)
    summary = _train(model, texts, config, asked, lineages, stop, out, resume, record)
    if as_json:
        show_json(summary)
    else:
        say_kept(summary, len(model.vocabulary), stop)
        typer.echo(out / "model")


def _record(
    context: typer.Context,
    config: "TrainingConfig",
    model: "LanguageModel",
    start: str | None,
    texts: Texts,
) -> dict[str, object]:
    from vestige.cli import provenance

    models = {"trained": provenance.of_network(model)}
    if start is not None:
        models["from"] = provenance.of_model(start, model)
    data = {
        "training": provenance.of_corpus(texts.data, texts.division.training),
        "validation": provenance.of_corpus(texts.validation, texts.held),
    }
    asked = provenance.record(context, asdict(config), seed=config.seed, models=models, data=data)
    return {**asked, "division": texts.division.summary()}


def _train(
    model: "LanguageModel",
    texts: Texts,
    config: "TrainingConfig",
    asked: AskedDefence,
    lineages: Lineages,
    stop: "StopAtPerplexity | None",
    out: Path,
    resume: bool,
    record: dict[str, object],
) -> dict[str, object]:
    from vestige import results
    from vestige.defences.registry import settings_of
    from vestige.training.precision import settled

    encoded = _encode(texts.division.training, model, out / DATA / "training")
    held = _encode(texts.held, model, out / DATA / "validation") if len(texts.held) else None
    planned = asked.defence(encoded, config)
    entry = entry_of(planned, asked, config, lineages)
    statement = statement_of(planned, entry, texts, lineages)
    if statement is not None:
        announce(statement, config.batch_size)
    with privacy_files.registered(out, entry, lineages.model, lineages.kept):
        history = _learn(model, encoded, held, config, planned, asked, stop, out, resume)
    privacy_files.end(out, history.epochs[-1].step)
    if statement is not None:
        statement = conclude(statement, planned, history.epochs[-1].step, out)
    if not (out / RUN).exists():  # else it was finished before, and knows what it cost
        alone = frequencies(encoded, held, len(model.vocabulary))
        trained = DefendedTraining(history, planned.defence.name, statement, alone)
        settings = {
            **asdict(settled(config, model.device)),
            "defence": settings_of(planned.defence),
        }
        terms = {} if statement is None else {"privacy": statement.terms()}
        results.save(trained, out / RUN, run={**record, "configuration": settings, **terms})
    advice = None if statement is None else clip_advice(out / LOG)
    if advice is not None:
        say(advice)
    return {"model": str(out / "model"), **results.load(out / RUN).summary}


def _learn(
    model: "LanguageModel",
    encoded: "EncodedCorpus",
    held: "EncodedCorpus | None",
    config: "TrainingConfig",
    planned: PlannedDefence,
    asked: AskedDefence,
    stop: "StopAtPerplexity | None",
    out: Path,
    resume: bool,
) -> "TrainingHistory":
    from vestige.training.loop import train

    with progress("training") as bar:
        return train(
            model,
            encoded,
            validation=held,
            config=config,
            directory=out,
            step=planned.defence.step(model, encoded, config),
            stop=stop,
            resume=resume,
            progress=lambda step, steps, *_: bar(step, steps),
            **asked.chance(),
        )


def _encode(corpus: "Corpus", model: "LanguageModel", directory: Path) -> "EncodedCorpus":
    from vestige.data.encoded import encode

    begun = (directory.parent.parent / IDENTITY).exists()  # a training that is resumed reads this
    with progress("encoding") as bar:
        return encode(
            corpus,
            model.vocabulary,
            directory,
            replace=not begun,
            progress=lambda done: bar(done, len(corpus)),
        )
