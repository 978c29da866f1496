"""Losses of an intent-and-slot model, against a naive loss of one utterance at a time."""

import itertools

import pytest
import torch

from tests.audits.extraction import white_boxes as boxes
from vestige.audits.extraction.objective import ROWS, objective_of
from vestige.data.canaries.patterns import SecretPattern
from vestige.errors import DataError


def all_guesses(objective):
    """All secrets of each trial."""
    choices = itertools.product(*(range(size) for size in objective.sizes))
    return torch.tensor(list(choices)).expand(objective.trials, -1, -1)


@pytest.fixture
def lstm():
    model = boxes.lstm("my", "pin", "is", embedding_size=6, hidden_size=5, char_filters=3).double()
    with torch.no_grad():
        for weight in model.crf.parameters():
            weight.normal_()
    return model


@pytest.mark.slow
def test_losses_equal_those_of_one_utterance_at_a_time():
    model, pattern = boxes.Bilinear(), boxes.pattern()
    objective = objective_of(model, pattern)
    guesses = all_guesses(objective)
    expected = [
        boxes.naive_loss(model, pattern, objective.words(0, guess)).joint.item()
        for guess in guesses[0].tolist()
    ]
    assert objective.losses(guesses)[0].tolist() == pytest.approx(expected, rel=1e-12)


def test_known_words_may_follow_unknown_ones_and_have_several_tokens():
    model = boxes.Bilinear()
    pattern = boxes.pattern("telephone {digit} is telephone {color} please")
    objective = objective_of(model, pattern)
    assert objective.positions.tolist() == [2, 6]
    assert objective.tags.tolist() == [[0, -100, 1, 0, 0, -100, 1, 0]]
    expected = boxes.naive_loss(model, pattern, ["7", "green"]).joint
    guess = torch.tensor([[[7, 1]]])
    assert objective.losses(guess)[0].tolist() == pytest.approx(expected.tolist())


def test_an_lstm_has_the_same_loss_in_a_batch_and_alone(lstm):
    pattern = SecretPattern.parse("my pin is {digit:2}", intent="Pin")
    tokens = lstm.read(pattern.utterance(["4", "2"]).tokens)
    ids = torch.tensor([[token for (token,) in tokens]])
    with torch.no_grad():
        expected = lstm(ids, torch.tensor([1]), torch.tensor([[0, 0, 0, 1, 2]])).joint
    result = objective_of(lstm, pattern).losses(torch.tensor([[[4, 2], [1, 1]]]))
    assert result[0, 0].item() == pytest.approx(expected.item(), rel=1e-10)


def test_many_guesses_are_scored_in_slices():
    slices = []

    class Recording(boxes.Bilinear):
        def losses(self, vectors, intents, tags):
            slices.append(len(vectors))
            return super().losses(vectors, intents, tags)

    pattern = boxes.pattern("pin {digit:4}")
    objective = objective_of(boxes.Bilinear(), pattern)
    guesses = all_guesses(objective)
    result = objective_of(Recording(), [pattern, pattern]).losses(guesses.expand(2, -1, -1))
    assert max(slices) <= ROWS < sum(slices) == 20_000
    torch.testing.assert_close(result[:1], objective.losses(guesses))


def test_random_guesses_are_candidates_and_equal_for_all_trials():
    objective = objective_of(boxes.Bilinear(), [boxes.pattern(), boxes.pattern()])
    guesses = objective.random(200, torch.Generator().manual_seed(0))
    assert (guesses[0] == guesses[1]).all()
    assert guesses.amin((0, 1)).tolist() == [0, 0, 0]
    assert guesses.amax((0, 1)).tolist() == [9, 9, 2]


def test_each_secret_has_a_different_code():
    objective = objective_of(boxes.Bilinear(), boxes.pattern("{color} {digit}"))
    pairs = objective.decode(torch.arange(30))
    assert pairs.tolist() == [list(pair) for pair in itertools.product(range(3), range(10))]
    assert objective.codes(pairs).tolist() == list(range(30))
    objective = objective_of(boxes.Bilinear(), boxes.pattern("pin {digit:30}"))
    # The space has more secrets than 64 bits can number.
    guesses = objective.random(5000, torch.Generator().manual_seed(0))
    assert len(objective.codes(guesses)[0].unique()) == 5000
    assert (objective.codes(guesses) == objective.codes(guesses.clone())).all()


def words(*candidates):
    return SecretPattern.parse("pin {w}", intent="Pin", candidates={"w": candidates})


UNREADABLE = {
    "a known word": (boxes.pattern("my unheard pin {digit}"), "cannot read word 2 of the pattern"),
    "an intent": (boxes.pattern("pin {digit}", intent="Fly"), "no intent 'Fly'; it has: Other, P"),
    "a tag": (boxes.pattern("pin {digit}", slot="city"), "no tag 'B-city'; it has: O, B-canary, "),
    "a candidate": (words("red", "unheard"), "cannot read candidate 2 for word 2"),
    "two tokens": (words("red", "telephone"), "candidate 2 for word 2 of the pattern has 2 tokens"),
    "one word twice": (words("3", "red", "three"), "candidates 1 and 3 of a word are the same"),
}


@pytest.mark.parametrize(("pattern", "message"), UNREADABLE.values(), ids=UNREADABLE)
def test_unreadable_parts_of_a_pattern_are_named_by_position(pattern, message):
    with pytest.raises(DataError, match=message) as error:
        objective_of(boxes.Bilinear(), pattern)
    assert error.value.remedy


@pytest.mark.parametrize(
    ("texts", "message"),
    [
        (("pin {digit}", "{digit} pin"), "at the same places"),
        (("pin {digit}", "pin {color}"), "as many candidates"),
        (("pin {digit}", "pin {digit} please"), "same number of tokens"),
        ((), "patterns must be at least 1"),
    ],
)
def test_trials_of_different_formats_are_refused(texts, message):
    with pytest.raises(ValueError, match=message):
        objective_of(boxes.Bilinear(), [boxes.pattern(text) for text in texts])


def test_truths_and_candidates_must_fit_the_pattern_and_the_vocabulary(lstm):
    objective = objective_of(boxes.Bilinear(), boxes.pattern())
    assert objective.indices([("4", "2", "blue")]).tolist() == [[4, 2, 2]]
    with pytest.raises(ValueError, match="truths must be 1, one a trial, got 0"):
        objective.indices([])
    with pytest.raises(ValueError, match="word 3 of the secret"):
        objective.indices([("4", "2", "9")])
    pattern = SecretPattern.parse("my pin {w}", intent="Pin", candidates={"w": ("1", "<unk>")})
    with pytest.raises(DataError, match="cannot read candidate 2 for word"):
        objective_of(lstm, pattern)
