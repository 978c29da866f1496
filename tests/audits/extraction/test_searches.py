"""What is asked of an intent-and-slot model, and the searches, beside each utterance by itself."""

import itertools

import pytest
import torch

from tests.audits.extraction import white_boxes as boxes
from vestige.audits.extraction.objective import ROWS, objective_of
from vestige.audits.extraction.ranks import Truths
from vestige.audits.extraction.searches import (
    KEPT,
    coordinate_descent,
    every_loss,
    exhaust,
    gathered,
    replaced,
    still_moving,
    swapped,
)
from vestige.data.canaries.patterns import SecretPattern
from vestige.data.vocabulary import WordVocabulary
from vestige.errors import DataError, ModelError
from vestige.models.bilstm_crf import IntentSlotConfig, IntentSlotModel

# The objective: every loss.


DIGITS = tuple("0123456789")


def every(objective):
    """All secrets of one trial."""
    choices = itertools.product(*(range(size) for size in objective.sizes))
    return torch.tensor(list(choices)).expand(objective.trials, -1, -1)


@pytest.fixture
def lstm():
    words = WordVocabulary(("<unk>", "<eos>", "my", "pin", "is", *DIGITS))
    shape = IntentSlotConfig(
        intents=("Other", "Pin"),
        tags=("O", "B-canary", "I-canary"),
        embedding_size=6,
        hidden_size=5,
        char_filters=3,
    )

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


def test_known_words_may_stand_after_the_unknown_and_take_several_tokens():
    model = boxes.Bilinear()
    asked = boxes.pattern("telephone {digit} is telephone {color} please")
    objective = objective_of(model, asked)
    assert objective.places.tolist() == [2, 6]
    assert objective.tags.tolist() == [[0, -100, 1, 0, 0, -100, 1, 0]]
    guess = torch.tensor([[[7, 1]]])
    expected = boxes.naive_loss(model, asked, ["7", "green"]).joint
    assert objective.losses(guess)[0].tolist() == pytest.approx(expected.tolist())


def test_a_lstm_loses_the_same_in_a_batch_and_alone(lstm):
    asked = SecretPattern.parse("my pin is {digit:2}", intent="Pin")
    objective = objective_of(lstm, asked)
    tokens = lstm.read(asked.utterance(["4", "2"]).tokens)
    ids = torch.tensor([[token for (token,) in tokens]])
    with torch.no_grad():
        expected = lstm(ids, torch.tensor([1]), torch.tensor([[0, 0, 0, 1, 2]])).joint
    found = objective.losses(torch.tensor([[[4, 2], [1, 1]]]))
    assert found[0, 0].item() == pytest.approx(expected.item(), rel=1e-10)


def test_trials_are_answered_as_one_by_one():
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


def test_many_guesses_are_asked_in_slices():
    largest = []

    class Watched(boxes.Bilinear):
        def losses(self, vectors, intents, tags):
            largest.append(len(vectors))
            return super().losses(vectors, intents, tags)

    asked = boxes.pattern("pin {digit:4}")
    guesses = every(objective_of(boxes.Bilinear(), asked))
    objective = objective_of(Watched(), [asked, asked])
    found = objective.losses(guesses.expand(2, -1, -1))
    assert max(largest) <= ROWS < sum(largest) == 20_000
    torch.testing.assert_close(found[:1], objective_of(boxes.Bilinear(), asked).losses(guesses))


def test_random_guesses_are_candidates_and_the_same_for_every_trial():
    objective = objective_of(boxes.Bilinear(), [boxes.pattern(), boxes.pattern()])
    drawn = objective.random(200, torch.Generator().manual_seed(0))
    assert (drawn[0] == drawn[1]).all()
    assert drawn.amin((0, 1)).tolist() == [0, 0, 0]
    assert drawn.amax((0, 1)).tolist() == [9, 9, 2]


def words(*candidates):
    return SecretPattern.parse("pin {w}", intent="Pin", candidates={"w": candidates})


REFUSED = {
    "a known word": (boxes.pattern("my unheard pin {digit}"), "cannot read word 2 of the pattern"),
    "an intent": (boxes.pattern("pin {digit}", intent="Fly"), "no intent 'Fly'; it has: Other, P"),
    "a tag": (boxes.pattern("pin {digit}", slot="city"), "no tag 'B-city'; it has: O, B-canary, "),
    "a candidate": (words("red", "unheard"), "cannot read candidate 2 for word 2"),
    "two tokens": (words("red", "telephone"), "candidate 2 for word 2 of the pattern has 2 tokens"),
    "one word twice": (
        words("3", "red", "three"),
        "candidates 1 and 3 of a word are the same word",
    ),
}


