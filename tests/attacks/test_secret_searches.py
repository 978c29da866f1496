"""Searches for a secret beside the loss of every secret, one utterance at a time."""

import itertools

import pytest
import torch

from vestige.attacks.extraction.candidates import KEPT, Attack, codes, gathered
from vestige.attacks.extraction.coordinate_descent import (
    CoordinateDescent,
    replaced,
    still_moving,
    swapped,
)
from vestige.attacks.extraction.discrete_optimization import DiscreteOptimization
from vestige.attacks.extraction.embedding_optimization import EmbeddingOptimization, nearest
from vestige.attacks.extraction.exhaustive_search import ExactSearch, exhaust, secrets
from vestige.attacks.extraction.objective import objective_of
from vestige.attacks.extraction.secret_attacks import ATTACKS, Automatic, RandomGuess, named_attack
from vestige.data.vocabulary import WordVocabulary
from vestige.errors import DataError, ModelError
from vestige.models.bilstm_crf import IntentSlotConfig, IntentSlotModel

SEARCHES = [name for name in ATTACKS if name != "random"]
FAST = {"paper": DiscreteOptimization(epochs=40), "embedding": EmbeddingOptimization(epochs=40)}


def generator(seed=0):
    return torch.Generator().manual_seed(seed)


def naive_losses(boxes, model, asked):
    """Every secret's words and its loss, least first."""
    found = [
        (boxes.naive_loss(model, asked, secret).joint.item(), secret)
        for secret in itertools.product(*asked.candidates)
    ]
    return sorted(found)


@pytest.mark.parametrize("seed", range(3))
def test_exact_search_is_the_loss_of_each_utterance_by_itself(boxes, seed):
    model, asked = boxes.Bilinear(seed), boxes.pattern()
    expected = naive_losses(boxes, model, asked)
    objective = objective_of(model, asked)
    found = ExactSearch().search(objective, generator())
    assert [objective.words(0, one) for one in found.choices[0].tolist()] == [
        secret for _, secret in expected[:KEPT]
    ]
    assert found.losses[0].tolist() == pytest.approx([loss for loss, _ in expected[:KEPT]])
    assert found.whole
    assert found.evaluated == found.tried[0] == objective.space == 300
    mass = sum(torch.tensor(-loss).exp().item() for loss, _ in expected)
    share = torch.tensor(-expected[0][0]).exp().item() / mass
    assert found.certainty[0].item() == pytest.approx(share)


def test_exact_search_counts_where_the_truths_stand(boxes):
    model, asked = boxes.Bilinear(), boxes.pattern()
    order = [secret for _, secret in naive_losses(boxes, model, asked)]
    objective = objective_of(model, [asked] * 3)
    truths = [order[0], order[7], order[-1]]
    _, standings = exhaust(objective, truths=objective.numbers(truths))
    assert [one.below for one in standings] == [0, 7, 299]
    assert all(one.tied == 0 and one.others == 299 and one.whole for one in standings)


def test_secrets_are_counted_from_the_last_word_on(boxes):
    objective = objective_of(boxes.Bilinear(), boxes.pattern("{color} {digit}"))
    every = secrets(objective, torch.arange(30))
    assert every.tolist() == [list(pair) for pair in itertools.product(range(3), range(10))]
    assert codes(objective, every).tolist() == list(range(30))


def test_exact_search_refuses_more_than_its_budget(boxes):
    objective = objective_of(boxes.Bilinear(), boxes.pattern("pin {digit:8}"))
    with pytest.raises(DataError, match="there are 100,000,000 secrets; the budget"):
        ExactSearch().search(objective, generator())


def test_secrets_too_many_for_numbers_of_64_bits_still_have_codes_of_their_own(boxes):
    objective = objective_of(boxes.Bilinear(), boxes.pattern("pin {digit:30}"))
    drawn = objective.random(5000, generator())
    assert len(codes(objective, drawn)[0].unique()) == 5000
    assert (codes(objective, drawn) == codes(objective, drawn.clone())).all()


@pytest.mark.parametrize("seed", range(4))
def test_coordinate_descent_finds_the_least_loss_of_a_small_space(boxes, seed):
    objective = objective_of(boxes.Bilinear(seed), boxes.pattern("my pin {digit:2} is {color:2}"))
    least = ExactSearch().search(objective, generator())
    found = CoordinateDescent().search(objective, generator())
    assert found.choices[0, 0].tolist() == least.choices[0, 0].tolist()
    assert found.losses[0, 0].item() == pytest.approx(least.losses[0, 0].item())


