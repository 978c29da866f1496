"""Samples have the distributions of their model, computed by hand."""

import numpy as np
import pytest
import torch
from scipy import stats

from vestige.models.sampling import sample, sampled_columns
from vestige.models.table import TableModel

SIZE = 5
ROWS = np.random.default_rng(0).dirichlet(np.full(SIZE, 1.5), SIZE + 1)
MODEL = TableModel(ROWS[SIZE], ROWS[:SIZE])


def tempered(temperature):
    """softmax(logits / T) is p to the 1 / T, scaled to sum to 1."""
    powers = ROWS ** (1 / temperature)
    return powers / powers.sum(1, keepdims=True)


def seeded(seed):
    return torch.Generator().manual_seed(seed)


def fit(counts, expected):
    """The p-value of counts by a chi-squared test."""
    return stats.chisquare(np.ravel(counts), np.ravel(expected)).pvalue


@pytest.mark.parametrize("temperature", [0.5, 1.0, 2.0])
def test_pairs_of_tokens_have_their_probabilities(temperature):
    texts = sample(MODEL, 20_000, length=2, temperature=temperature, generator=seeded(1))
    counts = np.zeros((SIZE, SIZE))
    np.add.at(counts, tuple(np.array(texts).T), 1)
    for factor in (1, 1.2):
        rows = tempered(factor * temperature)
        p_value = fit(counts, 20_000 * rows[SIZE][:, None] * rows[:SIZE])
        assert p_value > 1e-3 if factor == 1 else p_value < 1e-6


@pytest.mark.parametrize("name", ["lstm", "transformer", "gpt2", "llama"])
def test_the_first_token_after_a_prompt_has_the_probabilities_of_a_forward_pass(shared, name):
    model = shared[name]
    texts = sample(model, 4000, length=1, temperature=1.5, prompt=[4, 2], generator=seeded(2))
    inputs = torch.tensor([[model.first_token, 4, 2]])
    probabilities = (model(inputs)[0][0, -1].double() / 1.5).softmax(0).detach().numpy()
    counts = np.bincount([text[0] for text in texts], minlength=model.vocab_size)
    common = probabilities > 5 / 4000
    observed = np.array([*counts[common], counts[~common].sum()])
    expected = 4000 * np.array([*probabilities[common], probabilities[~common].sum()])
    possible = expected > 0
    assert fit(observed[possible], expected[possible]) > 1e-3


@pytest.mark.parametrize("name", ["lstm", "transformer", "gpt2", "llama"])
def test_a_temperature_near_zero_is_greedy_decoding(shared, name):
    model = shared[name]
    texts = sample(model, 3, length=6, temperature=1e-6, prompt=[3], generator=seeded(0))
    state, greedy = model.advance(model.start(1), torch.tensor([3])), []
    for _ in range(6):
        token = model.log_probs(state).argmax(1)
        greedy.append(int(token))
        state = model.advance(state, token)
    assert texts == [greedy] * 3


def test_the_generator_determines_the_texts():
    first, same, other = (sample(MODEL, 30, length=8, generator=seeded(seed)) for seed in (5, 5, 6))
    assert first == same != other
    assert len({tuple(text) for text in first}) > 20


def test_a_text_stops_before_an_end_token():
    texts = sample(MODEL, 4000, length=3, ends=[0, 1], generator=seeded(3))
    assert not {0, 1} & {token for text in texts for token in text}
    empty = sum(not text for text in texts)
    probability = ROWS[SIZE][:2].sum()
    assert abs(empty - 4000 * probability) < 4 * np.sqrt(4000 * probability * (1 - probability))
    assert max(map(len, texts)) == 3


def test_excluded_tokens_leave_their_probability_to_the_others():
    texts = sample(MODEL, 8000, length=1, never=[2], generator=seeded(4))
    counts = np.bincount([text[0] for text in texts], minlength=SIZE)
    assert counts[2] == 0
    others = np.arange(SIZE) != 2
    remaining = ROWS[SIZE][others]
    assert fit(counts[others], 8000 * remaining / remaining.sum()) > 1e-3


@pytest.mark.parametrize("option", [{"temperature": 0.0}, {"length": 0}, {"temperature": np.inf}])
def test_options_out_of_range_are_refused(option):
    with pytest.raises(ValueError, match="must be"):
        sample(MODEL, 2, **{"length": 2, **option}, generator=seeded(0))


@pytest.mark.parametrize("width", [5, 64, 65, 300])
def test_samples_are_where_cumulative_probabilities_exceed_a_uniform_number(width):
    generator = seeded(width)
    weights = torch.rand(400, width, generator=generator) ** 8
    weights[::3, width // 2 :] = 0
    weights[1::3, : width // 3] = 0
    uniform = torch.rand(400, generator=generator, dtype=torch.float64)
    uniform[:3] = 1
    uniform[3:6] = 0
    columns = sampled_columns(weights, uniform)
    assert (weights.gather(1, columns[:, None]) > 0).all()
    cumulative = np.cumsum(weights.double().numpy(), axis=1)
    threshold = uniform.numpy() * cumulative[:, -1]
    distance = np.abs(cumulative - threshold[:, None]).min(axis=1)
    sure = distance >= 1e-6 * cumulative[:, -1]  # rounding may decide the others
    assert sure.mean() > 0.9
    expected = [
        np.searchsorted(row, w, side="right") for row, w in zip(cumulative, threshold, strict=True)
    ]
    assert columns.numpy()[sure].tolist() == np.array(expected)[sure].tolist()
