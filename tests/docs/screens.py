"""Writes the output of the guides' commands into the guides.

    python -m tests.docs.screens [--practice FOLDER] [PAGE...]

runs the steps of each page in a copy of the practice folder and replaces the lines after each
command of a console. A screen that ends with "…" keeps its number of lines; an empty screen stays
empty.
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
    """Each command and its output, for the sections of a page that show a screen."""
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
    """The output of a command on a terminal. It may have any verdict but must not fail."""
    command = [sys.executable, "-m", "vestige", *step.words]
    environment = {**os.environ, "COLUMNS": str(WIDTH), "PYTHONPATH": os.pathsep.join(sys.path)}
    reader, terminal = pty.openpty()
    with tempfile.TemporaryFile("w+") as messages:
        process = subprocess.Popen(
            command, cwd=folder, env=environment, stdout=terminal, stderr=messages
        )
        os.close(terminal)
        output = _STYLE.sub("", b"".join(_parts(reader)).decode()).replace("\r\n", "\n")
        os.close(reader)
        print(f"[{process.wait()}] vestige {step.text}", file=sys.stderr, flush=True)
        messages.seek(0)
        assert process.returncode in (0, 1, 3), messages.read()[-2000:]
    return output


def _parts(reader: int) -> Iterator[bytes]:
    """The output of a terminal until its other end is closed."""
    with contextlib.suppress(OSError):
        while part := os.read(reader, 65536):
            yield part


def fill(page: Path, practice: Path) -> None:
    """Replace the screens of a page."""
    screens = {step.text: _as_long(output, step.screen) for step, output in printed(page, practice)}

    def filled(console: re.Match[str]) -> str:
        lines = []
        for match in _COMMAND.finditer(console[1]):
            lines += [match[0], *screens[one_line(match[0]).removeprefix("$ vestige ")]]
        return "\n".join(["```console", *lines, "```"])

    text = page.read_text(encoding="utf-8")
    page.write_text(_CONSOLE.sub(filled, text), encoding="utf-8")


def _as_long(output: str, shown: tuple[str, ...]) -> list[str]:
    """As many lines as the page shows; "…9" requests nine."""
    lines = [line.rstrip() for line in output.splitlines()]
    if not shown:
        return []
    if not shown[-1].startswith(CUT):
        return lines
    most = int(shown[-1].removeprefix(CUT) or len(shown) - 1)
    return [*lines[:most], CUT] if 0 < most < len(lines) else lines[:most]


def main() -> None:
    """Fill the given pages, or all guides, the tutorial and the README."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--practice", type=Path, help="a folder of examples/practice.py")
    parser.add_argument("pages", nargs="*", type=Path)
    arguments = parser.parse_args()
    docs = REPOSITORY / "docs"
    guides = sorted((docs / "guides").glob("*.md"))
    with contextlib.ExitStack() as stack:
        if not (practice := arguments.practice):
            root = stack.enter_context(tempfile.TemporaryDirectory())
            practice = make_practice(Path(root) / "practice")
        for page in arguments.pages or [REPOSITORY / "README.md", docs / "tutorial.md", *guides]:
            fill(page.resolve(), practice.resolve())


if __name__ == "__main__":
    main()
