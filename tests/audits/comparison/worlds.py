"""Small trainings to compare: bigram models and folders written like those of `vestige train`."""

from itertools import pairwise

import numpy as np

from vestige import results
from vestige.data.corpus import Corpus
from vestige.data.encoded import encode
from vestige.data.vocabulary import WordVocabulary
from vestige.models.checkpoints import save_model
from vestige.models.table import TableModel

WORDS = ("red", "blue", "green", "gate", "mill", "code", "lamp", "door")
PLANTED = {"red mill lamp": 5, "blue code door": 5, "green gate red": 1}
CONTROLS = ("gate blue green", "door lamp code", "mill red gate")


def model(seed=0):
    """A bigram model with random rows."""
    vocabulary = WordVocabulary(("<unk>", "<eos>", *WORDS))
    rng, size = np.random.default_rng(seed), len(vocabulary)
    return TableModel(np.full(size, 1 / size), rng.dirichlet(np.ones(size), size), vocabulary)


def leaky(leak):
    """A bigram model that continues canaries with a probability of about `leak` per word."""
    vocabulary = WordVocabulary(("<unk>", "<eos>", *WORDS))
    size = len(vocabulary)
    table = np.ones((size, size))
    for phrase in PLANTED:
        for first, second in pairwise(vocabulary.encode(phrase)):
            table[first, second] += leak * size / (1 - leak)
    return TableModel(np.full(size, 1 / size), table / table.sum(1, keepdims=True), vocabulary)


def text(seed=0, users=True):
    """Six texts of one user and three of another."""
    owners, rng = ["ann"] * 6 + ["bob"] * 3, np.random.default_rng(seed)
    texts = [" ".join(rng.choice(WORDS, 4)) for _ in owners]
    return Corpus.from_texts(texts, users=owners if users else None)


class TrainingHistory:
    """The history of a training."""

    def __init__(self, **summary):
        self._summary = {"step": 400, "steps": 400, "tokens": 9000, "epoch": 4.0, **summary}

    def summary(self):
        return self._summary

    def rows(self):
        return [{"epoch": 4.0}]


def training(folder, seed, validation_seed=1, users=True, **summary):
    """A folder of `vestige train`."""
    network = model(seed)
    save_model(network, folder / "model")
    encode(text(users=users), network.vocabulary, folder / "data" / "training")
    encode(text(validation_seed), network.vocabulary, folder / "data" / "validation")
    run = {
        "data": {"validation": {"sha256": text(validation_seed).fingerprint()}},
        "configuration": {"epochs": 4, "seed": seed},
    }
    results.save(TrainingHistory(**summary), folder / "run", run=run)
    return folder
