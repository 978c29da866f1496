"""`vestige report`: one page from run directories."""

from pathlib import Path
from typing import Annotated

import typer

from vestige.cli import options
from vestige.cli.terminal import show_json


def command(
    runs: Annotated[
        list[Path], typer.Argument(help="Run directories, in the page's order.", metavar="RUN")
    ],
    out: Annotated[
        Path, typer.Option("--out", help="The page to write; it must not exist.", metavar="PAGE")
    ],
    show_secrets: options.ShowSecrets = False,
    json: options.Json = False,
) -> None:
    """Write one self-contained HTML page from run directories.

    The page loads nothing and runs nothing: send it, print it, keep it beside the models. It
    shows what was asked and of what, the phrases with each token's score as shading, ranks
    with their certainty, and what the numbers do not say. Phrases are redacted unless
    `--show-secrets` is given.

    Examples:

        vestige report run --out page.html

        vestige report diff-run rank-run --out page.html --show-secrets
    """
    from vestige.reports.page import write_page

    page = write_page(runs, out, show_secrets=show_secrets)
    if json:
        show_json({"page": str(page), "runs": len(runs), "show_secrets": show_secrets})
    else:
        typer.echo(page)
