"""A manifest of one canary."""

from vestige.data.corpus import Corpus
from vestige.data.manifest import Canary
from vestige.data.planting import plant

MANIFEST = plant(Corpus.from_texts(["a"] * 9), [Canary("b c", "random", (), 2)], seed=0)[1]
