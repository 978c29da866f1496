"""A monitor that keeps its messages."""

from contextlib import nullcontext


class RecordingMonitor:
    """The lines that a monitor was given, and the names of its tasks."""

    def __init__(self):
        self.lines, self.tasks = [], []

    def log(self, text):
        self.lines.append(text)

    def progress(self, task):
        self.tasks.append(task)
        return nullcontext(lambda *_: None)
