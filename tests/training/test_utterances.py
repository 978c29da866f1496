"""Utterances in batches of one length, a training that can be resumed, and scores counted twice."""

import json
import math
from dataclasses import asdict, replace
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from scipy import stats
from seqeval.metrics import f1_score

from vestige.data.utterances import EncodedUtterances, Labels, Utterance, Utterances
from vestige.data.vocabulary import WordVocabulary
from vestige.errors import TrainingError
from vestige.metrics.estimates import clopper_pearson
from vestige.models.bilstm_crf import IntentSlotConfig, IntentSlotModel
from vestige.models.checkpoints import load_intent_slot
from vestige.training.config import TrainingConfig
from vestige.training.history import EarlyStopping, EpochRecord
from vestige.training.loop import learn
from vestige.training.utterances import (
    UtteranceScores,
    UtteranceTask,
    evaluate_utterances,
    score_with_intervals,
    slot_f1_interval,
)

TAGS = ("O", "B-city", "B-time")
TOWNS = ("york", "bath", "leeds", "new york", "st ives")
CONFIG = TrainingConfig(seed=1, epochs=6, batch_size=4, learning_rate=2e-2, checkpoint_every=3)
CPU = torch.device("cpu")


def said(number, *, seed=0):
    chance, rows = np.random.default_rng(seed), []
    for _ in range(number):
        town = str(chance.choice(TOWNS)).split()
        tags = ["B-city", *["I-city"] * (len(town) - 1)]
        rows.append(
            Utterance(("go", "to", *town), ("O", "O", *tags), "Go")
            if chance.random() < 0.5
            else Utterance(("rain", "in", *town, "now"), ("O", "O", *tags, "B-time"), "Ask")
        )
    return Utterances.of(rows)


def fresh(utterances, **shape):
    torch.manual_seed(0)
    words = WordVocabulary.build(utterances.corpus())
    labels = Labels.of(utterances)
    sizes = {"embedding_size": 6, "hidden_size": 6, "layers": 1} | shape
    config = IntentSlotConfig(intents=labels.intents, tags=labels.tags, **sizes)
    return IntentSlotModel(words, config)


def train(model, config=CONFIG, *, against=0, **settings):
    """Train; `against` validation utterances contradict the training, so that loss must rise."""
    wrong = [Utterance(("go", "to", "bath"), ("O", "O", "B-city"), "Ask")] * against
    lesson = UtteranceTask(model.encode(said(40)), said(20, seed=1) + Utterances.of(wrong))
    return learn(model, lesson, config=config, **settings)


def weights(model):
    return torch.cat([p.detach().flatten() for p in model.parameters()])


def batches_of(data, batch_size):
    model = SimpleNamespace(device=CPU)
    return UtteranceTask(data, None).batches(model, replace(CONFIG, batch_size=batch_size))


def numbered():
    """Utterances whose first word is their number."""
    lengths = [1, 3, 2, 3, 3, 1, 2, 3, 3, 4, 3]
    tokens = [[number] * length for number, length in enumerate(lengths)]
    tags = [["O"] * length for length in lengths]
    return EncodedUtterances.of(tokens, tags, ["Go"] * len(lengths), Labels(("Go",), ("O",)))


@pytest.mark.parametrize("batch_size", [1, 2, 4, 100])
def test_an_epoch_holds_every_utterance_once_in_batches_of_one_length(batch_size):
    data = numbered()
    batches = batches_of(data, batch_size)
    for epoch in range(3):
        found = list(batches.epoch(7, epoch))
        assert len(found) == len(batches)
        seen = []
        for batch in found:
            rows, length = batch.inputs.shape
            assert rows <= batch_size
            assert batch.tags.shape == (rows, length)
            assert batch.intents.shape == (rows,)
            assert batch.tokens == rows * length
            numbers = batch.inputs[:, 0].tolist()
            assert (data.lengths[numbers] == length).all()
            seen += numbers
        assert sorted(seen) == list(range(len(data)))


def test_what_cannot_be_learnt_is_refused():
    labels = Labels(("Go",), ("O",))
    with pytest.raises(TrainingError, match="There are no utterances"):
        batches_of(EncodedUtterances.of([], [], [], labels), 2)
    lacking = EncodedUtterances.of([[1], [2]], [["O"], ["B-city"]], ["Go", "Go"], labels)
    with pytest.raises(
        TrainingError, match="1 of 2 utterances have an intent or tag that the model lacks"
    ):
        batches_of(lacking, 2)


def test_a_step_is_that_of_the_mean_joint_loss():
    model, plain = fresh(said(40)), fresh(said(40)).train()
    config = replace(CONFIG, epochs=2, max_grad_norm=0.3, precision="float32")
    data = model.encode(said(40))
    learn(model, UtteranceTask(data, None), config=config)
    mover = torch.optim.Adam(plain.parameters(), lr=config.learning_rate, fused=True)
    for epoch in range(2):
        for batch in batches_of(data, 4).epoch(config.seed, epoch):
            found = plain(batch.inputs, batch.intents, batch.tags)
            mover.zero_grad()
            (found.intent + found.tags).mean().backward()
            torch.nn.utils.clip_grad_norm_(plain.parameters(), 0.3)
            mover.step()
    torch.testing.assert_close(weights(model), weights(plain), rtol=1e-4, atol=1e-5)


