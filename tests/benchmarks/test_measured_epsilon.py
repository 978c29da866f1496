"""The trainings of `benchmarks/measured_epsilon.py`, on invented sentences."""

from dataclasses import replace

import numpy as np
import pytest
from measured_epsilon import Training, World, audit_row

from vestige.data.corpus import Corpus

WORDS = ["".join(chr(97 + int(digit)) * 2 for digit in f"{number:03}") for number in range(200)]
STRONGEST = Training(kind="repeated-token", length=5, claim=4.0)


def sentences(seed):
    ids = np.random.default_rng(seed).zipf(1.5, (300, 8)) % len(WORDS)
    return Corpus.from_texts([" ".join(WORDS[i] for i in line) for line in ids])


@pytest.fixture(scope="module")
def world():
    return World.of(sentences(0), sentences(1), reserved=1000)


@pytest.mark.slow
def test_unused_tokens_prove_most_of_a_claim(world):
    row = audit_row(STRONGEST, world)
    assert row["one_run"] > 0.3
    assert row["f_dp"] > row["one_run"]
    assert row["mu of scores"] > 0.6
    assert row["verdict"] == "consistent"


@pytest.mark.slow
def test_a_training_with_half_of_its_noise_violates_its_claim(world):
    row = audit_row(replace(STRONGEST, honesty=0.5), world)
    assert row["threshold"] > 4
    assert "violated" in row["verdict"]