@pytest.mark.parametrize(("asked", "message"), REFUSED.values(), ids=REFUSED)
def test_what_the_model_cannot_read_is_said_by_its_position(asked, message):
    with pytest.raises(DataError, match=message) as caught:
        objective_of(boxes.Bilinear(), asked)
    assert caught.value.remedy


def alike(*texts):
    return [boxes.pattern(text) for text in texts]


@pytest.mark.parametrize(
    ("patterns", "message"),
    [
        (alike("pin {digit}", "{digit} pin"), "at the same places"),
        (alike("pin {digit}", "pin {color}"), "as many candidates"),
        (alike("pin {digit}", "pin {digit} please"), "same number of tokens"),
        ([], "patterns must be at least 1"),
    ],
)
def test_trials_must_have_one_shape(patterns, message):
    with pytest.raises(ValueError, match=message):
        objective_of(boxes.Bilinear(), patterns)


def test_truths_and_candidates_must_be_of_the_pattern_and_the_vocabulary(lstm):
    objective = objective_of(boxes.Bilinear(), boxes.pattern())
    assert objective.numbers([("4", "2", "blue")]).tolist() == [[4, 2, 2]]
    with pytest.raises(ValueError, match="truths must be 1, one a trial, got 0"):
        objective.numbers([])
    with pytest.raises(ValueError, match="word 3 of the secret"):
        objective.numbers([("4", "2", "9")])
    asked = SecretPattern.parse("my pin {w}", intent="Pin", candidates={"w": ("1", "<unk>")})
    with pytest.raises(DataError, match="cannot read candidate 2 for word"):
        objective_of(lstm, asked)


# Searches.


def exact(objective, generator=None, progress=None):
    return exhaust(objective, every_loss(objective, progress))


SEARCHES = [exact, coordinate_descent]


def generator(seed=0):
    return torch.Generator().manual_seed(seed)


def naive_losses(model, asked):
    """Every secret's words and its loss, least first."""
    found = [
        (boxes.naive_loss(model, asked, secret).joint.item(), secret)
        for secret in itertools.product(*asked.candidates)
    ]
    return sorted(found)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(3))
def test_exact_search_is_the_loss_of_each_utterance_by_itself(seed):
    model, asked = boxes.Bilinear(seed), boxes.pattern()
    expected = naive_losses(model, asked)
    objective = objective_of(model, asked)
    found = exact(objective)
    assert [objective.words(0, one) for one in found.choices[0].tolist()] == [
        secret for _, secret in expected[:KEPT]
    ]
    assert found.losses[0].tolist() == pytest.approx([loss for loss, _ in expected[:KEPT]])
    assert found.evaluated == found.tried[0] == objective.space == 300
    mass = sum(torch.tensor(-loss).exp().item() for loss, _ in expected)
    share = torch.tensor(-expected[0][0]).exp().item() / mass
    assert found.certainty[0].item() == pytest.approx(share)


def test_exact_search_counts_where_the_truths_stand():
    model, asked = boxes.Bilinear(), boxes.pattern()
    order = [secret for _, secret in naive_losses(model, asked)]
    objective = objective_of(model, [asked] * 3)
    truths = [order[0], order[7], order[-1]]
    found = Truths(objective, truths)
    every = every_loss(objective)
    found.compare(torch.arange(300).expand_as(every), every, whole=True)
    ranks = [found.rank(place, better=0) for place in range(3)]
    assert [one["rank"] for one in ranks] == [1, 8, 300]
    assert all(one["compared_with"] == 299 and one["rank_known"] == "exact" for one in ranks)


def test_secrets_have_codes_of_their_own():
    objective = objective_of(boxes.Bilinear(), boxes.pattern("{color} {digit}"))
    pairs = objective.decoded(torch.arange(30))
    assert pairs.tolist() == [list(pair) for pair in itertools.product(range(3), range(10))]
    assert objective.codes(pairs).tolist() == list(range(30))
    objective = objective_of(boxes.Bilinear(), boxes.pattern("pin {digit:30}"))
    drawn = objective.random(5000, generator())  # more than numbers of 64 bits tell apart
    assert len(objective.codes(drawn)[0].unique()) == 5000
    assert (objective.codes(drawn) == objective.codes(drawn.clone())).all()


@pytest.mark.parametrize("seed", range(4))
def test_coordinate_descent_finds_the_least_loss_of_a_small_space(seed):
    objective = objective_of(boxes.Bilinear(seed), boxes.pattern("my pin {digit:2} is {color:2}"))
    least = exact(objective)
    found = coordinate_descent(objective, generator())
    assert found.choices[0, 0].tolist() == least.choices[0, 0].tolist()
    assert found.losses[0, 0].item() == pytest.approx(least.losses[0, 0].item())


