"""Ranks of known secrets by an update: a count by hand, estimates, and secrets never read."""

import numpy as np
import pytest
from scipy.stats import kstest

import vestige
from tests.audits.planted import MANIFEST
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


def model(seed, words=WORDS):
    """A bigram model of ten letters."""
    size, chance = len(words) + 2, np.random.default_rng(seed)
    vocabulary = WordVocabulary(("<unk>", "<eos>", *words))
    start, table = chance.dirichlet(np.ones(size)), chance.dirichlet(np.ones(size), size)
    return TableModel(start, table, vocabulary)


def line(text):
    """A secret of words that could each have been any of the ten."""
    return " ".join(f"{{{{{one}|{CHOICES}}}}}" for one in text.split())


BEFORE, AFTER = model(0), model(1)


def ranked(secrets, **more):
    return secret_exposure(AFTER, secrets, before=BEFORE, **more)


def gain(text):
    """log2 of how much more probable the update made it, token by token."""
    total = 0.0
    for each, way in ((AFTER, 1), (BEFORE, -1)):
        table = each.log_table.double().numpy()
        place = len(table) - 1
        for token in each.vocabulary.encode(text):
            total += way * table[place, token]
            place = token
    return total / np.log(2)


GAINS = {f"{a} {b} {c}": gain(f"{a} {b} {c}") for a in WORDS for b in WORDS for c in WORDS}


@pytest.mark.parametrize("text", ["a b c", "j j j", max(GAINS, key=GAINS.__getitem__)])
def test_an_exact_rank_is_a_count_over_the_whole_space(text):
    found = ranked([read_secret(line(text), 1)], seed=0, references=1000)
    (row,) = found.rows
    rank = sum(one >= GAINS[text] - 1e-5 for one in GAINS.values())
    assert (row["rank"], row["whole"], row["joint_p"]) == (rank, True, rank / 1000)
    assert found.summary["exact"] == 1
    assert row["p"] >= row["joint_p"]
    assert row["gain"] == pytest.approx(GAINS[text], abs=1e-4)
    assert 2 ** row["log2_space_rank"] == pytest.approx(rank)
    [table] = secrets_report(run_of(found), show_secrets=False).tables
    assert f"{rank} of 1,000" in table.rows[0]


@pytest.mark.slow
def test_intervals_of_estimated_ranks_cover_the_exact_ones():
    texts = sorted(GAINS, key=GAINS.__getitem__)[::25]
    secrets = [read_secret(line(text), n) for n, text in enumerate(texts, 1)]
    found = ranked(secrets, seed=3, references=400).rows
    assert not any(row["whole"] for row in found)
    inside = 0
    for text, row in zip(texts, found, strict=True):
        ahead = sum(one >= GAINS[text] - 1e-5 for one in GAINS.values())
        low, high = (2 ** row[f"log2_space_rank_{end}"] for end in ("low", "high"))
        inside += low - 1 <= ahead <= high + 1
    assert inside >= 0.85 * len(texts)


@pytest.mark.slow
def test_an_update_that_read_none_of_them_finds_none():
    generator = np.random.default_rng(5)
    texts = [" ".join(generator.choice(WORDS, 4)) for _ in range(150)]
    secrets = [read_secret(line(text), n) for n, text in enumerate(texts, 1)]
    found = ranked(secrets, seed=1, references=200)
    assert not found.summary["found"]
    p = [row["p"] for row in found.rows]
    assert kstest(p, "uniform", alternative="greater").pvalue > 1e-3
    chosen = sorted(GAINS, key=GAINS.__getitem__)[-40:]  # it is a test that can fail
    secrets = [read_secret(line(text), n) for n, text in enumerate(chosen, 1)]
    p = [row["p"] for row in ranked(secrets, seed=1, references=200).rows]
    assert kstest(p, "uniform", alternative="greater").pvalue < 1e-3


def test_what_the_model_knew_before_is_no_part_of_a_rank():
    """Nothing was gained: every text gained as much."""
    secret = [read_secret(line("a b c"), 1)]
    same = secret_exposure(BEFORE, secret, before=BEFORE, seed=0, references=1000)
    assert (same.summary["found"], same.rows[0]["rank"]) == (0, 1000)
    assert same.verdict == UNDECIDED


def test_the_verb_takes_a_model_from_before(tmp_path):
    file = tmp_path / "secrets.txt"
    file.write_text(f"{line('a b c')}\n\n{line('c a')}\n")
    found = vestige.exposure(AFTER, file, before=BEFORE)
    assert [row["whole"] for row in found.rows] == [True, True]
    assert found == vestige.exposure(AFTER, [line("a b c"), "", line("c a")], before=BEFORE)
    assert found.summary["exact"] == 2


@pytest.mark.parametrize(
    ("secrets", "given", "message"),
    [
        (MANIFEST, {"before": BEFORE}, "`before` needs a file of secrets"),
        (["7"], {"candidates": ["7"]}, "`candidates` needs a manifest of canaries"),
        (["7"], {"references": 0}, "`references` must be greater than or equal to 1"),
    ],
)
def test_what_does_not_go_together_is_refused(secrets, given, message):
    with pytest.raises(ValueError, match=message):
        vestige.exposure(AFTER, secrets, **given)


def test_too_small_a_space_decides_nothing():
    found = ranked([read_secret("{{a|b|c}}", 1)], seed=0)
    assert found.verdict == UNDECIDED
    assert "The least p-value is 0.33" in " ".join(found.claim.reasons)


def test_models_of_other_words_are_refused():
    with pytest.raises(IncompatibleModels):
        secret_exposure(
            model(1, tuple("klmnopqrst")), [read_secret("{{a|b}}", 1)], before=BEFORE, seed=0
        )
