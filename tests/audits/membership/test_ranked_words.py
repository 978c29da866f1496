"""Which words are queried, what is public about them, and what their ranks tell of membership."""

from collections import Counter
from dataclasses import replace
from itertools import combinations

import numpy as np
import pytest
import torch

from tests.audits.membership.made_users import VOCABULARY, queries_of, shadows_of, words_of
from tests.models.contexts import contexts_at
from tests.models.narrowed import narrow
from vestige.audits.membership.membership import QueryOptions
from vestige.audits.membership.queries import QueryPolicy, highest_per_user, information
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
from vestige.data.encoded import encode, encode_pairs
from vestige.data.token_queries import token_queries
from vestige.data.vocabulary import WordVocabulary
from vestige.errors import DataError
from vestige.metrics.estimates import auc
from vestige.models.recurrent_network import LSTMConfig, LSTMLanguageModel
from vestige.models.seq2seq import Seq2SeqConfig, Seq2SeqModel
from vestige.models.top_k import likeliest_ranks

# Selection: one rule for everybody.

ASKED = queries_of(12)
COUNTS = WordCounts.of(ASKED.tokens, int(ASKED.tokens.max()) + 1)


def selected(policy, shadows=None):
    return ASKED.take(policy.selected(ASKED, COUNTS, shadows))


@pytest.mark.parametrize("how", ["random", "rare"])
def test_nobody_has_more_words_or_texts_than_allowed_and_texts_are_whole(how):
    assert len(selected(QueryPolicy(k=5))) == len(ASKED)
    calls = QueryPolicy(select=how, calls=7, k=5)
    assert set(selected(calls).counts().tolist()) <= set(range(8))
    assert (selected(calls).counts() <= calls.max_words(ASKED)).all()
    texts = QueryPolicy(select=how, queries=2, k=5)
    chosen = selected(texts)
    assert (np.bincount(chosen.users) == 40).all()
    for text in np.unique(chosen.texts):
        assert (chosen.texts == text).sum() == (ASKED.texts == text).sum()
    assert all(len(np.unique(chosen.texts[chosen.users == user])) <= 2 for user in range(12))
    assert (chosen.counts() <= texts.max_words(ASKED)).all()


def test_rare_words_and_texts_are_those_of_the_smallest_frequencies():
    words, texts = (
        selected(QueryPolicy(select="rare", k=5, **n)) for n in ({"calls": 3}, {"queries": 3})
    )
    frequency = COUNTS.words[ASKED.tokens].astype(float)
    chosen = set()
    for user in range(12):
        own = ASKED.users == user
        result = sorted(COUNTS.words[words.tokens[words.users == user]])
        assert result == np.sort(frequency[own])[:3].tolist()
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
    mask = highest_per_user(ASKED.users, information(ranks, k=20), 10)
    assert ((ranks[mask] >= 2) & (ranks[mask] <= 80)).all()
    shadows = shadows_of(ASKED, 4, half_of=np.arange(4))
    typical = shadows.typical_ranks(ASKED, seed=0)
    mask = QueryPolicy(select="informative", calls=5, k=20).selected(ASKED, COUNTS, shadows)
    near = (typical >= 2) & (typical <= 80)
    assert near[mask].mean() > near[~mask].mean()


@pytest.mark.parametrize(
    ("options", "shadows", "wanted"),
    [({}, 4, "all"), ({"queries": 3}, 4, "random"), ({"calls": 3}, 4, "informative"),
     ({"calls": 3}, 0, "random")],
)  # fmt: skip
def test_the_usual_selection(options, shadows, wanted):
    assert (
        QueryPolicy.from_options(QueryOptions(**options), shadows=shadows, seed=0).select == wanted
    )


@pytest.mark.parametrize(
    ("named", "message"),
    [
        ({"select": "rare"}, "must come with `queries` or `calls`"),
        ({"calls": 3}, "must come with another `select`"),
        ({"select": "rare", "calls": 0}, "limit must be at least 1"),
    ],
)
def test_contradictions_are_refused(named, message):
    with pytest.raises(ValueError, match=message):
        selected(QueryPolicy(k=5, **named))


# Ranks and counts: what is read whole from a local model is what an outsider would be shown.

WORDS = WordVocabulary(("<unk>", "<eos>", *(f"w{i}" for i in range(12))))
CHANCE = np.random.default_rng(0)
TEXTS = [" ".join(f"w{i}" for i in CHANCE.integers(0, 14, 6)) for _ in range(12)]
"""Words of two in fourteen are unknown."""
CORPUS = Corpus.from_texts(TEXTS, users=[f"user {n % 3}" for n in range(12)], sources=TEXTS[::-1])
READ = encode(CORPUS, WORDS)
WORDS_READ = token_queries(READ, WORDS)


def small(seed=0):
    torch.manual_seed(seed)
    config = LSTMConfig(layers=1, embedding_size=6, hidden_size=6, initial_range=0.7)
    return LSTMLanguageModel(WORDS, config).eval()


def translator():
    torch.manual_seed(0)
    config = Seq2SeqConfig(embedding_size=6, hidden_size=6, initial_range=0.7)
    return Seq2SeqModel(WORDS, WORDS, config).eval()


@pytest.mark.parametrize(("model", "k"), [(small(), 1), (small(), 4), (translator(), 5)])
def test_a_service_of_the_same_model_gives_the_same_ranks(model, k):
    sources = CORPUS.sources if hasattr(model, "source_vocabulary") else None
    encoded = READ if sources is None else encode_pairs(CORPUS, WORDS, WORDS)
    targets = READ if sources is None else encoded.targets
    asked = token_queries(targets, WORDS)
    places = targets.offsets[asked.texts] + asked.positions
    contexts = contexts_at(targets, places, WORDS, **({"sources": sources} if sources else {}))
    ranks, _ = ranks_of(model, encoded, asked)
    counts = WordCounts.of([], 14)
    own = RankedWords(queries=asked, ranks=ranks, k=k, vocab_size=14, counts=counts)
    assert likeliest_ranks(narrow(model, k=k), *contexts).tolist() == own.shown.tolist()


