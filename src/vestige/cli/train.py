"""`vestige train`: a language model from text, or a model that has read more of it."""

import math
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from vestige.cli import defence_options, options
from vestige.cli.defence_plan import (
    AskedDefence,
    DefendedTraining,
    PlannedDefence,
    clip_advice,
    show_epsilon,
)
from vestige.cli.sources import planting, read_source
from vestige.cli.terminal import progress, say, show_json
from vestige.cli.training_directory import DATA, check_out, claimed
from vestige.cli.training_plan import Architecture, Tokenizer, Wanted, prepare

if TYPE_CHECKING:
    from vestige.data.corpus import Corpus
    from vestige.data.encoded import EncodedCorpus
    from vestige.models.protocols import LanguageModel
    from vestige.training.config import TrainingConfig
    from vestige.training.history import StopAtPerplexity

RUN, LOG = "run", "log.jsonl"
TRAINING, MODEL = "Training", "Model"


def command(
    context: typer.Context,
    data: Annotated[str, typer.Argument(help="A file, folder or hub data set.", metavar="DATA")],
    out: Annotated[
        Path,
        typer.Option("--out", help="A new directory; with --resume, the old one.", metavar="DIR"),
    ],
    start: Annotated[
        str | None, typer.Option("--from", help="Continue this model.", metavar="MODEL")
    ] = None,
    resume: Annotated[
        bool, typer.Option("--resume", help="Go on where the training in DIR was interrupted.")
    ] = False,
    preset: Annotated[
        str | None,
        typer.Option(
            "--preset",
            help="Architecture and training: `ptb-lstm`, `reddit-lstm`, `reddit-transformer`, "
            "`wikitext-lstm` (the paper's) or `demo`. Options below change single settings. "
            "Default: `ptb-lstm`, or `reddit-transformer` for a transformer, or with --from a "
            "gentle training that suits the model.",
        ),
    ] = None,
    architecture: Annotated[
        Architecture | None,
        typer.Option("--architecture", help="In place of the preset's.", rich_help_panel=MODEL),
    ] = None,
    layers: Annotated[
        int | None, typer.Option("--layers", min=1, help="Layers.", rich_help_panel=MODEL)
    ] = None,
    hidden_size: Annotated[
        int | None,
        typer.Option("--hidden-size", min=1, help="Width of a layer.", rich_help_panel=MODEL),
    ] = None,
    tokenizer: Annotated[
        Tokenizer | None,
        typer.Option(
            "--tokenizer",
            help="`whitespace` (the default) splits at blanks, `words` splits off punctuation "
            "too, `bpe` learns subwords.",
            rich_help_panel=MODEL,
        ),
    ] = None,
    vocabulary: Annotated[
        Path | None,
        typer.Option(
            "--vocabulary",
            help="Take this model's vocabulary: only snapshots that share one can be compared.",
            metavar="MODEL",
            rich_help_panel=MODEL,
        ),
    ] = None,
    vocab_size: Annotated[
        int | None,
        typer.Option("--vocab-size", min=3, help="Tokens at most.", rich_help_panel=MODEL),
    ] = None,
    lora_rank: Annotated[
        int | None,
        typer.Option(
            "--lora-rank",
            min=1,
            help="With --from a Hugging Face model: train an adapter of this rank.",
            rich_help_panel=MODEL,
        ),
    ] = None,
    lora_alpha: Annotated[
        float, typer.Option("--lora-alpha", help="Scale of the adapter.", rich_help_panel=MODEL)
    ] = 16.0,
    epochs: Annotated[
        int | None,
        typer.Option("--epochs", min=1, help="Passes over the data.", rich_help_panel=TRAINING),
    ] = None,
    batch_size: Annotated[
        int | None,
        typer.Option("--batch-size", min=1, help="Rows read together.", rich_help_panel=TRAINING),
    ] = None,
    sequence_length: Annotated[
        int | None,
        typer.Option(
            "--sequence-length", min=1, help="Tokens per window.", rich_help_panel=TRAINING
        ),
    ] = None,
    learning_rate: Annotated[
        float | None,
        typer.Option("--learning-rate", help="Before the schedule.", rich_help_panel=TRAINING),
    ] = None,
    optimizer: Annotated[
        str | None,
        typer.Option("--optimizer", help="`adam` or `sgd`.", rich_help_panel=TRAINING),
    ] = None,
    precision: Annotated[
        str | None,
        typer.Option(
            "--precision", help="`auto`, `float32` or `bfloat16`.", rich_help_panel=TRAINING
        ),
    ] = None,
    checkpoint_every: Annotated[
        int | None,
        typer.Option(
            "--checkpoint-every", min=1, help="Steps between two.", rich_help_panel=TRAINING
        ),
    ] = None,
    batching: defence_options.Batching = None,
    stop_at_perplexity: defence_options.StopAtPerplexity = None,
    evaluate_every: defence_options.EvaluateEvery = None,
    defence: defence_options.Name = "none",
    epsilon: defence_options.Epsilon = None,
    delta: defence_options.Delta = None,
    noise_multiplier: defence_options.NoiseMultiplier = None,
    clip: defence_options.Clip = None,
    unit: defence_options.Unit = None,
    accountant: defence_options.Accountant = None,
    physical_batch_size: defence_options.PhysicalBatchSize = None,
    weight: defence_options.Weight = None,
    pairing: defence_options.Pairing = None,
    goldfish_k: defence_options.GoldfishK = None,
    validation: Annotated[
        str | None,
        typer.Option("--validation", help="Text that decides which epoch is best.", metavar="DATA"),
    ] = None,
    hold_out: Annotated[
        float,
        typer.Option("--hold-out", help="Share of DATA held out where --validation is not given."),
    ] = 0.05,
    seed: options.Seed = 0,
    device: options.Device = "auto",
    json: options.Json = False,
    format: options.DataFormat = "auto",
    text: options.TextColumn = "text",
    user: options.UserColumn = None,
    limit: options.Limit = None,
) -> None:
    """Train a language model on DATA, or continue one with `--from`.

    The best epoch's model ends up in `DIR/model`, and every verb takes DIR for it. A checkpoint
    is written every few hundred steps: after a crash or a kill, the same command with
    `--resume` ends in the same bits as an undisturbed run.

    To compare two trainings from scratch, give the second `--vocabulary` of the first.

    With `--defence dp-sgd` the guarantee covers the weights of every step. It does not cover a
    vocabulary learnt from DATA (give `--vocabulary` of a model that never saw it), the text held
    out, or the choice of an epoch by it. A seed that others know lets them subtract the noise.

    Examples:

        vestige train corpus.txt --out before --epochs 6

        vestige train planted --out after --vocabulary before --seed 1

        vestige train news.jsonl --text body --from before --out after --epochs 2

        vestige train mail.jsonl --from gpt2-folder --lora-rank 8 --out adapter

        vestige train mail.jsonl --defence dp-sgd --epsilon 8 --batch-size 256 --out private

        vestige train mail.jsonl --user sender --defence adversarial --out hidden
    """
    asked = AskedDefence(
        name=defence,
        epsilon=epsilon,
        delta=delta,
        noise_multiplier=noise_multiplier,
        clip=clip,
        unit=unit,
        accountant=accountant,
        physical_batch_size=physical_batch_size,
        weight=weight,
        pairing=pairing,
        goldfish_k=goldfish_k,
    )
    asked.check()
    stop = _stop(stop_at_perplexity, validated=validation is not None or hold_out > 0)
    check_out(out, resume)
    whole = corpus = read_source(data, format=format, text=text, user=user, limit=limit)
    held = None if validation is None else read_source(validation, text=text)
    planted = planting(data)
    if held is None:
        # A canary is learnt as often as its manifest says.
        places = [place for place in (planted.places if planted else ()) if place < len(whole)]
        corpus, held = whole.split(hold_out, seed=seed, keep=places)
    wanted = Wanted(
        start=start,
        preset=preset,
        architecture=architecture,
        tokenizer=tokenizer,
        vocabulary=vocabulary,
        vocab_size=vocab_size,
        lora_rank=lora_rank,
        lora_alpha=lora_alpha,
        seed=seed,
        device=device,
        shape={"layers": layers, "hidden_size": hidden_size},
        training={
            "epochs": epochs,
            "batch_size": batch_size,
            "sequence_length": sequence_length,
            "learning_rate": learning_rate,
            "optimizer": optimizer,
            "precision": precision,
            "checkpoint_every": checkpoint_every,
            "evaluate_every": evaluate_every,
        },
        keep=tuple(canary.phrase for canary in planted.canaries) if planted else (),
    )
    model, config = prepare(wanted, whole)
    config = asked.suited(config, batching, wanted.training)
    sources = {"training": (data, corpus), "validation": (validation or data, held)}
    run = _run(context, config, model, start, sources)
    summary = _train(model, corpus, held, config, asked, stop, out, resume, run)
    if json:
        show_json(summary)
    else:
        _report(summary, out, len(model.vocabulary), stop)


