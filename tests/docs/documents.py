"""The code blocks of the documents, with their positions."""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

REPOSITORY = Path(__file__).parents[2]
_FENCE = re.compile(r"^( *)```([\w-]*)[^\n]*\n(.*?)^\1```$", re.MULTILINE | re.DOTALL)


@dataclass(frozen=True)
class Block:
    """A fenced block with its document, section, first line, language (or "") and text."""

    document: str
    section: str
    line: int
    language: str
    text: str


def documents() -> list[Path]:
    """All documents for readers, in order."""
    names = ("README.md", "ARCHITECTURE.md", "CONTRIBUTING.md")
    return [REPOSITORY / name for name in names] + sorted((REPOSITORY / "docs").rglob("*.md"))


def blocks(path: Path) -> Iterator[Block]:
    """The fenced blocks of a document, in order."""
    text = path.read_text(encoding="utf-8")
    name = path.relative_to(REPOSITORY).as_posix()
    for match in _FENCE.finditer(text):
        indent, language, body = match.groups()
        line = text.count("\n", 0, match.start()) + 2
        section = (["", *re.findall(r"^## (.*)", text[: match.start()], re.MULTILINE)])[-1]
        lines = [part.removeprefix(indent) for part in body.splitlines(keepends=True)]
        yield Block(name, section, line, language, "".join(lines))


def without_code(text: str) -> str:
    """A document without its code, which has no links."""
    return re.sub(r"`[^`\n]*`", "", _FENCE.sub("", text))
