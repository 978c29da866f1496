"""Exposure compared with its definition and with TensorFlow Privacy."""

from collections.abc import Callable
from math import log2
from types import ModuleType

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from vestige.metrics.exposure import UNPLANTED_MEAN, sampled_exposure, whole_exposure

whole_numbers = st.lists(st.integers(0, 12), min_size=1, max_size=40)


def random_case(seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Canaries and references: with ties if 3 divides the seed, with low ranks if it is odd."""
    rng = np.random.default_rng(seed)
    references = stats.skewnorm.rvs(
        rng.uniform(-4, 4), 70, 5, size=int(rng.integers(50, 400)), random_state=rng
    )
    canaries = rng.normal(70 - 8 * (seed % 2), 6, size=12)
    return (canaries.round(), references.round()) if seed % 3 == 0 else (canaries, references)


@given(canaries=whole_numbers, references=whole_numbers)
def test_the_rank_counts_the_references_at_least_as_probable(
    canaries: list[int], references: list[int]
) -> None:
    result = sampled_exposure(canaries, references)
    ranks = [1 + sum(r <= canary for r in references) for canary in canaries]
    assert result.rank.tolist() == ranks
    expected = [log2(len(references)) - log2(rank) for rank in ranks]
    assert result.exposure.tolist() == pytest.approx(expected)
    assert result.at_ceiling.tolist() == [rank == 1 for rank in ranks]
    assert (result.low <= result.exposure).all()
    assert (result.exposure <= result.high).all()
    assert (result.exposure <= result.ceiling).all()


@pytest.fixture(scope="module")
def exposures(peer: Callable[[str, str], ModuleType]) -> ModuleType:
    """TensorFlow Privacy's module, which does not import TensorFlow."""
    return peer("tensorflow_privacy", "privacy/privacy_tests/secret_sharer/exposures.py")


@pytest.mark.peer
@pytest.mark.parametrize("seed", range(100))
def test_exposures_equal_those_of_tensorflow_privacy(seed: int, exposures: ModuleType) -> None:
    canaries, references = random_case(seed)
    expected = exposures.compute_exposure_interpolation({1: list(canaries)}, list(references))[1]
    result = sampled_exposure(canaries, references).exposure
    np.testing.assert_array_equal(np.sort(result)[::-1], expected)  # theirs are sorted


def test_the_interval_has_the_stated_coverage() -> None:
    rng = np.random.default_rng(0)
    share, covered = 0.02, 0
    for _ in range(300):
        result = sampled_exposure([share], rng.random(500))
        covered += bool(result.low[0] <= -log2(share) <= result.high[0])
    assert covered >= 0.93 * 300


def test_at_rank_one_only_the_size_of_the_space_bounds_the_exposure() -> None:
    references = np.arange(1.0, 1025.0)
    result = sampled_exposure([0.0], references)
    assert result.exposure.tolist() == [10.0]
    assert result.high.tolist() == [np.inf]
    assert result.low[0] == pytest.approx(-log2(1 - 0.025 ** (1 / 1024)))  # none of 1024
    assert sampled_exposure([0.0], references, space_bits=17.5).high.tolist() == [17.5]


@pytest.mark.parametrize(
    ("canaries", "space", "inside", "ranks"),
    [
        ([30.0, 10.0, 20.0], [30.0, 10.0, 20.0], True, [3, 1, 2]),
        ([1.0, 4.0, 2.5], [4.0, 3.0, 2.0, 1.0], [True, True, False], [1, 4, 3]),
        ([5.0], [5.0, 5.0, 5.0, 5.0], True, [4]),  # ties are counted
    ],
)
def test_in_the_complete_space_a_canary_is_not_counted_twice(
    canaries: list[float], space: list[float], inside: object, ranks: list[int]
) -> None:
    result = whole_exposure(canaries, space, inside=inside)
    assert result.rank.tolist() == ranks
    assert result.exposure == pytest.approx([log2(len(space) / rank) for rank in ranks])
    assert not result.at_ceiling.any()


def test_the_mean_exposure_of_unplanted_sequences_is_known() -> None:
    rng = np.random.default_rng(1)
    result = sampled_exposure(rng.normal(size=20_000), rng.normal(size=20_000))
    assert result.exposure.mean() == pytest.approx(UNPLANTED_MEAN, abs=0.05)


@pytest.mark.parametrize(
    ("canary", "references", "message"), [(1.0, [], "at least one"), (np.nan, [1.0], "nan")]
)
def test_missing_references_and_nan_are_refused(
    canary: float, references: list[float], message: str
) -> None:
    with pytest.raises(ValueError, match=message):
        sampled_exposure([canary], references)
