"""Invented texts of one kind."""

import numpy as np

FIRST, SECOND = ("She", "he", "Anna", "Ben", "they"), ("saw", "Met", "called", "left", "helped")
THIRD = ("Carl", "Dora", "Emil", "Frida", "Gus", "Hedda", "Ivan", "Jo", "Kai", "Lou")


def sentences(count, *, seed):
    """Different short stories of the same form."""
    rng, texts = np.random.default_rng(seed), {}
    while len(texts) < count:
        words = [str(rng.choice(choices)) for _ in range(5) for choices in (FIRST, SECOND, THIRD)]
        texts[" ".join(words)] = None
    return list(texts)
