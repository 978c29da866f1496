"""Texts sampled from a Markov chain of words, and bigram models that count them."""

from itertools import pairwise

import numpy as np

from vestige.data.vocabulary import WordVocabulary
from vestige.models.table import TableModel


class Chain:
    """A language of the words w0, w1, ...; a low concentration makes few successors probable."""

    def __init__(self, size, concentration):
        self.words = tuple(f"w{n}" for n in range(size))
        self.vocabulary = WordVocabulary(("<unk>", "<eos>", *self.words))
        self.moves = np.random.default_rng(99).dirichlet(np.full(size, concentration), size)

    def texts(self, lengths, rng):
        """One text of each length."""
        size, texts = len(self.words), []
        for length in lengths:
            walk = [int(rng.integers(size))]
            while len(walk) < length:
                walk.append(int(rng.choice(size, p=self.moves[walk[-1]])))
            texts.append(" ".join(self.words[word] for word in walk))
        return texts

    def counted(self, *weighted):
        """The model of pairs (texts, weight); a negative weight suppresses its texts."""
        size = len(self.vocabulary)
        counts = np.full((size, size), 0.05)
        for texts, weight in weighted:
            for ids in self.vocabulary.encode_batch(list(texts)):
                for first, second in pairwise(ids):
                    counts[first, second] += weight
        counts = np.maximum(counts, 0.01)
        table = counts / counts.sum(axis=1, keepdims=True)
        return TableModel(np.full(size, 1 / size), table, self.vocabulary)
