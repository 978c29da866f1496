"""The paper's attacks: soft losses, their gradients, and the secrets that they extract."""

from functools import partial

import pytest
import torch
from torch.nn.functional import one_hot

from reproduction.nlu.paper_attacks import ATTACKS, discrete_optimization, nearest, soft_losses
from tests.audits.extraction import white_boxes as boxes
from vestige.audits.extraction.objective import objective_of
from vestige.data.canaries.patterns import SecretPattern
from vestige.data.vocabulary import WordVocabulary
from vestige.models.bilstm_crf import IntentSlotConfig, IntentSlotModel

FAST = [partial(attack, epochs=40) for attack in ATTACKS.values()]


def generator(seed=0):
    return torch.Generator().manual_seed(seed)


def one_hot_weights(objective, choices):
    """Weights (trials, k, n, c) of secrets (trials, k, n)."""
    return one_hot(choices, objective.mask.shape[1]).to(objective.candidate_vectors)


@pytest.fixture
def lstm_model():
    words = WordVocabulary(("<unk>", "<eos>", "my", "pin", "is", *"0123456789"))
    config = IntentSlotConfig(
        intents=("Other", "Pin"), tags=("O", "B-canary", "I-canary"),
        embedding_size=6, hidden_size=5, char_filters=3,
    )  # fmt: skip
    torch.manual_seed(0)
    model = IntentSlotModel(words, config).double().eval()
    with torch.no_grad():
        for weight in model.crf.parameters():
            weight.normal_()
    return model


def test_one_hot_weights_have_the_losses_of_their_words(lstm_model):
    pin = SecretPattern.parse("my pin is {digit:3}", intent="Pin")
    for model, pattern in ((boxes.Bilinear(), boxes.pattern()), (lstm_model, pin)):
        objective = objective_of(model, pattern)
        guesses = objective.random(9, generator())
        soft = soft_losses(objective, one_hot_weights(objective, guesses))
        torch.testing.assert_close(soft.detach(), objective.losses(guesses))


@pytest.mark.slow
def test_gradients_equal_finite_differences(lstm_model):
    pin = SecretPattern.parse("my pin is {digit:2}", intent="Pin")
    for model, pattern in ((boxes.Bilinear(), boxes.pattern()), (lstm_model, pin)):
        objective = objective_of(model, pattern)
        shape = (1, 2, *objective.mask.shape)
        weights = torch.rand(shape, generator=generator(1), dtype=torch.float64).requires_grad_()
        assert torch.autograd.gradcheck(partial(soft_losses, objective), weights)


def test_weights_mix_word_vectors():
    model = boxes.Bilinear()
    objective = objective_of(model, boxes.pattern("pin {digit}"))
    weights = torch.zeros(1, 1, 1, 10, dtype=torch.float64)
    weights[..., 3], weights[..., 8] = 0.25, 0.75
    prefix, three, eight = (model.embed(torch.tensor([[token]])) for token in (1, 7, 12))
    vectors = torch.cat([prefix, 0.25 * three + 0.75 * eight], 1)
    expected = model.losses(vectors, torch.tensor([1]), torch.tensor([[0, 1]])).joint
    torch.testing.assert_close(soft_losses(objective, weights)[0], expected)


@pytest.mark.slow
@pytest.mark.parametrize("name", ATTACKS)
def test_each_attack_finds_the_planted_minimum(name):
    objective = objective_of(boxes.Planted("3141"), boxes.pattern("my pin is {digit:4}"))
    result = ATTACKS[name](objective, generator(), None)
    assert objective.words(0, result.choices[0, 0].tolist()) == tuple("3141")
    assert result.losses[0, 0].item() == pytest.approx(0, abs=1e-12)


@pytest.mark.parametrize("attack", FAST)
def test_guesses_are_candidates_with_their_losses(attack):
    objective, steps = objective_of(boxes.Bilinear(), boxes.pattern()), []
    result = attack(objective, generator(), lambda *done: steps.append(done))
    finite = result.losses.isfinite()
    assert finite[:, 0].all()
    torch.testing.assert_close(objective.losses(result.choices)[finite], result.losses[finite])
    assert (result.choices[finite] < torch.tensor(objective.sizes)).all()
    assert steps == [(step, 40) for step in range(1, 41)]


@pytest.mark.slow
def test_the_papers_attack_follows_its_equations():
    model, pattern = boxes.Bilinear(), boxes.pattern("pin {digit:2}")
    objective = objective_of(model, pattern)
    z = torch.zeros(2, 10, dtype=torch.float64, requires_grad=True)
    optimizer = torch.optim.Adam([z], lr=6.5e-3)
    for step in range(250):
        optimizer.param_groups[0]["lr"] = 6.5e-3 * 0.995**step
        vectors = (z / (0.997**step / 10)).softmax(1) @ model.table[4:14]
        inputs = torch.cat([model.embed(torch.tensor([[1]])), vectors[None]], 1)
        loss = model.losses(inputs, torch.tensor([1]), torch.tensor([[0, 1, 2]])).joint.sum()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    result = discrete_optimization(objective, generator())
    assert result.choices[0, 0].tolist() == z.argmax(1).tolist()
    assert result.gradients == 250


def test_the_nearest_candidate_has_the_smallest_euclidean_distance():
    objective = objective_of(boxes.Bilinear(), boxes.pattern())
    vectors = torch.randn(1, 4, 3, 6, generator=generator(), dtype=torch.float64)
    result = nearest(objective, vectors)[0].tolist()
    for start in range(4):
        for position, size in enumerate(objective.sizes):
            candidates = objective.candidate_vectors[0, position, :size]
            distances = (candidates - vectors[0, start, position]).norm(dim=1)
            assert result[start][position] == distances.argmin().item()
