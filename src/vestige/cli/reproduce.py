"""`vestige reproduce`: a paper's tables, its numbers beside ours."""

from functools import partial
from importlib import import_module
from pathlib import Path
from typing import Annotated, Literal

import typer

from vestige.cli import options
from vestige.cli.terminal import say, show_json, show_table
from vestige.cli.trainings_directory import claimed

EXPERIMENTS = {
    "updates": "vestige.experiments.updates.paper_tables",
    "regularization": "vestige.experiments.regularization.paper_tables",
    "nlu": "vestige.experiments.nlu.paper_tables",
    "provenance": "vestige.experiments.provenance.paper_tables",
}


def command(
    context: typer.Context,
    experiment: Annotated[
        Literal["updates", "regularization", "nlu", "provenance"],
        typer.Argument(
            help="Which paper: `updates`, `regularization`, `nlu` or `provenance`.",
            metavar="EXPERIMENT",
        ),
    ],
    out: Annotated[
        Path,
        typer.Option(
            "--out",
            help="A directory for snapshots and tables. What is there already is found again.",
            metavar="DIR",
        ),
    ],
    scale: Annotated[
        Literal["smoke", "small", "full"],
        typer.Option(
            "--scale",
            help="`smoke`: seconds, on text made for it. `small`: hours on two cores, an hour or "
            "less a table. `full`: the paper's size, for a GPU.",
        ),
    ] = "smoke",
    table: Annotated[
        list[str] | None,
        typer.Option(
            "--table",
            help="Of `updates`: `table1` (Penn Treebank), `table1-reddit-rnn`, "
            "`table1-reddit-transformer`, `table1-wikitext`, `table2`, `tables3-4`, `table5`, "
            "`figure1`, `subwords`, `rq5`. Of `regularization`: `figure2`, `figure3ab`, "
            "`figure3c`, `table1`. Of `nlu`: `utility`, `table2`, `table3`, `table4`, "
            "`figures3-5`, `null`, `apart`. Of `provenance`: `table1`, `audit`, `table2`, "
            "`table3`, `table5`, `figure2`, `figure3`, `figure4`, `figures5-7`, `figure8`, "
            "`null`, `private`. Give it again for another. Without it: all.",
        ),
    ] = None,
    data: Annotated[
        Path | None,
        typer.Option(
            "--data",
            help="The folder with `ptb`, `wikitext2`, `reddit_college` and `newsgroups`, or with "
            "`snips`, `atis` and `nlu_eval`, or with `reddit_college`, `sated`, `cornell_movie`, "
            "`wikitext2` and `ubuntu_irc`; `smoke` needs none.",
            envvar="VESTIGE_DATA",
        ),
    ] = None,
    processes: Annotated[
        int, typer.Option("--processes", min=1, max=1024, help="Trainings side by side.")
    ] = 1,
    json: options.Json = False,
) -> None:
    """Repeat a paper's experiments and print its numbers beside ours.

    `updates` is "Analyzing Information Leakage of Updates to Natural Language Models"
    (Zanella-Béguelin et al., 2020), Tables 1 to 5, Figure 1 and RQ5, and a table of ours on models
    of word pieces. `regularization` is "Privacy Regularization: Joint Privacy-Utility Optimization
    in Language Models" (Mireshghallah et al., 2021), Figures 2 and 3 and Table 1. `nlu` is "Canary
    Extraction in Natural Language Understanding Models" (Parikh et al., 2022), Tables 2 to 5 and
    Figures 2 to 5. `provenance` is "Auditing Data Provenance in Text-Generation Models" (Song and
    Shmatikov, 2019), Tables 1 to 3 and 5 and Figures 2 to 8; its obfuscation takes Debian's
    `apertium-eng-spa` and `wordnet-base` (or WNSEARCHDIR).

    The directory then holds `tables.md`, a run directory for each table under `results`, and the
    snapshots. Stopped at any moment, the same command goes on from there.

    Examples:

        vestige reproduce updates --out smoke

        vestige reproduce updates --scale small --table table1 --data corpora --out small
    """
    from vestige.cli.monitor import Terminal
    from vestige.cli.provenance import record
    from vestige.experiments.tables import cell
    from vestige.parallel import map_processes

    module = import_module(EXPERIMENTS[experiment])
    context.with_resource(claimed(out))
    tables = module.run(
        getattr(module, scale.upper()),
        out,
        data=data,
        tables=table or (),
        record=record(context, {"scale": scale}),
        map_fn=map if processes == 1 else partial(map_processes, processes=processes),
        monitor=Terminal(),
    )
    if json:
        show_json({made.name: made.summary() for made in tables})
        return
    for made in tables:
        rows = [[cell(row.get(name)) for name in made.columns] for row in made.rows()]
        show_table(made.title, [name.replace("_", " ") for name in made.columns], rows)
    say(f"Tables: {out / 'tables.md'}. A page of one: vestige report {out / 'results'}/NAME ...")
