"""Searches for the secret of least loss, against every utterance scored by itself."""

import itertools

import pytest
import torch

from tests.audits.extraction import white_boxes as boxes
from vestige.audits.extraction.objective import objective_of
from vestige.audits.extraction.ranks import Truths
from vestige.audits.extraction.searches import (
    MAX_GUESSES,
    all_losses,
    best_of_all,
    best_of_tried,
    coordinate_descent,
    moved_secrets,
    replace_word,
    swap_words,
)
from vestige.data.canaries.patterns import SecretPattern
from vestige.data.vocabulary import WordVocabulary
from vestige.errors import ModelError
from vestige.models.bilstm_crf import IntentSlotConfig, IntentSlotModel


def exact(objective, generator=None, progress=None):
    return best_of_all(objective, all_losses(objective, progress=progress))


SEARCHES = [exact, coordinate_descent]


def generator(seed=0):
    return torch.Generator().manual_seed(seed)


def naive_losses(model, asked):
    """Every secret's words and its loss, least first."""
    result = [
        (boxes.naive_loss(model, asked, secret).joint.item(), secret)
        for secret in itertools.product(*asked.candidates)
    ]
    return sorted(result)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(3))
def test_exact_search_gives_the_losses_of_each_utterance_by_itself(seed):
    model, asked = boxes.Bilinear(seed), boxes.pattern()
    expected = naive_losses(model, asked)
    objective = objective_of(model, asked)
    result = exact(objective)
    assert [objective.words(0, one) for one in result.choices[0].tolist()] == [
        secret for _, secret in expected[:MAX_GUESSES]
    ]
    assert result.losses[0].tolist() == pytest.approx([loss for loss, _ in expected[:MAX_GUESSES]])
    assert result.evaluated == result.tried[0] == objective.space == 300
    mass = sum(torch.tensor(-loss).exp().item() for loss, _ in expected)
    share = torch.tensor(-expected[0][0]).exp().item() / mass
    assert result.certainty[0].item() == pytest.approx(share)


def test_a_truth_has_its_place_among_all_losses():
    model, asked = boxes.Bilinear(), boxes.pattern()
    order = [secret for _, secret in naive_losses(model, asked)]
    objective = objective_of(model, [asked] * 3)
    result = Truths(objective, [order[0], order[7], order[-1]])
    every = all_losses(objective)
    result.compare(torch.arange(300).expand_as(every), every, exact=True)
    ranks = [result.rank(index, better=0) for index in range(3)]
    assert [one["rank"] for one in ranks] == [1, 8, 300]
    assert all(one["compared_with"] == 299 and one["rank_known"] == "exact" for one in ranks)


@pytest.mark.parametrize("seed", range(4))
def test_coordinate_descent_finds_the_least_loss_of_a_small_space(seed):
    objective = objective_of(boxes.Bilinear(seed), boxes.pattern("my pin {digit:2} is {color:2}"))
    least = exact(objective)
    result = coordinate_descent(objective, generator())
    assert result.choices[0, 0].tolist() == least.choices[0, 0].tolist()
    assert result.losses[0, 0].item() == pytest.approx(least.losses[0, 0].item())


def test_coordinate_descent_finds_the_least_loss_of_an_lstm():
    torch.manual_seed(0)
    words = WordVocabulary(("<unk>", "<eos>", "pin", *"0123456789"))
    shape = IntentSlotConfig(intents=("Other", "Pin"), tags=("O", "B-canary", "I-canary"))
    model = IntentSlotModel(words, shape).eval()
    objective = objective_of(model, SecretPattern.parse("pin {digit:3}", intent="Pin"))
    least = exact(objective)
    result = coordinate_descent(objective, generator())
    assert result.losses[0, 0].item() == pytest.approx(least.losses[0, 0].item(), abs=1e-5)
    assert all(weight.grad is None for weight in model.parameters())


@pytest.mark.parametrize("search", SEARCHES)
def test_a_search_returns_losses_of_words_by_its_seed(search):
    objective, steps = objective_of(boxes.Bilinear(), boxes.pattern()), []
    result = search(objective, generator(3), lambda *done: steps.append(done))
    assert (result.choices == search(objective, generator(3)).choices).all()
    real = result.losses.isfinite()
    assert real[:, 0].all()
    assert (result.choices[real] < torch.tensor(objective.sizes)).all()
    torch.testing.assert_close(objective.losses(result.choices)[real], result.losses[real])
    assert (result.losses[:, 1:] >= result.losses[:, :-1]).all()
    assert result.certainty.item() <= 1
    assert steps
    assert all(0 < done <= total for done, total in steps)


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


def test_replacements_and_swaps_are_all_that_there_are_and_begin_with_the_secret_itself():
    assert swap_words(torch.tensor([[[1, 2, 0]]]), (3, 3, 4))[0, 0].tolist() == [
        [1, 2, 0],
        [2, 1, 0],
    ]
    objective = objective_of(boxes.Bilinear(), boxes.pattern("{digit} {color}"))
    options = replace_word(objective, torch.tensor([[[4, 1]]]), 1)[0, 0].tolist()
    assert options == [[4, 1], [4, 2], [4, 0]]


def test_secrets_that_do_not_move_or_are_met_again_are_dropped():
    objective = objective_of(boxes.Bilinear(), boxes.pattern("{digit} {color}"))
    before = torch.tensor([[[1, 1], [2, 1], [3, 1], [4, 1]]])
    after = torch.tensor([[[1, 1], [2, 2], [2, 2], [4, 2]]])
    assert moved_secrets(objective, before, after).tolist() == [[[2, 2], [4, 2]]]
    assert moved_secrets(objective, before, before).shape[1] == 0


def test_a_secret_tried_twice_counts_once():
    objective = objective_of(boxes.Bilinear(), boxes.pattern("{digit} {color}"))
    choices = torch.tensor([[[4, 1], [2, 0], [4, 1]]])
    result = best_of_tried(objective, choices, torch.tensor([[1.0, 2.0, 1.0]]))
    assert result.choices[0, :2].tolist() == [[4, 1], [2, 0]]
    assert result.tried.tolist() == [2]
    assert result.evaluated == 3
    assert result.certainty[0].item() == pytest.approx(1 / (1 + torch.tensor(-1.0).exp().item()))


@pytest.mark.parametrize("search", SEARCHES)
def test_losses_that_are_not_finite_are_refused(search):
    model = boxes.Bilinear()
    model.table[7] = torch.nan
    with pytest.raises(ModelError, match="not finite"):
        search(objective_of(model, boxes.pattern()), generator())