def test_coordinate_descent_finds_the_least_loss_of_a_lstm():
    torch.manual_seed(0)
    words = WordVocabulary(("<unk>", "<eos>", "pin", *"0123456789"))
    shape = IntentSlotConfig(intents=("Other", "Pin"), tags=("O", "B-canary", "I-canary"))
    from vestige.data.secret_pattern import SecretPattern

    model = IntentSlotModel(words, shape).eval()
    objective = objective_of(model, SecretPattern.parse("pin {digit:3}", intent="Pin"))
    least = ExactSearch().search(objective, generator())
    found = CoordinateDescent().search(objective, generator())
    assert found.losses[0, 0].item() == pytest.approx(least.losses[0, 0].item(), abs=1e-5)
    assert all(weight.grad is None for weight in model.parameters())


@pytest.mark.parametrize("name", SEARCHES)
def test_a_planted_least_loss_is_found_by_every_attack(boxes, name):
    asked = boxes.pattern("my pin is {digit:4}")
    objective = objective_of(boxes.Planted("3141"), asked)
    found = named_attack(name).search(objective, generator())
    assert objective.words(0, found.choices[0, 0].tolist()) == tuple("3141")
    assert found.losses[0, 0].item() == pytest.approx(0, abs=1e-12)


@pytest.mark.parametrize("name", ATTACKS)
def test_an_attack_returns_what_the_model_says_of_the_words(boxes, name):
    objective = objective_of(boxes.Bilinear(), boxes.pattern())
    found = FAST.get(name, named_attack(name)).search(objective, generator())
    assert isinstance(named_attack(name), Attack)
    real = found.losses.isfinite()
    assert real[:, 0].all()
    torch.testing.assert_close(objective.losses(found.choices)[real], found.losses[real])
    assert (found.losses[:, 1:] >= found.losses[:, :-1]).all()
    assert found.certainty.item() <= 1


@pytest.mark.parametrize("name", ATTACKS)
def test_trials_in_one_batch_find_what_each_finds_alone(boxes, name):
    model = boxes.Bilinear()
    trials = [
        boxes.pattern("my pin {digit:2} {color}"),
        boxes.pattern("please is {digit:2} {color}", intent="Other"),
    ]
    search = FAST.get(name, named_attack(name))
    together = search.search(objective_of(model, trials), generator())
    for number, asked in enumerate(trials):
        alone = search.search(objective_of(model, asked), generator())
        real = alone.losses[0].isfinite()
        assert together.choices[number][real].tolist() == alone.choices[0][real].tolist()
        torch.testing.assert_close(together.losses[number], alone.losses[0])
        torch.testing.assert_close(together.certainty[number], alone.certainty[0])


@pytest.mark.parametrize("name", ATTACKS)
def test_a_stack_finds_what_its_models_find_alone(boxes, name):
    model, asked = boxes.Bilinear(models=3), boxes.pattern()
    search = FAST.get(name, named_attack(name))
    together = search.search(objective_of(model, asked), generator())
    for number in range(3):
        alone = search.search(objective_of(model.one(number), asked), generator())
        assert together.choices[number, 0].tolist() == alone.choices[0, 0].tolist()


@pytest.mark.parametrize("name", ATTACKS)
def test_a_seed_decides_and_progress_ends_with_all(boxes, name):
    objective = objective_of(boxes.Bilinear(), boxes.pattern())
    search = FAST.get(name, named_attack(name))
    told = []
    first = search.search(objective, generator(3), lambda done, of: told.append((done, of)))
    second = search.search(objective, generator(3))
    assert (first.choices == second.choices).all()
    assert told
    assert all(0 < done <= total for done, total in told)


def test_attacks_never_leave_the_candidates_of_a_place(boxes):
    asked = boxes.pattern("my {color} pin {digit} {color}")
    for name in ATTACKS:
        objective = objective_of(boxes.Bilinear(), asked)
        found = FAST.get(name, named_attack(name)).search(objective, generator())
        real = found.choices[found.losses.isfinite()]
        assert (real < torch.tensor(objective.sizes)).all(), name


def test_starts_from_zero_are_one(boxes):
    with pytest.raises(ValueError, match="scale must be positive with 2 starts"):
        DiscreteOptimization(starts=2)


def test_the_papers_attack_steps_as_it_is_written(boxes):
    model, asked = boxes.Bilinear(), boxes.pattern("pin {digit:2}")
    objective = objective_of(model, asked)
    z = torch.zeros(2, 10, dtype=torch.float64, requires_grad=True)
    optimizer = torch.optim.Adam([z], lr=6.5e-3)
    for step in range(250):
        optimizer.param_groups[0]["lr"] = 6.5e-3 * 0.995**step
        vectors = (z / (0.997**step / 10)).softmax(1) @ model.table[0, 4:14]
        whole = torch.cat([model.embed(torch.tensor([[1]])), vectors[None]], 1)
        loss = model.losses(whole, torch.tensor([1]), torch.tensor([[0, 1, 2]])).joint.sum()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    found = DiscreteOptimization().search(objective, generator())
    assert found.choices[0, 0].tolist() == z.argmax(1).tolist()
    assert found.gradients == 250


