"""Corpora as ids, in memory and mapped from disk; damaged encodings are refused."""

import json
import tracemalloc

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.damage import damaged, refusal
from vestige.data.corpus import Corpus
from vestige.data.encoded import EncodedPairs, encode, encode_pairs, load_encoded, sources_of
from vestige.data.vocabulary import EOS, UNK, WordVocabulary
from vestige.errors import DataError

SMALL = WordVocabulary((UNK, EOS, "a", "b"))


@given(st.lists(st.sampled_from(["", "a", "a b", "b x a"]), min_size=1, max_size=20))
def test_each_document_is_followed_by_an_end_of_text_token(texts):
    encoded = encode(Corpus.from_texts(texts), SMALL)
    naive = [[*SMALL.encode(text), SMALL.eos_id] for text in texts]
    assert encoded.tokens.tolist() == [token for row in naive for token in row]
    assert [encoded.document(i).tolist() for i in range(len(encoded))] == naive
    assert (encoded.tokens.dtype, encoded.offsets.dtype) == (np.int32, np.int64)


def test_an_encoding_on_disk_is_mapped_and_equals_that_in_memory(corpus, vocabulary, tmp_path):
    progress = []
    mapped = encode(corpus, vocabulary, tmp_path / "enc", progress=progress.append)
    in_memory = encode(corpus, vocabulary)
    assert progress == [1000, 2000, len(corpus)]
    assert isinstance(mapped.tokens, np.memmap)
    np.testing.assert_array_equal(mapped.tokens, in_memory.tokens)
    np.testing.assert_array_equal(mapped.offsets, in_memory.offsets)
    np.testing.assert_array_equal(load_encoded(tmp_path / "enc").tokens, in_memory.tokens)
    assert np.load(tmp_path / "enc" / "tokens.npy").tolist() == in_memory.tokens.tolist()


@pytest.mark.slow
def test_encoding_to_disk_needs_memory_for_one_batch(tmp_path):
    corpus = Corpus.from_texts("a b a b a b a b" for _ in range(50_000))  # 450,000 tokens
    tracemalloc.start()
    encoded = encode(corpus, SMALL, tmp_path)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert len(encoded.tokens) == 450_000
    # Offsets need 8 bytes per document, and their sum is made once; all tokens would need 1.8 MB.
    assert peak < 2_000_000


# Encodings on disk


@pytest.fixture
def folder(tmp_path):
    """The encoding of one document of two words."""
    encode(Corpus.from_texts(["a b"]), SMALL, tmp_path)
    return tmp_path


def test_a_corpus_is_encoded_again_only_if_its_encoding_is_damaged(folder):
    corpus, tokens, progress = Corpus.from_texts(["a b"]), folder / "tokens.npy", []
    before = tokens.stat().st_mtime_ns
    encode(corpus, SMALL, folder, progress=progress.append)
    assert (tokens.stat().st_mtime_ns, progress) == (before, [])
    tokens.write_bytes(b"spoilt")
    assert encode(corpus, SMALL, folder).tokens.tolist() == [2, 3, 1]


@pytest.mark.parametrize(
    ("text", "words"), [("b b", ("a", "b")), ("a b", ("b", "a"))], ids=["corpus", "vocabulary"]
)
def test_another_corpus_or_vocabulary_is_encoded_again(text, words, folder):
    other = WordVocabulary((UNK, EOS, *words))
    encoded = encode(Corpus.from_texts([text]), other, folder)
    assert other.decode(encoded.document(0)) == f"{text} <eos>"


def test_an_interrupted_encoding_leaves_the_old_one_unchanged(folder):
    def stop(done):
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        encode(Corpus.from_texts(["b"]), SMALL, folder, progress=stop)
    assert load_encoded(folder).tokens.tolist() == [2, 3, 1]
    names = {"tokens.npy", "offsets.npy", "encoded.json"}
    assert {entry.name for entry in folder.iterdir()} == names


def written(name, content):
    return lambda folder: (folder / name).write_bytes(content)


def array(name, values, dtype=None):
    return lambda folder: np.save(folder / name, np.array(values, dtype), allow_pickle=True)


def changed(name, change):
    """Damage that changes the bytes of a file."""

    def damage(folder):
        before = (folder / name).read_bytes()
        after = change(before)
        assert after != before
        (folder / name).write_bytes(after)

    return damage


