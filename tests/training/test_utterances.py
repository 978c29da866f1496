"""Scores of intents and slots against the definitions, an utterance at a time."""

import json
import math
from dataclasses import asdict

import numpy as np
import pytest
import torch
from scipy import stats
from seqeval.metrics import f1_score

from tests.training import worlds
from tests.training.worlds import listener
from vestige.data.utterances import Utterance, Utterances
from vestige.errors import TrainingError
from vestige.metrics.estimates import clopper_pearson
from vestige.training.config import TrainingConfig
from vestige.training.loop import learn
from vestige.training.utterances import (
    UtteranceScores,
    UtteranceTask,
    evaluate_utterances,
    score_with_intervals,
    slot_f1_interval,
)

TAGS = ("O", "B-city", "B-time")
STRANGE = Utterances.of(
    [
        Utterance(("go", "to", "bath"), ("O", "O", "B-city"), "Call"),
        Utterance(("go", "to", "bath"), ("O", "O", "B-place"), "Go"),
    ]
)


def taught(epochs):
    model = listener()
    config = TrainingConfig(seed=1, epochs=epochs, batch_size=4, learning_rate=1e-2)
    learn(model, worlds.listening(), config=config)
    return model


def slots(tags):
    """(name, begin, end) of each slot, of tags well formed or not, as CoNLL's scorer reads them."""
    result, name, begin = set(), None, 0
    for position, tag in enumerate((*tags, "O")):
        kind, _, slot = tag.partition("-")
        if name is not None and (kind != "I" or slot != name):
            result.add((name, begin, position))
            name = None
        if kind != "O" and name is None:
            name, begin = slot, position
    return result


def naive_utterances(model, utterances):
    """The definitions, one utterance at a time."""
    right = {"intent": 0, "both": 0, "slots": 0}
    asked = given = words = 0
    losses, said = [], []
    for utterance in utterances:
        tokens = torch.tensor([model.vocabulary.encode(utterance.text)])
        intent, tags = model.predict(tokens)
        answer = tuple(model.tags[tag] for tag in tags[0])
        said.append(list(answer))
        right["intent"] += model.intents[intent[0]] == utterance.intent
        right["both"] += model.intents[intent[0]] == utterance.intent and answer == utterance.tags
        right["slots"] += len(slots(answer) & slots(utterance.tags))
        asked, given = asked + len(slots(utterance.tags)), given + len(slots(answer))
        if utterance.intent in model.intents and set(utterance.tags) <= set(model.tags):
            ids = torch.tensor([[model.tags.index(tag) for tag in utterance.tags]])
            goal = torch.tensor([model.intents.index(utterance.intent)])
            losses.append(model(tokens, goal, ids).joint.item())
            words += len(utterance.tags)
    f1 = 2 * right["slots"] / (asked + given)
    assert f1 == pytest.approx(f1_score([list(u.tags) for u in utterances], said))
    return UtteranceScores(
        perplexity=math.exp(sum(losses) / words),
        loss=sum(losses) / len(losses),
        intent_accuracy=right["intent"] / len(utterances),
        slot_f1=f1,
        exact_match=right["both"] / len(utterances),
        utterances=len(utterances),
    )


@pytest.mark.slow
@pytest.mark.parametrize("epochs", [1, 2, 4])
def test_scores_of_utterances_are_those_of_naive_counting(epochs):
    model, test = taught(epochs), worlds.utterances(30, seed=3) + STRANGE
    result = asdict(evaluate_utterances(model.train(), test))
    assert model.training
    assert result == pytest.approx(asdict(naive_utterances(model.eval(), test)), rel=1e-4)


def test_labels_that_the_model_lacks_count_as_wrong():
    model, known = listener(), worlds.utterances(10)
    result = evaluate_utterances(model, STRANGE)
    assert result.exact_match == 0
    assert result.perplexity is result.loss is None
    assert result.intent_accuracy <= 0.5
    mixed = evaluate_utterances(model, STRANGE + known)
    assert mixed.loss == pytest.approx(evaluate_utterances(model, known).loss, rel=1e-5)
    task = UtteranceTask(model.encode(known), STRANGE)
    with pytest.raises(TrainingError, match="lacks the labels of all validation utterances"):
        learn(model, task, config=TrainingConfig(seed=1, epochs=1))
    with pytest.raises(TrainingError, match="no utterances to score"):
        evaluate_utterances(model, Utterances.of([]))


def test_evaluation_leaves_a_model_of_utterances_as_it_was():
    model = listener(input_dropout=0.5).train()
    before = worlds.weights(model)
    first, second = (evaluate_utterances(model, worlds.utterances(10)) for _ in range(2))
    assert first == second
    assert model.training
    assert worlds.weights(model).equal(before)


def test_intervals_contain_the_scores_and_count_utterances():
    model, test = taught(3), worlds.utterances(50, seed=1) + STRANGE
    whole, result = evaluate_utterances(model, test), score_with_intervals(model, test)
    assert {name: result[name] for name in asdict(whole)} == asdict(whole)
    ends = (result["intent_accuracy_low"], result["intent_accuracy_high"])
    assert ends == clopper_pearson(round(whole.intent_accuracy * 52), 52)
    for name in ("intent_accuracy", "exact_match", "slot_f1"):
        assert 0 <= result[f"{name}_low"] <= result[name] <= result[f"{name}_high"] <= 1
    json.dumps(result, allow_nan=False)


def drawn_tags(chance, count, lengths, wrong):
    """Random tags of utterances, and answers: `wrong()` one time in six."""
    truth = [list(chance.choice(TAGS, chance.integers(*lengths))) for _ in range(count)]
    given = [[tag if chance.random() < 0.84 else wrong() for tag in row] for row in truth]
    return truth, given


def test_the_f1_of_the_interval_is_seqevals():
    chance = np.random.default_rng(0)
    truth, given = drawn_tags(chance, 200, (6, 7), lambda: str(chance.choice(TAGS)))
    low, high = slot_f1_interval(truth, given) or (0, 0)
    assert (low + high) / 2 == pytest.approx(f1_score(truth, given))


@pytest.mark.slow
def test_the_interval_of_f1_covers_as_often_as_it_says():
    chance = np.random.default_rng(1)
    true, covered = f1_score(*drawn_tags(chance, 20_000, (1, 6), lambda: "O")), 0
    for _ in range(200):
        low, high = slot_f1_interval(*drawn_tags(chance, 80, (1, 6), lambda: "O")) or (1, 0)
        covered += low <= true <= high
    assert stats.binom.cdf(covered, 200, 0.95) > 1e-3


@pytest.mark.parametrize(
    ("truth", "given"),
    [
        ([["O"]], [["O"]]),
        ([["B-city"], ["B-city"]], [["B-city"], ["B-city"]]),
        ([["B-city"]], [["O"]]),
    ],
)
def test_nothing_is_known_of_f1_where_nothing_varies(truth, given):
    assert slot_f1_interval(truth, given) is None
