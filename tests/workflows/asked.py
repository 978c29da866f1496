"""A request for a training, a monitor that keeps what it is told, and stories to train on."""

from contextlib import nullcontext

import numpy as np

from vestige.data.corpus import Corpus
from vestige.defences.registry import NoDefence
from vestige.workflows.arguments import Call
from vestige.workflows.train import TrainingRequest, train
from vestige.workflows.training_settings import ModelSettings, NluSettings, TrainingSettings

LINES = [f"line {number} of the text" for number in range(40)]


class Told:
    """What a monitor was told: its lines, and the names of its tasks."""

    def __init__(self):
        self.lines, self.tasks = [], []

    def log(self, text):
        self.lines.append(text)

    def progress(self, task):
        self.tasks.append(task)
        return nullcontext(lambda *_: None)


def request(out, **given):
    """A request for a training into `out`, of forty lines of text unless another is given."""
    usual = {
        "monitor": Told(), "data": Corpus.from_texts(LINES),
        "task": "text", "start": None, "resume": False, "preset": None,
        "model": ModelSettings(), "training": TrainingSettings(), "defence": None,
        "nlu": NluSettings(), "validation": None, "hold_out": None, "seed": 0, "device": "cpu",
        "format": "auto", "text": "text", "user": None, "max_documents_per_user": None,
        "source": None, "tokens_column": "tokens", "tags_column": "tags",
        "intent_column": "intent", "limit": None,
    }  # fmt: skip
    arguments = {**usual, **given, "out": out}
    call = Call.of(train, {**arguments, "seeds": 1})
    return TrainingRequest(
        **{**arguments, "call": call, "defence": arguments["defence"] or NoDefence()}
    )


FIRST, SECOND = ("She", "he", "Anna", "Ben", "they"), ("saw", "Met", "called", "left", "helped")
THIRD = ("Carl", "Dora", "Emil", "Frida", "Gus", "Hedda", "Ivan", "Jo", "Kai", "Lou")


def sentences(count, *, seed):
    """Short stories, all of one kind and no two alike."""
    chance, found = np.random.default_rng(seed), {}
    while len(found) < count:
        words = [str(chance.choice(some)) for _ in range(5) for some in (FIRST, SECOND, THIRD)]
        found[" ".join(words)] = None
    return list(found)
