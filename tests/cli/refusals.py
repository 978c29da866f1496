"""A refusal has exit code 2 and one message with the problem, and writes no files."""

import re
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import pytest


def listing(root: Path, *, locks: bool = False) -> dict[Path, Any]:
    """Files with size and time, and folders with theirs; by name alone if locks pass through."""
    found = sorted(root.rglob("*"))
    return {
        p: (p.stat().st_size, p.stat().st_mtime_ns) if p.is_file() or not locks else None
        for p in found
    }


def refused(
    shell: Any, words: Iterable[object], *says: str, unchanged: Callable[[], object]
) -> None:
    """Run a command that is refused with a message that holds all of `says`."""
    before = unchanged()
    done = shell(*words)
    message = " ".join(done.stderr.replace("│", " ").split())
    assert done.exit_code == 2, (done.stdout, done.stderr, done.exception)
    for each in says:
        assert each in message
    assert "Traceback" not in message
    assert done.stdout == ""
    assert unchanged() == before


def table(name: str) -> list[Any]:
    """Rows of `refused/NAME.txt`: a command line, and what its message says, with " | " between.

    A line `NAME = words` says what NAME stands for in those below it; # begins a comment.
    """
    short: dict[str, str] = {}
    rows = []
    for line in (Path(__file__).with_name("refused") / f"{name}.txt").read_text().splitlines():
        if found := re.fullmatch(r"([A-Z]+) = (.*)", line):
            short[found[1]] = found[2]
        elif line and not line.startswith("#"):
            words, *says = line.split(" | ")
            while short.keys() & set(words.split(" ")):
                words = " ".join(short.get(word, word) for word in words.split(" "))
            rows.append(pytest.param(words, says, id=line.partition(" | ")[0][:90]))
    return rows