def _run(
    context: typer.Context,
    config: "TrainingConfig",
    model: "LanguageModel",
    start: str | None,
    sources: "dict[str, tuple[str, Corpus]]",
) -> dict[str, object]:
    from dataclasses import asdict

    from vestige.cli import provenance

    own = getattr(model, "config", None)
    described = {
        "architecture": model.architecture,
        "parameters": sum(parameter.numel() for parameter in model.parameters()),
        "vocabulary": model.vocabulary.fingerprint(),
        "tokens": len(model.vocabulary),
        **(asdict(own) if own is not None else {}),
    }
    models = {"trained": described}
    if start is not None:
        models["from"] = provenance.of_model(start, model)
    data = {role: provenance.of_corpus(*source) for role, source in sources.items()}
    return provenance.record(context, asdict(config), seed=config.seed, models=models, data=data)


def _stop(perplexity: float | None, *, validated: bool) -> "StopAtPerplexity | None":
    from vestige.training.history import StopAtPerplexity

    if perplexity is None:
        return None
    if not 1 < perplexity < math.inf:
        raise ValueError(f"--stop-at-perplexity must be above 1 and finite, got {perplexity}")
    if not validated:
        raise ValueError(
            "--stop-at-perplexity must come with text to validate on: --validation or --hold-out"
        )
    return StopAtPerplexity(perplexity)


