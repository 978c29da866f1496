"""Texts drawn from one Markov chain of words, and models of what follows a word, by counting."""

from itertools import pairwise

import numpy as np

from vestige.data.vocabulary import WordVocabulary
from vestige.models.table import TableModel


class Chain:
    """A language of words w0, w1 and so on, in which each word has its own likely successors."""

    def __init__(self, size, concentration):
        self.words = tuple(f"w{n}" for n in range(size))
        self.vocabulary = WordVocabulary(("<unk>", "<eos>", *self.words))
        self.moves = np.random.default_rng(99).dirichlet(np.full(size, concentration), size)

    def texts(self, lengths, chance):
        """A text of each length."""
        size, found = len(self.words), []
        for length in lengths:
            walk = [int(chance.integers(size))]
            while len(walk) < length:
                walk.append(int(chance.choice(size, p=self.moves[walk[-1]])))
            found.append(" ".join(self.words[word] for word in walk))
        return found

    def counted(self, *read):
        """The model that read some lists of texts, each so many times; fewer than none suppress."""
        size = len(self.vocabulary)
        counts = np.full((size, size), 0.05)
        for texts, times in read:
            for ids in self.vocabulary.encode_batch(list(texts)):
                for one, other in pairwise(ids):
                    counts[one, other] += times
        counts = np.maximum(counts, 0.01)
        table = counts / counts.sum(axis=1, keepdims=True)
        return TableModel(np.full(size, 1 / size), table, self.vocabulary)
