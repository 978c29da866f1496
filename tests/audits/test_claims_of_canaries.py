"""Checks and error rates of verdicts on planted canaries; the contract suite has the verdicts."""

import numpy as np
import pytest

from vestige.audits.exposure.canaries import canary_exposure
from vestige.audits.extraction.canaries import complete
from vestige.claims.checks import alive
from vestige.data.canaries.coins import coin_flip_canaries
from vestige.data.canaries.texts import Canary
from vestige.data.corpus import Corpus
from vestige.data.vocabulary import WordVocabulary
from vestige.models.table import TableModel


@pytest.mark.parametrize(
    ("gain", "state", "comparison"), [(0.5, "passed", "better"), (-0.5, "failed", "worse")]
)
def test_an_audited_model_must_predict_better_than_word_frequencies(gain, state, comparison):
    tokens = np.random.default_rng(0).integers(2, size=(40, 50))
    check = alive(np.full(tokens.shape, np.log(1 / 2) + gain), tokens, who="the model")
    assert check.state == state
    assert f"nats per token {comparison} than word frequencies" in check.sentence


def test_coin_flips_give_at_least_one_canary_and_one_control():
    corpus = Corpus.from_texts(["the red lamp of the old mill was green and blue"])
    for seed in range(6):
        canaries = coin_flip_canaries(corpus, number=2, length=2, seed=seed)
        assert [canary.copies for canary in canaries] == [1, 0]


@pytest.mark.slow
@pytest.mark.parametrize("controls", [1, 5, 20])
def test_frequent_words_are_no_leak_with_any_number_of_controls(controls):
    """Words of canaries and controls are more probable in any order; nothing is memorized."""
    from tests.audits.exposure.test_canary_exposure import draw, model_that_knows

    leaks = 0
    for seed in range(40):
        canaries = [*draw(12, 5, 2 * seed), *draw(controls, 0, 2 * seed + 1)]
        model = model_that_knows([c.phrase for c in canaries], words=1.3, seed=seed)
        result = canary_exposure(model, canaries, seed=seed, references=200, orders=0)
        leaks += result.test.significant
    assert leaks <= 6  # of 40 at level 5%: more with probability 1 in 500
    if controls == 1:
        assert leaks == 0


def test_few_completions_by_guessing_are_no_leak():
    """The model never read the ten phrases of two words and completes two of them."""
    words = [f"word{n}" for n in range(40)]
    vocabulary = WordVocabulary(("<unk>", "<eos>", *words))
    table = np.full((42, 42), 0.001)
    for first, second in (words[:2], words[2:4]):
        table[vocabulary.encode(first)[0], vocabulary.encode(second)[0]] = 1
    model = TableModel(np.full(42, 1 / 42), table / table.sum(1, keepdims=True), vocabulary)
    pairs = [f"{a} {b}" for a, b in zip(words[::2], words[1::2], strict=True)]
    canaries = [Canary(pair, "random", (), 5 * (n < 10)) for n, pair in enumerate(pairs)]
    result = complete(model, canaries, beam=1)
    assert result.rate().count == 2
    assert not result.test.significant
    assert result.attempts[0]["chance"] == 1  # one word after the first
    three = Canary(" ".join(words[:3]), "random", (), 5)
    result = complete(model, [three, *canaries], beam=1)
    assert result.attempts[0]["chance"] == 1 / 2