@pytest.mark.slow
@pytest.mark.parametrize(("keep", "after"), [("best", 10), ("last", 30)])
def test_an_interrupted_training_ends_in_the_same_bits(tmp_path, keep, after):
    config = replace(CONFIG, keep=keep)
    shape = {"input_dropout": 0.2, "hidden_dropout": 0.1, "layers": 2}
    whole, broken, again = (fresh(said(40), **shape) for _ in range(3))
    history = train(whole, config, directory=tmp_path / "whole")

    def interrupt(step, *_):
        if step >= after:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        train(broken, config, directory=tmp_path / "run", progress=interrupt)
    resumed = train(again, config, directory=tmp_path / "run", resume=True)
    assert weights(again).equal(weights(whole))
    assert resumed.epochs == history.epochs
    assert resumed.best_epoch == history.best_epoch
    for run in ("whole", "run"):
        saved = load_intent_slot(tmp_path / run, device="cpu")
        assert weights(saved).equal(weights(whole))


def test_a_training_of_other_utterances_is_not_resumed(tmp_path):
    model = fresh(said(40))
    train(model, replace(CONFIG, epochs=1), directory=tmp_path)
    lesson = UtteranceTask(model.encode(said(41)), said(20, seed=1))
    with pytest.raises(TrainingError):
        learn(
            fresh(said(40)),
            lesson,
            config=replace(CONFIG, epochs=1),
            directory=tmp_path,
            resume=True,
        )


@pytest.mark.slow
def test_a_model_learns_to_understand():
    model = fresh(said(40))
    before = evaluate_utterances(model, said(30, seed=2))
    history = train(model, replace(CONFIG, epochs=12))
    after = evaluate_utterances(model, said(30, seed=2))
    assert after.exact_match > 0.9 > before.exact_match
    assert after.slot_f1 > 0.9
    kept = history.epochs[history.best_epoch - 1]
    scores = evaluate_utterances(model, said(20, seed=1))
    assert kept.validation_perplexity == pytest.approx(scores.perplexity)
    assert kept.validation_accuracy == scores.exact_match
    assert kept.measures["slot_f1"] == scores.slot_f1
    assert kept.measures["loss"] == pytest.approx(scores.loss)


@pytest.mark.slow
@pytest.mark.parametrize("keep", ["best", "last"])
def test_the_weights_kept_are_those_of_the_best_or_the_last_epoch(keep):
    model, shown = fresh(said(40)), []
    history = train(
        model,
        replace(CONFIG, epochs=8, keep=keep),
        against=4,
        observe=lambda shown_model, _: shown.append(weights(shown_model)),
    )
    perplexities = [record.validation_perplexity or math.inf for record in history.epochs]
    best = 1 + perplexities.index(min(perplexities))
    assert best < len(shown)
    assert history.best_epoch == (best if keep == "best" else len(shown))
    assert weights(model).equal(shown[history.best_epoch - 1])


def test_early_stopping_waits_for_its_patience():
    def records(perplexities):
        return [
            EpochRecord(
                epoch=number,
                step=number,
                learning_rate=0.1,
                perplexity=None,
                validation_perplexity=perplexity,
                validation_accuracy=None,
            )
            for number, perplexity in enumerate(perplexities, 1)
        ]

    stop = EarlyStopping(2)
    heights = [5.0, 4.0, 4.5, 3.0, 3.0, 3.5, 1.0]
    asked = [stop(records(heights[:number])) for number in range(1, len(heights) + 1)]
    assert asked == [False, False, False, False, False, True, False]


@pytest.mark.slow
def test_a_training_ends_when_its_validation_loss_rises_no_more():
    model = fresh(said(40))
    history = train(model, replace(CONFIG, epochs=60), against=4, stop=EarlyStopping(3))
    perplexities = [record.validation_perplexity or math.inf for record in history.epochs]
    assert history.stopped
    assert len(perplexities) - (1 + perplexities.index(min(perplexities))) == 3


def slots(tags):
    """(name, begin, end) of each slot, of tags well formed or not, as CoNLL's scorer reads them."""
    found, name, begin = set(), None, 0
    for place, tag in enumerate((*tags, "O")):
        kind, _, slot = tag.partition("-")
        if name is not None and (kind != "I" or slot != name):
            found.add((name, begin, place))
            name = None
        if kind != "O" and name is None:
            name, begin = slot, place
    return found


