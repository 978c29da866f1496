"""Which words are asked about, what is public about them, and what their ranks tell."""

from collections import Counter
from dataclasses import replace

import numpy as np
import pytest
import torch

from tests.audits.membership.made_users import VOCABULARY, queries_of, shadows_of, words_of
from tests.models.contexts import contexts_at
from tests.models.narrowed import narrow
from vestige.audits.membership.membership import QueryOptions
from vestige.audits.membership.queries import QueryPolicy, best_of_each, information
from vestige.audits.membership.ranked_words import (
    RankedWords,
    ShadowRanks,
    WordCounts,
    log_odds,
    ranks_of,
    score_words,
    surprise_words,
)
from vestige.data.corpus import Corpus
from vestige.data.encoded import EncodedPairs, encode, encode_pairs
from vestige.data.token_queries import token_queries
from vestige.data.vocabulary import WordVocabulary
from vestige.metrics.estimates import auc
from vestige.models.recurrent_network import LSTMConfig, LSTMLanguageModel
from vestige.models.seq2seq import Seq2SeqConfig, Seq2SeqModel
from vestige.models.top_k import likeliest_ranks

# Selection: one rule for everybody.

ASKED = queries_of(12)
COUNTS = WordCounts.of(ASKED.tokens, int(ASKED.tokens.max()) + 1)


def selected(policy, shadows=None):
    return ASKED.take(policy.mask(ASKED, COUNTS, shadows))


@pytest.mark.parametrize("how", ["random", "rare"])
def test_nobody_has_more_words_or_texts_than_allowed_and_texts_are_whole(how):
    assert len(selected(QueryPolicy(k=5))) == len(ASKED)
    calls = QueryPolicy(how=how, calls=7, k=5)
    assert set(selected(calls).counts().tolist()) <= set(range(8))
    assert (selected(calls).counts() <= calls.most(ASKED)).all()
    texts = QueryPolicy(how=how, queries=2, k=5)
    chosen = selected(texts)
    assert (np.bincount(chosen.users) == 40).all()
    for text in np.unique(chosen.texts):
        assert (chosen.texts == text).sum() == (ASKED.texts == text).sum()
    for user in range(12):
        assert len(np.unique(chosen.texts[chosen.users == user])) <= 2
    assert (chosen.counts() <= texts.most(ASKED)).all()


def test_rare_words_and_texts_are_those_of_the_smallest_frequencies():
    words, texts = (
        selected(QueryPolicy(how="rare", k=5, **n)) for n in ({"calls": 3}, {"queries": 3})
    )
    frequency = COUNTS.words[ASKED.tokens].astype(float)
    chosen = set()
    for user in range(12):
        own = ASKED.users == user
        found = sorted(COUNTS.words[words.tokens[words.users == user]])
        assert found == np.sort(frequency[own])[:3].tolist()
        mean = {
            text: frequency[ASKED.texts == text].mean() for text in set(ASKED.texts[own].tolist())
        }
        chosen |= set(sorted(mean, key=lambda text: (mean[text], text))[:3])
    assert set(texts.texts.tolist()) == chosen


def test_informative_words_are_those_near_the_end_of_the_list():
    inside, outside = information([2, 21, 80], k=20), information([1, 82], k=20)
    assert (inside > 0).all()
    assert (outside < 0).all()
    assert inside.argmax() == 1
    ranks = np.exp(np.random.default_rng(0).uniform(0, np.log(VOCABULARY), len(ASKED)))
    mask = best_of_each(ASKED.users, information(ranks, k=20), 10)
    assert ((ranks[mask] >= 2) & (ranks[mask] <= 80)).all()
    shadows = shadows_of(ASKED, 4, half_of=np.arange(4))
    typical = shadows.typical_ranks(ASKED, seed=0)
    mask = QueryPolicy(how="informative", calls=5, k=20).mask(ASKED, COUNTS, shadows)
    near = (typical >= 2) & (typical <= 80)
    assert near[mask].mean() > near[~mask].mean()


