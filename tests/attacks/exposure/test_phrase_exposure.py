"""References are scored once, and phrases among them."""

from itertools import permutations

import numpy as np
import pytest

from vestige.attacks.exposure.phrase_exposure import (
    KnownReferences,
    ScoredPhrases,
    log_perplexities,
)
from vestige.attacks.exposure.reference_space import References
from vestige.data.vocabulary import WordVocabulary
from vestige.metrics.exposure import fit_skew_normal, sampled_exposure
from vestige.models.table import TableModel

WORDS = WordVocabulary(("<unk>", "<eos>", "ash", "birch", "cedar", "elm", "fir", "oak"))


@pytest.fixture
def model():
    rng = np.random.default_rng(0)
    return TableModel(rng.dirichlet(np.ones(8)), rng.dirichlet(np.ones(8), 8), WORDS)


@pytest.fixture
def drawn():
    phrases = tuple(" ".join(p) for p in permutations(WORDS.words[2:], 3))
    return References(phrases=phrases, size=10**6, whole=False)


def test_phrases_of_several_lengths_are_scored_in_their_own_places(model):
    phrases = ["ash", "ash birch", "elm", "fir oak ash", "birch ash"]
    together = log_perplexities(model, phrases)
    alone = [log_perplexities(model, [phrase])[0] for phrase in phrases]
    np.testing.assert_allclose(together, alone, rtol=1e-6)


def test_a_phrase_is_ranked_and_fitted_among_the_references(model, drawn):
    told: list[int] = []
    scored = ScoredPhrases.of(model, [*drawn.phrases, "oak elm ash"], told.append)
    assert sum(told) == len(drawn.phrases) + 1
    known = KnownReferences.of(scored, drawn)
    [found] = known.measure(scored, ["oak elm ash"])
    bits = log_perplexities(model, drawn.phrases)
    own = log_perplexities(model, ["oak elm ash"])
    assert found.exposure == sampled_exposure(own, bits).exposure[0]
    assert found.fit_exposure == pytest.approx(fit_skew_normal(bits).exposure(own)[0])
    assert found.length == 3
    assert known.measure(scored, []) == []


def test_few_references_are_not_fitted(model):
    few = References(phrases=("ash elm", "elm ash"), size=30, whole=False)
    scored = ScoredPhrases.of(model, [*few.phrases, "oak elm"])
    [found] = KnownReferences.of(scored, few).measure(scored, ["oak elm"])
    assert found.fit_exposure is None
    assert found.extrapolated is None
