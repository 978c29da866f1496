"""Ranks of known secrets by what an update added: exact counts, estimates, unread secrets."""

from itertools import product

import numpy as np
import pytest
from scipy.stats import kstest

from vestige.audits.exposure.report import secrets_report
from vestige.audits.exposure.secrets import secret_exposure
from vestige.claims import UNDECIDED
from vestige.data.secrets.lines import read_secret
from vestige.data.vocabulary import WordVocabulary
from vestige.errors import IncompatibleModels
from vestige.models.table import TableModel
from vestige.results import run_of

WORDS = tuple("abcdefghij")
CHOICES = "|".join(WORDS)


def bigram_model(seed, words=WORDS):
    size, rng = len(words) + 2, np.random.default_rng(seed)
    start, table = rng.dirichlet(np.ones(size)), rng.dirichlet(np.ones(size), size)
    return TableModel(start, table, WordVocabulary(("<unk>", "<eos>", *words)))


def secrets_of(*texts):
    """Secrets in which each word could be any of the ten."""
    lines = [" ".join(f"{{{{{word}|{CHOICES}}}}}" for word in text.split()) for text in texts]
    return [read_secret(line, n) for n, line in enumerate(lines, 1)]


BEFORE, AFTER = bigram_model(0), bigram_model(1)


def rank(secrets, **options):
    return secret_exposure(AFTER, secrets, before=BEFORE, **options)


def gain(text):
    """log2 of the factor by which the update raised the probability, token by token."""
    total = 0.0
    for model, sign in ((AFTER, 1), (BEFORE, -1)):
        table = model.log_table.double().numpy()
        previous = len(table) - 1
        for token in model.vocabulary.encode(text):
            total += sign * table[previous, token]
            previous = token
    return total / np.log(2)


GAINS = {text: gain(text) for text in map(" ".join, product(WORDS, repeat=3))}
ASCENDING = sorted(GAINS, key=GAINS.__getitem__)


@pytest.mark.parametrize("text", ["a b c", "j j j", ASCENDING[-1]])
def test_an_exact_rank_is_a_count_over_the_whole_space(text):
    result = rank(secrets_of(text), seed=0, references=1000)
    [row] = result.rows
    expected = sum(other >= GAINS[text] - 1e-5 for other in GAINS.values())
    assert (row["rank"], row["whole"], row["joint_p"]) == (expected, True, expected / 1000)
    assert result.summary["exact"] == 1
    assert row["p"] >= row["joint_p"]
    assert row["gain"] == pytest.approx(GAINS[text], abs=1e-4)
    assert 2 ** row["log2_space_rank"] == pytest.approx(expected)
    [table] = secrets_report(run_of(result), show_secrets=False).tables
    assert f"{expected} of 1,000" in table.rows[0]


@pytest.mark.slow
def test_intervals_of_estimated_ranks_cover_the_exact_ones():
    texts = ASCENDING[::25]
    rows = rank(secrets_of(*texts), seed=3, references=400).rows
    assert not any(row["whole"] for row in rows)
    covered = 0
    for text, row in zip(texts, rows, strict=True):
        exact = sum(other >= GAINS[text] - 1e-5 for other in GAINS.values())
        low, high = (2 ** row[f"log2_space_rank_{end}"] for end in ("low", "high"))
        covered += low - 1 <= exact <= high + 1
    assert covered >= 0.85 * len(texts)


@pytest.mark.slow
def test_p_values_of_unread_secrets_are_valid():
    generator = np.random.default_rng(5)
    texts = [" ".join(generator.choice(WORDS, 4)) for _ in range(150)]
    result = rank(secrets_of(*texts), seed=1, references=200)
    assert not result.summary["found"]
    p = [row["p"] for row in result.rows]
    assert kstest(p, "uniform", alternative="greater").pvalue > 1e-3
    # The same test rejects texts that the update favours.
    p = [row["p"] for row in rank(secrets_of(*ASCENDING[-40:]), seed=1, references=200).rows]
    assert kstest(p, "uniform", alternative="greater").pvalue < 1e-3


def test_knowledge_from_before_the_update_does_not_count():
    """Without an update every text has the same gain."""
    options = {"before": BEFORE, "seed": 0, "references": 1000}
    result = secret_exposure(BEFORE, secrets_of("a b c"), **options)
    assert (result.summary["found"], result.rows[0]["rank"]) == (0, 1000)
    assert result.verdict == UNDECIDED


def test_models_with_different_vocabularies_are_refused():
    other = bigram_model(1, tuple("klmnopqrst"))
    with pytest.raises(IncompatibleModels):
        secret_exposure(other, secrets_of("a b"), before=BEFORE, seed=0)