def test_coordinate_descent_finds_the_least_loss_of_a_lstm():
    torch.manual_seed(0)
    words = WordVocabulary(("<unk>", "<eos>", "pin", *"0123456789"))
    shape = IntentSlotConfig(intents=("Other", "Pin"), tags=("O", "B-canary", "I-canary"))
    model = IntentSlotModel(words, shape).eval()
    objective = objective_of(model, SecretPattern.parse("pin {digit:3}", intent="Pin"))
    least = exact(objective)
    found = coordinate_descent(objective, generator())
    assert found.losses[0, 0].item() == pytest.approx(least.losses[0, 0].item(), abs=1e-5)
    assert all(weight.grad is None for weight in model.parameters())


@pytest.mark.parametrize("search", SEARCHES)
def test_a_planted_least_loss_is_found_by_every_search(search):
    asked = boxes.pattern("my pin is {digit:4}")
    objective = objective_of(boxes.Planted("3141"), asked)
    found = search(objective, generator())
    assert objective.words(0, found.choices[0, 0].tolist()) == tuple("3141")
    assert found.losses[0, 0].item() == pytest.approx(0, abs=1e-12)


@pytest.mark.parametrize("search", SEARCHES)
def test_a_search_returns_what_the_model_says_of_the_words(search):
    objective = objective_of(boxes.Bilinear(), boxes.pattern())
    found = search(objective, generator())
    real = found.losses.isfinite()
    assert real[:, 0].all()
    assert (found.choices[real] < torch.tensor(objective.sizes)).all()
    torch.testing.assert_close(objective.losses(found.choices)[real], found.losses[real])
    assert (found.losses[:, 1:] >= found.losses[:, :-1]).all()
    assert found.certainty.item() <= 1


@pytest.mark.parametrize("search", SEARCHES)
def test_trials_in_one_batch_find_what_each_finds_alone(search):
    model = boxes.Bilinear()
    trials = [
        boxes.pattern("my pin {digit:2} {color}"),
        boxes.pattern("please is {digit:2} {color}", intent="Other"),
    ]
    together = search(objective_of(model, trials), generator())
    for number, asked in enumerate(trials):
        alone = search(objective_of(model, asked), generator())
        real = alone.losses[0].isfinite()
        assert together.choices[number][real].tolist() == alone.choices[0][real].tolist()
        torch.testing.assert_close(together.losses[number], alone.losses[0])
        torch.testing.assert_close(together.certainty[number], alone.certainty[0])


@pytest.mark.parametrize("search", SEARCHES)
def test_a_seed_decides_and_progress_ends_with_all(search):
    objective = objective_of(boxes.Bilinear(), boxes.pattern())
    told = []
    first = search(objective, generator(3), lambda done, of: told.append((done, of)))
    second = search(objective, generator(3))
    assert (first.choices == second.choices).all()
    assert told
    assert all(0 < done <= total for done, total in told)


def test_replacements_and_swaps_are_all_there_are_and_begin_with_the_secret_itself():
    assert swapped(torch.tensor([[[1, 2, 0]]]), (3, 3, 4))[0, 0].tolist() == [[1, 2, 0], [2, 1, 0]]
    objective = objective_of(boxes.Bilinear(), boxes.pattern("{digit} {color}"))
    options = replaced(objective, torch.tensor([[[4, 1]]]), 1)[0, 0].tolist()
    assert options == [[4, 1], [4, 2], [4, 0]]


def test_secrets_that_stand_still_or_are_met_again_are_dropped():
    objective = objective_of(boxes.Bilinear(), boxes.pattern("{digit} {color}"))
    before = torch.tensor([[[1, 1], [2, 1], [3, 1], [4, 1]]])
    after = torch.tensor([[[1, 1], [2, 2], [2, 2], [4, 2]]])
    assert still_moving(objective, before, after).tolist() == [[[2, 2], [4, 2]]]
    assert still_moving(objective, before, before).shape[1] == 0


def test_a_secret_tried_twice_counts_once():
    objective = objective_of(boxes.Bilinear(), boxes.pattern("{digit} {color}"))
    choices = torch.tensor([[[4, 1], [2, 0], [4, 1]]])
    losses = torch.tensor([[1.0, 2.0, 1.0]])
    found = gathered(objective, choices, losses)
    assert found.choices[0, :2].tolist() == [[4, 1], [2, 0]]
    assert found.tried.tolist() == [2]
    assert found.evaluated == 3
    assert found.certainty[0].item() == pytest.approx(1 / (1 + torch.tensor(-1.0).exp().item()))


def test_a_model_that_diverged_is_told_from_a_secret():
    model = boxes.Bilinear()
    model.table[7] = torch.nan
    for search in SEARCHES:
        with pytest.raises(ModelError, match="not finite"):
            search(objective_of(model, boxes.pattern()), generator())
