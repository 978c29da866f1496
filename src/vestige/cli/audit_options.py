"""The options of `vestige audit-users`, in the order of its help."""

from pathlib import Path
from typing import Annotated, Literal

import typer

from vestige.cli.options import DATA_OPTIONS

WHO = "Whose text"
ASKING = "AuditInputs"
SERVICE = "A service behind a callable"
SHADOWS = "Shadow models"

Select = Literal["all", "random", "rare", "rare-sum", "informative"]
SaidTask = Literal["next-word", "translation", "dialogue"]
Splitting = Literal["whitespace", "words"]
Cell = Literal["lstm", "gru"]
Optimizer = Literal["adam", "sgd"]

Model = Annotated[
    str,
    typer.Argument(
        help="A model or training directory, a Hugging Face model, or package.module:function, "
        "which takes a list of contexts (`words`, `source`) and gives for each the likeliest next "
        "words, the likeliest first.",
        metavar="MODEL",
        show_default=False,
    ),
]
Texts = Annotated[
    str, typer.Option("--texts", help="What may have been trained on.", metavar="DATA")
]
Reference = Annotated[
    str,
    typer.Option(
        "--reference",
        help="Texts of people who are known not to be in the training data, of the same kind.",
        metavar="DATA",
    ),
]
Out = Annotated[
    Path,
    typer.Option(
        "--out",
        help="A directory to make. The same command goes on where it was interrupted.",
        metavar="DIR",
    ),
]
Person = Annotated[
    str | None,
    typer.Option(
        "--person",
        help="All of --texts is this person's. Default: `me`, where nothing says whose they are.",
        metavar="NAME",
        rich_help_panel=WHO,
    ),
]
Artificial = Annotated[
    int | None,
    typer.Option(
        "--artificial",
        min=2,
        help="Split --reference at random into so many users, where nothing says whose it is.",
        rich_help_panel=WHO,
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
Shown = Annotated[
    int | None,
    typer.Option(
        "--top-k",
        min=1,
        help="How many of the likeliest words are shown. Default: all; a callable needs it.",
        rich_help_panel=ASKING,
    ),
]
Queries = Annotated[
    int | None,
    typer.Option(
        "--queries",
        min=1,
        help="Ask about so many texts of each user, every word of them.",
        rich_help_panel=ASKING,
    ),
]
Calls = Annotated[
    int | None,
    typer.Option(
        "--calls",
        min=1,
        help="Ask about so many single words of each user.",
        rich_help_panel=ASKING,
    ),
]
SelectedBy = Annotated[
    Select | None,
    typer.Option(
        "--select",
        help="Which ones: at `random`, the `rare` (by mean frequency; `rare-sum` is the paper's), "
        "or the `informative`, where knowing the text could bring a word into view. Default: "
        "`informative` for --calls with shadow models, else `random`; without --queries or "
        "--calls `all`.",
        rich_help_panel=ASKING,
    ),
]
Rate = Annotated[
    float,
    typer.Option(
        "--rate",
        help="The share of those called members that may be expected not to be.",
        rich_help_panel=ASKING,
    ),
]
Budget = Annotated[
    int | None,
    typer.Option(
        "--budget",
        min=1,
        help="Queries at most, repeated ones and those of interrupted sittings counted.",
        rich_help_panel=SERVICE,
    ),
]
Timeout = Annotated[
    float | None,
    typer.Option(
        "--timeout",
        help="Seconds after which a call has failed. Default: wait for ever.",
        rich_help_panel=SERVICE,
    ),
]
Attempts = Annotated[
    int,
    typer.Option(
        "--attempts", min=1, help="Calls for the same contexts at most.", rich_help_panel=SERVICE
    ),
]
Task = Annotated[
    SaidTask | None,
    typer.Option(
        "--task", help="What the service does. Default: `next-word`.", rich_help_panel=SERVICE
    ),
]
VocabularySize = Annotated[
    int,
    typer.Option(
        "--vocabulary-size",
        min=3,
        help="Words that can be asked about, the commonest of --reference.",
        rich_help_panel=SERVICE,
    ),
]
Tokenizer = Annotated[
    Splitting,
    typer.Option(
        "--tokenizer",
        help="`whitespace` splits texts at blanks, `words` splits off punctuation too.",
        rich_help_panel=SERVICE,
    ),
]
Shadows = Annotated[
    int,
    typer.Option(
        "--shadows",
        min=0,
        help="Models to train on text of the reference users who are not compared with, each on a "
        "random half of them; 0: word counts alone. It takes 3 to check whether the comparison is "
        "fair.",
        rich_help_panel=SHADOWS,
    ),
]
ShadowDir = Annotated[
    Path | None,
    typer.Option(
        "--shadow-dir",
        help="Where trained ones are looked for and kept. Default: DIR/shadows.",
        metavar="DIR",
        rich_help_panel=SHADOWS,
    ),
]
OtherShapes = Annotated[
    bool,
    typer.Option(
        "--other-shapes",
        help="The paper's GRUs of 64 to 352 units, for a model of unknown shape. Default: the "
        "shape of MODEL where it is ours, else the task's preset.",
        rich_help_panel=SHADOWS,
    ),
]
Kind = Annotated[
    Cell | None,
    typer.Option("--architecture", help="In place of that.", rich_help_panel=SHADOWS),
]
HiddenSize = Annotated[
    int | None,
    typer.Option("--hidden-size", min=1, help="Width of a layer.", rich_help_panel=SHADOWS),
]
EmbeddingSize = Annotated[
    int | None,
    typer.Option(
        "--embedding-size", min=1, help="Numbers in a word's vector.", rich_help_panel=SHADOWS
    ),
]
Epochs = Annotated[
    int | None,
    typer.Option(
        "--epochs",
        min=1,
        help="Passes over the data, about as many as MODEL has had. Default: what `vestige train` "
        "recorded of MODEL, else the preset's.",
        rich_help_panel=SHADOWS,
    ),
]
BatchSize = Annotated[
    int | None,
    typer.Option("--batch-size", min=1, help="Texts read together.", rich_help_panel=SHADOWS),
]
SequenceLength = Annotated[
    int | None,
    typer.Option(
        "--sequence-length", min=1, help="Tokens of a text at a time.", rich_help_panel=SHADOWS
    ),
]
LearningRate = Annotated[
    float | None,
    typer.Option("--learning-rate", help="Before the schedule.", rich_help_panel=SHADOWS),
]
LearntBy = Annotated[
    Optimizer | None,
    typer.Option("--optimizer", help="`adam` or `sgd`.", rich_help_panel=SHADOWS),
]
Momentum = Annotated[
    float | None,
    typer.Option(
        "--momentum", help="With `sgd`: the share of a step to keep.", rich_help_panel=SHADOWS
    ),
]
Processes = Annotated[
    int,
    typer.Option(
        "--processes",
        min=1,
        max=1024,
        help="Train so many at a time here.",
        rich_help_panel=SHADOWS,
    ),
]
Cluster = Annotated[
    str | None,
    typer.Option(
        "--cluster",
        help="Train on the Ray cluster whose head is there: HOST:PORT, or `auto`.",
        metavar="ADDRESS",
        rich_help_panel=SHADOWS,
    ),
]
ShowSecrets = Annotated[
    bool,
    typer.Option("--show-secrets", help="Show users' names; else each is a block."),
]
