"""The steps of a document: its commands, programs and files, and the printed output."""

import re
import shlex
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from tests.docs.documents import REPOSITORY, Block, blocks, documents

_EXAMPLE = re.compile(r"^    (vestige [^\n]*(?:\n {4,}(?!vestige)[^\n]+)*)", re.MULTILINE)
"""An example on a verb's page; long ones continue on the next line."""

_FILE = re.compile(r"# ([\w-]+\.(?:yaml|toml))\n")


@dataclass(frozen=True)
class Step:
    """One step.

    Attributes:
        kind: a `vestige` command, another shell command, a Python program, or a file to write.
        text: the command (without `vestige`), the program, or the text of the file.
        name: the name of the file.
        screen: lines printed after a command in a console.
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
        """The output of a command."""
        words = self.words
        return Path(words[words.index("--out") + 1]) if "--out" in words else None


def steps_of(path: Path) -> dict[str, list[list[Step]]]:
    """The steps of a document by block. The sections of the README are independent documents."""
    document = path.relative_to(REPOSITORY).as_posix()
    if path.parent.name == "verbs":
        examples = _EXAMPLE.findall(path.read_text(encoding="utf-8"))
        return {document: [[_command(" ".join(example.split()))] for example in examples]}
    result: dict[str, list[list[Step]]] = {}
    for block in blocks(path):
        name = f"{document}: {block.section}" if document == "README.md" else document
        if steps := list(_steps(block)):
            result.setdefault(name, []).append(steps)
    return result


def one_line(text: str) -> str:
    """The text with each command on one line."""
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


STEPS = {name: steps for path in documents() for name, steps in steps_of(path).items()}
