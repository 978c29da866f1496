"""Writes into the guides what their commands print.

    python -m tests.docs.screens [--practice FOLDER] [PAGE...]

runs the steps of each page in a copy of the practice folder and replaces the lines under each
command of a console. A screen that ends with "…" keeps its number of lines, and one without lines
stays empty.
"""

import argparse
import contextlib
import os
import pty
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

from tests.docs.documents import REPOSITORY
from tests.docs.steps import Step, one_line, steps_of

WIDTH = 88
"""Columns of the terminal."""

CUT = "…"
_STYLE = re.compile(r"\x1b\[[0-9;]*m")
_COMMAND = re.compile(r"^\$ vestige (?:.*\\\n)*.*$", re.MULTILINE)
_CONSOLE = re.compile(r"^```console\n(.*?)^```$", re.MULTILINE | re.DOTALL)


def make_practice(folder: Path, *options: str) -> Path:
    """The practice folder, as a reader makes it."""
    program = REPOSITORY / "examples" / "practice.py"
    command = [sys.executable, "-W", "ignore", str(program), str(folder), *options]
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    return folder


def printed(page: Path, practice: Path) -> Iterator[tuple[Step, str]]:
    """Each command with what it prints, of a page's sections that show a screen; the other steps
    are taken, too."""
    with tempfile.TemporaryDirectory() as root:
        folder = shutil.copytree(practice, Path(root) / "practice")
        for section in steps_of(page).values():
            steps = [step for block in section for step in block]
            for step in steps if any(step.screen for step in steps) else ():
                if step.kind == "command":
                    yield step, run(step, folder)
                elif step.kind == "shell":
                    subprocess.run(step.words, check=True, cwd=folder)
                elif step.kind == "file":
                    (folder / step.name).write_text(step.text, encoding="utf-8")


def run(step: Step, folder: Path) -> str:
    """What a command shows on a terminal; it must do its work, whatever its verdict."""
    command = [sys.executable, "-m", "vestige", *step.words]
    environment = {**os.environ, "COLUMNS": str(WIDTH), "PYTHONPATH": os.pathsep.join(sys.path)}
    reader, terminal = pty.openpty()
    with tempfile.TemporaryFile("w+") as messages:
        started = subprocess.Popen(
            command, cwd=folder, env=environment, stdout=terminal, stderr=messages
        )
        os.close(terminal)
        shown = _STYLE.sub("", b"".join(_parts(reader)).decode()).replace("\r\n", "\n")
        os.close(reader)
        print(f"[{started.wait()}] vestige {step.text}", file=sys.stderr, flush=True)
        messages.seek(0)
        assert started.returncode in (0, 1, 3), messages.read()[-2000:]
    return shown


def _parts(reader: int) -> Iterator[bytes]:
    """What arrives from a terminal, until its other end is closed."""
    with contextlib.suppress(OSError):
        while part := os.read(reader, 65536):
            yield part


def fill(page: Path, practice: Path) -> None:
    """Replace the screens of a page."""
    screens = {step.text: _as_long(output, step.screen) for step, output in printed(page, practice)}

    def filled(console: re.Match[str]) -> str:
        commands = [one[0] for one in _COMMAND.finditer(console[1])]
        lines = [line for one in commands for line in (one, *screens[_plain(one)])]
        return "\n".join(["```console", *lines, "```"])

    text = page.read_text(encoding="utf-8")
    page.write_text(_CONSOLE.sub(filled, text), encoding="utf-8")


def _plain(command: str) -> str:
    return one_line(command).removeprefix("$ vestige ")


def _as_long(output: str, shown: tuple[str, ...]) -> list[str]:
    """As many lines as are shown: "…9" asks for nine at first."""
    lines = [line.rstrip() for line in output.splitlines()]
    if not shown:
        return []
    if not shown[-1].startswith(CUT):
        return lines
    most = int(shown[-1].removeprefix(CUT) or len(shown) - 1)
    return [*lines[:most], CUT] if 0 < most < len(lines) else lines[:most]


def main() -> None:
    """Fill the pages that are named, or all guides, the tutorial and the README."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--practice", type=Path, help="a folder of examples/practice.py")
    parser.add_argument("pages", nargs="*", type=Path)
    given = parser.parse_args()
    docs = REPOSITORY / "docs"
    every = [
        REPOSITORY / "README.md",
        docs / "tutorial.md",
        *sorted((docs / "guides").glob("*.md")),
    ]
    with contextlib.ExitStack() as stack:
        if not (practice := given.practice):
            root = stack.enter_context(tempfile.TemporaryDirectory())
            practice = make_practice(Path(root) / "practice")
        for page in given.pages or every:
            fill(page.resolve(), practice.resolve())


if __name__ == "__main__":
    main()
