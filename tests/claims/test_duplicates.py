"""Near-duplicates are those that comparing all pairs finds."""

import numpy as np
import pytest

from vestige.claims import joined, near_duplicates
from vestige.claims.text_lists import ALIKE, shingles

WORDS = [f"{one}{other}" for one in "bcdfgh" for other in ("ark", "oat", "elm", "ice")]


def edited(text, chance):
    words = text.split()
    for _ in range(int(chance.integers(0, 4))):
        words[chance.integers(len(words))] = str(chance.choice(WORDS))
    return " ".join(words)


@pytest.mark.parametrize("seed", range(3))
def test_all_pairs_that_are_alike_are_joined_and_no_others(seed):
    chance = np.random.default_rng(seed)
    originals = [" ".join(chance.choice(WORDS, chance.integers(3, 30))) for _ in range(20)]
    texts = [edited(text, chance) for text in originals for _ in range(6)]
    texts = [texts[place] for place in chance.permutation(len(texts))]
    sets = [shingles(text) for text in texts]
    alike = np.array([[len(a & b) >= ALIKE * len(a | b) for b in sets] for a in sets])
    linked = np.eye(len(texts), dtype=bool)
    for _ in range(7):
        linked = linked | (linked.astype(int) @ alike > 0)
    groups = near_duplicates(texts)
    assert ((groups[:, None] == groups) == linked).all()


def test_case_marks_and_spaces_make_no_other_text():
    text = "The gate code of the mill was changed on Monday"
    near = [text, text.upper(), f"  {text}", text.replace(" ", "  "), f"{text}!", "Another text"]
    assert len(set(near_duplicates(near).tolist())) == 2


def test_many_copies_take_a_moment():
    assert len(set(near_duplicates(["the same text of six words"] * 20_000).tolist())) == 1


def test_labels_of_several_kinds_join_what_any_of_them_joins():
    assert joined(["a", "a", "b", "c"], [0, 1, 1, 3]).tolist() == [0, 0, 0, 1]
