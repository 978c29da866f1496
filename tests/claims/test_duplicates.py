"""Near-duplicates equal those of comparing all pairs of texts."""

import numpy as np
import pytest

from vestige.claims import joined, near_duplicates
from vestige.claims.text_lists import ALIKE, shingles

WORDS = [start + end for start in "bcdfgh" for end in ("ark", "oat", "elm", "ice")]


def edited(text, rng):
    words = text.split()
    for _ in range(int(rng.integers(0, 4))):
        words[rng.integers(len(words))] = str(rng.choice(WORDS))
    return " ".join(words)


@pytest.mark.parametrize("seed", range(3))
def test_groups_are_the_connected_pairs_of_similar_texts(seed):
    rng = np.random.default_rng(seed)
    originals = [" ".join(rng.choice(WORDS, rng.integers(3, 30))) for _ in range(20)]
    texts = [edited(text, rng) for text in originals for _ in range(6)]
    texts = [texts[index] for index in rng.permutation(len(texts))]
    sets = [shingles(text) for text in texts]
    similar = np.array([[len(a & b) >= ALIKE * len(a | b) for b in sets] for a in sets])
    connected = np.eye(len(texts), dtype=bool)
    for _ in range(7):
        connected = connected | (connected.astype(int) @ similar > 0)
    groups = near_duplicates(texts)
    assert ((groups[:, None] == groups) == connected).all()


def test_case_punctuation_and_spaces_are_ignored():
    text = "The gate code of the mill was changed on Monday"
    near = [text, text.upper(), f"  {text}", text.replace(" ", "  "), f"{text}!", "Another text"]
    assert len(set(near_duplicates(near).tolist())) == 2


def test_many_equal_texts_are_grouped_quickly():
    assert len(set(near_duplicates(["the same text of six words"] * 20_000).tolist())) == 1


def test_groups_by_several_labels_are_joined():
    assert joined(["a", "a", "b", "c"], [0, 1, 1, 3]).tolist() == [0, 0, 0, 1]
