"""Losses of an intent-and-slot model, against each utterance scored by itself."""

import itertools

import pytest
import torch

from tests.audits.extraction import white_boxes as boxes
from vestige.audits.extraction.objective import ROWS, objective_of
from vestige.data.canaries.patterns import SecretPattern
from vestige.data.vocabulary import WordVocabulary
from vestige.errors import DataError
from vestige.models.bilstm_crf import IntentSlotConfig, IntentSlotModel


def every(objective):
    """All secrets of each trial."""
    choices = itertools.product(*(range(size) for size in objective.sizes))
    return torch.tensor(list(choices)).expand(objective.trials, -1, -1)


@pytest.fixture
def lstm():
    words = WordVocabulary(("<unk>", "<eos>", "my", "pin", "is", *"0123456789"))
    shape = IntentSlotConfig(
        intents=("Other", "Pin"), tags=("O", "B-canary", "I-canary"), embedding_size=6,
        hidden_size=5, char_filters=3,
    )  # fmt: skip
    torch.manual_seed(0)
    model = IntentSlotModel(words, shape).double().eval()
    with torch.no_grad():
        for weight in model.crf.parameters():
            weight.normal_()
    return model


@pytest.mark.slow
def test_losses_are_those_of_one_utterance_at_a_time():
    model, asked = boxes.Bilinear(), boxes.pattern()
    objective = objective_of(model, asked)
    guesses = every(objective)
    expected = [
        boxes.naive_loss(model, asked, objective.words(0, guess)).joint.item()
        for guess in guesses[0].tolist()
    ]
    assert objective.losses(guesses)[0].tolist() == pytest.approx(expected, rel=1e-12)


def test_known_words_may_follow_the_unknown_and_have_several_tokens():
    model = boxes.Bilinear()
    asked = boxes.pattern("telephone {digit} is telephone {color} please")
    objective = objective_of(model, asked)
    assert objective.positions.tolist() == [2, 6]
    assert objective.tags.tolist() == [[0, -100, 1, 0, 0, -100, 1, 0]]
    expected = boxes.naive_loss(model, asked, ["7", "green"]).joint
    guess = torch.tensor([[[7, 1]]])
    assert objective.losses(guess)[0].tolist() == pytest.approx(expected.tolist())


def test_an_lstm_has_the_same_loss_in_a_batch_and_alone(lstm):
    asked = SecretPattern.parse("my pin is {digit:2}", intent="Pin")
    tokens = lstm.read(asked.utterance(["4", "2"]).tokens)
    ids = torch.tensor([[token for (token,) in tokens]])
    with torch.no_grad():
        expected = lstm(ids, torch.tensor([1]), torch.tensor([[0, 0, 0, 1, 2]])).joint
    result = objective_of(lstm, asked).losses(torch.tensor([[[4, 2], [1, 1]]]))
    assert result[0, 0].item() == pytest.approx(expected.item(), rel=1e-10)


def test_trials_are_scored_as_one_by_one():
    model = boxes.Bilinear()
    trials = [
        boxes.pattern("my pin {digit:2}"),
        boxes.pattern("please is {digit:2}", intent="Other"),
    ]
    together = objective_of(model, trials)
    guesses = together.random(7, torch.Generator().manual_seed(0))
    for number, asked in enumerate(trials):
        alone = objective_of(model, asked).losses(guesses[:1])
        torch.testing.assert_close(together.losses(guesses)[number : number + 1], alone)


def test_many_guesses_are_scored_in_slices():
    largest = []

    class Watched(boxes.Bilinear):
        def losses(self, vectors, intents, tags):
            largest.append(len(vectors))
            return super().losses(vectors, intents, tags)

    asked = boxes.pattern("pin {digit:4}")
    guesses = every(objective_of(boxes.Bilinear(), asked))
    result = objective_of(Watched(), [asked, asked]).losses(guesses.expand(2, -1, -1))
    assert max(largest) <= ROWS < sum(largest) == 20_000
    torch.testing.assert_close(result[:1], objective_of(boxes.Bilinear(), asked).losses(guesses))


def test_random_guesses_are_candidates_and_the_same_for_every_trial():
    objective = objective_of(boxes.Bilinear(), [boxes.pattern(), boxes.pattern()])
    drawn = objective.random(200, torch.Generator().manual_seed(0))
    assert (drawn[0] == drawn[1]).all()
    assert drawn.amin((0, 1)).tolist() == [0, 0, 0]
    assert drawn.amax((0, 1)).tolist() == [9, 9, 2]


def test_secrets_have_codes_of_their_own():
    objective = objective_of(boxes.Bilinear(), boxes.pattern("{color} {digit}"))
    pairs = objective.decode(torch.arange(30))
    assert pairs.tolist() == [list(pair) for pair in itertools.product(range(3), range(10))]
    assert objective.codes(pairs).tolist() == list(range(30))
    objective = objective_of(boxes.Bilinear(), boxes.pattern("pin {digit:30}"))
    # More than numbers of 64 bits can count.
    drawn = objective.random(5000, torch.Generator().manual_seed(0))
    assert len(objective.codes(drawn)[0].unique()) == 5000
    assert (objective.codes(drawn) == objective.codes(drawn.clone())).all()


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


@pytest.mark.parametrize(("asked", "message"), UNREADABLE.values(), ids=UNREADABLE)
def test_what_the_model_cannot_read_is_named_by_its_position(asked, message):
    with pytest.raises(DataError, match=message) as caught:
        objective_of(boxes.Bilinear(), asked)
    assert caught.value.remedy


@pytest.mark.parametrize(
    ("texts", "message"),
    [
        (("pin {digit}", "{digit} pin"), "at the same places"),
        (("pin {digit}", "pin {color}"), "as many candidates"),
        (("pin {digit}", "pin {digit} please"), "same number of tokens"),
        ((), "patterns must be at least 1"),
    ],
)
def test_trials_must_have_one_shape(texts, message):
    with pytest.raises(ValueError, match=message):
        objective_of(boxes.Bilinear(), [boxes.pattern(text) for text in texts])


def test_truths_and_candidates_must_be_of_the_pattern_and_the_vocabulary(lstm):
    objective = objective_of(boxes.Bilinear(), boxes.pattern())
    assert objective.indices([("4", "2", "blue")]).tolist() == [[4, 2, 2]]
    with pytest.raises(ValueError, match="truths must be 1, one a trial, got 0"):
        objective.indices([])
    with pytest.raises(ValueError, match="word 3 of the secret"):
        objective.indices([("4", "2", "9")])
    asked = SecretPattern.parse("my pin {w}", intent="Pin", candidates={"w": ("1", "<unk>")})
    with pytest.raises(DataError, match="cannot read candidate 2 for word"):
        objective_of(lstm, asked)
