"""The marked world, and a run of each command in it."""

import os
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.cli.conftest import shell
from tests.cli.refusals import listing
from tests.cli.shell import Done
from tests.contract import marked as world
from tests.reports.conftest import no_charts

__all__ = ["no_charts", "shell"]


@dataclass(frozen=True)
class Made:
    """A run: the command's output, where it wrote, and whether its inputs are unchanged."""

    done: Done
    out: Path
    inputs_unchanged: bool

    @property
    def folders(self) -> list[Path]:
        """Run folders in it."""
        return [path.parent for path in self.out.rglob("run.json")]


@pytest.fixture(scope="session")
def marked(tmp_path_factory, shell) -> Path:
    """A folder in which every secret has a mark; see `marked.py`."""
    root = tmp_path_factory.mktemp("marked")
    world.make(root, shell)
    return root


@pytest.fixture(scope="session")
def made(marked, tmp_path_factory, shell) -> Callable[[str], Made]:
    """Returns the run of a name in `marked.RUNS`; it is made once, with umask 0."""
    runs: dict[str, Made] = {}

    def run(name: str) -> Made:
        if name not in runs:
            line = world.RUNS[name].line
            out = tmp_path_factory.mktemp("made") / ("page.html" if "report" in line else "out")
            before, umask, folder = listing(marked), os.umask(0), Path.cwd()
            os.chdir(marked)
            try:
                done = shell(*world.filled(line, marked, out))
            finally:
                os.umask(umask)
                os.chdir(folder)
            runs[name] = Made(done, out, listing(marked) == before)
        return runs[name]

    return run
