from pathlib import Path

import pytest

from vestige.data.loaders.penn_treebank import read_penn_treebank
from vestige.data.vocabulary import WordVocabulary
from vestige.errors import DataError


def test_each_split_has_its_file(tmp_path: Path) -> None:
    for split in ("train", "valid", "test"):
        (tmp_path / f"ptb.{split}.txt").write_text(f" {split} <unk> N \n a b \n")
    assert list(read_penn_treebank(tmp_path)) == ["train <unk> N", "a b"]
    assert list(read_penn_treebank(tmp_path, split="test")) == ["test <unk> N", "a b"]
    assert list(read_penn_treebank(tmp_path / "ptb.valid.txt")) == ["valid <unk> N", "a b"]


def test_a_folder_without_the_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"has no ptb\.train\.txt"):
        read_penn_treebank(tmp_path)
    with pytest.raises(ValueError, match="split must be one of"):
        read_penn_treebank(tmp_path, split="dev")


@pytest.mark.data
def test_the_real_one_has_ten_thousand_types_and_929_589_tokens(real: Path) -> None:
    corpus = read_penn_treebank(real / "ptb")
    assert len(corpus) == 42_068
    assert sum(len(text.split()) for text in corpus) == 887_521
    assert len(WordVocabulary.build(corpus)) == 10_000
