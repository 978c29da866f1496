"""Means of what came in since last asked."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from vestige.defences.running_mean import RunningMeans


@given(st.lists(st.floats(-100, 100, width=32), min_size=1, max_size=9))
def test_it_is_the_mean_of_each_name(values):
    means = RunningMeans()
    for value in values:
        means.add(one=torch.tensor(value), double=torch.tensor(2 * value))
    expected = sum(values) / len(values)
    taken = means.take()
    assert taken == pytest.approx({"one": expected, "double": 2 * expected}, abs=1e-3)
    assert all(type(mean) is float for mean in taken.values())


def test_a_name_counts_its_own_and_taking_begins_anew():
    means = RunningMeans()
    assert means.take() == {}
    means.add(a=torch.tensor(1.0))
    means.add(a=torch.tensor(3.0), b=torch.tensor(5.0))
    assert means.take() == {"a": 2.0, "b": 5.0}
    means.add(b=torch.tensor(7.0))
    assert means.take() == {"b": 7.0}


def test_what_was_given_is_left_as_it_is():
    means, value = RunningMeans(), torch.tensor(1.0)
    means.add(a=value)
    means.add(a=torch.tensor(5.0))
    assert value == 1
