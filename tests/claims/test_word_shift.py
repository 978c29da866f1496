"""`word_shift` detects texts with other words, with the stated error rate."""

import numpy as np
import pytest

from vestige.claims.comparable import word_shift

WORDS = [f"w{n}" for n in range(400)]


def random_texts(count, rng, *, frequent=None, words=40, topics=None, per_author=1):
    """Texts of common words; `frequent` words are more so, `topics` seeds those of each author."""
    weights = 1 / np.arange(1, 401)
    texts = []
    for index in range(count):
        own_weights = weights.copy()
        if frequent is not None:
            own_weights[frequent] *= 6
        if topics is not None:
            author = np.random.default_rng([topics, index // per_author])
            own_weights[author.choice(400, 20)] *= 60
        texts.append(" ".join(rng.choice(WORDS, words, p=own_weights / own_weights.sum())))
    return texts


def significant(shift):
    return shift.p_value <= 0.025


@pytest.mark.slow
def test_texts_of_one_distribution_differ_at_the_stated_error_rate():
    rng = np.random.default_rng(0)
    shifts = [
        word_shift(random_texts(30, rng), random_texts(60, rng), seed=seed) for seed in range(60)
    ]
    assert np.mean([shift.p_value <= 0.05 for shift in shifts]) <= 0.12
    assert abs(np.mean([shift.auc for shift in shifts]) - 0.5) < 0.05


def test_another_topic_is_detected():
    rng = np.random.default_rng(1)
    shifted = random_texts(40, rng, frequent=slice(50, 90))
    shift = word_shift(shifted, random_texts(120, rng), seed=0)
    assert significant(shift)
    assert shift.auc > 0.75


def test_length_alone_is_not_a_shift():
    rng = np.random.default_rng(2)
    long, short = random_texts(60, rng, words=150), random_texts(60, rng, words=20)
    shift = word_shift(long, short, seed=0)
    assert not significant(shift)
    assert shift.words == 20


@pytest.mark.slow
def test_topics_of_single_authors_are_not_a_shift_if_authors_are_known():
    rng, by_text, by_author = np.random.default_rng(3), 0, 0
    for seed in range(12):
        sides = [random_texts(40, rng, topics=2 * seed + side, per_author=8) for side in (0, 1)]
        authors, reference_authors = ([f"{side}{n // 8}" for n in range(40)] for side in "tr")
        names = {"authors": authors, "reference_authors": reference_authors}
        by_text += significant(word_shift(*sides, seed=seed))
        by_author += significant(word_shift(*sides, **names, seed=seed))
    assert by_text == 12
    assert by_author <= 2


@pytest.mark.parametrize("count", [1, 4])
def test_fewer_than_five_texts_are_not_tested(count):
    rng = np.random.default_rng(4)
    assert word_shift(random_texts(count, rng), random_texts(40, rng), seed=0) is None
