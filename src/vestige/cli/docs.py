"""The pages about the verbs, written from the verbs: `python -m vestige.cli.docs docs`.

A test compares the pages with what this module would write, so that they cannot go stale.
"""

import inspect
import sys
from collections.abc import Iterator
from enum import Enum
from pathlib import Path
from typing import Any, Literal, get_args, get_origin

import typer

from vestige.cli.main import VERBS, app

NOTE = "<!-- Written by `make docs` from src/vestige/cli; edit the verb, not this page. -->"


def pages() -> dict[str, str]:
    """The text of each verb's page, by file name."""
    group: Any = typer.main.get_command(app)
    return {f"{verb}.md": _page(verb, group.get_command(None, verb)) for verb in VERBS}


def write(folder: Path) -> None:
    """Write every verb's page into `folder/verbs`."""
    verbs = folder / "verbs"
    verbs.mkdir(parents=True, exist_ok=True)
    for name, text in pages().items():
        (verbs / name).write_text(text, encoding="utf-8")


def _page(verb: str, command: Any) -> str:
    arguments = [p for p in command.params if p.param_type_name == "argument"]
    chosen = [p for p in command.params if p.param_type_name == "option" and not p.hidden]
    usage = " ".join(["vestige", verb, *(_metavar(p) for p in arguments), "[OPTIONS]"])
    parts = [f"# vestige {verb}", NOTE, f"```\n{usage}\n```", inspect.cleandoc(command.help)]
    if arguments:
        parts.append("\n".join(["| argument | |", "| --- | --- |", *map(_argument, arguments)]))
    parts.append("\n".join(_options(chosen)))
    return "\n\n".join(parts) + "\n"


def _options(options: list[Any]) -> Iterator[str]:
    yield "| option | | default |"
    yield "| --- | --- | --- |"
    for option in options:
        names = ", ".join(f"`{name}`" for name in option.opts)
        choices = _choices(option.type_descriptor.annotation)
        among = "; one of " + ", ".join(f"`{c}`" for c in choices) if choices else ""
        yield f"| {names} | {_cell(option.help)[:-1]}{_cell(among)}. | {_default(option)} |"


def _choices(annotation: Any) -> list[str]:
    """The words that an option accepts, where there are only so many."""
    if get_origin(annotation) is list:
        [annotation] = get_args(annotation)
    if isinstance(annotation, type) and issubclass(annotation, Enum):
        return [str(member.value) for member in annotation]
    if get_origin(annotation) is Literal:
        return [str(choice) for choice in get_args(annotation)]
    return []


def _argument(argument: Any) -> str:
    return f"| `{_metavar(argument)}` | {_cell(argument.help)} |"


def _metavar(argument: Any) -> str:
    return str(argument.metavar or argument.name.upper())


def _default(option: Any) -> str:
    if option.required:
        return "required"
    if option.default is None or option.default is False or option.default == []:
        return ""
    return f"`{option.default}`"


def _cell(text: str) -> str:
    return text.replace("|", "\\|")


if __name__ == "__main__":
    write(Path(sys.argv[1]))
