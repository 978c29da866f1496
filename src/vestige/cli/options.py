"""Options that several verbs share, each defined once."""

from pathlib import Path
from typing import Annotated

import typer

DATA_OPTIONS = "Reading the data"

Out = Annotated[
    Path, typer.Option("--out", help="A directory to make; it must not exist.", metavar="DIR")
]
Json = Annotated[bool, typer.Option("--json", help="Print the summary as JSON on stdout.")]
Seed = Annotated[int, typer.Option("--seed", min=0, help="Decides everything that is drawn.")]
Device = Annotated[
    str, typer.Option("--device", help="`auto` (a GPU where there is one), `cpu` or `cuda`.")
]
ShowSecrets = Annotated[
    bool,
    typer.Option(
        "--show-secrets", help="Show phrases in the clear; otherwise each word is a block."
    ),
]
DataFormat = Annotated[
    str,
    typer.Option(
        "--format",
        help="How DATA is to be read; `auto` goes by the name and what stands in it.",
        rich_help_panel=DATA_OPTIONS,
    ),
]
TextColumn = Annotated[
    str,
    typer.Option("--text", help="The column or field with the text.", rich_help_panel=DATA_OPTIONS),
]
UserColumn = Annotated[
    str | None,
    typer.Option("--user", help="The column or field with the user.", rich_help_panel=DATA_OPTIONS),
]
TokensColumn = Annotated[
    str,
    typer.Option(
        "--tokens-column",
        help="The column or field with an utterance's words.",
        rich_help_panel=DATA_OPTIONS,
    ),
]
TagsColumn = Annotated[
    str,
    typer.Option(
        "--tags-column", help="The column or field with their tags.", rich_help_panel=DATA_OPTIONS
    ),
]
IntentColumn = Annotated[
    str,
    typer.Option(
        "--intent-column",
        help="The column or field with its intent.",
        rich_help_panel=DATA_OPTIONS,
    ),
]
Limit = Annotated[
    int | None,
    typer.Option(
        "--limit", min=1, help="Read only so many documents.", rich_help_panel=DATA_OPTIONS
    ),
]
