"""Help of the program and of its verbs, drawn from their options without importing a parser."""

import re
import textwrap
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from rich.console import Console, Group
from rich.panel import Panel
from rich.table import Table
from rich.text import Text

from vestige.workflows.parameters import REQUIRED, Option

HELP_FLAGS = ("--help", "-h")


def added(name: str, told: str, **settings: Any) -> Option:
    """An option that the command line adds to a workflow's own: a flag unless settings differ."""
    usual: dict[str, Any] = {
        "type": bool,
        "default": False,
        "flags": (f"--{name.replace('_', '-')}",),
    }
    return Option(name=name, path=(name,), help=told, **(usual | settings))


HELP = added("help", "Show this message and exit.", flags=HELP_FLAGS)
VERSION = added("version", "Show the version and exit.")
ARGUMENTS, OPTIONS = "Arguments", "Options"
BOUNDS = (("ge", "at least"), ("gt", "more than"), ("le", "at most"), ("lt", "less than"))
"""Attributes of the bounds of `annotated_types`, in words."""


def show_help(
    options: Sequence[Option], *, usage: str, text: str, examples: Sequence[str] = ()
) -> None:
    """Print the help of a verb on stdout.

    Args:
        options: of the verb.
        usage: one line.
        text: paragraphs; words in backticks are set apart.
        examples: command lines.
    """
    panels: dict[str, list[Option]] = {ARGUMENTS: [], OPTIONS: []}
    for option in (*options, HELP):
        title = option.group or (OPTIONS if option.flags else ARGUMENTS)
        panels.setdefault(title, []).append(option)
    if examples:
        text += "\n\nExamples:"
    console = _printed(usage, text)
    for example in examples:
        lines = _wrapped(example, console.width - 4)
        console.print(Text("".join(f"    {line}\n" for line in lines), "cyan"))
    for title, own in panels.items():
        if own:
            console.print(_panel(title, map(_row, own)))


def show_verbs(groups: Mapping[str, Mapping[str, str]], *, text: str) -> None:
    """Print the help of the program on stdout.

    Args:
        groups: what each verb does, by name, under the title of its panel.
        text: as of `show_help`.
    """
    console = _printed("vestige VERB ...", text)
    console.print(_panel(OPTIONS, map(_row, (HELP, VERSION))))
    for title, verbs in groups.items():
        rows = [("", Text(name, "cyan"), _code(summary)) for name, summary in verbs.items()]
        console.print(_panel(title, rows))


def _printed(usage: str, text: str) -> Console:
    console = Console(highlight=False)
    console.print(Text.assemble(("Usage: ", "bold"), usage))
    for paragraph in text.split("\n\n"):
        console.print()
        console.print(_code(" ".join(paragraph.split())))
    console.print()
    return console


def _wrapped(command: str, width: int) -> list[str]:
    """A command line cut between words, so that it can be pasted: each line but the last goes on.

    Example:
        >>> _wrapped("vestige diff before after --out run", 24)
        ['vestige diff before \\\\', '    after --out run']
    """
    lines = textwrap.wrap(
        command, width - 2, subsequent_indent="    ", break_long_words=False, break_on_hyphens=False
    )
    return [*(f"{line} \\" for line in lines[:-1]), lines[-1]]


def _panel(title: str, rows: Iterable[tuple[str, Text, Text]]) -> Panel:
    table = Table.grid(padding=(0, 2, 0, 0))
    rows = list(rows)
    marked = any(mark for mark, *_ in rows)
    for mark, name, told in rows:
        table.add_row(*([Text(mark, "red")] if marked else []), name, told)
    return Panel(Group(table), title=title, title_align="left", border_style="dim")


def _row(option: Option) -> tuple[str, Text, Text]:
    """Whether it is required, its spellings and its value, and what it does."""
    value = option.metavar or (option.type.__name__.upper() if option.flags else "")
    if option.choices:
        value = "CHOICE"
    if option.flags and option.type is not bool:
        name = Text.assemble((" ".join(option.flags), "cyan"), f" {value}")
    else:
        name = Text(" ".join(option.flags) or option.shown, "cyan")
    told = _code(option.help)
    for aside in _asides(option):
        told.append(f" [{aside}]", "dim")
    return "*" if option.default is REQUIRED else "", name, told


def _asides(option: Option) -> Iterable[str]:
    if option.choices:
        yield f"choices: {', '.join(option.choices)}"
    limits = [
        f"{word} {limit:,}"
        for bound in option.bounds
        for sign, word in BOUNDS
        if (limit := getattr(bound, sign, None)) is not None
    ]
    if limits:
        yield " and ".join(limits)
    if option.default is REQUIRED:
        yield "required"
    elif option.default_shown is not None:
        yield f"default: {option.default_shown}"


def _code(text: str) -> Text:
    """Text whose words in backticks are set apart."""
    parts = re.split(r"`([^`]*)`", text)
    return Text.assemble(*((part, "bold" if n % 2 else "") for n, part in enumerate(parts)))
