"""A monitor for the tests of all papers that records its calls."""

from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from vestige.monitor import Step


class Listener:
    """A monitor; `lines` and `steps` are its calls in order."""

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
