"""A Google docstring in its parts: help of a verb, and of each of its options."""

import inspect
import re
from dataclasses import dataclass
from functools import cache

_SECTION = re.compile(r"^(Args|Attributes|Returns|Yields|Raises|Examples?|Notes?|References):\s*$")
_ENTRY = re.compile(r"^\*{0,2}(\w+)(?: \([^)]*\))?:\s*(.*)$")


@dataclass(frozen=True)
class Docstring:
    """What a docstring says.

    Attributes:
        text: the paragraphs before the first section, the summary line among them.
        entries: sentences by name, from `Args:` or `Attributes:`.
        examples: command lines, from `Examples:`; those of Python are not among them.
    """

    text: str
    entries: dict[str, str]
    examples: tuple[str, ...]

    @property
    def summary(self) -> str:
        """Its first line, or lines up to the first empty one."""
        return " ".join(self.text.partition("\n\n")[0].split())


@cache
def docstring(owner: object) -> Docstring:
    """The docstring of a function or class, in its parts."""
    sections: dict[str, list[str]] = {"": []}
    name = ""
    for line in (inspect.getdoc(owner) or "").splitlines():
        if begun := _SECTION.match(line):
            name = begun[1]
            sections[name] = []
        else:
            sections[name].append(line)
    entries = _entries(sections.get("Args", []) + sections.get("Attributes", []))
    return Docstring("\n".join(sections[""]).strip(), entries, _examples(sections))


def _entries(lines: list[str]) -> dict[str, str]:
    found: dict[str, str] = {}
    name = ""
    for line in inspect.cleandoc("\n" + "\n".join(lines)).splitlines():
        if not line.startswith(" ") and (begun := _ENTRY.match(line)):
            name = begun[1]
            found[name] = begun[2]
        elif name:
            found[name] = f"{found[name]} {line.strip()}".strip()
    return found


def _examples(sections: dict[str, list[str]]) -> tuple[str, ...]:
    text = inspect.cleandoc("\n" + "\n".join(sections.get("Examples", [])))
    blocks = [block for block in re.split(r"\n\s*\n", text) if block.strip()]
    return tuple(block for block in blocks if not block.startswith(">>>"))