def test_words_in_any_order_keep_their_ranks_and_shadow_models_know_whom_they_read():
    order = np.random.default_rng(1).permutation(len(WORDS_READ))
    read = [ranks_of(small(seed), READ, WORDS_READ) for seed in (0, 1)]
    shuffled = ranks_of(small(), READ, WORDS_READ.take(order))
    assert shuffled[0].tolist() == read[0][0][order].tolist()
    assert shuffled[1] == pytest.approx(read[0][1][order])
    result = ShadowRanks.of(read, [("user 0",), ("user 1", "user 2")], WORDS_READ.names)
    assert result.members.tolist() == [[True, False, False], [False, True, True]]
    assert result.ranks[1].tolist() == read[1][0].tolist()
    assert (result.log_probs < 0).all()


def test_counts_are_those_of_the_counted_users_for_everybody():
    """Naively: words and pairs of the texts of user 1 alone, one end after another."""
    words, pairs, before, wanted = Counter(), Counter(), None, []
    for text, name in zip(CORPUS, CORPUS.users, strict=True):
        if name == "user 1":
            split = [w if w in WORDS.words else "<unk>" for w in text.split()] + ["<eos>"]
            words.update(split)
            pairs.update(zip([before, *split[:-1]], split, strict=True))
            before = "<eos>"  # no word comes before the first text of all
    for text, index in zip(WORDS_READ.texts, WORDS_READ.positions, strict=True):
        own = [w if w in WORDS.words else "<unk>" for w in list(CORPUS)[text].split()]
        last = own[index - 1] if index else "<eos>"
        counts = (words[own[index]], pairs[last, own[index]], words[last])
        wanted.append([*np.log1p(counts), index])
    counts = WordCounts.of_users(READ, [1], len(WORDS))
    np.testing.assert_allclose(counts.features(WORDS_READ), np.array(wanted))
    assert not WordCounts.of([], len(WORDS)).features(WORDS_READ)[:, :3].any()


# Shadow models teach which ranks speak for membership.

QUERIES = queries_of(90)
MEMBERS, OTHERS = np.arange(15), np.arange(15, 30)
FITTED, COMPARED = np.arange(30, 60), np.arange(60, 90)
SHADOWS = shadows_of(QUERIES, 6, half_of=FITTED)


def test_a_typical_rank_is_the_geometric_mean_over_models_that_did_not_read_its_user():
    asked = queries_of(6, texts=2, words=5)
    result = shadows_of(asked, 4, half_of=np.arange(4))  # no model read users 4 and 5
    typical = result.typical_ranks(asked, seed=0)
    for word, user in enumerate(asked.users):
        logs = np.log(result.ranks[:, word][~result.members[:, user]])
        means = [np.exp(np.mean(pair)) for pair in combinations(logs, 2)]
        assert any(typical[word] == pytest.approx(mean) for mean in means)
    with pytest.raises(DataError, match="members for every reference model"):
        shadows_of(asked, 1, half_of=np.arange(4)).typical_ranks(asked, seed=0)


def of_users(how, *, k, seed):
    words = words_of(QUERIES, MEMBERS, gain=0.15, k=k, seed=seed, shadows=SHADOWS)
    return QUERIES.mean_by_user(how(words, FITTED))


def area(scores):
    return auc(scores[MEMBERS], scores[OTHERS]).value


@pytest.mark.slow
def test_members_score_above_others_and_these_around_zero():
    result = [of_users(score_words, k=20, seed=seed) for seed in range(3)]
    assert np.mean([area(scores) for scores in result]) > 0.9
    inside, outside = (np.mean([scores[who] for scores in result]) for who in (MEMBERS, OTHERS))
    assert abs(outside) < 0.3 * inside
    few = {
        how: np.mean([area(of_users(how, k=3, seed=seed)) for seed in range(3)])
        for how in (score_words, surprise_words)
    }
    assert few[score_words] > few[surprise_words] - 0.02


def test_surprise_takes_over_if_shadow_models_teach_nothing():
    few = words_of(QUERIES, MEMBERS, k=20, shadows=shadows_of(QUERIES, 2, half_of=FITTED))
    blind = replace(SHADOWS, members=np.zeros_like(SHADOWS.members))
    for words in (few, words_of(QUERIES, MEMBERS, k=20, shadows=blind)):
        assert log_odds(words, FITTED, seed=0) is None
        np.testing.assert_array_equal(score_words(words, FITTED), surprise_words(words, FITTED))
    seen = SHADOWS.members.copy()
    seen[:, 31] = True
    read_by_all = words_of(QUERIES, MEMBERS, shadows=replace(SHADOWS, members=seen))
    with pytest.raises(DataError, match="members for every reference"):
        surprise_words(read_by_all, FITTED)


@pytest.mark.slow
def test_nothing_is_learned_from_users_who_are_compared():
    words = words_of(QUERIES, MEMBERS, k=20, shadows=SHADOWS)
    compared = np.isin(QUERIES.users, COMPARED)
    ranks = np.where(compared, SHADOWS.ranks[:, ::-1], SHADOWS.ranks)
    changed = replace(words, shadows=replace(SHADOWS, ranks=ranks))
    mine, again, theirs = (score_words(one, FITTED) for one in (words, words, changed))
    np.testing.assert_array_equal(mine[~compared], theirs[~compared])
    np.testing.assert_array_equal(mine, again)
