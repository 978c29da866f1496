"""The k largest against a whole sort, with many equal values and with many alike."""

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import array_shapes, arrays

from vestige.models.largest import ROUNDED, largest, largest_by

FEW = st.sampled_from([-np.inf, -1.0, -0.0, 0.0, 0.5, 0.5 + 1e-7, 2.0, np.inf])
"""Few different values: most of them come several times."""


def by_sorting(values: np.ndarray, ids: np.ndarray, k: int, alike: float = 0.0) -> list[int]:
    """The definition: all of them in order of falling value, then of id."""
    # float32 first: what is rounded is what the tensor holds
    keys = [float(np.round(float(v) / alike)) if alike else float(v) for v in values]
    return sorted(range(len(keys)), key=lambda place: (-keys[place], ids[place]))[:k]


@given(
    table=arrays(np.float32, array_shapes(min_dims=2, max_dims=2, max_side=40), elements=FEW),
    share=st.floats(0, 1),
    alike=st.sampled_from([0.0, 1e-5]),
)
def test_rows_are_those_of_a_whole_sort(table, share, alike):
    k = round(share * table.shape[1])
    found = largest(torch.from_numpy(table), k, alike=alike)
    columns = np.arange(table.shape[1])
    assert found.tolist() == [by_sorting(row, columns, k, alike) for row in table]


@pytest.mark.parametrize("width", [1600, 1651, 4096])
@pytest.mark.parametrize("likely", [[1, 1, 1, 1, 1, 1], [50, 0, 1, 1, 0, 0], [1, 0, 0, 0, 0, 0]])
def test_wide_rows_are_too(width, likely):
    few = np.array([-np.inf, -1.0, 0.5, 0.5 + 1e-7, 2.0, np.inf], np.float32)
    chance = np.random.default_rng(0)
    table = chance.choice(few, (6, width), p=np.array(likely) / sum(likely))
    table[:3] += chance.normal(size=(3, width)).astype(np.float32)
    for k, alike in ((1, 0.0), (2, 1e-5)):
        found = largest(torch.from_numpy(table), k, alike=alike)
        columns = np.arange(width)
        assert found.tolist() == [by_sorting(row, columns, k, alike) for row in table]


@given(
    values=arrays(np.float32, st.integers(0, 60), elements=FEW),
    k=st.integers(0, 70),
    seed=st.integers(0, 9),
    alike=st.sampled_from([0.0, 1e-5]),
)
def test_places_are_those_of_a_whole_sort_by_ids(values, k, seed, alike):
    ids = np.random.default_rng(seed).permutation(len(values))
    found = largest_by(torch.from_numpy(values), torch.from_numpy(ids), k, alike=alike)
    assert found.tolist() == by_sorting(values, ids, k, alike)


@given(
    values=arrays(np.float32, (3, 50), elements=st.floats(-20, 20, width=32)),
    k=st.integers(0, 50),
)
def test_any_numbers_are_those_of_a_whole_sort(values, k):
    for alike in (0.0, ROUNDED, 1.0):
        found = largest(torch.from_numpy(values), k, alike=alike)
        assert found.tolist() == [by_sorting(row, np.arange(50), k, alike) for row in values]


@pytest.mark.parametrize("size", [1, 7, 8, 15, 16, 17, 100, 1000])
def test_noise_of_the_last_bit_does_not_decide(size):
    """What another processor's kernel does to values that are equal on paper."""
    generator = torch.Generator().manual_seed(size)
    even = torch.full((20, size), 1.704748)
    noisy = even + torch.randint(-2, 3, even.shape, generator=generator) * 1.2e-7
    k = -(-size // 3)
    assert largest(noisy, k, alike=ROUNDED).tolist() == [list(range(k))] * 20
    ids = torch.randperm(size, generator=generator)
    assert ids[largest_by(noisy[0], ids, k, alike=ROUNDED)].tolist() == list(range(k))


@pytest.mark.parametrize("size", [3, 16, 33, 1000])
def test_argmax_and_argmin_give_the_first_of_equals(size):
    """Searches rely on it; torch says so, and this holds it on the kernels of this machine."""
    values = torch.ones(5, size)
    values[:, 0] = 0.0
    assert values.argmax(1).tolist() == [1] * 5
    assert values.max(1).indices.tolist() == [1] * 5
    assert (-values).argmin(1).tolist() == [1] * 5
    assert torch.zeros(4, size, 3).argmin(1).eq(0).all()
    assert torch.zeros(4, size, 3).max(1).indices.eq(0).all()


def test_no_rows_have_no_largest():
    assert largest(torch.zeros(0, 5000), 3).shape == (0, 3)


def test_leading_dimensions_are_kept():
    values = torch.randn(2, 3, 4, 9)
    assert largest(values, 2).shape == (2, 3, 4, 2)
    assert largest(values[0, 0, 0], 2).shape == (2,)
    assert largest(values[:, :, :0], 2).shape == (2, 3, 0, 2)
