"""Corpora as ids, in memory and mapped from disk."""

import json
import tracemalloc

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from vestige.data.corpus import Corpus
from vestige.data.encoded import EncodedPairs, encode, encode_pairs, load_encoded, sources_of
from vestige.data.vocabulary import EOS, UNK, WordVocabulary
from vestige.errors import DataError

SMALL = WordVocabulary((UNK, EOS, "a", "b"))


@given(st.lists(st.sampled_from(["", "a", "a b", "b x a"]), min_size=1, max_size=20))
def test_the_stream_is_every_document_and_an_end(texts):
    encoded = encode(Corpus.from_texts(texts), SMALL)
    naive = [[*SMALL.encode(text), SMALL.eos_id] for text in texts]
    assert encoded.tokens.tolist() == [token for row in naive for token in row]
    assert [encoded.document(i).tolist() for i in range(len(encoded))] == naive
    assert (encoded.tokens.dtype, encoded.offsets.dtype) == (np.int32, np.int64)


def test_disk_and_memory_agree_and_disk_is_mapped(corpus, vocabulary, tmp_path):
    mapped, held = encode(corpus, vocabulary, tmp_path / "enc"), encode(corpus, vocabulary)
    assert isinstance(mapped.tokens, np.memmap)
    np.testing.assert_array_equal(mapped.tokens, held.tokens)
    np.testing.assert_array_equal(mapped.offsets, held.offsets)
    np.testing.assert_array_equal(load_encoded(tmp_path / "enc").tokens, held.tokens)
    assert np.load(tmp_path / "enc" / "tokens.npy").tolist() == held.tokens.tolist()


@pytest.mark.slow
def test_encoding_to_disk_holds_a_batch_and_not_the_corpus(tmp_path):
    corpus = Corpus.from_texts("a b a b a b a b" for _ in range(50_000))  # 450,000 tokens
    tracemalloc.start()
    encoded = encode(corpus, SMALL, tmp_path)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert len(encoded.tokens) == 450_000
    # Offsets take 8 bytes a document, and are summed once; the tokens would take 1.8 MB.
    assert peak < 2_000_000


def test_progress_counts_documents_up_to_all(corpus, vocabulary):
    seen = []
    encode(corpus, vocabulary, progress=seen.append)
    assert seen == [1000, 2000, len(corpus)]


def test_the_same_corpus_is_not_encoded_twice(tmp_path):
    corpus = Corpus.from_texts(["a b"])
    encode(corpus, SMALL, tmp_path)
    before = (tmp_path / "tokens.npy").stat().st_mtime_ns
    seen = []
    encode(corpus, SMALL, tmp_path, progress=seen.append)
    assert (tmp_path / "tokens.npy").stat().st_mtime_ns == before
    assert seen == []


@pytest.mark.parametrize(
    ("texts", "words"), [(["b b"], ("a", "b")), (["a b"], ("b", "a"))], ids=["corpus", "vocabulary"]
)
def test_another_corpus_or_vocabulary_is_encoded_anew(texts, words, tmp_path):
    encode(Corpus.from_texts(["a b"]), SMALL, tmp_path)
    other = WordVocabulary((UNK, EOS, *words))
    encoded = encode(Corpus.from_texts(texts), other, tmp_path)
    assert other.decode(encoded.document(0)) == f"{texts[0]} <eos>"


def test_a_broken_encoding_is_made_again(tmp_path):
    corpus = Corpus.from_texts(["a b"])
    encode(corpus, SMALL, tmp_path)
    (tmp_path / "tokens.npy").write_bytes(b"spoilt")
    assert encode(corpus, SMALL, tmp_path).tokens.tolist() == [2, 3, 1]


def test_a_failure_midway_leaves_the_old_encoding_whole(tmp_path):
    encode(Corpus.from_texts(["a b"]), SMALL, tmp_path)

    def stop(done):
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        encode(Corpus.from_texts(["b"]), SMALL, tmp_path, progress=stop)
    assert load_encoded(tmp_path).tokens.tolist() == [2, 3, 1]
    names = {"tokens.npy", "offsets.npy", "encoded.json"}
    assert {entry.name for entry in tmp_path.iterdir()} == names


