"""Noise correlated over steps: the matrix that it comes from, what it promises, what it gains."""

import math

import numpy as np
import pytest
import torch
from scipy.special import binom

from vestige.defences.accounting import noise_for
from vestige.defences.banded_noise import BandedNoise, square_root_bands
from vestige.defences.methods.dp_sgd import DPSGD
from vestige.defences.noise import GaussianNoise

KEY = bytes(range(32))


def matrix(bands: int, steps: int) -> np.ndarray:
    """C, (steps, steps), by its definition."""
    column = square_root_bands(bands)
    found = np.zeros((steps, steps))
    for row in range(steps):
        for back in range(min(bands, row + 1)):
            found[row, row - back] = column[back]
    return found


@pytest.mark.parametrize("bands", [1, 2, 5, 30])
def test_a_column_is_the_series_of_the_square_root_and_has_norm_one(bands):
    column = square_root_bands(bands)
    k = np.arange(bands)
    np.testing.assert_allclose(column / column[0], binom(2 * k, k) / 4.0**k)
    assert np.linalg.norm(column) == pytest.approx(1)
    if bands == 30:  # as many bands as steps: the square is the matrix of prefix sums
        root = matrix(30, 30) / column[0]
        np.testing.assert_allclose(root @ root, np.tril(np.ones((30, 30))), atol=1e-12)


def tensors() -> list[torch.Tensor]:
    return [torch.empty(3, 5), torch.empty(7)]


def drawn(noise, steps: range, deviation: float = 1.0) -> np.ndarray:
    """(steps, numbers)."""
    rows = []
    for step in steps:
        held = tensors()
        noise.fill(held, step=step, deviation=deviation)
        rows.append(torch.cat([one.flatten() for one in held]).double().numpy())
    return np.array(rows)


@pytest.mark.parametrize("bands", [2, 3, 8])
def test_the_matrix_makes_independent_noise_of_it(bands):
    """C times what is added is the noise that the guarantee counts on."""
    added = drawn(BandedNoise(KEY, bands), range(12), deviation=2.5)
    independent = drawn(GaussianNoise(KEY), range(12), deviation=2.5)
    np.testing.assert_allclose(matrix(bands, 12) @ added, independent, atol=1e-4)
    assert np.abs(added - independent).max() > 0.1


def test_one_band_is_independent_noise_to_the_bit():
    assert (drawn(BandedNoise(KEY), range(3)) == drawn(GaussianNoise(KEY), range(3))).all()


def test_a_step_has_the_same_noise_whatever_was_drawn_before():
    whole = drawn(BandedNoise(KEY, 3), range(9))
    assert (drawn(BandedNoise(KEY, 3), range(5, 9)) == whole[5:]).all()
    again = BandedNoise(KEY, 3)
    drawn(again, range(7))
    assert (drawn(again, range(4, 9)) == whole[4:]).all()


def delta_of(bands: int, turns: list[int], steps: int, noise: float, rate: float, epsilon: float):
    """(delta, its standard error) of adding one unit that joins at some of its turns, by sampling.

    Its gradient is (1, 0, ...) times the clipping norm whenever it joins. Both ways of telling the
    neighbours apart are tried.
    """
    generator = np.random.default_rng(0)
    number, c = 200_000, matrix(bands, steps)
    patterns = np.array([[p >> i & 1 for i in range(len(turns))] for p in range(2 ** len(turns))])
    chance = np.prod(np.where(patterns, rate, 1 - rate), axis=1)
    means = patterns @ c[:, turns].T  # (patterns, steps)

    def log_ratio(seen: np.ndarray) -> np.ndarray:
        """log of the density with the unit over that without it."""
        exponents = (seen @ means.T - 0.5 * (means**2).sum(1)) / noise**2 + np.log(chance)
        return np.logaddexp.reduce(exponents, axis=1)

    without = noise * generator.standard_normal((number, steps))
    joined = means[generator.choice(len(patterns), number, p=chance)]
    found = []
    for loss in (log_ratio(without + joined), -log_ratio(without)):
        each = np.maximum(0, -np.expm1(epsilon - loss))
        found.append((each.mean(), each.std() / math.sqrt(number)))
    return max(found)


def test_a_unit_with_turns_that_far_apart_spends_what_is_accounted():
    """Theorem 4 of Choquette-Choo et al. (2023), by sampling the outputs of neighbours."""
    steps, bands, rate, delta, epsilon = 9, 3, 0.3, 1e-2, 1.5
    per_step, count = DPSGD(epsilon=1, bands=bands).turns(rate / bands, steps)
    assert (per_step, count) == (pytest.approx(rate), 3)
    noise = noise_for(epsilon=epsilon, delta=delta, sample_rate=rate, steps=count, accountant="pld")
    for first in range(bands):
        turns = list(range(first, steps, bands))
        found, error = delta_of(bands, turns, steps, noise, rate, epsilon)
        assert found < delta + 3 * error
        assert found > 0.7 * delta  # what is accounted is no more than needed, either
    # Turns that are closer than the bands would spend more than that.
    found, error = delta_of(bands, [0, 1, 2], steps, noise, rate, epsilon)
    assert found > delta + 5 * error


def error_of(bands: int, steps: int, epsilon: float, rate: float) -> float:
    """Root mean square of the noise on the sum of all gradients so far, at equal epsilon."""
    defence = DPSGD(epsilon=epsilon, bands=bands)
    each, turns = defence.turns(rate, steps)
    noise = noise_for(epsilon=epsilon, delta=1e-5, sample_rate=each, steps=turns, accountant="rdp")
    sums = np.tril(np.ones((steps, steps))) @ np.linalg.inv(matrix(bands, steps))
    return noise * math.sqrt((sums**2).sum() / steps)


def test_sums_of_gradients_have_less_noise_at_equal_epsilon():
    alone, four = (error_of(bands, 50, 8.0, 0.04) for bands in (1, 4))
    assert four < 0.8 * alone
