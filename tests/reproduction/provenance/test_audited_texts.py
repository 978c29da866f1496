"""Audited texts are sampled by user into disjoint groups."""

from dataclasses import replace
from pathlib import Path

import pytest

from reproduction.provenance.audited_texts import (
    TASKS,
    AuditedText,
    _in_sentences,
    read_audited,
    read_other_domain,
    read_users_texts,
)
from vestige.data.corpus import Corpus
from vestige.errors import DataError

MADE = AuditedText(
    dataset="grammar", members=8, others=7, reference=20, compared=14, each=12, vocabulary_size=90
)
PAIRS = replace(MADE, dataset="grammar-pairs")


def users_by_group(text: AuditedText) -> list[set[str]]:
    texts = read_audited(text, None)
    corpora = (texts.reference, texts.compared, texts.spare)
    return [set(texts.members), set(texts.others), *(set(corpus.users or ()) for corpus in corpora)]


def test_groups_have_their_sizes_and_are_disjoint() -> None:
    groups = users_by_group(MADE)
    assert [len(group) for group in groups] == [8, 7, 20, 14, 60 - 8 - 7 - 20 - 14]
    assert len(set().union(*groups)) == 60


def test_the_vocabulary_comes_from_spare_users() -> None:
    read = read_audited(replace(MADE, vocabulary_size=1000), None)
    spare = {word for text in read.spare for word in text.lower().split()}
    assert set(read.vocabulary.words[2:]) <= spare


@pytest.mark.slow
def test_users_depend_on_the_seed() -> None:
    assert users_by_group(MADE) == users_by_group(replace(MADE))
    assert users_by_group(MADE) != users_by_group(replace(MADE, seed=1))


def test_pairs_have_the_source_of_each_text() -> None:
    audited = read_audited(PAIRS, None).audited
    sources = audited.sources
    assert sources is not None
    assert len(sources) == len(audited) == 15 * 12
    for source, target in zip(sources, audited, strict=True):
        assert source.split() == target.split()[::-1]


@pytest.mark.slow
def test_only_pairs_have_a_vocabulary_of_sources() -> None:
    assert read_audited(MADE, None).source_vocabulary is None
    read = read_audited(PAIRS, None)
    assert read.source_vocabulary is not None
    assert set(read.source_vocabulary.words) == set(
        read.vocabulary.words
    )  # sources are reversed texts


def test_an_unknown_corpus_is_refused_with_a_list_of_corpora() -> None:
    with pytest.raises(ValueError, match=r"dataset must be one of.*cornell"):
        read_users_texts("twitter", None)


@pytest.mark.parametrize("dataset", [name for name in TASKS if not name.startswith("grammar")])
def test_every_real_corpus_needs_a_folder(dataset: str) -> None:
    with pytest.raises(DataError, match=f"the text {dataset} needs a folder"):
        read_users_texts(dataset, None)


def test_paragraphs_are_split_into_sentences_without_headings() -> None:
    corpus = Corpus.from_texts([" = Title = ", "one two . three . ", " . ", "four"])
    assert list(_in_sentences(corpus)) == ["one two", "three", "four"]


def test_text_without_users_is_split_among_artificial_users(tmp_path: Path) -> None:
    folder = tmp_path / "wikitext2"
    folder.mkdir()
    lines = "\n".join(f" word{i} b c d e f \n" for i in range(20))
    for split in ("train", "valid", "test"):
        (folder / f"wiki.{split}.tokens").write_text(lines)
    text = replace(MADE, reference=3, compared=1, each=5)
    reference, compared = read_other_domain(text, "wikitext2", tmp_path)
    assert len(set(reference) | set(compared)) == 20
    for corpus, users in ((reference, 3), (compared, 1)):
        assert len(set(corpus.users or ())) == users
        assert len(corpus) == 5 * users
    with pytest.raises(DataError, match="wikitext2 has 20 documents where 24 are wanted"):
        read_other_domain(replace(text, each=6), "wikitext2", tmp_path)
