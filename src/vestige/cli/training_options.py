"""The options of `vestige train` about model and training, and to which task each one belongs."""

from pathlib import Path
from typing import Annotated

import typer

from vestige.cli.options import DATA_OPTIONS
from vestige.cli.tasks import TrainedTask
from vestige.cli.training_plan import Architecture, Tokenizer

TRAINING, MODEL = "Training", "Model"

Task = Annotated[
    TrainedTask,
    typer.Option(
        "--task",
        help="`text` predicts the next word of running text, `next-word` that of users' texts "
        "one by one; `translation` and `dialogue` predict texts from their sources; `nlu` reads "
        "intents and slots from labelled utterances.",
    ),
]
Out = Annotated[
    Path,
    typer.Option("--out", help="A new directory; with --resume, the old one.", metavar="DIR"),
]
Seed = Annotated[
    int,
    typer.Option(
        "--seed",
        min=0,
        help="Decides all that is drawn; of a private training the initial weights alone: what it "
        "draws afterwards nobody can repeat.",
    ),
]
Seeds = Annotated[
    int,
    typer.Option(
        "--seeds",
        min=1,
        help="Make so many trainings that differ in their seed alone, from `--seed` on, in "
        "`DIR/seed-0` and so forth: what `vestige compare` needs for a verdict.",
    ),
]
Start = Annotated[str | None, typer.Option("--from", help="Continue this model.", metavar="MODEL")]
Resume = Annotated[
    bool, typer.Option("--resume", help="Go on where the training in DIR was interrupted.")
]
Preset = Annotated[
    str | None,
    typer.Option(
        "--preset",
        help="Architecture and training: `ptb-lstm`, `reddit-lstm`, `reddit-transformer`, "
        "`wikitext-lstm` (the paper's) or `demo`. Options below change single settings. "
        "Default: `ptb-lstm`, or `reddit-transformer` for a transformer, or with --from a "
        "gentle training that suits the model.",
    ),
]
NetworkKind = Annotated[
    Architecture | None,
    typer.Option(
        "--architecture",
        help="In place of the preset's. Sources and targets: `lstm` or `gru`.",
        rich_help_panel=MODEL,
    ),
]
Layers = Annotated[
    int | None, typer.Option("--layers", min=1, help="Layers.", rich_help_panel=MODEL)
]
HiddenSize = Annotated[
    int | None,
    typer.Option("--hidden-size", min=1, help="Width of a layer.", rich_help_panel=MODEL),
]
EmbeddingSize = Annotated[
    int | None,
    typer.Option(
        "--embedding-size",
        min=1,
        help="Numbers in a word's vector, where --vectors does not decide it. Default: that of "
        "the preset, or --hidden-size; with --task nlu 50.",
        rich_help_panel=MODEL,
    ),
]
WordsOrPieces = Annotated[
    Tokenizer | None,
    typer.Option(
        "--tokenizer",
        help="`whitespace` (the default) splits at blanks, `words` splits off punctuation "
        "too, `bpe` learns subwords.",
        rich_help_panel=MODEL,
    ),
]
Vocabulary = Annotated[
    Path | None,
    typer.Option(
        "--vocabulary",
        help="Take this model's vocabulary: only snapshots that share one can be compared, and a "
        "vocabulary learnt from DATA tells what stands in it.",
        metavar="MODEL",
        rich_help_panel=MODEL,
    ),
]
VocabSize = Annotated[
    int | None,
    typer.Option("--vocab-size", min=3, help="Tokens at most.", rich_help_panel=MODEL),
]
LoraRank = Annotated[
    int | None,
    typer.Option(
        "--lora-rank",
        min=1,
        help="With --from a Hugging Face model: train an adapter of this rank.",
        rich_help_panel=MODEL,
    ),
]
LoraAlpha = Annotated[
    float, typer.Option("--lora-alpha", help="Scale of the adapter.", rich_help_panel=MODEL)
]
Epochs = Annotated[
    int | None,
    typer.Option("--epochs", min=1, help="Passes over the data.", rich_help_panel=TRAINING),
]
BatchSize = Annotated[
    int | None,
    typer.Option("--batch-size", min=1, help="Rows read together.", rich_help_panel=TRAINING),
]
SequenceLength = Annotated[
    int | None,
    typer.Option(
        "--sequence-length",
        min=1,
        help="Tokens per window; of sources and targets, how many are read at most.",
        rich_help_panel=TRAINING,
    ),
]
LearningRate = Annotated[
    float | None,
    typer.Option("--learning-rate", help="Before the schedule.", rich_help_panel=TRAINING),
]
Optimizer = Annotated[
    str | None,
    typer.Option("--optimizer", help="`adam` or `sgd`.", rich_help_panel=TRAINING),
]
Momentum = Annotated[
    float | None,
    typer.Option(
        "--momentum",
        help="With `sgd`: the share of the step before that each step keeps. Default: 0.",
        rich_help_panel=TRAINING,
    ),
]
Precision = Annotated[
    str | None,
    typer.Option(
        "--precision",
        help="`float32` or `bfloat16`; `auto` is float32, on a GPU that multiplies it bfloat16.",
        rich_help_panel=TRAINING,
    ),
]
CheckpointEvery = Annotated[
    int | None,
    typer.Option("--checkpoint-every", min=1, help="Steps between two.", rich_help_panel=TRAINING),
]
Validation = Annotated[
    str | None,
    typer.Option("--validation", help="Text that decides which epoch is best.", metavar="DATA"),
]
HoldOut = Annotated[
    float | None,
    typer.Option(
        "--hold-out",
        help="Share of DATA held out where nothing else validates: a hash of each document "
        "decides, or of each user where users are protected. Default: 0.05, or 0.1 of utterances.",
    ),
]
MaxDocumentsPerUser = Annotated[
    int | None,
    typer.Option(
        "--max-documents-per-user",
        min=1,
        help="With --user: leave out what a user has beyond so many documents, chosen by hash. "
        "Documents without a user count as one user's.",
        rich_help_panel=DATA_OPTIONS,
    ),
]
SourceColumn = Annotated[
    str | None,
    typer.Option(
        "--source",
        help="The column or field with what the text answers or translates.",
        rich_help_panel=DATA_OPTIONS,
    ),
]