def counted(model, utterances):
    """The definitions, one utterance at a time."""
    right = {"intent": 0, "both": 0, "slots": 0}
    asked = given = words = known = 0
    losses, answers = [], []
    for utterance in utterances:
        tokens = torch.tensor([model.vocabulary.encode(utterance.text)])
        intent, tags = model.predict(tokens)
        answer = tuple(model.tags[tag] for tag in tags[0])
        answers.append(list(answer))
        right["intent"] += model.intents[intent[0]] == utterance.intent
        right["both"] += model.intents[intent[0]] == utterance.intent and answer == utterance.tags
        right["slots"] += len(slots(answer) & slots(utterance.tags))
        asked, given = asked + len(slots(utterance.tags)), given + len(slots(answer))
        if utterance.intent in model.intents and set(utterance.tags) <= set(model.tags):
            ids = torch.tensor([[model.tags.index(tag) for tag in utterance.tags]])
            goal = torch.tensor([model.intents.index(utterance.intent)])
            losses.append(model(tokens, goal, ids).joint.item())
            words, known = words + len(utterance.tags), known + 1
    f1 = 2 * right["slots"] / (asked + given)
    assert f1 == pytest.approx(f1_score([list(u.tags) for u in utterances], answers))
    return UtteranceScores(
        perplexity=math.exp(sum(losses) / words),
        loss=sum(losses) / known,
        intent_accuracy=right["intent"] / len(utterances),
        slot_f1=f1,
        exact_match=right["both"] / len(utterances),
        utterances=len(utterances),
    )


STRANGE = Utterances.of(
    [
        Utterance(("go", "to", "bath"), ("O", "O", "B-city"), "Call"),
        Utterance(("go", "to", "bath"), ("O", "O", "B-place"), "Go"),
    ]
)


@pytest.mark.slow
@pytest.mark.parametrize("epochs", [1, 2, 4])
def test_scores_are_those_of_naive_counting(epochs):
    model = fresh(said(40))
    train(model, replace(CONFIG, epochs=epochs, learning_rate=1e-2))
    test = said(30, seed=3) + STRANGE
    found, expected = evaluate_utterances(model.train(), test), counted(model.eval(), test)
    for name in ("perplexity", "loss", "intent_accuracy", "slot_f1", "exact_match", "utterances"):
        assert getattr(found, name) == pytest.approx(getattr(expected, name), rel=1e-4), name


def test_labels_that_the_model_lacks_count_as_wrong():
    model = fresh(said(40))
    scores = evaluate_utterances(model, STRANGE)
    assert scores.exact_match == 0
    assert scores.perplexity is scores.loss is None
    assert scores.intent_accuracy <= 0.5
    mixed = evaluate_utterances(model, STRANGE + said(10))
    assert mixed.loss == pytest.approx(evaluate_utterances(model, said(10)).loss, rel=1e-5)
    lesson = UtteranceTask(model.encode(said(4)), STRANGE)
    with pytest.raises(TrainingError, match="lacks the labels of all validation utterances"):
        learn(model, lesson, config=replace(CONFIG, epochs=1))


def test_evaluation_leaves_the_model_as_it_was():
    model = fresh(said(40), input_dropout=0.5).train()
    before = weights(model)
    first, second = (evaluate_utterances(model, said(10)) for _ in range(2))
    assert first == second
    assert model.training
    assert weights(model).equal(before)


def test_nothing_cannot_be_scored():
    with pytest.raises(TrainingError, match="no utterances to score"):
        evaluate_utterances(fresh(said(40)), Utterances.of([]))


def test_intervals_contain_the_scores_and_count_utterances():
    model = fresh(said(40))
    train(model, replace(CONFIG, epochs=3))
    test = said(50, seed=1) + STRANGE
    scores, found = evaluate_utterances(model, test), score_with_intervals(model, test)
    assert {name: found[name] for name in asdict(scores)} == asdict(scores)
    right = round(scores.intent_accuracy * 52)
    ends = (found["intent_accuracy_low"], found["intent_accuracy_high"])
    assert ends == clopper_pearson(right, 52)
    for name in ("intent_accuracy", "exact_match", "slot_f1"):
        assert 0 <= found[f"{name}_low"] <= found[name] <= found[f"{name}_high"] <= 1
    json.dumps(found, allow_nan=False)


def test_the_f1_of_the_interval_is_seqevals():
    chance = np.random.default_rng(0)
    truth = [list(chance.choice(TAGS, 6)) for _ in range(200)]
    given = [
        [tag if chance.random() < 0.8 else str(chance.choice(TAGS)) for tag in row] for row in truth
    ]
    low, high = slot_f1_interval(truth, given) or (0, 0)
    assert (low + high) / 2 == pytest.approx(f1_score(truth, given))


@pytest.mark.slow
def test_the_interval_of_f1_covers_as_often_as_it_says():
    chance = np.random.default_rng(1)

    def drawn(number):
        truth = [list(chance.choice(TAGS, chance.integers(1, 6))) for _ in range(number)]
        given = [[tag if chance.random() < 0.85 else "O" for tag in row] for row in truth]
        return truth, given

    true = f1_score(*drawn(20_000))
    covered = 0
    for _ in range(200):
        low, high = slot_f1_interval(*drawn(80)) or (1, 0)
        covered += low <= true <= high
    assert stats.binom.cdf(covered, 200, 0.95) > 1e-3


def test_nothing_is_known_of_f1_where_nothing_varies():
    assert slot_f1_interval([["O"]], [["O"]]) is None
    assert slot_f1_interval([["B-city"], ["B-city"]], [["B-city"], ["B-city"]]) is None
    assert slot_f1_interval([["B-city"]], [["O"]]) is None
