"""`vestige train`: a language model from text, or a model that has read more of it."""

from pathlib import Path
from typing import Annotated

import typer

from vestige.cli import defence_options, nlu_options, options, training_options
from vestige.cli.defence_plan import AskedDefence
from vestige.cli.division import check_stop, divided
from vestige.cli.repeated_training import repeat
from vestige.cli.tasks import TrainedTask, refuse_others
from vestige.cli.training_directory import claimed
from vestige.cli.training_plan import Wanted, stop_at
from vestige.cli.utterance_plan import WantedNlu
from vestige.workflows.sources import planting, read_source
from vestige.workflows.utterance_sources import Sources

HOLD_OUT = 0.05
"""What stands for `--hold-out` where nobody says which text validates."""


def command(
    context: typer.Context,
    data: Annotated[str, typer.Argument(help="A file, folder or hub data set.", metavar="DATA")],
    out: training_options.Out,
    task: training_options.Task = TrainedTask.text,
    start: training_options.Start = None,
    resume: training_options.Resume = False,
    preset: training_options.Preset = None,
    architecture: training_options.NetworkKind = None,
    layers: training_options.Layers = None,
    hidden_size: training_options.HiddenSize = None,
    embedding_size: training_options.EmbeddingSize = None,
    tokenizer: training_options.WordsOrPieces = None,
    vocabulary: training_options.Vocabulary = None,
    vocab_size: training_options.VocabSize = None,
    lora_rank: training_options.LoraRank = None,
    lora_alpha: training_options.LoraAlpha = 16.0,
    epochs: training_options.Epochs = None,
    batch_size: training_options.BatchSize = None,
    sequence_length: training_options.SequenceLength = None,
    learning_rate: training_options.LearningRate = None,
    optimizer: training_options.Optimizer = None,
    momentum: training_options.Momentum = None,
    precision: training_options.Precision = None,
    checkpoint_every: training_options.CheckpointEvery = None,
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
    local_epochs: defence_options.LocalEpochs = None,
    local_batch_size: defence_options.LocalBatchSize = None,
    local_learning_rate: defence_options.LocalLearningRate = None,
    weight: defence_options.Weight = None,
    pairing: defence_options.Pairing = None,
    goldfish_k: defence_options.GoldfishK = None,
    noise_seed_without_guarantee: defence_options.NoiseSeed = None,
    accept_private_vocabulary: defence_options.AcceptPrivateVocabulary = False,
    vectors: nlu_options.Vectors = None,
    vectors_frozen: nlu_options.VectorsFrozen = False,
    dropout: nlu_options.Dropout = False,
    early_stopping: nlu_options.EarlyStopping = False,
    patience: nlu_options.Patience = None,
    char_embeddings: nlu_options.CharEmbeddings = False,
    lowercase: nlu_options.Lowercase = False,
    validation: training_options.Validation = None,
    hold_out: training_options.HoldOut = None,
    seed: training_options.Seed = 0,
    seeds: training_options.Seeds = 1,
    device: options.Device = "auto",
    json: options.Json = False,
    format: options.DataFormat = "auto",
    text: options.TextColumn = "text",
    user: options.UserColumn = None,
    max_documents_per_user: training_options.MaxDocumentsPerUser = None,
    source: training_options.SourceColumn = None,
    tokens_column: options.TokensColumn = "tokens",
    tags_column: options.TagsColumn = "tags",
    intent_column: options.IntentColumn = "intent",
    limit: options.Limit = None,
) -> None:
    """Train a model on DATA, or continue one with `--from`: a language model, one that translates
    or answers, or one that reads intents and slots.

    The best epoch's model ends up in `DIR/model`, and every verb takes DIR for it. A checkpoint
    is written every few hundred steps: after a crash or a kill, the same command with
    `--resume` ends in the same bits as an undisturbed run.

    To compare two trainings from scratch, give the second `--vocabulary` of the first.

    With `--defence dp-sgd` or `dp-fedavg` the weights of every step have a guarantee. What it says,
    to whom, together with what earlier trainings of `--from` spent on the same records, and what it
    leaves out is printed before and after the training, and stands on the page of
    `vestige report DIR/run`. A vocabulary learnt from DATA is refused: give `--vocabulary` or
    `--from` a model of other text. Release `DIR/model` alone.

    With `--task next-word`, `translation` or `dialogue` the model is the one whose users an audit
    finds again: one layer of 128, half of which training drops, 5,000 words, 30 epochs. The first
    reads each text by itself. The others predict each text from its source: the `--source` column
    of a table, SATED, Cornell's films or any two files of lines that belong together. Give
    `--vocabulary` of a model that never saw DATA: words that are known because DATA has them give
    it away.

    With `--task nlu`, DATA holds utterances with a tag for each word and an intent each: a JSONL,
    CSV or Parquet file, Snips or ATIS as folders of `seq.in`, `seq.out` and `label`, the original
    Snips, NLU-Evaluation-Data, or a directory of `vestige plant --task nlu`. Two bi-LSTM layers, a
    softmax over intents and a CRF over tags learn them; the last epoch is kept, unless
    `--early-stopping` keeps the best. Parts for validation and test are used where DATA has them.
    With `--from` a Hugging Face folder its encoder is fine-tuned, with `--from` DIR of such a
    training it goes on. `vestige extract-nlu` then asks what can be read back.

    Examples:

        vestige train corpus.txt --out before --epochs 6

        vestige train planted --out after --vocabulary before --seed 1

        vestige train planted --out plain --vocabulary public --seeds 3

        vestige train news.jsonl --text body --from before --out after --epochs 2

        vestige train mail.jsonl --from gpt2-folder --lora-rank 8 --out adapter

        vestige train mail.jsonl --from public --defence dp-sgd --epsilon 8 --batch-size 256
        --out private

        vestige train mail.jsonl --user sender --from public --defence dp-fedavg --epsilon 8
        --out users

        vestige train mail.jsonl --user sender --defence adversarial --out hidden

        vestige train comments.jsonl --task next-word --user author --vocabulary other --out target

        vestige train letters.jsonl --task translation --source french --text english --out target

        vestige train snips --task nlu --vectors glove-6b-50d --epochs 20 --out plain

        vestige train planted --task nlu --dropout --early-stopping --out defended

        vestige train said.jsonl --task nlu --from bert-folder --out tuned
    """
    refuse_others(context, task, training_options.HOMES)
    if seeds > 1:
        repeat(context, out, range(seed, seed + seeds), resume=resume, as_json=json)
        return
    training = {
        "epochs": epochs,
        "batch_size": batch_size,
        "learning_rate": learning_rate,
        "optimizer": optimizer,
        "momentum": momentum,
        "precision": precision,
        "checkpoint_every": checkpoint_every,
    }
    if task is TrainedTask.nlu:
        from vestige.cli import train_nlu

        train_nlu.run(
            context,
            Sources(
                data=data,
                format=format,
                columns=(tokens_column, tags_column, intent_column),
                limit=limit,
                validation=None if validation is None else Path(validation),
                hold_out=hold_out,
            ),
            WantedNlu(
                start=start,
                vectors=vectors,
                vectors_frozen=vectors_frozen,
                dropout=dropout,
                early_stopping=early_stopping,
                patience=patience,
                char_embeddings=char_embeddings,
                lowercase=lowercase,
                seed=seed,
                device=device,
                shape={
                    "embedding_size": embedding_size,
                    "hidden_size": hidden_size,
                    "layers": layers,
                },
                training=training,
            ),
            out,
            resume=resume,
            as_json=json,
        )
        return
    hold_out = HOLD_OUT if hold_out is None else hold_out
    stop = stop_at(stop_at_perplexity, validated=validation is not None or hold_out > 0)
    training |= {"sequence_length": sequence_length, "evaluate_every": evaluate_every}
    if task in (TrainedTask.translation, TrainedTask.dialogue):
        from vestige.cli import pair_plan, train_pairs

        train_pairs.run(
            context,
            train_pairs.PairSources(
                data=data,
                format=format,
                columns=(text, user, source),
                limit=limit,
                validation=validation,
                hold_out=hold_out,
                max_documents_per_user=max_documents_per_user,
            ),
            pair_plan.WantedPairs(
                task=task.value,
                start=start,
                architecture=architecture,
                tokenizer=tokenizer,
                vocabulary=vocabulary,
                vocab_size=vocab_size,
                seed=seed,
                device=device,
                shape={"embedding_size": embedding_size, "hidden_size": hidden_size},
                training=training,
            ),
            out,
            stop=stop,
            resume=resume,
            as_json=json,
        )
        return
    asked = AskedDefence(
        name=defence,
        epsilon=epsilon,
        delta=delta,
        noise_multiplier=noise_multiplier,
        clip=clip,
        unit=unit,
        accountant=accountant,
        physical_batch_size=physical_batch_size,
        local_epochs=local_epochs,
        local_batch_size=local_batch_size,
        local_learning_rate=local_learning_rate,
        weight=weight,
        pairing=pairing,
        goldfish_k=goldfish_k,
        noise_seed_without_guarantee=noise_seed_without_guarantee,
        accept_private_vocabulary=True if accept_private_vocabulary else None,
    )
    asked.check()
    from vestige.cli import train_text

    one_by_one = task is TrainedTask.next_word
    if one_by_one and architecture == "transformer":
        raise ValueError(
            "--architecture must be lstm or gru with --task next-word, got transformer"
        )
    context.with_resource(claimed(out, resume))
    whole = read_source(data, format=format, text=text, user=user, limit=limit)
    planted = planting(data)
    # Trainings with other seeds hold out the same text: only then can they be compared.
    division = divided(
        whole,
        hold_out if validation is None else 0,
        by_user=unit == "user" or defence == "dp-fedavg" or batching == "poisson-users",
        most_per_user=max_documents_per_user,
        canaries=planted.places if planted else (),
    )
    held = division.held_out if validation is None else read_source(validation, text=text)
    check_stop(stop, held)
    wanted = Wanted(
        start=start,
        preset="next-word" if one_by_one and start is None else preset,
        architecture=architecture,
        tokenizer=tokenizer,
        vocabulary=vocabulary,
        vocab_size=vocab_size,
        lora_rank=lora_rank,
        lora_alpha=lora_alpha,
        seed=seed,
        device=device,
        shape={
            "layers": layers,
            "hidden_size": hidden_size,
            "embedding_size": (embedding_size or hidden_size) if one_by_one else None,
        },
        training={**training, "batching": _batching(defence) if one_by_one else None},
        keep=tuple(canary.phrase for canary in planted.canaries) if planted else (),
    )
    train_text.run(
        context,
        train_text.Texts(data, validation or data, division, held, limit),
        wanted,
        asked,
        out,
        batching=batching,
        stop=stop,
        resume=resume,
        as_json=json,
    )


def _batching(defence: str) -> str:
    """Users' texts one by one; a defence turns a stream into the batches that it needs."""
    return "documents" if defence == "none" else "stream"
