"""`vestige reproduce`: a paper's tables, its numbers beside ours."""

from importlib import import_module
from typing import Annotated, Literal

import typer

from vestige.cli import options
from vestige.cli.terminal import say, show_json, show_table

EXPERIMENTS = {"updates": "vestige.experiments.updates"}


def command(
    context: typer.Context,
    experiment: Annotated[
        Literal["updates"], typer.Argument(help="Which paper.", metavar="EXPERIMENT")
    ],
    out: options.Out,
    scale: Annotated[
        Literal["smoke", "small", "full"],
        typer.Option(
            "--scale",
            help="`smoke`: seconds, on text made for it. `small`: about an hour on two cores. "
            "`full`: the paper's size, for a GPU.",
        ),
    ] = "smoke",
    json: options.Json = False,
) -> None:
    """Repeat a paper's experiments and print its numbers beside ours.

    `updates` is "Analyzing Information Leakage of Updates to Natural Language Models"
    (Zanella-Béguelin et al., 2020), Tables 1 to 5 and Figure 1. Scales above smoke read real
    corpora from the folder that the environment variable `VESTIGE_DATA` names.

    Examples:

        vestige reproduce updates --out smoke

        vestige reproduce updates --scale small --out small
    """
    from dataclasses import asdict

    from vestige import results
    from vestige.cli.provenance import record

    results.require_new(out)
    module = import_module(EXPERIMENTS[experiment])
    config = getattr(module, scale.upper())
    result = module.run(config)
    results.save(result, out, run=record(context, asdict(config)))
    if json:
        show_json(result.summary())
        return
    rows = list(result.rows())
    columns = list(dict.fromkeys(key for row in rows for key in row))
    cells = [[row.get(key) for key in columns] for row in rows]
    show_table(f"{experiment}, {scale}", columns, cells)
    say(f"Run directory: {out}. A page from it: vestige report {out} --out page.html")
