"""`vestige`: the table of verbs, and how their errors look.

A verb's module is imported only when the verb is asked for, and imports torch only when it
runs, so that help answers at once.
"""

import os
import sys
import traceback
from importlib import import_module
from typing import Annotated, Any

import typer
from typer.core import TyperGroup

from vestige import __version__
from vestige.cli import interrupts
from vestige.cli.bounds import Bounded
from vestige.cli.error_lines import error_line, in_one_line
from vestige.cli.provenance import COMMAND
from vestige.errors import VestigeError
from vestige.memory import keep_freed_pages, ran_out

VERBS = {
    "demo": "vestige.cli.demo",
    "plant": "vestige.cli.plant",
    "train": "vestige.cli.train",
    "diff": "vestige.cli.diff",
    "null": "vestige.cli.null",
    "rank": "vestige.cli.rank",
    "exposure": "vestige.cli.exposure",
    "extract-nlu": "vestige.cli.extract_nlu",
    "complete": "vestige.cli.complete",
    "audit-users": "vestige.cli.audit_users",
    "anatomy": "vestige.cli.anatomy",
    "compare": "vestige.cli.compare",
    "report": "vestige.cli.report",
    "reproduce": "vestige.cli.reproduce",
}
"""Each verb, in the order in which a new user meets them, and the module with its `command`."""

TRACEBACK = "VESTIGE_TRACEBACK"
"""An environment variable: where it is set, an error shows where it came from."""

CONTEXT = {"help_option_names": ["--help", "-h"]}


class Verb(Bounded):
    """A verb that quotes no word of a phrase which was given without quotation marks."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        ctx.allow_extra_args = True
        rest = super().parse_args(ctx, args)
        if rest:
            ctx.fail(
                f"Got {len(rest)} unexpected extra argument(s). "
                "Text of several words needs quotation marks."
            )
        return rest


class Verbs(TyperGroup):
    """The verbs of the table, imported when asked for."""

    def list_commands(self, ctx: Any) -> list[str]:
        return list(VERBS)

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        if cmd_name not in VERBS:
            return None
        verb = typer.Typer(
            add_completion=False, rich_markup_mode="markdown", context_settings=CONTEXT
        )
        verb.command(cmd_name, cls=Verb)(import_module(VERBS[cmd_name]).command)
        return typer.main.get_command(verb)

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        ctx.meta[COMMAND] = ["vestige", *args]
        return super().parse_args(ctx, args)

    def invoke(self, ctx: Any) -> Any:
        try:
            return super().invoke(ctx)
        except typer.TyperException as error:  # of usage: typer shows it, with what was given
            error.message = in_one_line(error.message)
            raise
        except Exception as error:
            of_input = isinstance(error, VestigeError | ValueError | OSError | RecursionError)
            expected = of_input or ran_out(error)
            if os.environ.get(TRACEBACK) or not expected:
                raise
            typer.echo(f"vestige: {error_line(error)}", err=True)
            raise typer.Exit(2) from error
        except KeyboardInterrupt as error:
            typer.echo(f"vestige: {interrupts.last_words(error)}", err=True)
            raise typer.Exit(getattr(error, "code", 130)) from error


app = typer.Typer(
    cls=Verbs,
    name="vestige",
    add_completion=False,
    no_args_is_help=True,
    rich_markup_mode=None,  # rich would double the time to the list of verbs
    pretty_exceptions_enable=False,
    context_settings=CONTEXT,
)


def _show_version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"vestige {__version__}")
        raise typer.Exit


@app.callback()
def vestige(
    version: Annotated[
        bool,
        typer.Option("--version", callback=_show_version, is_eager=True, help="Show the version."),
    ] = False,
) -> None:
    """Vestige measures what a text model gives away about the text it was trained on.

    Start with `vestige demo`. On two snapshots of a model of your own:
    `vestige diff BEFORE AFTER --out run`, then `vestige report run --out page.html`.
    """


def main() -> None:
    """Run the command line and leave with its exit code: 0, or 2 for an error of the input;
    130 and 143 after Ctrl-C and SIGTERM.
    """
    # Progress bars and advice of the libraries below would run into ours.
    os.environ.setdefault("HF_HUB_DISABLE_PROGRESS_BARS", "1")
    os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")
    keep_freed_pages()
    interrupts.raise_when_asked_to_end()
    try:
        sys.exit(app())
    except Exception as error:  # a bug
        if os.environ.get(TRACEBACK):
            raise
        typer.echo(_bug(error), err=True)
        sys.exit(1)


def _bug(error: BaseException) -> str:
    """Where an error came from; what it says may quote a secret, and is left out."""
    frames = "".join(traceback.format_tb(error.__traceback__))
    return (
        f"Traceback (most recent call last):\n{frames}{type(error).__name__}\n"
        f"This is a bug of Vestige. {TRACEBACK}=1 shows what the error says, which may quote texts."
    )
