"""A monitor that also records the steps of its tasks."""

from contextlib import nullcontext

import pytest

from tests.monitors import RecordingMonitor


class Listener(RecordingMonitor):
    """Records logged lines and the steps of tasks."""

    def __init__(self) -> None:
        super().__init__()
        self.steps: list[tuple[int, ...]] = []

    def progress(self, task):
        return nullcontext(lambda *numbers: self.steps.append(numbers))


@pytest.fixture
def listener() -> Listener:
    return Listener()
