import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from transformers import PreTrainedTokenizerFast

from vestige.data.corpus import Corpus
from vestige.data.subwords import END_OF_TEXT, SubwordVocabulary
from vestige.data.vocabulary import Vocabulary, load_vocabulary
from vestige.errors import DataError


@pytest.fixture(scope="module")
def subwords(corpus: Corpus) -> SubwordVocabulary:
    return SubwordVocabulary.train_bpe(corpus, size=500)


def test_bpe_learns_as_many_tokens_as_asked(subwords: SubwordVocabulary) -> None:
    assert len(subwords) == 500
    assert subwords.piece(subwords.eos_id) == END_OF_TEXT
    assert subwords.unk_id is None
    assert isinstance(subwords, Vocabulary)


@settings(max_examples=50)
@given(st.text(st.characters(codec="utf-8"), max_size=40))
def test_bytes_lose_nothing(text: str) -> None:
    vocabulary = SubwordVocabulary.train_bpe(Corpus.from_texts(["a b c"]), size=257)
    assert vocabulary.decode(vocabulary.encode(text)) == text


def test_no_end_of_text_is_added(subwords: SubwordVocabulary) -> None:
    texts = ["doctors waited", "", "waited"]
    rows = subwords.encode_batch(texts)
    assert rows[1] == []
    assert all(subwords.eos_id not in row for row in rows)
    assert rows[0] == subwords.encode(texts[0])


def test_pieces_keep_their_leading_space(subwords: SubwordVocabulary) -> None:
    text = "people always needed better companies"
    assert "".join(subwords.piece(token) for token in subwords.encode(text)) == text


def test_an_id_beyond_the_tokenizer_has_a_printable_name(subwords: SubwordVocabulary) -> None:
    assert subwords.piece(len(subwords) + 7) == f"<{len(subwords) + 7}>"


def test_what_is_saved_is_what_is_loaded(subwords: SubwordVocabulary, tmp_path: Path) -> None:
    subwords.save(tmp_path)
    loaded = load_vocabulary(tmp_path)
    assert loaded.fingerprint() == subwords.fingerprint()
    assert (loaded.eos_id, loaded.unk_id, len(loaded)) == (subwords.eos_id, None, 500)
    assert loaded.encode("public people") == subwords.encode("public people")


def test_the_fingerprint_tells_tokenizers_apart(
    subwords: SubwordVocabulary, corpus: Corpus
) -> None:
    assert SubwordVocabulary.train_bpe(corpus, size=500).fingerprint() == subwords.fingerprint()
    assert SubwordVocabulary.train_bpe(corpus, size=499).fingerprint() != subwords.fingerprint()


def test_padding_and_truncation_leave_the_fingerprint_alone(corpus: Corpus) -> None:
    vocabulary = SubwordVocabulary.train_bpe(corpus, size=300)
    before = vocabulary.fingerprint()
    vocabulary.tokenizer.backend_tokenizer.enable_truncation(8)
    assert vocabulary.fingerprint() == before


def test_an_unknown_token_of_its_own_is_kept(corpus: Corpus) -> None:
    inner = SubwordVocabulary.train_bpe(corpus, size=300).tokenizer.backend_tokenizer
    named = PreTrainedTokenizerFast(
        tokenizer_object=inner, eos_token=END_OF_TEXT, unk_token="<unk>"
    )
    vocabulary = SubwordVocabulary(named)
    assert vocabulary.unk_id == 300
    assert len(vocabulary) == 301


def test_a_tokenizer_without_end_of_text_is_refused(subwords: SubwordVocabulary) -> None:
    bare = PreTrainedTokenizerFast(tokenizer_object=subwords.tokenizer.backend_tokenizer)
    with pytest.raises(DataError, match="no end-of-text token"):
        SubwordVocabulary(bare)


def test_a_slow_tokenizer_is_refused() -> None:
    with pytest.raises(DataError, match="no fast version"):
        SubwordVocabulary(object())


@pytest.mark.parametrize("content", ["", "{", "{}", '{"version": "1.0", "model": 3}'])
def test_a_spoilt_tokenizer_is_named(content: str, tmp_path: Path) -> None:
    (tmp_path / "tokenizer.json").write_text(content)
    with pytest.raises(DataError, match=r"tokenizer\.json") as caught:
        load_vocabulary(tmp_path)
    assert str(tmp_path) in str(caught.value)


def test_an_empty_corpus_and_a_tiny_size_are_refused() -> None:
    with pytest.raises(DataError, match="empty corpus"):
        SubwordVocabulary.train_bpe(Corpus.from_texts([]), size=300)
    with pytest.raises(ValueError, match="size must be at least 257"):
        SubwordVocabulary.train_bpe(Corpus.from_texts(["a"]), size=256)


def test_words_do_not_wait_for_transformers() -> None:
    code = (
        "import sys, vestige.data.vocabulary, vestige.data.canaries.coins, vestige.data.encoded\n"
        "import vestige.data.formats.utterances, vestige.data.subwords, vestige.data.corpus\n"
        "slow = {'torch', 'transformers', 'tokenizers', 'datasets', 'pandas'} & set(sys.modules)\n"
        "assert not slow, slow"
    )
    subprocess.run([sys.executable, "-c", code], check=True)
