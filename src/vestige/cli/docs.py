"""The pages about the verbs, written from the verbs: `python -m vestige.cli.docs docs`.

A test compares the pages with what this module would write, so that they cannot go stale.
"""

import inspect
import re
import sys
from pathlib import Path
from typing import Any

from vestige.cli import app

NOTE = "<!-- Written by `make docs` from the verb's own help; edit the verb, not this page. -->"

_ARGUMENT = re.compile(r"^    (\w+): (.*(?:\n {8}.*)*)$", re.MULTILINE)
"""An argument in a docstring, with the lines that continue it."""


def pages() -> dict[str, str]:
    """The text of each verb's page, by file name."""
    return {f"{name}.md": page_of(name) for name in (*app.places(), *app.HIDDEN)}


def write(folder: Path) -> None:
    """Write every verb's page into `folder/verbs`."""
    verbs = folder / "verbs"
    verbs.mkdir(parents=True, exist_ok=True)
    for name, text in pages().items():
        (verbs / name).write_text(text, encoding="utf-8")


def page_of(name: str) -> str:
    """The page of a verb: its help, with its arguments and options in tables."""
    function = app.function_of(name)
    text = inspect.getdoc(function) or ""
    about, _, rest = text.partition("\nExamples:\n")
    described = dict(_ARGUMENT.findall(rest.partition("\nArgs:\n")[2]))
    arguments, options = [], []
    for one in app.verb_app(name, function).assemble_argument_collection(parse_docstring=True):
        own = one.field_info
        if one.names[:1] == ("*",):  # options that several verbs share; each has its own row
            continue
        words = described.get(own.name) or one.parameter.help or ""
        choices = one.get_choices() or ()
        among = f" One of {', '.join(f'`{choice}`' for choice in choices)}." if choices else ""
        told = _cell(" ".join(words.split()) + among)
        if own.is_positional:
            arguments.append(f"| `{own.name.upper()}` | {told} |")
        else:
            options.append(f"| `{one.names[0]}` | {told} | {_default_of(own)} |")
    examples = [line.strip() for line in app.examples(function).split("\n")[1:]]
    usage = " ".join(["vestige", name, *(row.split("`")[1] for row in arguments), "[OPTIONS]"])
    parts = [f"# vestige {name}", NOTE, f"```\n{usage}\n```", about.split("\nArgs:\n")[0].strip()]
    if examples:
        parts += ["Examples:", *(f"    {line}" for line in examples)]
    if arguments:
        parts.append("\n".join(["| argument | |", "| --- | --- |", *arguments]))
    parts.append("\n".join(["| option | | default |", "| --- | --- | --- |", *options]))
    return "\n\n".join(parts) + "\n"


def _default_of(field: Any) -> str:
    if field.default is field.empty:
        return "required"
    nothing = field.default is None or field.default is False or field.default == ()
    return "" if nothing else f"`{field.default}`"


def _cell(text: str) -> str:
    return text.replace("|", "\\|")


if __name__ == "__main__":
    write(Path(sys.argv[1]))
