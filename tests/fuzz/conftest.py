"""One bench for all tests of this folder."""

import sys
from collections.abc import Iterator

import pytest

from tests.fuzz.cases import Bench
from tests.fuzz.sandbox import Sandbox
from tests.fuzz.world import make_world


@pytest.fixture(scope="session")
def bench(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Bench]:
    """A sandbox with all modules imported, and a world in it."""
    if not sys.platform.startswith("linux"):
        pytest.skip("cases run in child processes with limits of Linux")
    sandbox = Sandbox(tmp_path_factory.mktemp("fuzz"))
    try:
        yield Bench(sandbox, make_world(sandbox))
    finally:
        sandbox.close()