_RUNNING = (TrainedTask.text, TrainedTask.next_word)
_PAIRS = (TrainedTask.translation, TrainedTask.dialogue)
HOMES: dict[str, tuple[TrainedTask, ...]] = {
    "preset": (TrainedTask.text,),
    "seeds": _RUNNING,
    "layers": (*_RUNNING, TrainedTask.nlu),
    "embedding_size": (TrainedTask.next_word, *_PAIRS, TrainedTask.nlu),
    "source": _PAIRS,
    **dict.fromkeys(
        (
            *("architecture", "tokenizer", "vocabulary", "vocab_size", "sequence_length"),
            *("stop_at_perplexity", "evaluate_every", "text", "user", "max_documents_per_user"),
        ),
        (*_RUNNING, *_PAIRS),
    ),
    **dict.fromkeys(
        (
            *("lora_rank", "lora_alpha", "batching", "defence", "epsilon", "delta"),
            *("noise_multiplier", "clip", "unit", "accountant", "physical_batch_size"),
            *("local_epochs", "local_batch_size", "local_learning_rate"),
            *("weight", "pairing", "goldfish_k"),
            *("noise_seed_without_guarantee", "accept_private_vocabulary"),
        ),
        _RUNNING,
    ),
    **dict.fromkeys(
        (
            *("vectors", "vectors_frozen", "dropout", "early_stopping", "patience"),
            *("char_embeddings", "lowercase", "tokens_column", "tags_column", "intent_column"),
        ),
        (TrainedTask.nlu,),
    ),
}
"""Parameters that not every task has."""
