"""Run the command line in this process and capture its output."""

import contextlib
import io
from collections.abc import Sequence
from dataclasses import dataclass

from vestige.cli import app


@dataclass(frozen=True)
class Done:
    """Exit code and output of a command; `exception` is that of a bug, or None."""

    exit_code: int
    stdout: str
    stderr: str
    exception: BaseException | None = None

    @property
    def finished(self) -> bool:
        """Whether the command completed; codes 1 and 3 are verdicts."""
        return self.exception is None and self.exit_code in (0, 1, 3)

    @property
    def output(self) -> str:
        """stdout, then stderr."""
        return self.stdout + self.stderr


def invoke(words: Sequence[object]) -> Done:
    """Run `vestige` with some words."""
    streams = [io.TextIOWrapper(io.BytesIO(), "utf-8", write_through=True) for _ in range(2)]
    stdout, stderr = streams
    exception: BaseException | None = None
    with contextlib.redirect_stdout(stdout), contextlib.redirect_stderr(stderr):
        try:
            code = app.run([str(word) for word in words])
        except Exception as error:
            code, exception = app.BUG, error
    texts = [stream.buffer.getvalue().decode() for stream in streams]
    return Done(code, *texts, exception)