@pytest.mark.parametrize(
    ("queries", "calls", "shadows", "wanted"),
    [(None, None, 4, "all"), (3, None, 4, "random"), (None, 3, 4, "informative"),
     (None, 3, 0, "random")],
)  # fmt: skip
def test_the_usual_selection(queries, calls, shadows, wanted):
    options = QueryOptions(queries=queries, calls=calls)
    assert QueryPolicy.of(options, shadows=shadows, seed=0).how == wanted


@pytest.mark.parametrize(
    ("named", "message"),
    [
        ({"how": "rare"}, "must come with `queries` or `calls`"),
        ({"calls": 3}, "must come with another `select`"),
        ({"how": "random", "calls": 3, "queries": 2}, "`calls` must be left out"),
        ({"how": "rare", "calls": 0}, "limit must be at least 1"),
    ],
)
def test_contradictions_are_refused(named, message):
    with pytest.raises(ValueError, match=message):
        selected(QueryPolicy(k=5, **named))


def test_informative_words_need_shadow_models():
    with pytest.raises(ValueError, match="needs shadow models"):
        QueryPolicy.of(QueryOptions(select="informative", calls=5), shadows=0, seed=0)


# Ranks: what is read whole from a model of ours is what an outsider would be shown.

WORDS = WordVocabulary(("<unk>", "<eos>", *(f"w{i}" for i in range(12))))
CHANCE = np.random.default_rng(0)
CORPUS = Corpus.from_texts(
    [" ".join(f"w{i}" for i in CHANCE.integers(0, 14, 6)) for _ in range(12)],
    users=[f"user {place % 3}" for place in range(12)],
)
TEXTS = encode(CORPUS, WORDS)
READ = token_queries(TEXTS, WORDS)
"""Words of two in fourteen are unknown."""


def small(seed=0):
    torch.manual_seed(seed)
    config = LSTMConfig(layers=1, embedding_size=6, hidden_size=6, initial_range=0.7)
    return LSTMLanguageModel(WORDS, config).eval()


def shown(model, texts, asked, k):
    """Ranks of the words if a model shows k words."""
    ranks, _ = ranks_of(model, texts, asked)
    counts = WordCounts.of([], 14)
    return RankedWords(queries=asked, ranks=ranks, k=k, vocab_size=14, counts=counts).shown.tolist()


@pytest.mark.parametrize("k", [1, 4, 14])
def test_a_service_of_the_same_model_gives_the_same_ranks(k):
    places = TEXTS.offsets[READ.texts] + READ.positions
    outside = likeliest_ranks(narrow(small(), k=k), *contexts_at(TEXTS, places, WORDS))
    assert outside.tolist() == shown(small(), TEXTS, READ, k=k)


def test_a_translator_is_asked_with_its_source():
    pairs = Corpus.from_texts(list(CORPUS), users=CORPUS.users, sources=list(CORPUS)[::-1])
    torch.manual_seed(0)
    config = Seq2SeqConfig(embedding_size=6, hidden_size=6, initial_range=0.7)
    translator = Seq2SeqModel(WORDS, WORDS, config).eval()
    encoded = encode_pairs(pairs, WORDS, WORDS)
    assert isinstance(encoded, EncodedPairs)
    asked = token_queries(encoded.targets, WORDS)
    places = encoded.targets.offsets[asked.texts] + asked.positions
    questions = contexts_at(encoded.targets, places, WORDS, sources=pairs.sources)
    outside = likeliest_ranks(narrow(translator, k=5), *questions)
    assert outside.tolist() == shown(translator, encoded, asked, k=5)


