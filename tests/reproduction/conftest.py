"""What the tests of all papers share: a monitor that remembers what it was told."""

from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from vestige.monitor import Step


class Listener:
    """A monitor; `lines` and `steps` are what it was told, in order."""

    def __init__(self) -> None:
        self.lines: list[str] = []
        self.steps: list[tuple[int, ...]] = []

    def log(self, text: str) -> None:
        self.lines.append(text)

    @contextmanager
    def progress(self, task: str) -> Iterator[Step]:
        yield lambda *numbers: self.steps.append(numbers)


@pytest.fixture
def listener() -> Listener:
    return Listener()
