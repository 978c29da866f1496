from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from vestige.data.corpus import Corpus, write_corpus
from vestige.data.formats.reading import read_corpus
from vestige.data.formats.tables import read_table
from vestige.errors import DataError

PRINTABLE = st.text(st.characters(codec="utf-8"), min_size=1, max_size=20).filter(str.strip)


@pytest.mark.parametrize("name", ["c.jsonl", "c.jsonl.gz", "c.parquet"])
@given(texts=st.lists(PRINTABLE, min_size=1, max_size=10))
def test_what_is_written_is_what_is_read(
    name: str, texts: list[str], tmp_path_factory: pytest.TempPathFactory
) -> None:
    corpus = Corpus.from_texts(texts, users=texts[::-1], labels=texts, sources=texts[::-1])
    path = tmp_path_factory.mktemp("written") / name
    write_corpus(corpus, path)
    read = read_table(path, user_column="user", label_column="label", source_column="source")
    assert read.fingerprint() == corpus.fingerprint()


def test_plain_text_is_a_document_a_line(tmp_path: Path) -> None:
    corpus = Corpus.from_texts(["one two", "three"])
    write_corpus(corpus, tmp_path / "c.txt")
    assert (tmp_path / "c.txt").read_text() == "one two\nthree\n"
    assert read_corpus(tmp_path / "c.txt").fingerprint() == corpus.fingerprint()


@pytest.mark.parametrize("text", ["two\nlines", " blank before", ""])
def test_a_document_that_is_no_line_is_refused_and_nothing_written(
    text: str, tmp_path: Path
) -> None:
    with pytest.raises(DataError, match=r"End the name in \.parquet"):
        write_corpus(Corpus.from_texts(["fine", text]), tmp_path / "c.txt")
    assert list(tmp_path.iterdir()) == []


def test_a_name_without_format_is_refused(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"c\.xyz"):
        write_corpus(Corpus.from_texts(["a"]), tmp_path / "c.xyz")


def test_equal_corpora_make_equal_files(tmp_path: Path) -> None:
    for name in ("a.jsonl.gz", "b.jsonl.gz"):
        write_corpus(Corpus.from_texts(["a", "b"]), tmp_path / name)
    assert (tmp_path / "a.jsonl.gz").read_bytes() == (tmp_path / "b.jsonl.gz").read_bytes()


def test_progress_counts_documents(corpus: Corpus, tmp_path: Path) -> None:
    seen: list[int] = []
    write_corpus(corpus, tmp_path / "c.jsonl", progress=seen.append)
    assert seen[-1] == len(corpus)
    assert seen == sorted(seen)
