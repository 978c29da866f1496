"""The papers' corpora in the folder VESTIGE_DATA have their published sizes."""

import numpy as np
import pytest

from reproduction.texts import documents_of
from vestige.data.formats.dialogue import read_reddit
from vestige.data.formats.reading import read_corpus
from vestige.data.formats.text import read_newsgroups, read_penn_treebank, read_wikitext
from vestige.data.formats.utterances import read_utterances
from vestige.data.users import disjoint_groups, users_with
from vestige.data.vocabulary import WordVocabulary

pytestmark = pytest.mark.data


def words(corpus):
    return sum(len(text.split()) for text in corpus)


def test_wikitext_has_two_million_words(real_corpora):
    corpus = read_wikitext(real_corpora / "wikitext2")
    assert words(corpus) == 2_051_910
    assert 580 <= len(set(corpus.labels)) <= 620


def test_the_treebank_has_10_000_types_and_929_589_tokens(real_corpora):
    corpus = read_penn_treebank(real_corpora / "ptb")
    assert len(corpus) == 42_068
    assert words(corpus) == 887_521  # 929,589 with one end token per sentence
    assert len(WordVocabulary.build(corpus)) == 10_000


def test_newsgroups_lose_headers_and_quotes_only(real_corpora):
    corpus = read_newsgroups(real_corpora / "newsgroups" / "rec.sport.hockey")
    assert 990 <= len(corpus) <= 1000
    assert 150_000 < words(corpus) < 250_000
    lines = [line for text in corpus for line in text.splitlines()]
    assert not any(line.startswith((">", "|>")) for line in lines)


@pytest.mark.slow
def test_films_and_chats_have_known_numbers_of_replies(real_corpora):
    films = read_corpus(real_corpora / "cornell_movie")
    assert len(films) == 23_519
    assert len(set(films.users)) == 899
    assert len(set(films.labels)) == 59
    assert "I was ready for the next step" not in " ".join(films)
    chat = read_corpus(real_corpora / "ubuntu_irc")
    assert len(chat) == 91_925
    assert chat.sources is not None


def test_talks_have_four_pairs_each(real_corpora):
    corpus = read_corpus(real_corpora / "sated")
    names, user_indices = corpus.user_indices()
    assert (len(corpus), len(names)) == (7548, 1887)
    assert set(np.bincount(user_indices).tolist()) == {4}
    assert len(read_corpus(real_corpora / "sated" / "en-fr" / "dev.fr")) == 3774


@pytest.mark.slow
def test_the_comments_have_enough_users_for_an_audit(real_corpora):
    corpus = read_reddit(real_corpora / "reddit_college")
    assert len(corpus) == 501_661
    assert corpus.table.nbytes < 200_000_000
    corpus, limits = corpus.take(np.arange(100_000)), {"shortest": 8, "longest": 40}
    names = users_with(corpus, fewest=20, **limits)
    members, others = disjoint_groups(names, [50, 50], seed=0)
    documents = documents_of(corpus, members + others, each=20, seed=0, **limits)
    assert len(documents) == 2000
    # No user has more than twice the mean number of words.
    _, user_indices = documents.user_indices()
    length = np.bincount(user_indices, [len(text.split()) for text in documents])
    assert length.max() < 0.02 * length.sum()


@pytest.mark.slow
@pytest.mark.parametrize(
    ("source", "sizes", "intents", "tags"),
    [
        ("snips/slotgated", [13_084, 700, 700], 7, 72),
        ("atis", [4_478, 500, 893], 26, 127),
        ("nlu_eval", [11_036], 64, 105),
        ("nlu_eval/utterances.csv", [11_036], 64, 105),
        ("snips/nlu-benchmark/2017-06-custom-intent-engines", [13_784, 700], 7, 72),
    ],
)
def test_labelled_utterances_have_their_intents_and_tags(
    source, sizes, intents, tags, real_corpora
):
    parts = read_utterances(real_corpora / source).parts()
    assert [len(part) for part in parts.values()] == sizes
    assert len({intent for part in parts.values() for intent in part.intents}) == intents
    utterances = [utterance for part in parts.values() for utterance in part]
    assert len({tag for utterance in utterances for tag in utterance.tags}) == tags
