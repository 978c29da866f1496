"""Exposure is what the definition says, what TensorFlow Privacy says, and stable in the tail."""

from collections.abc import Callable
from math import log2
from types import ModuleType

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from vestige.metrics.exposure import (
    UNPLANTED_MEAN,
    sampled_exposure,
    whole_exposure,
)

CASES = range(100)
whole_numbers = st.lists(st.integers(0, 12), min_size=1, max_size=40)


def random_case(seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Canaries and references; every third case has ties, every other one canaries far out."""
    chance = np.random.default_rng(seed)
    references = stats.skewnorm.rvs(
        chance.uniform(-4, 4), 70, 5, size=int(chance.integers(50, 400)), random_state=chance
    )
    canaries = chance.normal(70 - 8 * (seed % 2), 6, size=12)
    return (canaries.round(), references.round()) if seed % 3 == 0 else (canaries, references)


@settings(deadline=None)
@given(canaries=whole_numbers, references=whole_numbers)
def test_the_rank_counts_the_references_at_least_as_likely(
    canaries: list[int], references: list[int]
) -> None:
    found = sampled_exposure(canaries, references)
    ranks = [1 + sum(r <= canary for r in references) for canary in canaries]
    assert found.rank.tolist() == ranks
    expected = [log2(len(references)) - log2(rank) for rank in ranks]
    assert found.exposure.tolist() == pytest.approx(expected)
    assert found.at_ceiling.tolist() == [rank == 1 for rank in ranks]
    assert (found.low <= found.exposure).all()
    assert (found.exposure <= found.high).all()
    assert (found.exposure <= found.ceiling).all()


@pytest.fixture(scope="module")
def theirs(peer: Callable[[str, str], ModuleType]) -> ModuleType:
    """TensorFlow Privacy's exposures, which need no TensorFlow when they are loaded alone."""
    return peer("tensorflow_privacy", "privacy/privacy_tests/secret_sharer/exposures.py")


@pytest.mark.peer
@pytest.mark.parametrize("seed", CASES)
def test_ranks_equal_tensorflow_privacy(seed: int, theirs: ModuleType) -> None:
    canaries, references = random_case(seed)
    expected = theirs.compute_exposure_interpolation({1: list(canaries)}, list(references))[1]
    # theirs come best first, ours in the order of the canaries
    np.testing.assert_array_equal(np.sort(sampled_exposure(canaries, references).exposure)[::-1],
                                  expected)  # fmt: skip


def test_the_interval_covers_the_true_exposure_as_often_as_it_says() -> None:
    chance = np.random.default_rng(0)
    share, covered = 0.02, 0
    for _ in range(300):
        found = sampled_exposure([share], chance.random(500))
        covered += bool(found.low[0] <= -log2(share) <= found.high[0])
    assert covered >= 0.93 * 300


def test_at_the_ceiling_only_the_space_bounds_the_exposure() -> None:
    references = np.arange(1.0, 1025.0)
    open_end = sampled_exposure([0.0], references)
    assert open_end.exposure.tolist() == [10.0]
    assert open_end.high.tolist() == [np.inf]
    # none of n: the share is at most 1 - 0.025^(1/n)
    assert open_end.low[0] == pytest.approx(-log2(1 - 0.025 ** (1 / 1024)))
    assert sampled_exposure([0.0], references, space_bits=17.5).high.tolist() == [17.5]


def test_a_rank_is_no_place_in_argsort() -> None:
    values = np.array([30.0, 10.0, 20.0])
    found = whole_exposure(values, values)
    assert found.rank.tolist() == [3, 1, 2]
    assert found.rank.tolist() != (np.argsort(values) + 1).tolist()


def test_in_the_whole_space_a_canary_does_not_stand_before_itself() -> None:
    space = [4.0, 3.0, 2.0, 1.0]
    found = whole_exposure([1.0, 4.0, 2.5], space, inside=[True, True, False])
    assert found.rank.tolist() == [1, 4, 3]
    assert found.exposure.tolist() == pytest.approx([2.0, 0.0, 2 - log2(3)])
    assert not found.at_ceiling.any()


def test_ties_in_the_whole_space_stand_before_a_canary() -> None:
    assert whole_exposure([5.0], [5.0, 5.0, 5.0, 5.0]).exposure.tolist() == [0.0]


def test_never_planted_sequences_reach_what_chance_gives() -> None:
    chance = np.random.default_rng(1)
    found = sampled_exposure(chance.normal(size=20_000), chance.normal(size=20_000))
    assert found.exposure.mean() == pytest.approx(UNPLANTED_MEAN, abs=0.05)


def test_ranks_without_references_or_numbers_are_refused() -> None:
    with pytest.raises(ValueError, match="at least one"):
        sampled_exposure([1.0], [])
    with pytest.raises(ValueError, match="nan"):
        sampled_exposure([np.nan], [1.0])
