"""`vestige train --task translation|dialogue`: a model that predicts texts from their sources."""

from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from vestige.cli.division import check_stop, divided
from vestige.cli.pair_plan import WantedPairs, prepare
from vestige.cli.privacy_files import end
from vestige.cli.privacy_plan import undefended
from vestige.cli.terminal import progress, show_json, show_table
from vestige.cli.trained import say_kept
from vestige.cli.training_directory import RUN, claimed
from vestige.workflows.sources import read_source

if TYPE_CHECKING:
    from vestige.data.corpus import Corpus
    from vestige.data.division import Division
    from vestige.models.seq2seq import Seq2SeqModel
    from vestige.training.config import TrainingConfig
    from vestige.training.history import StopAtPerplexity, TrainingHistory
    from vestige.training.pairs import PairTask
    from vestige.training.scored_texts import ScoredTexts

SCORES = {"accuracy": "word accuracy", "perplexity": "perplexity", "bleu": "BLEU"}


@dataclass(frozen=True, kw_only=True)
class PairSources:
    """Where the pairs are.

    Attributes:
        data: DATA.
        format: how it is to be read.
        columns: of texts, users and sources, in tables.
        limit: how many pairs to read.
        validation: pairs that validate.
        hold_out: which share of DATA validates otherwise.
        max_documents_per_user: how many pairs of a user are read.
    """

    data: str
    format: str
    columns: tuple[str, str | None, str | None]
    limit: int | None
    validation: str | None
    hold_out: float
    max_documents_per_user: int | None

    def read(self) -> "tuple[Division, Corpus]":
        """The pairs of DATA, and those to validate on."""
        text, user, source = self.columns
        columns: dict[str, Any] = {"text": text, "user": user, "source_column": source}
        whole = read_source(self.data, format=self.format, limit=self.limit, **columns)
        hold_out = self.hold_out if self.validation is None else 0
        division = divided(whole, hold_out, most_per_user=self.max_documents_per_user)
        if self.validation is None:
            return division, division.held_out
        return division, read_source(self.validation, **columns)


def run(
    context: typer.Context,
    sources: PairSources,
    wanted: WantedPairs,
    out: Path,
    *,
    stop: "StopAtPerplexity | None",
    resume: bool,
    as_json: bool,
) -> None:
    """Read, train, score, save, and say what came of it."""
    from vestige.data.encoded_pairs import encode_pairs
    from vestige.data.read_records import ReadRecords
    from vestige.training.pairs import PairTask

    wanted.check()
    context.with_resource(claimed(out, resume))
    division, held = sources.read()
    check_stop(stop, held)
    training = division.training
    model, config = prepare(wanted, division.within_cap)
    record = _record(context, sources, wanted, (training, held), model, config)
    record["division"] = division.summary()

    both = (model.source_vocabulary, model.vocabulary)
    lesson = PairTask(
        encode_pairs(training, *both),
        encode_pairs(held, *both) if len(held) else None,
        tuple(held) if wanted.task == "translation" and len(held) else None,
    )
    read = undefended(
        ReadRecords.of(training, held), out, start=wanted.start, vocabulary=wanted.vocabulary
    )
    with read:
        history = _learn(model, lesson, config, stop, out, resume)
    end(out, history.epochs[-1].step)
    summary = _save(model, lesson, config, wanted.task, history, out, record)
    if as_json:
        show_json(summary)
    else:
        say_kept(summary, len(model.vocabulary), stop)
        _show_scores(summary)
        typer.echo(out / "model")


def _record(
    context: typer.Context,
    sources: PairSources,
    wanted: WantedPairs,
    parts: "tuple[Corpus, Corpus]",
    model: "Seq2SeqModel",
    config: "TrainingConfig",
) -> dict[str, object]:
    from vestige.cli import provenance
    from vestige.training.precision import settled

    trained = provenance.of_network(model)
    models = {"trained": {**trained, "source_vocabulary": model.source_vocabulary.fingerprint()}}
    if wanted.start is not None:
        models["from"] = provenance.of_model(wanted.start, model)
    paths = (sources.data, sources.validation or sources.data)
    data = {
        role: provenance.of_corpus(path, part)
        for role, path, part in zip(("training", "validation"), paths, parts, strict=True)
        if len(part)
    }
    settings = asdict(settled(config, model.device))
    return provenance.record(context, settings, seed=config.seed, models=models, data=data)


def _learn(
    model: "Seq2SeqModel",
    lesson: "PairTask",
    config: "TrainingConfig",
    stop: "StopAtPerplexity | None",
    out: Path,
    resume: bool,
) -> "TrainingHistory":
    from vestige.training.loop import learn

    with progress("training") as bar:
        return learn(
            model,
            lesson,
            config=config,
            directory=out,
            stop=stop,
            resume=resume,
            progress=lambda step, steps, *_: bar(step, steps),
        )


def _save(
    model: "Seq2SeqModel",
    lesson: "PairTask",
    config: "TrainingConfig",
    task: str,
    history: "TrainingHistory",
    out: Path,
    record: dict[str, object],
) -> dict[str, Any]:
    from vestige import results
    from vestige.training.scored_texts import PairTraining

    if not (out / RUN).exists():  # else it was finished before, and knows what it cost
        shape = {"cell": model.config.cell, "attention": model.config.attention}
        scored = _scored(model, lesson, config)
        finished = PairTraining(history=history, task=task, settings=shape, validation=scored)
        results.save(finished, out / RUN, run=record)
    return {"model": str(out / "model"), **results.load(out / RUN).summary}


def _scored(
    model: "Seq2SeqModel", lesson: "PairTask", config: "TrainingConfig"
) -> "ScoredTexts | None":
    from vestige.training.pairs import score_pairs
    from vestige.training.scored_texts import with_intervals
    from vestige.training.translations import bleu

    held, length = lesson.validation, config.sequence_length
    if held is None:
        return None
    found = None
    if lesson.references is not None:
        found = bleu(model, held.sources, lesson.references, length=length, seed=config.seed)
    scores = score_pairs(model, held, length=length)
    return with_intervals(scores, held.targets.users, bleu=found)


def _show_scores(summary: dict[str, Any]) -> None:
    rows = [
        (name, _number(summary[f"validation_{key}"]), _between(summary, f"validation_{key}"))
        for key, name in SCORES.items()
        if summary.get(f"validation_{key}") is not None
    ]
    if rows:
        tokens = summary["validation_tokens"]
        show_table(f"Validation, {tokens:,} words", ["", "score", "95 % interval"], rows)


def _number(value: float) -> str:
    return f"{value:.3g}"


def _between(summary: dict[str, Any], name: str) -> str:
    low, high = summary[f"{name}_low"], summary[f"{name}_high"]
    return "" if low is None else f"{_number(low)} to {_number(high)}"
