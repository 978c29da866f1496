"""The options of `vestige extract-nlu`, in the order of its help."""

from pathlib import Path
from typing import Annotated, Literal

import typer

SETS = "The question"
SEARCH = "The search"

Attack = Literal["auto", "exact", "coordinate", "beam", "gradient", "paper", "embedding", "random"]
Objective = Literal["joint", "tags", "intent", "calibrated"]

Models = Annotated[
    list[str],
    typer.Argument(
        help="An intent-and-slot model or the DIR of its training; with --manifest several.",
        metavar="MODEL...",
        show_default=False,
    ),
]
Manifest = Annotated[
    Path | None,
    typer.Option(
        "--manifest",
        help="Ask for every canary of this manifest.json, or of the DIR of `vestige plant`.",
        metavar="PATH",
        rich_help_panel=SETS,
    ),
]
Prefix = Annotated[
    str | None,
    typer.Option(
        "--prefix",
        help="The words before the unknown ones, as they were said.",
        rich_help_panel=SETS,
    ),
]
Slots = Annotated[
    str | None,
    typer.Option(
        "--slots",
        help="The unknown words: {digit:4} is four words of the set `digit`; so is `color`, or "
        "any that --candidates gives.",
        rich_help_panel=SETS,
    ),
]
Suffix = Annotated[
    str | None,
    typer.Option("--suffix", help="The words after the unknown ones.", rich_help_panel=SETS),
]
Pattern = Annotated[
    str | None,
    typer.Option(
        "--pattern",
        help="In place of these three: the whole text with {…} in it, or `pin:4`, `call:4` or "
        "`color:4`.",
        rich_help_panel=SETS,
    ),
]
Intent = Annotated[
    str | None,
    typer.Option(
        "--intent",
        help="The utterance's intent; `pin:4` and its like have their own.",
        rich_help_panel=SETS,
    ),
]
Slot = Annotated[
    str | None,
    typer.Option(
        "--slot",
        help="The slot that the unknown words fill; default: canary.",
        rich_help_panel=SETS,
    ),
]
Candidates = Annotated[
    list[str] | None,
    typer.Option(
        "--candidates",
        help="Words that an unknown one may be: name=word,word or name=@file with a word a line.",
        metavar="SET",
        rich_help_panel=SETS,
    ),
]
Truth = Annotated[
    str | None,
    typer.Option(
        "--truth",
        help='The true words, such as "4 0 7 1": says how near the guess is, and the rank.',
        rich_help_panel=SETS,
    ),
]
SearchedBy = Annotated[
    Attack,
    typer.Option(
        "--attack",
        help="`auto` tries every secret where --budget allows it and else takes `coordinate`, the "
        "strongest; `paper` and `embedding` are the paper's.",
        rich_help_panel=SEARCH,
    ),
]
Minimised = Annotated[
    Objective,
    typer.Option(
        "--objective",
        help="What a guess has to make small: the loss of intent and tags (`joint`), of one of "
        "them, or the joint loss less that of each --reference (`calibrated`).",
        rich_help_panel=SEARCH,
    ),
]
References = Annotated[
    list[str] | None,
    typer.Option(
        "--reference",
        help="With `calibrated`: a model that never saw the secret, trained alike. Give it again "
        "for another.",
        metavar="MODEL",
        rich_help_panel=SEARCH,
    ),
]
Budget = Annotated[
    int,
    typer.Option(
        "--budget",
        min=1,
        help="Try all secrets where there are no more than this, to search and to rank.",
        rich_help_panel=SEARCH,
    ),
]
Sample = Annotated[
    int,
    typer.Option(
        "--sample",
        min=0,
        help="Where there are more, estimate the truth's rank from so many random ones; 0: do not.",
        rich_help_panel=SEARCH,
    ),
]
Controls = Annotated[
    int,
    typer.Option(
        "--controls",
        min=0,
        help="With --manifest: secrets of each pattern that were never said, to compare with; what "
        "the manifest lacks is drawn.",
        rich_help_panel=SEARCH,
    ),
]
Top = Annotated[
    int, typer.Option("--top", min=1, max=10, help="How many of the best guesses to show.")
]
Out = Annotated[
    Path | None,
    typer.Option(
        "--out",
        help="A run directory to make, for `vestige report`; it must not exist.",
        metavar="DIR",
    ),
]
ShowSecrets = Annotated[
    bool,
    typer.Option("--show-secrets", help="Show the guesses in the clear; else they are blocks."),
]