def recorded(**changes):
    return changed(
        "encoded.json", lambda content: json.dumps(json.loads(content) | changes).encode()
    )


def replaced(old, new):
    return changed("tokens.npy", lambda content: content.replace(old, new))


DAMAGES = {
    "no record": lambda folder: (folder / "encoded.json").unlink(),
    "a record that is no JSON": written("encoded.json", b"{"),
    "another format": recorded(format="other"),
    "fewer tokens": recorded(tokens=2),
    "documents that are no number": recorded(documents="two"),
    "no tokens": lambda folder: (folder / "tokens.npy").unlink(),
    "an empty file": written("tokens.npy", b""),
    "no array": written("tokens.npy", b"spoilt"),
    "tokens cut": changed("tokens.npy", lambda content: content[:-4]),
    "half a token": changed("tokens.npy", lambda content: content[:-3]),
    "half a header": changed("tokens.npy", lambda content: content[:20]),
    "a header without an end": changed("tokens.npy", lambda c: c[:8] + b"\xff\xff" + c[10:]),
    "a header that is no dictionary": replaced(b"{'descr'", b"[[['esc'"),
    "a vast shape": replaced(b"(3,)", b"(9e9)"),
    "a negative shape": replaced(b"'shape': (", b"'shape': (-"),
    "a header of objects": replaced(b"<i4", b"|O8"),
    "other tokens": array("tokens.npy", [2, 2, 1], np.int32),
    "negative tokens": array("tokens.npy", [-2, 3, 1], np.int32),
    "floats": array("tokens.npy", [0.0] * 3),
    "a table": array("tokens.npy", [[0]] * 3, np.int32),
    "objects": array("tokens.npy", [{}, {}, {}], object),
    "no offsets": lambda folder: (folder / "offsets.npy").unlink(),
    "offsets cut": changed("offsets.npy", lambda content: content[:-4]),
    **{
        f"offsets {values}": array("offsets.npy", values, np.int64)
        for values in ([0, 7], [0, 3, 2], [-4, 3], [0, 10**12], [0, 0, 3], [])
    },
}


@pytest.mark.parametrize("damage", DAMAGES.values(), ids=DAMAGES)
def test_a_damaged_encoding_is_refused(damage, folder):
    damage(folder)
    with pytest.raises(DataError, match="Encode the corpus again") as caught:
        load_encoded(folder)
    assert str(folder) in str(caught.value)


def test_strange_values_in_a_record_are_refused(folder):
    file = folder / "encoded.json"
    for what, content in damaged(json.loads(file.read_text())):
        file.write_text(json.dumps(content))
        refusal(what, lambda: load_encoded(folder))


# Pairs of source and target texts

FRENCH = WordVocabulary(("<unk>", "<eos>", "oui", "non"))
ENGLISH = WordVocabulary(("<eos>", "<unk>", "yes", "no", "well"))


def test_sources_and_targets_are_encoded_with_their_own_vocabularies():
    corpus = Corpus.from_texts(
        ["yes well", "", "no"], sources=["oui", "non oui", ""], users=["ann", "bob", "ann"]
    )
    assert list(sources_of(corpus)) == ["oui", "non oui", ""]
    pairs = encode_pairs(corpus, FRENCH, ENGLISH)
    assert len(pairs) == 3
    assert [pairs.sources.document(i).tolist() for i in range(3)] == [[2, 1], [3, 2, 1], [1]]
    assert [pairs.targets.document(i).tolist() for i in range(3)] == [[2, 4, 0], [0], [3, 0]]
    assert pairs.targets.users.tolist() == [0, 1, 0]
    assert pairs.targets.names == ("ann", "bob")


def test_corpora_that_cannot_be_encoded_are_refused():
    empty = Corpus.from_texts([], sources=[])
    with pytest.raises(DataError, match="empty corpus"):
        encode(empty, SMALL)
    with pytest.raises(DataError, match="empty corpus"):
        encode_pairs(empty, FRENCH, ENGLISH)
    with pytest.raises(DataError, match=r"no source texts.*--source"):
        encode_pairs(Corpus.from_texts(["yes"]), FRENCH, ENGLISH)
    first, second = (encode(Corpus.from_texts(["yes"] * n), ENGLISH) for n in (1, 2))
    with pytest.raises(ValueError, match="sources must be as many as targets, 2, got 1"):
        EncodedPairs(first, second)
