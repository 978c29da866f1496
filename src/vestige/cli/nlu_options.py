"""The options of `vestige train --task nlu`."""

from typing import Annotated

import typer

PANEL = "With --task nlu"

Vectors = Annotated[
    str | None,
    typer.Option(
        "--vectors",
        help="First vectors of the words: a GloVe or fastText file (`.txt`, `.vec`, `.bin`), or "
        "`glove-6b-50d`, which `vestige[nlu]` installs. Default: drawn at random.",
        metavar="FILE",
        rich_help_panel=PANEL,
    ),
]
VectorsFrozen = Annotated[
    bool,
    typer.Option(
        "--vectors-frozen", help="The vectors are not trained further.", rich_help_panel=PANEL
    ),
]
Dropout = Annotated[
    bool,
    typer.Option(
        "--dropout",
        help="Training drops 20 % of the words' vectors and 10 % of the layers' outputs: the "
        "paper's defence D.",
        rich_help_panel=PANEL,
    ),
]
EarlyStopping = Annotated[
    bool,
    typer.Option(
        "--early-stopping",
        help="Keep the epoch of the lowest validation loss, and end --patience epochs after it: "
        "the paper's defence ES. Without it the last epoch is kept.",
        rich_help_panel=PANEL,
    ),
]
Patience = Annotated[
    int | None,
    typer.Option(
        "--patience",
        min=1,
        help="With --early-stopping: epochs without a better one. Default: 20.",
        rich_help_panel=PANEL,
    ),
]
CharEmbeddings = Annotated[
    bool,
    typer.Option(
        "--char-embeddings",
        help="A convolution of 30 filters over each word's letters beside its vector: the paper's "
        "defence CE.",
        rich_help_panel=PANEL,
    ),
]
Lowercase = Annotated[
    bool,
    typer.Option("--lowercase", help="Read all words in lower case.", rich_help_panel=PANEL),
]
