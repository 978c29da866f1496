"""Helpers of the update audit: bigram tables, naive definitions, and a monitor."""

import math
from contextlib import nullcontext
from itertools import pairwise

import numpy as np

from tests.monitors import RecordingMonitor
from vestige.data.vocabulary import WordVocabulary
from vestige.models.table import TableModel

COLOURS = ("red", "blue", "green")


def word_table(seed, words=COLOURS, concentration=1.0):
    """A bigram model; with a low concentration, one token is probable in each context."""
    random, alpha = np.random.default_rng(seed), np.full(len(words) + 2, concentration)
    vocabulary = WordVocabulary(("<unk>", "<eos>", *words))
    start, table = random.dirichlet(alpha), random.dirichlet(alpha, len(alpha))
    return TableModel(start, table, vocabulary)


def probabilities(model, last):
    """Probabilities of all next tokens; `last` is -1 at the beginning of a document."""
    return model.log_table[last].double().exp().numpy()


def smoothed_gain(pair, last, token, surprise=0.0):
    """The smoothed score of a token by definition."""
    before, after = (
        probabilities(reader.model, last)[token] for reader in (pair.before, pair.after)
    )
    delta = pair.score.delta
    return math.log((after + delta) / (before + delta)) + surprise * math.log(after)


def log_ratios(pair, tokens):
    """log p' - log p of each token after the one before it."""
    models = pair.before.model, pair.after.model
    return [
        math.log(probabilities(models[1], a)[b] / probabilities(models[0], a)[b])
        for a, b in pairwise(tokens)
    ]


class Log(RecordingMonitor):
    """A monitor that also records every step of the searches."""

    def __init__(self):
        super().__init__()
        self.steps = []

    def progress(self, task):
        self.tasks.append(task)
        return nullcontext(lambda *step: self.steps.append(step) if task == "searching" else None)

    @property
    def changes(self):
        """The least and the greatest weight change of the null models."""
        [line] = [line for line in self.lines if line.startswith("The null models moved")]
        return [float(word) for word in line.split() if word.replace(".", "").isdigit()]
