import json

import numpy as np
import pytest
from scipy import stats
from seqeval.metrics import f1_score

from vestige.data.utterances import Utterance, Utterances
from vestige.metrics.estimates import clopper_pearson
from vestige.training.config import TrainingConfig
from vestige.training.loop import learn
from vestige.training.new_utterance_model import new_intent_slot_model
from vestige.training.scored_utterances import (
    score_with_intervals,
    slot_f1_interval,
)
from vestige.training.utterances import UtteranceTask, evaluate_utterances

TAGS = ("O", "B-city", "B-time")


def said(number, seed=0):
    towns, chance = ("york", "bath", "leeds"), np.random.default_rng(seed)
    rows = []
    for _ in range(number):
        town = str(chance.choice(towns))
        rows.append(
            Utterance(("go", "to", town), ("O", "O", "B-city"), "Go")
            if chance.random() < 0.5
            else Utterance(("rain", "in", town, "now"), ("O", "O", "B-city", "B-time"), "Ask")
        )
    return Utterances.of(rows)


@pytest.fixture(scope="module")
def model():
    found = new_intent_slot_model(said(40), hidden_size=8, embedding_size=8, layers=1, seed=0)
    config = TrainingConfig(seed=0, epochs=9, batch_size=4, learning_rate=1e-2)
    learn(found, UtteranceTask(found.encode(said(40)), None), config=config)
    return found


def test_the_scores_are_those_without_intervals_and_lie_within(model):
    odd = Utterance(("hi", "you"), ("B-city", "O"), "Greet")
    test = said(50, seed=1) + Utterances.of([odd])
    scored = score_with_intervals(model, test)
    assert scored.scores == evaluate_utterances(model, test)
    right = round(scored.scores.intent_accuracy * 51)
    assert scored.intervals["intent_accuracy"] == clopper_pearson(right, 51)
    for name in ("intent_accuracy", "exact_match", "slot_f1"):
        low, high = scored.intervals[name]
        assert 0 <= low <= getattr(scored.scores, name) <= high <= 1


def test_a_summary_names_the_ends(model):
    scored = score_with_intervals(model, said(20, seed=2))
    summary = scored.summary()
    assert summary["intent_accuracy"] == scored.scores.intent_accuracy
    assert summary["intent_accuracy_low"] == scored.intervals["intent_accuracy"].low
    json.dumps(summary, allow_nan=False)


def test_the_f1_of_the_interval_is_seqevals():
    chance = np.random.default_rng(0)
    truth = [list(chance.choice(TAGS, 6)) for _ in range(200)]
    given = [
        [tag if chance.random() < 0.8 else str(chance.choice(TAGS)) for tag in row] for row in truth
    ]
    low, high = slot_f1_interval(truth, given)
    assert (low + high) / 2 == pytest.approx(f1_score(truth, given))


def test_the_interval_of_f1_covers_as_often_as_it_says():
    chance = np.random.default_rng(1)

    def drawn(number):
        truth = [list(chance.choice(TAGS, chance.integers(1, 6))) for _ in range(number)]
        given = [[tag if chance.random() < 0.85 else "O" for tag in row] for row in truth]
        return truth, given

    true = f1_score(*drawn(20_000))
    covered = 0
    for _ in range(200):
        low, high = slot_f1_interval(*drawn(80))
        covered += low <= true <= high
    assert stats.binom.cdf(covered, 200, 0.95) > 1e-3


def test_nothing_is_known_of_f1_where_nothing_varies():
    assert slot_f1_interval([["O"]], [["O"]]) is None
    assert slot_f1_interval([["B-city"], ["B-city"]], [["B-city"], ["B-city"]]) is None
    assert slot_f1_interval([["B-city"]], [["O"]]) is None
