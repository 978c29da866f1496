"""What words alone tell: nothing of texts of one kind, and what differs where they do."""

import numpy as np
import pytest

from vestige.claims.comparable import word_shift

WORDS = [f"w{n}" for n in range(400)]


def texts(count, chance, *, lean=None, words=40, topics=None, per=1):
    """Texts of common words; `lean` makes some commoner, `topics` each author's own."""
    weights = 1 / np.arange(1, 401)
    found = []
    for place in range(count):
        own = weights.copy()
        if lean is not None:
            own[lean] *= 6
        if topics is not None:
            own[np.random.default_rng([topics, place // per]).choice(400, 20)] *= 60
        found.append(" ".join(chance.choice(WORDS, words, p=own / own.sum())))
    return found


def differs(found):
    return found.p_value <= 0.025


@pytest.mark.slow
def test_texts_of_one_kind_are_told_apart_as_seldom_as_chance_would():
    chance = np.random.default_rng(0)
    found = [word_shift(texts(30, chance), texts(60, chance), seed=n) for n in range(60)]
    assert np.mean([one.p_value <= 0.05 for one in found]) <= 0.12
    assert abs(np.mean([one.auc for one in found]) - 0.5) < 0.05


def test_another_topic_is_told():
    chance = np.random.default_rng(1)
    found = word_shift(texts(40, chance, lean=slice(50, 90)), texts(120, chance), seed=0)
    assert differs(found)
    assert found.auc > 0.75


def test_length_alone_is_not_told():
    chance = np.random.default_rng(2)
    found = word_shift(texts(60, chance, words=150), texts(60, chance, words=20), seed=0)
    assert not differs(found)
    assert found.words == 20


@pytest.mark.slow
def test_authors_with_topics_of_their_own_are_no_shift():
    chance, plain, whole = np.random.default_rng(3), [], []
    for seed in range(12):
        sides = [texts(40, chance, topics=2 * seed + side, per=8) for side in (0, 1)]
        names = [[f"{mark}{n // 8}" for n in range(40)] for mark in "tr"]
        plain.append(differs(word_shift(*sides, seed=seed)))
        own, rest = names
        known = {"authors": own, "reference_authors": rest}
        whole.append(differs(word_shift(*sides, **known, seed=seed)))
    assert sum(plain) == 12
    assert sum(whole) <= 2


@pytest.mark.parametrize("count", [1, 4])
def test_too_few_texts_are_not_asked_about(count):
    chance = np.random.default_rng(4)
    assert word_shift(texts(count, chance), texts(40, chance), seed=0) is None
