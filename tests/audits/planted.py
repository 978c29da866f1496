"""A manifest of one canary."""

from vestige.data.canaries.texts import Canary, plant
from vestige.data.corpus import Corpus

MANIFEST = plant(Corpus.from_texts(["a"] * 9), [Canary("b c", "random", (), 2)], seed=0)[1]