def _cut(path):
    path.write_bytes(path.read_bytes()[:-4])


def _record(path, **changes):
    path.write_text(json.dumps(json.loads(path.read_text()) | changes))


@pytest.mark.parametrize(
    "spoil",
    [
        lambda folder: (folder / "encoded.json").unlink(),
        lambda folder: (folder / "encoded.json").write_text("{"),
        lambda folder: (folder / "encoded.json").write_text("[]"),
        lambda folder: _record(folder / "encoded.json", format="other"),
        lambda folder: _record(folder / "encoded.json", tokens=2),
        lambda folder: _record(folder / "encoded.json", documents="two"),
        lambda folder: (folder / "tokens.npy").unlink(),
        lambda folder: (folder / "tokens.npy").write_bytes(b""),
        lambda folder: (folder / "tokens.npy").write_bytes(b"spoilt"),
        lambda folder: _cut(folder / "tokens.npy"),
        lambda folder: np.save(folder / "tokens.npy", np.array([2, 2, 1], np.int32)),
        lambda folder: np.save(folder / "tokens.npy", np.array([-2, 3, 1], np.int32)),
        lambda folder: np.save(folder / "tokens.npy", np.zeros(3)),
        lambda folder: np.save(folder / "tokens.npy", np.zeros((3, 1), np.int32)),
        lambda folder: np.save(
            folder / "tokens.npy", np.array([{}, {}, {}], object), allow_pickle=True
        ),
        lambda folder: (folder / "offsets.npy").unlink(),
        lambda folder: _cut(folder / "offsets.npy"),
        lambda folder: np.save(folder / "offsets.npy", np.array([0, 7])),
    ],
)
def test_a_spoilt_encoding_is_named(spoil, tmp_path):
    encode(Corpus.from_texts(["a b"]), SMALL, tmp_path)
    spoil(tmp_path)
    with pytest.raises(DataError, match="Encode the corpus again") as caught:
        load_encoded(tmp_path)
    assert str(tmp_path) in str(caught.value)


def test_an_empty_corpus_has_no_tokens():
    with pytest.raises(DataError, match="empty corpus"):
        encode(Corpus.from_texts([]), SMALL)


# Pairs of source and target texts.

FRENCH = WordVocabulary(("<unk>", "<eos>", "oui", "non"))
ENGLISH = WordVocabulary(("<eos>", "<unk>", "yes", "no", "well"))


def test_each_side_is_read_by_its_own_vocabulary():
    corpus = Corpus.from_texts(
        ["yes well", "", "no"], sources=["oui", "non oui", ""], users=["ann", "bob", "ann"]
    )
    pairs = encode_pairs(corpus, FRENCH, ENGLISH)
    assert len(pairs) == 3
    assert [pairs.sources.document(i).tolist() for i in range(3)] == [[2, 1], [3, 2, 1], [1]]
    assert [pairs.targets.document(i).tolist() for i in range(3)] == [[2, 4, 0], [0], [3, 0]]
    assert pairs.targets.users.tolist() == [0, 1, 0]
    assert pairs.targets.names == ("ann", "bob")


def test_sources_alone_are_a_corpus():
    corpus = Corpus.from_texts(["yes"], sources=["oui oui"])
    assert list(sources_of(corpus)) == ["oui oui"]


def test_a_corpus_without_sources_is_refused():
    with pytest.raises(DataError, match=r"no source texts.*--source"):
        encode_pairs(Corpus.from_texts(["yes"]), FRENCH, ENGLISH)


def test_an_empty_corpus_is_refused():
    with pytest.raises(DataError, match="empty corpus"):
        encode_pairs(Corpus.from_texts([], sources=[]), FRENCH, ENGLISH)


def test_sources_and_targets_are_as_many():
    one, two = (encode(Corpus.from_texts(["yes"] * n), ENGLISH) for n in (1, 2))
    with pytest.raises(ValueError, match="sources must be as many as targets, 2, got 1"):
        EncodedPairs(one, two)
