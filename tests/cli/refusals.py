"""Assert that a command is refused: exit code 2, one message, and no files."""

import re
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import pytest


def listing(root: Path, *, locks: bool = False) -> dict[Path, Any]:
    """Size and time of files and folders; with `locks`, only the names of folders."""
    return {
        p: (p.stat().st_size, p.stat().st_mtime_ns) if p.is_file() or not locks else None
        for p in sorted(root.rglob("*"))
    }


def refused(
    shell: Any, words: Iterable[object], *fragments: str, unchanged: Callable[[], object]
) -> None:
    """Run a command that is refused with a message that contains all fragments."""
    before = unchanged()
    done = shell(*words)
    message = " ".join(done.stderr.replace("│", " ").split())
    assert done.exit_code == 2, (done.stdout, done.stderr, done.exception)
    for fragment in fragments:
        assert fragment in message
    assert "Traceback" not in message
    assert done.stdout == ""
    assert unchanged() == before


def table(name: str) -> list[Any]:
    """Rows of `refused/NAME.txt`: a command line and fragments of its message, split by " | ".

    A line `NAME = words` defines an abbreviation for the lines below it; # begins a comment.
    """
    abbreviations: dict[str, str] = {}
    rows = []
    for line in (Path(__file__).with_name("refused") / f"{name}.txt").read_text().splitlines():
        if definition := re.fullmatch(r"([A-Z]+) = (.*)", line):
            abbreviations[definition[1]] = definition[2]
        elif line and not line.startswith("#"):
            words, *fragments = line.split(" | ")
            while abbreviations.keys() & set(words.split(" ")):
                words = " ".join(abbreviations.get(word, word) for word in words.split(" "))
            rows.append(pytest.param(words, fragments, id=line.partition(" | ")[0][:90]))
    return rows
