"""The help of a verb: as plain text for a terminal, and as a page of the documentation.

`python -m vestige.cli.help docs` writes the pages; a test compares them with the verbs.
"""

import inspect
import re
import shutil
import sys
import textwrap
from collections.abc import Callable, Iterator
from itertools import takewhile
from pathlib import Path
from typing import Any, get_args

from cyclopts.group import sort_groups

from vestige.cli import app
from vestige.cli.options import arguments_of, is_list, number_type, verb_app

COLUMN = 24
"""Where descriptions begin."""

NO_BREAK = "\u00a0"
"""A space at which no line is wrapped."""

NOTE = "<!-- Written by `make docs` from the verb's own help; edit the verb, not this page. -->"


def help_of(command: str, function: Callable[..., Any]) -> str:
    """The help of a verb as wide as the terminal; its examples can be pasted."""
    width = max(COLUMN + 20, shutil.get_terminal_size().columns)
    every = arguments_of(verb_app(command, function), described=True)
    required = [f"{one.name} {_metavar(one)}" for one in every if one.required and not _place(one)]
    places = [_place(one) if one.required else "[ARGS]" for one in every if _place(one)]
    usage = " ".join(["Usage:", command, *required, "[OPTIONS]", *places])
    parts = [textwrap.fill(usage, width, subsequent_indent="  ")]
    for paragraph in _about(function).split("\n\n"):
        parts.append(textwrap.fill(" ".join(paragraph.split()), width))
    groups = list(dict.fromkeys(group for one in every for group in one.parameter.group))
    for group in sort_groups(groups, groups)[0]:
        own = [one for one in every if group in one.parameter.group]
        parts.append("\n".join([group.name, *(line for one in own for line in _rows(one, width))]))
    parts.append("\n".join(["Examples:", *(_command(one, width) for one in examples(function))]))
    return "\n\n".join(parts)


def examples(function: Callable[..., Any]) -> list[str]:
    """The commands in the section "Examples" of a docstring."""
    _, _, after = (inspect.getdoc(function) or "").partition("\nExamples:\n")
    lines = takewhile(lambda line: not line or line.startswith(" "), after.split("\n"))
    return [line.strip() for line in lines if line]


def _about(function: Callable[..., Any]) -> str:
    """The part of a docstring before its sections."""
    text = inspect.getdoc(function) or ""
    return text.partition("\nExamples:\n")[0].partition("\nArgs:\n")[0].strip()


def _place(argument: Any) -> str:
    """The name of a positional argument; "" for an option."""
    own = argument.field_info
    return str(own.name).upper() if own.is_positional else ""


def _rows(argument: Any, width: int) -> Iterator[str]:
    """An argument and its description, in two columns."""
    default = _default(argument)
    text = f"{_description(argument)}{f' [{default}]' if default else ''}"
    label = f"  {_place(argument) or f'{argument.name} {_metavar(argument)}'.strip()}"
    if len(label) >= COLUMN - 1:
        yield label
        label = ""
    for line in textwrap.wrap(text, width - COLUMN) or [""]:
        yield f"{label:<{COLUMN}}{line}".rstrip()
        label = ""


def _description(argument: Any, *, quote: str = "") -> str:
    choices = ", ".join(f"{quote}{one}{quote}" for one in argument.get_choices() or ())
    return " ".join((argument.parameter.help or "").split()) + f" One of {choices}." * bool(choices)


def _default(argument: Any) -> str:
    own = argument.field_info.default
    is_nothing = own is None or own is False or own == () or own is argument.field_info.empty
    return "" if is_nothing else str(own)


def _metavar(argument: Any) -> str:
    """What stands for the value of an option; "" for a flag."""
    kind = number_type(argument)
    if kind is bool or argument.parameter.metavar:
        return "" if kind is bool else str(argument.parameter.metavar)
    if argument.get_choices():
        return "CHOICE"
    text = "PATH" if Path in (argument.hint, *get_args(argument.hint)) else "STR"
    return {int: "INT", float: "FLOAT"}.get(kind, text) + "..." * is_list(argument)


def _command(command: str, width: int) -> str:
    """A command on one line, or cut between arguments, with a backslash at the end of each line.

    No option is cut from its value.
    """
    if len(command) + 2 <= width:
        return f"  {command}"
    wrapper = textwrap.TextWrapper(
        width - 2,
        initial_indent="  ",
        subsequent_indent="      ",
        break_long_words=False,
        break_on_hyphens=False,
    )
    joined = re.sub(r'"[^"]*"|--\S+ (?!--)', lambda own: own[0].replace(" ", NO_BREAK), command)
    return " \\\n".join(wrapper.wrap(joined)).replace(NO_BREAK, " ")


def pages() -> dict[str, str]:
    """The text of each verb's page, by file name."""
    return {f"{name}.md": page_of(name) for name in app.names()}


def page_of(name: str) -> str:
    """The page of a verb: its help, with its arguments and options in tables."""
    function = app.function_of(name)
    every = arguments_of(verb_app(f"vestige {name}", function), described=True)
    arguments, options = [], []
    for one in every:
        text = _description(one, quote="`").replace("|", "\\|")
        if place := _place(one):
            arguments.append(f"| `{place}` | {text} |")
            continue
        default = _default(one)
        shown = f"`{default}`" if default else "required" * one.required
        options.append(f"| `{one.name}` | {text} | {shown} |")
    usage = " ".join(["vestige", name, *filter(None, map(_place, every)), "[OPTIONS]"])
    parts = [f"# vestige {name}", NOTE, f"```\n{usage}\n```", _about(function)]
    if commands := examples(function):
        parts += ["Examples:", *(f"    {line}" for line in commands)]
    if arguments:
        parts.append("\n".join(["| argument | |", "| --- | --- |", *arguments]))
    parts.append("\n".join(["| option | | default |", "| --- | --- | --- |", *options]))
    return "\n\n".join(parts) + "\n"


def main(folder: Path) -> None:
    """Write every verb's page into `folder/verbs`."""
    for name, text in pages().items():
        (folder / "verbs" / name).write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
