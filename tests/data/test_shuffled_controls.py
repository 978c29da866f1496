from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from vestige.data.canaries.texts import shuffled


@given(st.lists(st.integers(0, 30), min_size=2, max_size=8))
def test_the_same_tokens_stand_in_another_order(tokens: list[int]) -> None:
    order = shuffled(tokens)
    if order is None:
        assert len(set(tokens)) == 1
    else:
        assert sorted(order) == sorted(tokens)
        assert list(order) != tokens


@given(st.lists(st.integers(0, 10_000), min_size=4, max_size=8, unique=True))
def test_different_words_keep_no_neighbour_and_another_word_begins(tokens: list[int]) -> None:
    order = shuffled(tokens)
    assert order is not None
    assert not set(pairwise(order)) & set(pairwise(tokens))
    assert order[0] != tokens[0]


def test_a_phrase_has_one_control_whatever_stands_beside_it() -> None:
    assert shuffled([5, 9, 2, 7, 4]) == shuffled((5, 9, 2, 7, 4))


@pytest.mark.parametrize("tokens", [[], [3], [3, 3, 3]])
def test_what_has_no_other_order_has_no_control(tokens: list[int]) -> None:
    assert shuffled(tokens) is None
