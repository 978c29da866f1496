"""The other end of `zygote.py`: run a command line, and get what became of it."""

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
    """What became of a command line.

    Attributes:
        code: exit code; -1 where a signal ended it.
        signal: the signal, or 0.
        cpu, wall: seconds.
        memory: bytes at the highest, beyond what all commands share.
        late: why it was ended from outside; "" if it was not.
        opened: files that Python opened.
        stdout, stderr: their first mebibyte.
    """

    code: int
    signal: int
    cpu: float
    wall: float
    memory: int
    late: str
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
            words: what stands after `vestige`.
            folder: see `prepared`.
            seconds: of processor, or of waiting.
            learn: import what it imported, for those that come later.
        """
        asked = {"words": words, "folder": str(folder), "seconds": seconds, "learn": learn}
        assert self._zygote.stdin is not None
        print(json.dumps(asked), file=self._zygote.stdin, flush=True)
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
        answer = json.loads(line)
        return answer


def prepared(folder: Path) -> Path:
    """The folder, made anew with what a child needs."""
    if folder.exists():
        remove(folder)
    for name in ("cwd", "tmp", "home"):
        (folder / name).mkdir(parents=True)
    return folder


def remove(folder: Path) -> None:
    """The folder is gone, whatever its rights."""
    for path, _, _ in os.walk(folder):
        os.chmod(path, 0o700)
    shutil.rmtree(folder)


def _text(path: Path) -> str:
    """What a child wrote; bytes that are no text become lone surrogates, to be found by."""
    with path.open("rb") as file:
        return file.read(SHOWN).decode("utf-8", "surrogateescape")
