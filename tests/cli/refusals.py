"""What every refusal is: code 2, one message that says what is wrong, and nothing written."""

from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any


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
