from pathlib import Path

import pytest

from vestige.data.loaders.wikitext import read_wikitext
from vestige.errors import DataError

TEXT = """ \n = First thing = \n \n It is . \n \n = = Part = = \n \n More .
 Key \n = Played , W = \n Won \n \n = Second = \n \n Last . \n"""


def test_paragraphs_carry_their_articles_title(tmp_path: Path) -> None:
    (tmp_path / "wiki.train.tokens").write_text(TEXT)
    corpus = read_wikitext(tmp_path)
    assert list(corpus) == [
        "= First thing =",
        "It is .",
        "= = Part = =",
        "More .",
        "Key",
        "= Played , W =",
        "Won",
        "= Second =",
        "Last .",
    ]
    assert corpus.labels == ["First thing"] * 7 + ["Second"] * 2


def test_articles_hold_their_paragraphs(tmp_path: Path) -> None:
    (tmp_path / "wiki.test.tokens").write_text(TEXT)
    corpus = read_wikitext(tmp_path, split="test", documents="article")
    assert corpus.labels == ["First thing", "Second"]
    first, second = corpus
    assert second == "= Second =\nLast ."
    assert first.count("\n") == 6


def test_text_before_the_first_title_is_an_article_without_one(tmp_path: Path) -> None:
    (tmp_path / "w.tokens").write_text(" Alone . \n still . \n")
    corpus = read_wikitext(tmp_path / "w.tokens", documents="article")
    assert (list(corpus), corpus.labels) == (["Alone .\nstill ."], [""])


def test_a_folder_without_the_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"has no wiki\.valid\.tokens"):
        read_wikitext(tmp_path, split="valid")
    (tmp_path / "wiki.valid.tokens").write_text(" \n")
    with pytest.raises(DataError, match="has no text"):
        read_wikitext(tmp_path, split="valid")


@pytest.mark.data
def test_the_real_one_has_two_million_words(real: Path) -> None:
    corpus = read_wikitext(real / "wikitext2")
    assert sum(len(text.split()) for text in corpus) == 2_051_910
    assert 580 <= len(set(corpus.labels or [])) <= 620
