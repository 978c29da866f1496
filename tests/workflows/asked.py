"""A monitor that keeps what it is told."""

from contextlib import nullcontext

from tests.integrations.stories import sentences as sentences


class Told:
    """What a monitor was told: its lines, and the names of its tasks."""

    def __init__(self):
        self.lines, self.tasks = [], []

    def log(self, text):
        self.lines.append(text)

    def progress(self, task):
        self.tasks.append(task)
        return nullcontext(lambda *_: None)
