"""Searches for the secret of least loss, against a naive loss of every utterance."""

import itertools

import pytest
import torch

from tests.audits.extraction import white_boxes as boxes
from vestige.audits.extraction.objective import objective_of
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
from vestige.errors import ModelError


def exact(objective, generator=None, progress=None):
    return best_of_all(objective, all_losses(objective, progress=progress))


EACH_SEARCH = pytest.mark.parametrize("search", [exact, coordinate_descent])


def generator(seed=0):
    return torch.Generator().manual_seed(seed)


def naive_losses(model, pattern):
    """(loss, words) of every secret, least loss first."""
    return sorted(
        (boxes.naive_loss(model, pattern, secret).joint.item(), secret)
        for secret in itertools.product(*pattern.candidates)
    )


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(3))
def test_exact_search_gives_the_naive_losses(seed):
    model, pattern = boxes.Bilinear(seed), boxes.pattern()
    expected = naive_losses(model, pattern)
    objective = objective_of(model, pattern)
    result = exact(objective)
    assert [objective.words(0, choice) for choice in result.choices[0].tolist()] == [
        secret for _, secret in expected[:MAX_GUESSES]
    ]
    assert result.losses[0].tolist() == pytest.approx([loss for loss, _ in expected[:MAX_GUESSES]])
    assert result.evaluated == result.tried[0] == objective.space == 300
    total = sum(torch.tensor(-loss).exp().item() for loss, _ in expected)
    share = torch.tensor(-expected[0][0]).exp().item() / total
    assert result.certainty[0].item() == pytest.approx(share)


@pytest.mark.parametrize("seed", range(4))
def test_coordinate_descent_finds_the_least_loss_of_a_small_space(seed):
    objective = objective_of(boxes.Bilinear(seed), boxes.pattern("my pin {digit:2} is {color:2}"))
    expected = exact(objective)
    result = coordinate_descent(objective, generator())
    assert result.choices[0, 0].tolist() == expected.choices[0, 0].tolist()
    assert result.losses[0, 0].item() == pytest.approx(expected.losses[0, 0].item())


def test_coordinate_descent_finds_the_least_loss_of_an_lstm():
    model = boxes.lstm("pin")
    objective = objective_of(model, SecretPattern.parse("pin {digit:3}", intent="Pin"))
    expected = exact(objective)
    result = coordinate_descent(objective, generator())
    assert result.losses[0, 0].item() == pytest.approx(expected.losses[0, 0].item(), abs=1e-5)
    assert all(weight.grad is None for weight in model.parameters())


@EACH_SEARCH
def test_a_search_returns_sorted_losses_of_candidates_and_depends_on_its_seed_only(search):
    objective, steps = objective_of(boxes.Bilinear(), boxes.pattern()), []
    result = search(objective, generator(3), lambda *step: steps.append(step))
    assert (result.choices == search(objective, generator(3)).choices).all()
    finite = result.losses.isfinite()
    assert finite[:, 0].all()
    assert (result.choices[finite] < torch.tensor(objective.sizes)).all()
    torch.testing.assert_close(objective.losses(result.choices)[finite], result.losses[finite])
    assert (result.losses[:, 1:] >= result.losses[:, :-1]).all()
    assert result.certainty.item() <= 1
    assert steps
    assert all(0 < done <= total for done, total in steps)


@EACH_SEARCH
def test_a_batch_of_trials_gives_the_result_of_each_trial(search):
    model = boxes.Bilinear()
    trials = [
        boxes.pattern("my pin {digit:2} {color}"),
        boxes.pattern("please is {digit:2} {color}", intent="Other"),
    ]
    together = search(objective_of(model, trials), generator())
    for number, pattern in enumerate(trials):
        alone = search(objective_of(model, pattern), generator())
        finite = alone.losses[0].isfinite()
        assert together.choices[number][finite].tolist() == alone.choices[0][finite].tolist()
        torch.testing.assert_close(together.losses[number], alone.losses[0])
        torch.testing.assert_close(together.certainty[number], alone.certainty[0])


@pytest.fixture
def small_objective():
    return objective_of(boxes.Bilinear(), boxes.pattern("{digit} {color}"))


def test_replacements_and_swaps_include_the_secret_first(small_objective):
    swaps = swap_words(torch.tensor([[[1, 2, 0]]]), (3, 3, 4))[0, 0].tolist()
    assert swaps == [[1, 2, 0], [2, 1, 0]]
    replacements = replace_word(small_objective, torch.tensor([[[4, 1]]]), 1)[0, 0].tolist()
    assert replacements == [[4, 1], [4, 2], [4, 0]]


def test_unmoved_and_repeated_secrets_are_dropped(small_objective):
    before = torch.tensor([[[1, 1], [2, 1], [3, 1], [4, 1]]])
    after = torch.tensor([[[1, 1], [2, 2], [2, 2], [4, 2]]])
    assert moved_secrets(small_objective, before, after).tolist() == [[[2, 2], [4, 2]]]
    assert moved_secrets(small_objective, before, before).shape[1] == 0


def test_a_secret_tried_twice_counts_once(small_objective):
    choices = torch.tensor([[[4, 1], [2, 0], [4, 1]]])
    result = best_of_tried(small_objective, choices, torch.tensor([[1.0, 2.0, 1.0]]))
    assert result.choices[0, :2].tolist() == [[4, 1], [2, 0]]
    assert result.tried.tolist() == [2]
    assert result.evaluated == 3
    assert result.certainty[0].item() == pytest.approx(1 / (1 + torch.tensor(-1.0).exp().item()))


@EACH_SEARCH
def test_losses_that_are_not_finite_are_refused(search):
    model = boxes.Bilinear()
    model.table[7] = torch.nan
    with pytest.raises(ModelError, match="not finite"):
        search(objective_of(model, boxes.pattern()), generator())
