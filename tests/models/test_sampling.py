"""Ancestral sampling, against distributions computed by hand."""

import numpy as np
import pytest
import torch
from scipy import stats

from vestige.models.sampling import sample, sampled_columns
from vestige.models.table import TableModel

SIZE = 5


def table(seed=0):
    rows = np.random.default_rng(seed).dirichlet(np.full(SIZE, 1.5), SIZE + 1)
    return TableModel(rows[SIZE], rows[:SIZE]), rows


def tempered(rows, temperature):
    """softmax(logits / T) is p to the 1 / T, scaled to sum to 1."""
    powers = rows ** (1 / temperature)
    return powers / powers.sum(1, keepdims=True)


def seeded(seed):
    return torch.Generator().manual_seed(seed)


@pytest.mark.parametrize("temperature", [0.5, 1.0, 2.0])
def test_pairs_of_tokens_are_as_frequent_as_their_probabilities(temperature):
    model, rows = table()
    texts = sample(model, 20_000, length=2, temperature=temperature, generator=seeded(1))
    counts = np.zeros((SIZE, SIZE))
    np.add.at(counts, tuple(np.array(texts).T), 1)
    chances = tempered(rows, temperature)
    expected = 20_000 * chances[SIZE][:, None] * chances[:SIZE]
    assert stats.chisquare(counts.ravel(), expected.ravel()).pvalue > 1e-3
    off = tempered(rows, 1.2 * temperature)
    wrong = 20_000 * off[SIZE][:, None] * off[:SIZE]
    assert stats.chisquare(counts.ravel(), wrong.ravel()).pvalue < 1e-6


@pytest.mark.parametrize("name", ["lstm", "transformer", "gpt2", "llama"])
def test_the_first_token_behind_a_prompt_has_the_networks_own_distribution(shared, name):
    model = shared[name]
    texts = sample(model, 4000, length=1, temperature=1.5, prompt=[4, 2], generator=seeded(2))
    begun = torch.tensor([[model.first_token, 4, 2]])
    chances = (model(begun)[0][0, -1].double() / 1.5).softmax(0).detach().numpy()
    counts = np.bincount([text[0] for text in texts], minlength=model.vocab_size)
    common = chances > 5 / 4000
    observed = [*counts[common], counts[~common].sum()]
    expected = 4000 * np.array([*chances[common], chances[~common].sum()])
    keep = expected > 0
    assert stats.chisquare(np.array(observed)[keep], expected[keep]).pvalue > 1e-3


@pytest.mark.parametrize("name", ["lstm", "transformer", "gpt2", "llama"])
def test_a_temperature_near_nothing_is_greedy_decoding(shared, name):
    model = shared[name]
    texts = sample(model, 3, length=6, temperature=1e-6, prompt=[3], generator=seeded(0))
    state, greedy = model.advance(model.start(1), torch.tensor([3])), []
    for _ in range(6):
        token = model.log_probs(state).argmax(1)
        greedy.append(int(token))
        state = model.advance(state, token)
    assert texts == [greedy] * 3


def test_the_generator_decides_the_texts():
    model, _ = table()
    first, same, other = (sample(model, 30, length=8, generator=seeded(seed)) for seed in (5, 5, 6))
    assert first == same != other
    assert len({tuple(text) for text in first}) > 20


def test_a_text_ends_before_a_token_that_ends_it():
    model, rows = table()
    texts = sample(model, 4000, length=3, ends=[0, 1], generator=seeded(3))
    assert not {0, 1} & {token for text in texts for token in text}
    empty = sum(not text for text in texts)
    probability = rows[SIZE][:2].sum()
    assert abs(empty - 4000 * probability) < 4 * np.sqrt(4000 * probability * (1 - probability))
    assert max(map(len, texts)) == 3


def test_what_is_never_drawn_leaves_its_share_to_the_others():
    model, rows = table()
    texts = sample(model, 8000, length=1, never=[2], generator=seeded(4))
    counts = np.bincount([text[0] for text in texts], minlength=SIZE)
    remaining = np.where(np.arange(SIZE) == 2, 0, rows[SIZE])
    assert counts[2] == 0
    keep = remaining > 0
    assert stats.chisquare(counts[keep], 8000 * remaining[keep] / remaining.sum()).pvalue > 1e-3


@pytest.mark.parametrize("bad", [{"temperature": 0.0}, {"length": 0}, {"temperature": np.inf}])
def test_settings_out_of_range_are_refused(bad):
    with pytest.raises(ValueError, match="must be"):
        sample(table()[0], 2, **{"length": 2, **bad}, generator=seeded(0))


@pytest.mark.parametrize("width", [5, 64, 65, 300])
def test_draws_are_where_the_cumulated_probabilities_exceed_the_chance(width):
    made = torch.Generator().manual_seed(width)
    shares = torch.rand(400, width, generator=made) ** 8
    shares[::3, width // 2 :] = 0  # nothing behind: never sampled
    shares[1::3, : width // 3] = 0
    uniform = torch.rand(400, generator=made, dtype=torch.float64)
    uniform[:3] = 1
    uniform[3:6] = 0
    columns = sampled_columns(shares, uniform)
    heap = np.cumsum(shares.double().numpy(), axis=1)
    threshold = uniform.numpy() * heap[:, -1]
    assert (shares.gather(1, columns[:, None]) > 0).all()
    near = np.abs(heap - threshold[:, None]).min(axis=1) < 1e-6 * heap[:, -1]  # rounding may decide
    expected = [
        np.searchsorted(row, w, side="right") for row, w in zip(heap, threshold, strict=True)
    ]
    sure = ~near
    assert sure.mean() > 0.9
    assert columns.numpy()[sure].tolist() == np.array(expected)[sure].tolist()
