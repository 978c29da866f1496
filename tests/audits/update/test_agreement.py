"""Fragments that several samples agree on, joined from shared trigrams."""

import math
import random
from collections import Counter

import pytest

from vestige.audits.update.folding import MIN_LOG_RATIO, agreed
from vestige.audits.update.phrases import Text

START = 0
SECRET = (11, 12, 13, 14, 15, 16, 17, 18)


def sample(*tokens: int, ratio: float = 3.0, context: tuple[int, ...] = ()) -> Text:
    """A sample of which every token has become likelier by as much."""
    gains = (0.0,) * (1 + len(tokens))
    return Text((START, *tokens), gains, 1, "samples", context, (ratio,) * len(tokens))


def fragments(*samples: Text, longest: int = 48) -> list[tuple[int, ...]]:
    return [one.tokens for one in agreed(samples, longest=longest)]


def test_pieces_of_a_secret_are_joined_to_the_whole():
    pieces = [sample(*SECRET[i : i + 4], 90 + i) for i in range(5)]
    assert fragments(*pieces) == [SECRET[1:-1]]  # a trigram at an end stands in one sample alone
    assert fragments(*pieces, sample(*SECRET)) == [SECRET]


def test_what_one_sample_says_is_no_fragment_however_often():
    assert fragments(sample(1, 2, 3, 1, 2, 3), sample(4, 5, 6, 7)) == []


def test_what_the_update_made_little_likelier_is_no_fragment():
    assert fragments(*[sample(1, 2, 3, ratio=MIN_LOG_RATIO - 0.1)] * 9) == []
    assert fragments(*[sample(1, 2, 3, ratio=MIN_LOG_RATIO)] * 2) == [(1, 2, 3)]
    assert fragments(*[Text((0, 1, 2, 3), (9.0,) * 4)] * 9) == []  # it grew, none drew it


def test_the_score_is_the_sum_of_the_logarithms_of_the_samples():
    told = agreed([sample(1, 2, 3, 4)] * 3 + [sample(2, 3, 4)] * 2, longest=48)
    assert [one.tokens for one in told] == [(1, 2, 3, 4)]
    assert told[0].score == pytest.approx(math.log(3) + math.log(5))
    assert told[0].gains == pytest.approx((0.0, 0.0, math.log(3), math.log(5)))


def test_a_rare_way_beside_a_frequent_one_is_an_error():
    often = [sample(1, 2, 3, 4)] * 7
    assert fragments(*often, *[sample(1, 2, 9, 8)] * 2) == [(1, 2, 3, 4), (2, 9, 8)]
    both = fragments(*often, *[sample(1, 2, 9, 8)] * 4)
    assert both == [(1, 2, 3, 4), (1, 2, 9, 8)]
    assert fragments(*often, *[sample(9, 3, 4)] * 2) == [(1, 2, 3, 4)]  # at its other end, too


def test_a_loop_ends_and_no_fragment_is_longer_than_asked_for():
    loop = [sample(*(1, 2, 3) * 10)] * 3
    assert fragments(*loop) == [(1, 2, 3, 1, 2)]
    assert [len(one) for one in fragments(*[sample(*SECRET)] * 2, longest=5)] == [5, 5]


def test_a_fragment_tells_the_prompt_of_the_first_sample_that_holds_it():
    behind = [sample(1, 2, 3, context=(5,)), sample(1, 2, 3), sample(7, 8, 9), sample(7, 8, 9)]
    told = {one.tokens: one.prompt for one in agreed(behind, longest=48)}
    assert told == {(1, 2, 3): (5,), (7, 8, 9): ()}


@pytest.mark.parametrize("seed", range(5))
def test_every_trigram_that_is_not_an_error_is_told_once(seed):
    chance = random.Random(seed)
    drawn = [
        sample(
            *(chance.choice([1, 2, 3, 4, 5]) for _ in range(12)), ratio=chance.choice([1.9, 2.1])
        )
        for _ in range(12)
    ]
    held: Counter[tuple[int, ...]] = Counter()
    for text in drawn:
        if text.log_ratios[0] > MIN_LOG_RATIO:
            held.update({text.tokens[i : i + 3] for i in range(1, 11)})
    shared = {gram: n for gram, n in held.items() if n >= 2}
    expected = [
        gram
        for gram, n in shared.items()
        if 3 * n >= max(m for other, m in shared.items() if other[:2] == gram[:2])
        and 3 * n >= max(m for other, m in shared.items() if other[1:] == gram[1:])
    ]
    order = drawn[:]
    chance.shuffle(order)
    told = fragments(*drawn)
    assert told == fragments(*order)
    grams = [one[i : i + 3] for one in told for i in range(len(one) - 2)]
    assert sorted(grams) == sorted(expected)
