"""Phrases that were asked for, against the definition on tables."""

import math

import numpy as np
import pytest

from vestige.attacks.update.known_phrases import (
    ANYWHERE,
    BEGINNING,
    Asked,
    KnownPhrase,
    known_phrases,
    told_by,
)
from vestige.attacks.update.model_pair import ModelPair
from vestige.attacks.update.token_scores import token_score
from vestige.data.vocabulary import WordVocabulary
from vestige.models.table import TableModel

WORDS = WordVocabulary(("<unk>", "<eos>", "the", "code", "gate", "of", "is", "a"))
DELTA = 0.05


def table(seed):
    chance, size = np.random.default_rng(seed), len(WORDS)
    return TableModel(chance.dirichlet(np.ones(size)), chance.dirichlet(np.ones(size), size), WORDS)


def gain(before, after, row, token):
    """Definition: the smoothed log-ratio of one cell."""
    earlier, later = (math.exp(m.log_table[row, token].item()) for m in (before, after))
    return math.log((later + DELTA) / (earlier + DELTA))


SCORE = token_score("smoothed", delta=DELTA)


@pytest.fixture
def pair():
    return ModelPair(table(0), table(1), SCORE)


PHRASES = ["the code of the gate", "a gate", "the code is the code", "is"]
PROMPT = (7, 5)


def by_definition(pair, ids):
    """The best place and its score: a document's beginning, the prompt, anywhere."""

    def behind(last):
        steps = zip((last, *ids), ids, strict=False)
        return sum(gain(pair.before, pair.after, a, b) for a, b in steps)

    places = {
        BEGINNING: behind(WORDS.eos_id),
        "prompt 1": behind(PROMPT[-1]),
        ANYWHERE: behind(ids[0]) - gain(pair.before, pair.after, ids[0], ids[0]),
    }
    place = max(places, key=places.get)
    return place, places[place]


def test_a_score_is_the_sum_of_token_scores_at_the_best_place():
    asked, places = [Asked.of(phrase, WORDS) for phrase in PHRASES], set()
    for seed in range(1, 6):
        pair = ModelPair(table(0), table(seed), SCORE)
        found = known_phrases(pair, asked, contexts={PROMPT: "prompt 1"})
        for phrase, one in zip(PHRASES, found, strict=True):
            place, score = by_definition(pair, WORDS.encode(phrase))
            assert (one.phrase, one.place) == (phrase, place)
            assert one.score == pytest.approx(score, abs=1e-5)
            assert sum(one.gains) == pytest.approx(one.score, abs=1e-5)
            places.add(place)
    assert len(places) == 3


def test_a_phrase_that_did_not_leak_has_a_uniform_p_value():
    asked, p_values = [Asked.of("the code of the gate", WORDS)], []
    before = table(0)
    for trial in range(60):
        scores = [
            known_phrases(ModelPair(before, table(100 + 20 * trial + n), SCORE), asked)[0]
            for n in range(5)
        ]
        one, *nulls = (each.score for each in scores)
        known = KnownPhrase(
            tokens=(), pieces=(), phrase="", gains=(), score=one, place="", nulls=tuple(nulls)
        )
        p_values.append(known.p_value)
    for level in (0.2, 0.4, 0.6, 0.8):
        share = np.mean([p <= level + 1e-9 for p in p_values])
        assert abs(share - level) < 3 * math.sqrt(level * (1 - level) / 60)


def test_without_nulls_nothing_is_said_of_chance(pair):
    (one,) = known_phrases(pair, [Asked.of("the code", WORDS)])
    assert (one.p_value, one.reached) == (None, 0)


@pytest.mark.parametrize(
    ("findings", "told"),
    [
        ([(9, 9), (2, 3, 5, 2, 4)], (1, 1.0)),
        ([(7, 2, 3, 5, 6), (3, 5, 2)], (0, 0.6)),
        ([(2, 7, 3)], (-1, 0.0)),
        ([], (-1, 0.0)),
    ],
)
def test_the_finding_that_tells_most_of_it(pair, findings, told):
    asked = Asked.of("the code of the gate", WORDS)
    (one,) = known_phrases(pair, [asked])
    assert told_by(one, asked, findings) == told


def test_nothing_is_refused():
    with pytest.raises(ValueError, match="one token at least"):
        Asked.of("  ", WORDS)
