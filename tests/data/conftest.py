"""A corpus large enough for canaries, and the folder of real corpora."""

import os
from pathlib import Path

import numpy as np
import pytest

from vestige.data.corpus import Corpus
from vestige.data.lexicon import WORDS_BY_ROLE
from vestige.data.vocabulary import WordVocabulary


@pytest.fixture(scope="session")
def corpus():
    """2,000 sentences of 600 listed words with frequencies proportional to 1 / rank."""
    generator = np.random.default_rng(0)
    words = sorted({word for role in WORDS_BY_ROLE.values() for word in role[::3]})[:600]
    generator.shuffle(words)
    probabilities = 1 / np.arange(1, len(words) + 1)
    rows = generator.choice(words, size=(2000, 12), p=probabilities / probabilities.sum())
    texts = [" ".join(row) for row in rows] + [" ".join(words)]
    return Corpus.from_texts(texts, users=[f"user{i % 40}" for i in range(len(texts))])


@pytest.fixture(scope="session")
def vocabulary(corpus):
    return WordVocabulary.build(corpus)


@pytest.fixture(scope="session")
def real_corpora():
    """The folder of real corpora."""
    folder = os.environ.get("VESTIGE_DATA")
    if not folder:
        pytest.skip("VESTIGE_DATA names no folder of real corpora")
    return Path(folder)
