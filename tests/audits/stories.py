"""Invented texts of one kind."""

import numpy as np

FIRST, SECOND = ("She", "he", "Anna", "Ben", "they"), ("saw", "Met", "called", "left", "helped")
THIRD = ("Carl", "Dora", "Emil", "Frida", "Gus", "Hedda", "Ivan", "Jo", "Kai", "Lou")


def sentences(count, *, seed):
    """Short stories, all of one kind and no two alike."""
    rng, found = np.random.default_rng(seed), {}
    while len(found) < count:
        words = [str(rng.choice(some)) for _ in range(5) for some in (FIRST, SECOND, THIRD)]
        found[" ".join(words)] = None
    return list(found)
