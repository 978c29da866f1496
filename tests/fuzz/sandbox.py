"""Run command lines in children of `zygote.py`."""

import json
import os
import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[2]
SHOWN = 2**20
"""Bytes of an output that are read."""
ENVIRONMENT = {
    "OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1", "MKL_NUM_THREADS": "1",
    "TOKENIZERS_PARALLELISM": "false", "HF_HUB_OFFLINE": "1", "HF_DATASETS_OFFLINE": "1",
    "HF_HUB_DISABLE_PROGRESS_BARS": "1", "PYTHONHASHSEED": "0", "PYTHONDONTWRITEBYTECODE": "1",
}  # fmt: skip


@dataclass(frozen=True, kw_only=True)
class Outcome:
    """The outcome of a command line.

    Attributes:
        code: exit code; -1 after a signal.
        signal: the signal, or 0.
        cpu, wall: seconds.
        memory: peak bytes beyond the zygote's.
        timeout: why the sandbox ended it; "" if it did not.
        opened: files that Python opened.
        stdout, stderr: their first mebibyte.
    """

    code: int
    signal: int
    cpu: float
    wall: float
    memory: int
    timeout: str
    opened: list[str]
    stdout: str
    stderr: str


class Sandbox:
    """A zygote, and folders for its children below `root`."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self._log = (root / "zygote.log").open("w")
        self._zygote = subprocess.Popen(
            [sys.executable, "-m", "tests.fuzz.zygote"],
            cwd=ROOT,
            env={**os.environ, **ENVIRONMENT},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._log,
            text=True,
        )
        self._answer()

    def run(
        self, words: list[str], folder: Path, *, seconds: float = 20.0, learn: bool = False
    ) -> Outcome:
        """A command line in a folder that has cwd, tmp and home.

        Args:
            words: the words after `vestige`.
            folder: see `prepared`.
            seconds: of processor time, or of waiting.
            learn: import the modules that it imported, for later commands.
        """
        request = {"words": words, "folder": str(folder), "seconds": seconds, "learn": learn}
        assert self._zygote.stdin is not None
        print(json.dumps(request), file=self._zygote.stdin, flush=True)
        return Outcome(
            **self._answer(), stdout=_text(folder / "stdout"), stderr=_text(folder / "stderr")
        )

    def close(self) -> None:
        """End the zygote."""
        assert self._zygote.stdin is not None
        assert self._zygote.stdout is not None
        self._zygote.stdin.close()
        self._zygote.wait(60)
        self._zygote.stdout.close()
        self._log.close()

    def _answer(self) -> dict[str, object]:
        assert self._zygote.stdout is not None
        line = self._zygote.stdout.readline()
        assert line, f"the zygote died: {(self.root / 'zygote.log').read_text()[-2000:]}"
        return dict(json.loads(line))


def prepared(folder: Path) -> Path:
    """A new folder with the subfolders of a child process."""
    if folder.exists():
        remove(folder)
    for name in ("cwd", "tmp", "home"):
        (folder / name).mkdir(parents=True)
    return folder


def remove(folder: Path) -> None:
    """Remove a folder whatever its modes."""
    for path, _, _ in os.walk(folder):
        os.chmod(path, 0o700)
    shutil.rmtree(folder)


def _text(path: Path) -> str:
    """Output of a child; invalid bytes become lone surrogates."""
    with path.open("rb") as file:
        return file.read(SHOWN).decode("utf-8", "surrogateescape")
