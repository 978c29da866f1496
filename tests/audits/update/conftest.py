"""Naive definitions on tables, and saved snapshots."""

import itertools

import pytest

from tests.audits.update.worlds import probabilities, word_table
from tests.tables import one_thread
from vestige.models.checkpoints import save_model

__all__ = ["every_phrase", "naive_score", "one_thread"]

SENTENCE = ("the", "code", "gate", "of", "is")


@pytest.fixture
def naive_score():
    """Definition 1 of the paper."""

    def score(before, after, tokens):
        steps = zip((-1, *tokens), tokens, strict=False)
        return sum(
            float(probabilities(after, last)[token] - probabilities(before, last)[token])
            for last, token in steps
        )

    return score


@pytest.fixture
def every_phrase():
    return lambda vocab_size, length: list(itertools.product(range(vocab_size), repeat=length))


@pytest.fixture(scope="session")
def snapshots(tmp_path_factory):
    """A folder of tables: `before`, `after`, `other`, and null models."""
    root = tmp_path_factory.mktemp("snapshots")
    names = ("before", "after", "other", "nulls/0", "nulls/1")
    for seed, name in enumerate(names, 2):
        save_model(word_table(seed, SENTENCE, 0.1), root / name)
    return root
