"""What a reader does with a document, step by step, and what it says that the screen then shows."""

import re
import shlex
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from tests.docs.documents import REPOSITORY, Block, blocks, documents

_EXAMPLE = re.compile(r"^    (vestige [^\n]*(?:\n {4,}(?!vestige)[^\n]+)*)", re.MULTILINE)
"""An example of a verb's page; a long one goes on in the next line."""

_FILE = re.compile(r"# ([\w-]+\.(?:yaml|toml))\n")


@dataclass(frozen=True)
class Step:
    """One step.

    Attributes:
        kind: a command of `vestige`, another one of the shell, a program in Python, or a file that
            the reader writes.
        text: the command (without `vestige`), the program, or the file's text.
        name: of the file.
        screen: printed lines under a command of a console.
    """

    kind: Literal["command", "shell", "python", "file"]
    text: str
    name: str = ""
    screen: tuple[str, ...] = ()

    @property
    def words(self) -> list[str]:
        """The words of a command."""
        return shlex.split(self.text, comments=True)

    @property
    def out(self) -> Path | None:
        """What a command writes."""
        words = self.words
        return Path(words[words.index("--out") + 1]) if "--out" in words else None


def steps_of(path: Path) -> dict[str, list[list[Step]]]:
    """The steps of a document, block by block; README by section, whose sections stand alone."""
    document = path.relative_to(REPOSITORY).as_posix()
    if path.parent.name == "verbs":
        examples = _EXAMPLE.findall(path.read_text(encoding="utf-8"))
        return {document: [[_command(" ".join(one.split()))] for one in examples]}
    found: dict[str, list[list[Step]]] = {}
    for block in blocks(path):
        name = f"{document}: {block.section}" if document == "README.md" else document
        if steps := list(_steps(block)):
            found.setdefault(name, []).append(steps)
    return found


def one_line(text: str) -> str:
    """A text whose commands are not continued on the next line."""
    return re.sub(r" \\\n +", " ", text)


def _steps(block: Block) -> Iterator[Step]:
    if block.language == "python":
        yield Step("python", block.text)
    elif block.language in ("yaml", "toml"):
        if named := _FILE.match(block.text):
            yield Step("file", block.text, named[1])
    elif block.language == "console":
        for part in re.split(r"^\$ ", one_line(block.text), flags=re.MULTILINE)[1:]:
            command, *screen = part.splitlines()
            yield _command(command, tuple(screen))
    else:
        for line in one_line(block.text).splitlines():
            if line.startswith("vestige "):
                yield _command(line)
            elif line.startswith(("mkdir ", "cp ")):
                yield Step("shell", line)


def _command(line: str, screen: tuple[str, ...] = ()) -> Step:
    return Step("command", line.removeprefix("vestige "), screen=screen)


STEPS = {name: found for path in documents() for name, found in steps_of(path).items()}