def test_words_in_any_order_keep_their_ranks_and_shadows_know_whom_they_saw():
    lots = np.random.default_rng(1).permutation(len(READ))
    read = [ranks_of(small(seed), TEXTS, READ) for seed in (0, 1)]
    shuffled = ranks_of(small(), TEXTS, READ.take(lots))
    assert shuffled[0].tolist() == read[0][0][lots].tolist()
    assert shuffled[1] == pytest.approx(read[0][1][lots])
    found = ShadowRanks.of(read, [("user 0",), ("user 1", "user 2")], READ.names)
    assert found.seen.tolist() == [[True, False, False], [False, True, True]]
    assert found.ranks[1].tolist() == read[1][0].tolist()
    assert (found.log_probs < 0).all()


def test_counts_are_those_of_the_counted_users_for_everybody():
    """Naively: words and pairs of the texts of user 1 alone, one end after another."""
    words, pairs, before, wanted = Counter(), Counter(), None, []
    for text, name in zip(CORPUS, CORPUS.users, strict=True):
        if name == "user 1":
            split = [w if w in WORDS.words else "<unk>" for w in text.split()] + ["<eos>"]
            words.update(split)
            pairs.update(zip([before, *split[:-1]], split, strict=True))
            before = "<eos>"  # what stands before the first text of all is nobody's end
    for text, place in zip(READ.texts, READ.positions, strict=True):
        own = [w if w in WORDS.words else "<unk>" for w in list(CORPUS)[text].split()]
        last = own[place - 1] if place else "<eos>"
        counts = (words[own[place]], pairs[last, own[place]], words[last])
        wanted.append([*np.log1p(counts), place])
    counts = WordCounts.of_users(TEXTS, [1], len(WORDS))
    np.testing.assert_allclose(counts.features(READ), np.array(wanted))
    assert not WordCounts.of([], len(WORDS)).features(READ)[:, :3].any()


# Scores: shadow models teach which ranks speak for having been seen.

QUERIES = queries_of(90)
MEMBERS, OTHERS = np.arange(15), np.arange(15, 30)
FITTED, COMPARED = np.arange(30, 60), np.arange(60, 90)
SHADOWS = shadows_of(QUERIES, 6, half_of=FITTED)


def of_users(how, *, k, seed):
    words = words_of(QUERIES, MEMBERS, gain=0.15, k=k, seed=seed, shadows=SHADOWS)
    return QUERIES.mean_by_user(how(words, FITTED))


def area(scores):
    return auc(scores[MEMBERS], scores[OTHERS]).value


@pytest.mark.slow
def test_members_stand_above_others_and_these_around_zero():
    found = [of_users(score_words, k=20, seed=seed) for seed in range(3)]
    assert np.mean([area(scores) for scores in found]) > 0.9
    inside, outside = (np.mean([scores[who] for scores in found]) for who in (MEMBERS, OTHERS))
    assert abs(outside) < 0.3 * inside
    few = {
        how: np.mean([area(of_users(how, k=3, seed=seed)) for seed in range(3)])
        for how in (score_words, surprise_words)
    }
    assert few[score_words] > few[surprise_words] - 0.02


def test_surprise_stands_in_where_shadows_teach_nothing():
    few = words_of(QUERIES, MEMBERS, k=20, shadows=shadows_of(QUERIES, 2, half_of=FITTED))
    blind = replace(SHADOWS, seen=np.zeros_like(SHADOWS.seen))
    for words in (few, words_of(QUERIES, MEMBERS, k=20, shadows=blind)):
        assert log_odds(words, FITTED, seed=0) is None
        np.testing.assert_array_equal(score_words(words, FITTED), surprise_words(words, FITTED))


@pytest.mark.slow
def test_nothing_is_learnt_from_users_who_are_compared_and_the_seed_decides():
    words = words_of(QUERIES, MEMBERS, k=20, shadows=SHADOWS)
    compared = np.isin(QUERIES.users, COMPARED)
    ranks = np.where(compared, SHADOWS.ranks[:, ::-1], SHADOWS.ranks)
    changed = replace(words, shadows=replace(SHADOWS, ranks=ranks))
    mine, again, theirs = (score_words(one, FITTED) for one in (words, words, changed))
    np.testing.assert_array_equal(mine[~compared], theirs[~compared])
    np.testing.assert_array_equal(mine, again)