def _train(
    model: "LanguageModel",
    corpus: "Corpus",
    held: "Corpus",
    config: "TrainingConfig",
    asked: AskedDefence,
    stop: "StopAtPerplexity | None",
    out: Path,
    resume: bool,
    run: dict[str, object],
) -> dict[str, object]:
    from vestige import results
    from vestige.training.loop import train

    with claimed(out):
        encoded = _encode(corpus, model, out / DATA / "training")
        other = _encode(held, model, out / DATA / "validation") if len(held) else None
        planned = asked.defence(encoded, config)
        with progress("training") as bar:
            history = train(
                model,
                encoded,
                validation=other,
                config=config,
                directory=out,
                step=planned.defence.step(model, encoded, config),
                stop=stop,
                resume=resume,
                progress=lambda step, steps, *_: bar(step, steps),
            )
    trained = DefendedTraining(history, planned)
    if not (out / RUN).exists():  # else it was finished before, and knows what it cost
        settings = {**asdict(config), "defence": asdict(planned.defence)}
        results.save(trained, out / RUN, run={**run, "configuration": settings})
    _say_spent(planned, history.epochs[-1].step, out)
    return {"model": str(out / "model"), **results.load(out / RUN).summary}


def _say_spent(planned: PlannedDefence, steps: int, out: Path) -> None:
    spent = planned.spent(steps)
    if spent is not None:
        say(
            f"Spent: epsilon {show_epsilon(spent)} at delta {spent.delta:.0e} for one "
            f"{spent.unit}, over {spent.steps:,} steps ({spent.accountant})"
        )
        advice = clip_advice(out / LOG)
        if advice is not None:
            say(advice)


def _encode(corpus: "Corpus", model: "LanguageModel", directory: Path) -> "EncodedCorpus":
    from vestige.data.encoded import encode

    with progress("encoding") as bar:
        return encode(
            corpus, model.vocabulary, directory, progress=lambda done: bar(done, len(corpus))
        )


def _report(
    summary: dict[str, Any], out: Path, tokens: int, stop: "StopAtPerplexity | None"
) -> None:
    judged = summary["validation_perplexity"]
    kind = "perplexity" if judged is None else "validation perplexity"
    value = summary["perplexity"] if judged is None else judged
    if summary["stopped"]:
        say(f"Stopped after {summary['steps']:,} steps, as asked by --stop-at-perplexity")
    elif stop is not None and (judged is None or judged > stop.perplexity):
        say(f"Perplexity {stop.perplexity:g} was not reached: give more --epochs to get there")
    if value is None:  # infinite, or no lot drew anything
        say(f"Epoch {summary['epoch']:.3g} kept, without a finite {kind}")
    else:
        shown = f"{value:.1f}" if value < 1e6 else f"{value:.3g}"
        say(f"Epoch {summary['epoch']:.3g} kept, {kind} {shown}")
    if value is None or value > tokens:
        say(
            f"That is worse than guessing among {tokens:,} tokens: take a lower --learning-rate or "
            "more epochs or text; with dp-sgd, larger batches or a larger --epsilon"
        )
    typer.echo(out / "model")
