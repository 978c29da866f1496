"""The help of a verb as plain text for a terminal, and as a page of the documentation.

`python -m vestige.cli.help docs` writes the pages; a test checks that they are up to date.
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
"""Column where descriptions begin."""

NO_BREAK = "\u00a0"
"""A space at which lines are not wrapped."""

NOTE = "<!-- Written by `make docs` from the verb's own help; edit the verb, not this page. -->"


def help_of(command: str, function: Callable[..., Any]) -> str:
    """The help of a verb, as wide as the terminal."""
    width = max(COLUMN + 20, shutil.get_terminal_size().columns)
    arguments = arguments_of(verb_app(command, function), described=True)
    usage = textwrap.fill(_usage(command, arguments), width, subsequent_indent="  ")
    paragraphs = [
        textwrap.fill(" ".join(paragraph.split()), width)
        for paragraph in _introduction(function).split("\n\n")
    ]
    groups = dict.fromkeys(group for argument in arguments for group in argument.parameter.group)
    sections = []
    for group in sort_groups(list(groups), list(groups))[0]:
        members = [argument for argument in arguments if group in argument.parameter.group]
        lines = [line for argument in members for line in _option_lines(argument, width)]
        sections.append("\n".join([group.name, *lines]))
    commands = [_wrapped_command(example, width) for example in examples(function)]
    return "\n\n".join([usage, *paragraphs, *sections, "\n".join(["Examples:", *commands])])


def _usage(command: str, arguments: list[Any]) -> str:
    options, positionals = [], []
    for argument in arguments:
        if name := _positional_name(argument):
            positionals.append(name if argument.required else "[ARGS]")
        elif argument.required:
            options.append(f"{argument.name} {_metavar(argument)}")
    return " ".join(["Usage:", command, *options, "[OPTIONS]", *positionals])


def examples(function: Callable[..., Any]) -> list[str]:
    """The commands in the section "Examples" of a docstring."""
    _, _, after = (inspect.getdoc(function) or "").partition("\nExamples:\n")
    lines = takewhile(lambda line: not line or line.startswith(" "), after.split("\n"))
    return [line.strip() for line in lines if line]


def _introduction(function: Callable[..., Any]) -> str:
    """The docstring before its sections."""
    text = inspect.getdoc(function) or ""
    return text.partition("\nExamples:\n")[0].partition("\nArgs:\n")[0].strip()


def _positional_name(argument: Any) -> str:
    """The name of a positional argument; "" for an option."""
    field = argument.field_info
    return str(field.name).upper() if field.is_positional else ""


def _option_lines(argument: Any, width: int) -> Iterator[str]:
    """An argument and its description, in two columns."""
    default = _default(argument)
    text = f"{_description(argument)}{f' [{default}]' if default else ''}"
    label = f"  {_positional_name(argument) or f'{argument.name} {_metavar(argument)}'.strip()}"
    if len(label) >= COLUMN - 1:
        yield label
        label = ""
    for line in textwrap.wrap(text, width - COLUMN) or [""]:
        yield f"{label:<{COLUMN}}{line}".rstrip()
        label = ""


def _description(argument: Any, *, quote: str = "") -> str:
    choices = ", ".join(f"{quote}{choice}{quote}" for choice in argument.get_choices() or ())
    return " ".join((argument.parameter.help or "").split()) + f" One of {choices}." * bool(choices)


def _default(argument: Any) -> str:
    default = argument.field_info.default
    is_empty = (
        default is None or default is False or default == () or default is argument.field_info.empty
    )
    return "" if is_empty else str(default)


def _metavar(argument: Any) -> str:
    """Placeholder for the value of an option; "" for a flag."""
    kind = number_type(argument)
    if kind is bool or argument.parameter.metavar:
        return "" if kind is bool else str(argument.parameter.metavar)
    if argument.get_choices():
        return "CHOICE"
    text = "PATH" if Path in (argument.hint, *get_args(argument.hint)) else "STR"
    return {int: "INT", float: "FLOAT"}.get(kind, text) + "..." * is_list(argument)


def _wrapped_command(command: str, width: int) -> str:
    """A command on one line, or on several with backslashes; an option stays with its value."""
    if len(command) + 2 <= width:
        return f"  {command}"
    wrapper = textwrap.TextWrapper(
        width - 2,
        initial_indent="  ",
        subsequent_indent="      ",
        break_long_words=False,
        break_on_hyphens=False,
    )
    joined = re.sub(r'"[^"]*"|--\S+ (?!--)', lambda match: match[0].replace(" ", NO_BREAK), command)
    return " \\\n".join(wrapper.wrap(joined)).replace(NO_BREAK, " ")


def pages() -> dict[str, str]:
    """The text of each verb's page, by file name."""
    return {f"{name}.md": page_of(name) for name in app.names()}


def page_of(name: str) -> str:
    """The page of a verb: its help with tables of arguments and options."""
    function = app.function_of(name)
    arguments = arguments_of(verb_app(f"vestige {name}", function), described=True)
    positional_rows, option_rows = [], []
    for argument in arguments:
        text = _description(argument, quote="`").replace("|", "\\|")
        if positional := _positional_name(argument):
            positional_rows.append(f"| `{positional}` | {text} |")
            continue
        default = _default(argument)
        default_cell = f"`{default}`" if default else "required" * argument.required
        option_rows.append(f"| `{argument.name}` | {text} | {default_cell} |")
    positionals = filter(None, map(_positional_name, arguments))
    usage = " ".join(["vestige", name, *positionals, "[OPTIONS]"])
    parts = [f"# vestige {name}", NOTE, f"```\n{usage}\n```", _introduction(function)]
    if commands := examples(function):
        parts += ["Examples:", *(f"    {line}" for line in commands)]
    if positional_rows:
        parts.append("\n".join(["| argument | |", "| --- | --- |", *positional_rows]))
    parts.append("\n".join(["| option | | default |", "| --- | --- | --- |", *option_rows]))
    return "\n\n".join(parts) + "\n"


def main(folder: Path) -> None:
    """Write every verb's page into `folder/verbs`."""
    for name, text in pages().items():
        (folder / "verbs" / name).write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
