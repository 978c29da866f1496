"""A monitor that remembers what it showed, and texts of one kind."""

from contextlib import nullcontext

import numpy as np


class Told:
    """A monitor that remembers its lines and the names of its tasks."""

    def __init__(self):
        self.lines, self.tasks = [], []

    def log(self, text):
        self.lines.append(text)

    def progress(self, task):
        self.tasks.append(task)
        return nullcontext(lambda *_: None)


FIRST, SECOND = ("She", "he", "Anna", "Ben", "they"), ("saw", "Met", "called", "left", "helped")
THIRD = ("Carl", "Dora", "Emil", "Frida", "Gus", "Hedda", "Ivan", "Jo", "Kai", "Lou")


def sentences(count, *, seed):
    """Short stories, all of one kind and no two alike."""
    rng, found = np.random.default_rng(seed), {}
    while len(found) < count:
        words = [str(rng.choice(some)) for _ in range(5) for some in (FIRST, SECOND, THIRD)]
        found[" ".join(words)] = None
    return list(found)
