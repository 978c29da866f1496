"""A call of `train`, a monitor that keeps what it receives, and lines to train on."""

from contextlib import nullcontext

from vestige.data.corpus import Corpus
from vestige.session import Session

LINES = [f"line {number} of the text" for number in range(40)]
CORPUS = Corpus.from_texts(LINES)


class Told:
    """What a monitor received: its lines, and the names of its tasks."""

    def __init__(self):
        self.lines, self.tasks = [], []

    def log(self, text):
        self.lines.append(text)

    def progress(self, task):
        self.tasks.append(task)
        return nullcontext(lambda *_: None)


def job(out, *, seed=0, start=None, data=CORPUS, validation=None):
    """A call of `train` that begins in `out`, on the CPU."""
    given = {"out": out, "resume": False, "from_": start, "data": data, "validation": validation}
    return Session("train", given, seed=seed, device="cpu", monitor=Told())
