"""The noise against the Gaussian that it shall be, and from step to step."""

import math

import numpy as np
import pytest
import torch
from scipy import stats

from vestige.privacy import randomness
from vestige.privacy.randomness import PIECE, GaussianNoise, device_normals
from vestige.training.secret import Keystream, Secret

KEY = Secret.of_seed(11).key("noise")


def drawn(n: int, *, step: int = 0, place: int = 0, key: bytes = KEY) -> np.ndarray:
    tensors = [torch.empty(0)] * place + [torch.empty(n)]
    GaussianNoise(key).fill(tensors, step=step, deviation=1.0)
    return tensors[-1].double().numpy()


def naive(words: np.ndarray) -> np.ndarray:
    """(5, n) words to (4, n) normals by the definition, in float64 and with math's functions."""
    out = np.empty((4, words.shape[1]))
    for column in range(words.shape[1]):
        a, b, v, first, second = (int(word) for word in words[:, column])
        u = [abs((word + 0.5) / 2**31) for word in (a, b)]
        total = -2 * math.log(u[0] * u[1])
        share = v / 2**32 + 0.5
        radii = math.sqrt(share * total), math.sqrt((1 - share) * total)
        for pair, (radius, word) in enumerate(zip(radii, (first, second), strict=True)):
            angle = word / 2**31 * math.pi
            out[2 * pair, column] = radius * math.cos(angle)
            out[2 * pair + 1, column] = radius * math.sin(angle)
    return out


@pytest.mark.parametrize("n", [4, 1000, 1001, 1002, 1003])
def test_normals_are_those_of_the_definition(n):
    words = np.empty((5, -(-n // 4)), np.int32)
    Keystream(KEY, 9, 0).fill(words)
    expected = naive(words)
    torch.testing.assert_close(drawn(n, step=9), expected.flatten()[:n], rtol=1e-4, atol=2e-6)
    on_device = device_normals(torch.from_numpy(words)[None], 1.0)[0].double().numpy()
    torch.testing.assert_close(on_device, expected, rtol=1e-4, atol=2e-6)


@pytest.mark.parametrize("n", [5, PIECE, PIECE + 7, 3 * PIECE - 1])
def test_a_device_makes_the_same_noise(n, monkeypatch):
    monkeypatch.setattr(randomness, "_SLAB", 2)
    mine = torch.empty(n)
    GaussianNoise(KEY)._on_device(mine, 4, 0, 1.0)
    torch.testing.assert_close(mine.double().numpy(), drawn(n, step=4), rtol=1e-4, atol=3e-6)


@pytest.mark.device
@pytest.mark.skipif(not torch.cuda.is_available(), reason="there is no GPU")
@pytest.mark.parametrize("n", [5, (1 << 20) + 3])
def test_a_gpu_makes_the_same_noise(n):
    mine = torch.empty(n, device="cuda")
    GaussianNoise(KEY).fill([mine], step=4, deviation=1.0)
    torch.testing.assert_close(mine.cpu().double().numpy(), drawn(n, step=4), rtol=1e-4, atol=3e-6)


@pytest.mark.slow
def test_moments_are_those_of_a_standard_normal():
    normals, n = drawn(2_000_000), 2_000_000
    for power, (mean, variance) in enumerate([(0, 1), (1, 2), (0, 15), (3, 96)], 1):
        assert abs((normals**power).mean() - mean) < 4.5 * math.sqrt(variance / n)


@pytest.mark.slow
def test_the_distribution_is_a_standard_normal_in_every_part():
    """Kolmogorov-Smirnov for each of the four rows that words become, and for all; then tails."""
    whole = drawn(25 * PIECE)
    rows = whole.reshape(25, 4, -1).transpose(1, 0, 2).reshape(4, -1)
    for part in (whole, *rows):
        assert stats.kstest(part, "norm").pvalue > 1e-4
    for bound in (2.0, 3.0, 4.0):
        for tail in ((whole > bound).sum(), (whole < -bound).sum()):
            expected = len(whole) * stats.norm.sf(bound)
            assert abs(tail - expected) < 4.5 * math.sqrt(expected)


@pytest.mark.slow
def test_pairs_fours_and_neighbours_are_independent():
    rows = drawn(40 * PIECE).reshape(40, 4, -1).transpose(1, 0, 2).reshape(4, -1)
    n = rows.shape[1]
    for values in (rows, rows**2, np.abs(rows)):
        together = np.corrcoef(values)[np.triu_indices(4, 1)]
        assert np.abs(together).max() < 4.5 / math.sqrt(n)
    squared = (rows**2).sum(0)
    assert stats.kstest(squared, "chi2", args=(4,)).pvalue > 1e-4
    for lag in (1, 2, 16):
        assert abs(np.corrcoef(rows[0][:-lag], rows[0][lag:])[0, 1]) < 4.5 / math.sqrt(n)


def test_steps_tensors_and_keys_have_noise_of_their_own():
    n = 200_000
    other_key = Secret.of_seed(12).key("noise")
    draws = [
        drawn(n),
        drawn(n, step=1),
        drawn(n, step=2**32),
        drawn(n, place=1),
        drawn(n, place=2),
        drawn(n, key=other_key),
    ]
    together = np.corrcoef(draws)[np.triu_indices(len(draws), 1)]
    assert np.abs(together).max() < 4.5 / math.sqrt(n)
    assert (drawn(n, step=1) == draws[1]).all()


def tail_ratio(bound: float) -> float:
    """P(S > bound^2) of the two words over that of a chi-square of 4 degrees, by counting.

    For each U1 on its grid of 2^31, how many U2 make the product small enough; U1 by midpoints of
    4,096 strata a doubling.
    """
    x = math.exp(-(bound**2) / 2)
    inside = 0.0
    for doubling in range(31):
        low, high = 2.0 ** (-doubling - 1), 2.0**-doubling
        grid = low + (np.arange(4096) + 0.5) / 4096 * (high - low)
        u1 = (np.floor(grid * 2**31) + 0.5) / 2**31
        counted = np.minimum(np.floor(x / u1 * 2**31 + 0.5) / 2**31, 1)
        inside += counted.mean() * (high - low)
    return inside / stats.chi2.sf(bound**2, 4)


def test_tails_are_right_to_six_deviations_and_thin_beyond_as_documented():
    assert tail_ratio(4) == pytest.approx(1, abs=1e-5)
    assert tail_ratio(6) == pytest.approx(1, abs=0.003)
    assert tail_ratio(7) == pytest.approx(0.76, abs=0.02)


def test_extreme_words_make_finite_noise():
    ends = np.array([-(2**31), -1, 0, 2**31 - 1], np.int32)
    words = np.stack([part.flatten() for part in np.meshgrid(*[ends] * 5)]).astype(np.int32)
    out = np.empty(4 * words.shape[1], np.float32)
    randomness._normals(words, np.empty((6, words.shape[1]), np.float32), out, 1.0)
    assert np.isfinite(out).all()
    assert np.abs(out).max() == pytest.approx(math.sqrt(2 * 64 * math.log(2)), rel=1e-5)


@pytest.mark.parametrize("dtype", [torch.float64, torch.bfloat16, torch.float32])
def test_deviation_and_type_are_those_asked_for(dtype):
    tensor = torch.empty(30, 1000, dtype=dtype)
    GaussianNoise(KEY).fill([tensor], step=0, deviation=1e-25)
    expected = drawn(30_000).reshape(30, 1000) * 1e-25
    torch.testing.assert_close(tensor.double().numpy(), expected, rtol=1e-2, atol=1e-29)
    assert "key" not in repr(GaussianNoise(KEY))
