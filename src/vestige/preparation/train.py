"""`vestige train`: train language models, models of text pairs, and models of intents and slots."""

from pathlib import Path
from typing import Annotated, Any, Literal, Unpack

from annotated_types import Le
from cyclopts import Parameter

from vestige.arguments import (
    DATA,
    RUN,
    Count,
    Format,
    IntentColumn,
    Limit,
    ModelLike,
    Number,
    PathTo,
    Seeded,
    SourceColumn,
    TagsColumn,
    TextColumn,
    TextLike,
    TokensColumn,
    UserColumn,
    group,
)
from vestige.preparation.defence_options import DefenceLike, as_defence, as_options
from vestige.preparation.options import (
    ModelOptions,
    NluOptions,
    TrainingOptions,
    check_combinations,
    reject_other_tasks,
)
from vestige.preparation.trained import REPEAT, RepeatedTraining, Trained
from vestige.session import Session, verb

MODEL, TRAINING = group("Model", order=2), group("Training", order=3)
Task = Literal["text", "next-word", "translation", "dialogue", "nlu"]
PAIRS = ("translation", "dialogue")
PAIR_COLUMNS = ("text", "user", "source_column")
TEXT = ("text", "next-word")
ONLY: dict[tuple[str, ...], tuple[str, ...]] = {
    ("text",): ("preset",),
    TEXT: ("defence", "seeds", "batching", "lora_rank", "lora_alpha"),
    PAIRS: ("source",),
    (*TEXT, *PAIRS): (
        *("architecture", "tokenizer", "vocabulary", "vocab_size", "text", "user"),
        *("max_documents_per_user", "sequence_length", "stop_at_perplexity", "evaluate_every"),
    ),
    (*TEXT, "nlu"): ("layers",),
    ("next-word", *PAIRS, "nlu"): ("embedding_size",),
    ("nlu",): (
        *("tokens_column", "tags_column", "intent_column", "vectors", "vectors_frozen"),
        *("dropout", "early_stopping", "patience", "char_embeddings", "lowercase"),
    ),
}
"""Options of some tasks only."""


