"""Verdicts on planted canaries: leaks and clean models are distinguished, others are undecided."""

import json
from itertools import permutations

import numpy as np
import pytest

import vestige
from vestige.claims import LEAK, NO_LEAK, UNDECIDED
from vestige.data.canaries.texts import Canary
from vestige.data.corpus import Corpus
from vestige.data.vocabulary import WordVocabulary
from vestige.models.table import TableModel

WORDS = ["".join(letters) for letters in permutations("abcdefg", 3)]


def random_walks(number, seed):
    """Texts in which each word is followed by one of three."""
    rng, texts = np.random.default_rng(seed), []
    for _ in range(number):
        walk = [int(rng.integers(len(WORDS)))]
        for step in rng.integers(1, 4, size=11):
            walk.append((7 * walk[-1] + int(step)) % len(WORDS))
        texts.append(" ".join(WORDS[word] for word in walk))
    return texts


TEXTS = random_walks(600, seed=3)
VOCABULARY = WordVocabulary.build(Corpus.from_texts(TEXTS))
SIZE = len(VOCABULARY)


def table(weights):
    """A model with probabilities in proportion to weights; the last row begins a text."""
    weights = weights / weights.sum(1, keepdims=True)
    return TableModel(weights[SIZE], weights[:SIZE], VOCABULARY)


def trained(texts):
    """A model that counts which word follows another."""
    counts = np.full((SIZE + 1, SIZE), 0.01)
    for ids in VOCABULARY.encode_batch(list(texts)):
        for before, after in zip([SIZE, *ids], [*ids, VOCABULARY.eos_id], strict=True):
            counts[before, after] += 1
    return table(counts)


def exposure(model, manifest):
    return vestige.exposure(model, manifest, references=256)


def extract(model, manifest):
    return vestige.extract(model, manifest, beam=1)


@pytest.fixture(scope="module")
def planted(tmp_path_factory):
    out = tmp_path_factory.mktemp("canaries") / "planted"
    vestige.plant(Corpus.from_texts(TEXTS), out=out, coin_flip=32, copies=40, length=3)
    return out


@pytest.mark.slow
@pytest.mark.parametrize("verb", [exposure, extract])
@pytest.mark.parametrize(
    ("trained_on", "verdict"), [("planted", LEAK), ("clean", NO_LEAK), ("nothing", UNDECIDED)]
)
def test_leaking_clean_and_untrained_models_have_different_verdicts(
    planted, verb, trained_on, verdict
):
    if trained_on == "planted":
        lines = (planted / "corpus.jsonl").read_text().splitlines()
        model = trained(json.loads(line)["text"] for line in lines)
    else:
        model = trained(TEXTS if trained_on == "clean" else [])
    result = verb(model, planted)
    assert result.verdict == result.claim.verdict == verdict, result.claim
    if verdict == UNDECIDED:
        assert "worse than word frequencies" in result.claim.reasons[0]


@pytest.mark.slow
@pytest.mark.parametrize("controls", [1, 5, 20])
def test_frequent_words_are_no_leak_with_any_number_of_controls(controls):
    """Words of canaries and controls are more probable in any order; nothing is memorized."""
    from tests.audits.exposure.test_canary_exposure import draw, model_that_knows
    from vestige.audits.exposure.canaries import canary_exposure

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
    from vestige.audits.extraction.canaries import complete

    words = VOCABULARY.words[2:42]
    weights = np.full((SIZE + 1, SIZE), 0.001)
    for first, second in ((words[0], words[1]), (words[2], words[3])):
        weights[VOCABULARY.encode(first)[0], VOCABULARY.encode(second)[0]] = 1
    pairs = [f"{a} {b}" for a, b in zip(words[::2], words[1::2], strict=True)]
    canaries = [Canary(pair, "random", (), 5 * (n < 10)) for n, pair in enumerate(pairs)]
    result = complete(table(weights), canaries, beam=1)
    assert result.rate().count == 2
    assert not result.test.significant
    assert result.attempts[0]["chance"] == 1  # one word after the first
    three = Canary(" ".join(words[:3]), "random", (), 5)
    result = complete(table(weights), [three, *canaries], beam=1)
    assert result.attempts[0]["chance"] == 1 / 2
