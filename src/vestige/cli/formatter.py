"""Help as plain text: an option, its value, and what it does, in two columns.

No boxes, so that examples can be pasted; wrapped at the width of the terminal.
"""

import io
import textwrap
from typing import Any

from rich.console import Console

COLUMN = 22
"""Where descriptions begin."""


class Formatter:
    """A help formatter of cyclopts."""

    def __call__(self, console: Any, options: Any, panel: Any) -> None:
        """Print one group of options or commands."""
        if not panel.entries or panel.format == "command":
            return
        lines = [f"{panel.title}"] if panel.title else []
        for entry in panel.entries:
            lines += _entry(_label(entry), _description(entry), console.width)
        _print(console, "\n".join(lines) + "\n")

    def render_usage(self, console: Any, options: Any, usage: Any) -> None:
        """Print the line of usage."""
        line = f"Usage: {str(usage).removeprefix('Usage: ').strip()}"
        _print(console, f"{textwrap.fill(line, console.width, subsequent_indent='  ')}\n")

    def render_description(self, console: Any, options: Any, description: Any) -> None:
        """Print the paragraphs above or below the options."""
        for paragraph in _plain(description).split("\n\n"):
            _print(console, f"{_paragraph(paragraph, console.width)}\n")


def _paragraph(text: str, width: int) -> str:
    """A paragraph, wrapped; indented lines are commands, which can be pasted."""
    lines = text.split("\n")
    if any(line.startswith("  ") for line in lines):
        return "\n".join(_command(line, width) for line in lines)
    return textwrap.fill(" ".join(text.split()), width)


def _command(line: str, width: int) -> str:
    """A command, cut between words: each line but the last ends with a backslash."""
    cut = textwrap.wrap(
        line,
        width - 2,
        subsequent_indent="      ",
        break_long_words=False,
        break_on_hyphens=False,
        drop_whitespace=True,
    )
    return " \\\n".join(cut) if cut else line


def _label(entry: Any) -> str:
    """The name of an argument, or an option with its value."""
    if entry.positional_label:
        return str(entry.positional_label)
    value = f" {entry.metavar}" if entry.metavar else ""
    return f"{', '.join(entry.all_options)}{value}"


def _description(entry: Any) -> str:
    parts = [_plain(entry.description)]
    if entry.choices:
        parts.append(f"One of {', '.join(entry.choices)}.")
    if entry.default not in (None, "", "()", "False", "None"):
        parts.append(f"[{entry.default}]")
    return " ".join(filter(None, parts))


def _plain(text: Any) -> str:
    """The text of what cyclopts made of a docstring."""
    if text is None:
        return ""
    console = Console(file=io.StringIO(), width=100_000, highlight=False, markup=False)
    console.print(text, end="")
    written: str = console.file.getvalue()  # type: ignore[attr-defined]
    return written.strip()


def _entry(label: str, description: str, width: int) -> list[str]:
    wrapped = textwrap.wrap(description, max(20, width - COLUMN - 2)) or [""]
    first = f"  {label}"
    lines = [first] if len(first) >= COLUMN + 1 else []
    begin = "" if lines else first
    for line in wrapped:
        lines.append(f"{begin:<{COLUMN + 2}}{line}".rstrip())
        begin = ""
    return lines


def _print(console: Any, text: str) -> None:
    console.print(text, highlight=False, markup=False, soft_wrap=True)