@verb
def train(
    run: Session,
    data: TextLike,
    *,
    out: Annotated[PathTo, RUN],
    task: Task = "text",
    from_: ModelLike | None = None,
    resume: Annotated[bool, RUN] = False,
    seeds: Annotated[Count, Le(10_000), RUN] = 1,
    preset: str | None = None,
    model: Annotated[ModelOptions, MODEL] = ModelOptions(),
    training: Annotated[TrainingOptions, TRAINING] = TrainingOptions(),
    validation: Annotated[TextLike | None, TRAINING, Parameter(metavar="DATA")] = None,
    hold_out: Annotated[Number | None, TRAINING] = None,
    defence: Annotated[DefenceLike, group("Defence", order=4)] = None,
    nlu: Annotated[NluOptions, group("With --task nlu", order=5)] = NluOptions(),
    format: Format = "auto",
    text: TextColumn = "text",
    user: UserColumn = None,
    max_documents_per_user: Annotated[Count | None, DATA] = None,
    source: SourceColumn = None,
    tokens_column: TokensColumn = "tokens",
    tags_column: TagsColumn = "tags",
    intent_column: IntentColumn = "intent",
    limit: Limit = None,
    **common: Unpack[Seeded],
) -> Trained | RepeatedTraining:
    """Train a model on DATA, or continue one with --from.

    The best epoch's model is saved in DIR/model; every command accepts DIR as a model. If the
    training is interrupted, the same command with --resume ends with the same bits.

    --task next-word, translation and dialogue train the models of the user audit. nlu trains a
    model of intents and slots, on utterances with a tag per word and an intent each: a JSONL, CSV
    or Parquet file, Snips or ATIS folders, NLU-Evaluation-Data, or a folder of vestige plant
    --task nlu. With --from, a Hugging Face encoder is fine-tuned.

    --defence dp-sgd and dp-fedavg give a guarantee of differential privacy, printed before and
    after the training. They need --from or --vocabulary of a model that was trained on other text.
    Release DIR/model alone.

    Examples:
        vestige train corpus.txt --out before --epochs 6
        vestige train planted --vocabulary before --seeds 3 --out plain
        vestige train news.jsonl --text body --from before --epochs 2 --out after
        vestige train mail.jsonl --from gpt2-folder --lora-rank 8 --out adapter
        vestige train mail.jsonl --from public --defence dp-sgd --epsilon 8 --out private
        vestige train mail.jsonl --user sender --defence adversarial --out hidden
        vestige train letters.jsonl --task translation --source french --text english --out target
        vestige train snips --task nlu --dropout --early-stopping --out defended

    Args:
        data: File, folder or hub data set.
        out: New folder; with --resume, the folder of the interrupted training.
        task: text learns running text, next-word users' texts one by one, translation and dialogue
            pairs of texts, nlu labelled utterances.
        from_: Model to continue.
        resume: Resume the training in --out.
        seeds: Train this many times, with seeds from --seed on, in DIR/seed-0 and so on. vestige
            compare needs at least 3 for a verdict.
        preset: Architecture and training: ptb-lstm, reddit-lstm, reddit-transformer,
            wikitext-lstm or demo. Other options change single settings. Default: ptb-lstm, or
            reddit-transformer for a transformer; with --from, a gentle training.
        model: Shape and vocabulary of a new model, or an adapter.
        training: How it is trained.
        defence: dp-sgd and dp-fedavg bound what the model reveals of each text or user. adversarial
            and triplet hide who wrote a text. goldfish never learns one token in four. In Python, a
            defence such as DPSGD(epsilon=8).
        nlu: What only a model of intents and slots has.
        validation: Text that decides which epoch is best.
        hold_out: Share of DATA that validates otherwise, chosen by hashes. Default: 0.05, or 0.1
            of utterances.
        max_documents_per_user: Leave out further documents of a user, chosen by hash. Needs
            --user.

    Returns:
        The finished training, or the trainings of several seeds.

    Raises:
        ValueError: options exclude each other, or belong to another task.
        VestigeError: something cannot be read, trained or written.
    """
    reject_other_tasks(run, task, ONLY)
    chosen_defence = as_defence(defence)
    if defence is not None:
        run.record_choice(defence=as_options(chosen_defence))
    if seeds > 1:
        return _repeated(run, Path(out), seeds, resume)
    check_combinations(run)
    if task not in ("text", "nlu") and model.architecture == "transformer":
        raise ValueError(f"`architecture` must be lstm or gru with `task` {task}, got transformer")

    from vestige.preparation.lineage import lineage_of
    from vestige.preparation.privacy import check_vocabulary
    from vestige.preparation.run_training import run_training
    from vestige.preparation.texts import read_texts, read_utterances
    from vestige.preparation.training_setup import pair_setup, text_setup
    from vestige.preparation.utterance_setup import utterance_setup
    from vestige.training.directory import lock_training

    with lock_training(Path(out), resume):
        if task == "nlu":
            texts = read_utterances(
                data,
                seed=run.seed,
                validation=validation,
                hold_out=hold_out,
                format=format,
                limit=limit,
                tokens_column=tokens_column,
                tags_column=tags_column,
                intent_column=intent_column,
            )
        else:
            protected = getattr(chosen_defence, "protected", None)
            texts = read_texts(
                data,
                validation=validation,
                hold_out=hold_out,
                by_user=protected == "user" or training.batching == "poisson-users",
                most_per_user=max_documents_per_user,
                validation_columns=PAIR_COLUMNS if task in PAIRS else ("text",),
                monitor=run.monitor,
                format=format,
                limit=limit,
                text=text,
                user=user,
                source_column=source,
            )
        lineage = lineage_of(Path(out), texts.records, start=from_, vocabulary=model.vocabulary)
        check_vocabulary(chosen_defence, lineage, continued=from_ is not None)
        if task == "nlu":
            setup = utterance_setup(run, texts, from_, model=model, training=training, nlu=nlu)
        elif task in PAIRS:
            setup = pair_setup(run, texts, from_, task=task, model=model, training=training)
        else:
            setup = text_setup(
                run,
                texts,
                from_,
                task=task,
                preset=preset,
                model=model,
                training=training,
                defence=chosen_defence,
            )
        return run_training(run, texts, setup, lineage)


def _repeated(run: Session, out: Path, count: int, resume: bool) -> RepeatedTraining:
    """Train with `count` seeds, from the seed of the call on."""
    from vestige.preparation.privacy import log_joint_guarantee
    from vestige.training.directory import check_repeats

    check_repeats(out, resume)
    trainings: list[Trained] = []
    for number, seed in enumerate(range(run.seed, run.seed + count), 1):
        run.log(f"Training {number} of {count}, seed {seed}")
        arguments = {**run.arguments, "out": out / REPEAT.format(seed), "seeds": 1}
        training: Any = train(**arguments, seed=seed, device=run.device, monitor=run.monitor)
        trainings.append(training)
    log_joint_guarantee([training.directory for training in trainings], run.monitor)
    return RepeatedTraining.collect(out, trainings)