def test_several_starts_are_as_good_as_the_best_of_them(boxes):
    objective = objective_of(boxes.Bilinear(1), boxes.pattern())
    many = DiscreteOptimization(starts=12, scale=1, epochs=30).search(objective, generator())
    few = DiscreteOptimization(starts=3, scale=1, epochs=30).search(objective, generator())
    assert many.losses[0, 0] <= few.losses[0, 0]
    assert many.gradients == 360


def test_the_nearest_candidate_is_nearest_by_euclidean_distance(boxes):
    objective = objective_of(boxes.Bilinear(), boxes.pattern())
    drawn = torch.randn(1, 4, 3, 6, generator=generator(), dtype=torch.float64)
    found = nearest(objective, drawn)[0].tolist()
    for start in range(4):
        for place, size in enumerate(objective.sizes):
            distance = (objective.options[0, place, :size] - drawn[0, start, place]).norm(dim=1)
            assert found[start][place] == distance.argmin().item()


def test_replacements_and_swaps_are_all_there_are():
    assert swapped(torch.tensor([[[1, 2, 0]]]), (3, 3, 4))[0, 0].tolist() == [[1, 2, 0], [2, 1, 0]]


def test_replacements_begin_with_the_secret_itself(boxes):
    objective = objective_of(boxes.Bilinear(), boxes.pattern("{digit} {color}"))
    options = replaced(objective, torch.tensor([[[4, 1]]]), 1)[0, 0].tolist()
    assert options == [[4, 1], [4, 2], [4, 0]]


def test_secrets_that_stand_still_or_are_met_again_are_dropped(boxes):
    objective = objective_of(boxes.Bilinear(), boxes.pattern("{digit} {color}"))
    before = torch.tensor([[[1, 1], [2, 1], [3, 1], [4, 1]]])
    after = torch.tensor([[[1, 1], [2, 2], [2, 2], [4, 2]]])
    assert still_moving(objective, before, after).tolist() == [[[2, 2], [4, 2]]]
    assert still_moving(objective, before, before).shape[1] == 0


def test_a_secret_tried_twice_counts_once(boxes):
    objective = objective_of(boxes.Bilinear(), boxes.pattern("{digit} {color}"))
    choices = torch.tensor([[[4, 1], [2, 0], [4, 1]]])
    losses = torch.tensor([[1.0, 2.0, 1.0]])
    found = gathered(objective, choices, losses)
    assert found.choices[0, :2].tolist() == [[4, 1], [2, 0]]
    assert found.tried.tolist() == [2]
    assert found.evaluated == 3
    assert found.certainty[0].item() == pytest.approx(1 / (1 + torch.tensor(-1.0).exp().item()))


def test_a_model_that_diverged_is_told_from_a_secret(boxes):
    model = boxes.Bilinear()
    model.table[0, 7] = torch.nan
    for search in (ExactSearch(), CoordinateDescent()):
        with pytest.raises(ModelError, match="not finite"):
            search.search(objective_of(model, boxes.pattern()), generator())


def test_the_automatic_attack_is_exact_where_the_budget_allows():
    automatic = Automatic(budget=1000)
    assert automatic.chosen(1000) == ExactSearch(budget=1000)
    assert automatic.chosen(1001) == CoordinateDescent()


def test_random_guesses_are_not_improved(boxes):
    objective = objective_of(boxes.Planted("31"), boxes.pattern("pin {digit:2}"))
    drawn = {tuple(RandomGuess().search(objective, generator(s)).choices[0, 0].tolist())
             for s in range(300)}  # fmt: skip
    assert len(drawn) > 80


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: named_attack("best"), "attack must be one of auto, exact"),
        (lambda: ExactSearch(budget=0), "budget must be positive"),
        (lambda: Automatic(budget=0), "budget must be positive"),
        (lambda: CoordinateDescent(restarts=0), "restarts must be at least 1"),
        (lambda: DiscreteOptimization(epochs=0), "epochs must be at least 1"),
        (lambda: DiscreteOptimization(scale=-1), "scale must be at least 0"),
        (lambda: EmbeddingOptimization(learning_rate=0), "learning_rate must be positive"),
    ],
)
def test_settings_out_of_range_are_refused(make, message):
    with pytest.raises(ValueError, match=message):
        make()
