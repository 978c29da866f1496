"""The blocks of code that our documents hold, and where each stands."""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

REPOSITORY = Path(__file__).parents[2]
_FENCE = re.compile(r"^( *)```([\w-]*)[^\n]*\n(.*?)^\1```$", re.MULTILINE | re.DOTALL)


@dataclass(frozen=True)
class Block:
    """One fenced block: its document, section, language ("" for none), text and first line."""

    document: str
    section: str
    line: int
    language: str
    text: str


def documents() -> list[Path]:
    """Every document for readers, in order."""
    own = [REPOSITORY / name for name in ("README.md", "ARCHITECTURE.md", "CONTRIBUTING.md")]
    return own + sorted((REPOSITORY / "docs").rglob("*.md"))


def blocks(path: Path) -> Iterator[Block]:
    """The fenced blocks of a document, in order."""
    text = path.read_text(encoding="utf-8")
    name = path.relative_to(REPOSITORY).as_posix()
    for match in _FENCE.finditer(text):
        indent, language, body = match.groups()
        line = text.count("\n", 0, match.start()) + 2
        section = (["", *re.findall(r"^## (.*)", text[: match.start()], re.MULTILINE)])[-1]
        yield Block(
            name,
            section,
            line,
            language,
            "".join(part.removeprefix(indent) for part in body.splitlines(keepends=True)),
        )


def without_code(text: str) -> str:
    """A document without its blocks and spans of code, in which nothing is a link."""
    return re.sub(r"`[^`\n]*`", "", _FENCE.sub("", text))
