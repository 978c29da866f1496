"""Selection of queried words, their public features, and membership scores from their ranks."""

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

# Selection.

FEW_QUERIES = queries_of(12)
COUNTS = WordCounts.of(FEW_QUERIES.tokens, int(FEW_QUERIES.tokens.max()) + 1)


def select(**options):
    policy = QueryPolicy(k=5, **options)
    return policy, FEW_QUERIES.take(policy.selected(FEW_QUERIES, COUNTS, None))


@pytest.mark.parametrize("how", ["random", "rare"])
def test_users_have_no_more_words_or_texts_than_allowed_and_texts_are_complete(how):
    assert len(select()[1]) == len(FEW_QUERIES)
    policy, words = select(select=how, calls=7)
    assert (words.counts() <= 7).all()
    assert (words.counts() <= policy.max_words(FEW_QUERIES)).all()
    policy, texts = select(select=how, queries=2)
    assert (np.bincount(texts.users) == 40).all()
    for text in np.unique(texts.texts):
        assert (texts.texts == text).sum() == (FEW_QUERIES.texts == text).sum()
    assert all(len(np.unique(texts.texts[texts.users == user])) <= 2 for user in range(12))
    assert (texts.counts() <= policy.max_words(FEW_QUERIES)).all()


def test_rare_words_and_texts_have_the_smallest_frequencies():
    words, texts = (select(select="rare", **n)[1] for n in ({"calls": 3}, {"queries": 3}))
    frequencies = COUNTS.words[FEW_QUERIES.tokens].astype(float)
    rare_texts = set()
    for user in range(12):
        of_user = FEW_QUERIES.users == user
        result = sorted(COUNTS.words[words.tokens[words.users == user]])
        assert result == np.sort(frequencies[of_user])[:3].tolist()
        means = {
            text: frequencies[FEW_QUERIES.texts == text].mean()
            for text in FEW_QUERIES.texts[of_user].tolist()
        }
        rare_texts |= set(sorted(means, key=lambda text: (means[text], text))[:3])
    assert set(texts.texts.tolist()) == rare_texts


def test_informative_words_have_ranks_near_the_end_of_the_list():
    inside, outside = information([2, 21, 80], k=20), information([1, 82], k=20)
    assert (inside > 0).all()
    assert (outside < 0).all()
    assert inside.argmax() == 1
    ranks = np.exp(np.random.default_rng(0).uniform(0, np.log(VOCABULARY), len(FEW_QUERIES)))
    mask = highest_per_user(FEW_QUERIES.users, information(ranks, k=20), 10)
    assert ((ranks[mask] >= 2) & (ranks[mask] <= 80)).all()
    shadows = shadows_of(FEW_QUERIES, 4, half_of=np.arange(4))
    typical = shadows.typical_ranks(FEW_QUERIES, seed=0)
    mask = QueryPolicy(select="informative", calls=5, k=20).selected(FEW_QUERIES, COUNTS, shadows)
    near = (typical >= 2) & (typical <= 80)
    assert near[mask].mean() > near[~mask].mean()


@pytest.mark.parametrize(
    ("options", "shadows", "expected"),
    [({}, 4, "all"), ({"queries": 3}, 4, "random"), ({"calls": 3}, 4, "informative"),
     ({"calls": 3}, 0, "random")],
)  # fmt: skip
def test_the_default_selection(options, shadows, expected):
    policy = QueryPolicy.from_options(QueryOptions(**options), shadows=shadows, seed=0)
    assert policy.select == expected


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"calls": 3}, "must come with another `select`"),
        ({"select": "rare", "calls": 0}, "limit must be at least 1"),
    ],
)
def test_contradictory_options_are_refused(options, message):
    with pytest.raises(ValueError, match=message):
        select(**options)


# Ranks and counts.

WORDS = WordVocabulary(("<unk>", "<eos>", *(f"w{i}" for i in range(12))))
RNG = np.random.default_rng(0)
TEXTS = [" ".join(f"w{i}" for i in RNG.integers(0, 14, 6)) for _ in range(12)]
"""Texts in which two of fourteen words are unknown."""
CORPUS = Corpus.from_texts(TEXTS, users=[f"user {n % 3}" for n in range(12)], sources=TEXTS[::-1])
DATA = encode(CORPUS, WORDS)
DATA_QUERIES = token_queries(DATA, WORDS)


def lstm(seed=0):
    torch.manual_seed(seed)
    config = LSTMConfig(layers=1, embedding_size=6, hidden_size=6, initial_range=0.7)
    return LSTMLanguageModel(WORDS, config).eval()


def translator():
    torch.manual_seed(0)
    config = Seq2SeqConfig(embedding_size=6, hidden_size=6, initial_range=0.7)
    return Seq2SeqModel(WORDS, WORDS, config).eval()


@pytest.mark.parametrize(("model", "k"), [(lstm(), 1), (lstm(), 4), (translator(), 5)])
def test_a_service_of_a_model_gives_the_ranks_of_the_model(model, k):
    sources = CORPUS.sources if hasattr(model, "source_vocabulary") else None
    encoded = DATA if sources is None else encode_pairs(CORPUS, WORDS, WORDS)
    targets = DATA if sources is None else encoded.targets
    queries = token_queries(targets, WORDS)
    positions = targets.offsets[queries.texts] + queries.positions
    contexts = contexts_at(targets, positions, WORDS, **({"sources": sources} if sources else {}))
    ranks, _ = ranks_of(model, encoded, queries)
    counts = WordCounts.of([], 14)
    words = RankedWords(queries=queries, ranks=ranks, k=k, vocab_size=14, counts=counts)
    assert likeliest_ranks(narrow(model, k=k), *contexts).tolist() == words.shown.tolist()


def test_ranks_do_not_depend_on_the_order_of_words():
    order = np.random.default_rng(1).permutation(len(DATA_QUERIES))
    ranks, log_probs = ranks_of(lstm(), DATA, DATA_QUERIES)
    shuffled = ranks_of(lstm(), DATA, DATA_QUERIES.take(order))
    assert shuffled[0].tolist() == ranks[order].tolist()
    assert shuffled[1] == pytest.approx(log_probs[order])


def test_shadow_models_have_their_ranks_and_members():
    models = [ranks_of(lstm(seed), DATA, DATA_QUERIES) for seed in (0, 1)]
    result = ShadowRanks.of(models, [("user 0",), ("user 1", "user 2")], DATA_QUERIES.names)
    assert result.members.tolist() == [[True, False, False], [False, True, True]]
    assert result.ranks[1].tolist() == models[1][0].tolist()
    assert (result.log_probs < 0).all()


def test_counts_are_those_of_the_counted_users_alone():
    """Naively: words and word pairs in the texts of user 1, which follow each other."""
    words, pairs, before, expected = Counter(), Counter(), None, []
    for text, name in zip(CORPUS, CORPUS.users, strict=True):
        if name == "user 1":
            split = [w if w in WORDS.words else "<unk>" for w in text.split()] + ["<eos>"]
            words.update(split)
            pairs.update(zip([before, *split[:-1]], split, strict=True))
            before = "<eos>"  # no word precedes the first text
    for text, position in zip(DATA_QUERIES.texts, DATA_QUERIES.positions, strict=True):
        split = [w if w in WORDS.words else "<unk>" for w in list(CORPUS)[text].split()]
        word, last = split[position], split[position - 1] if position else "<eos>"
        expected.append([*np.log1p((words[word], pairs[last, word], words[last])), position])
    counts = WordCounts.of_users(DATA, [1], len(WORDS))
    np.testing.assert_allclose(counts.features(DATA_QUERIES), np.array(expected))
    assert not WordCounts.of([], len(WORDS)).features(DATA_QUERIES)[:, :3].any()


# Scores.

QUERIES = queries_of(90)
MEMBERS, OTHERS = np.arange(15), np.arange(15, 30)
FITTED, COMPARED = np.arange(30, 60), np.arange(60, 90)
SHADOWS = shadows_of(QUERIES, 6, half_of=FITTED)


def test_a_typical_rank_is_the_geometric_mean_over_models_without_the_user():
    queries = queries_of(6, texts=2, words=5)
    shadows = shadows_of(queries, 4, half_of=np.arange(4))  # no model read users 4 and 5
    typical = shadows.typical_ranks(queries, seed=0)
    for word, user in enumerate(queries.users):
        logs = np.log(shadows.ranks[:, word][~shadows.members[:, user]])
        means = [np.exp(np.mean(pair)) for pair in combinations(logs, 2)]
        assert any(typical[word] == pytest.approx(mean) for mean in means)
    with pytest.raises(DataError, match="members for every reference model"):
        shadows_of(queries, 1, half_of=np.arange(4)).typical_ranks(queries, seed=0)


@pytest.mark.slow
def test_members_score_above_others_who_score_around_zero():
    def user_scores(score, k):
        for seed in range(3):
            words = words_of(QUERIES, MEMBERS, gain=0.15, k=k, seed=seed, shadows=SHADOWS)
            yield QUERIES.mean_by_user(score(words, FITTED))

    def area(scores):
        return np.mean([auc(values[MEMBERS], values[OTHERS]).value for values in scores])

    scores = list(user_scores(score_words, 20))
    assert area(scores) > 0.9
    members, others = (np.mean([values[users] for values in scores]) for users in (MEMBERS, OTHERS))
    assert abs(others) < 0.3 * members
    assert area(user_scores(score_words, 3)) > area(user_scores(surprise_words, 3)) - 0.02


def test_scores_are_surprise_if_shadow_models_have_no_information():
    pair = shadows_of(QUERIES, 2, half_of=FITTED)
    without_members = replace(SHADOWS, members=np.zeros_like(SHADOWS.members))
    for shadows in (pair, without_members):
        words = words_of(QUERIES, MEMBERS, k=20, shadows=shadows)
        assert log_odds(words, FITTED, seed=0) is None
        np.testing.assert_array_equal(score_words(words, FITTED), surprise_words(words, FITTED))
    members = SHADOWS.members.copy()
    members[:, 31] = True
    read_by_all = words_of(QUERIES, MEMBERS, shadows=replace(SHADOWS, members=members))
    with pytest.raises(DataError, match="members for every reference"):
        surprise_words(read_by_all, FITTED)


@pytest.mark.slow
def test_scores_do_not_depend_on_ranks_of_compared_users():
    words = words_of(QUERIES, MEMBERS, k=20, shadows=SHADOWS)
    compared = np.isin(QUERIES.users, COMPARED)
    ranks = np.where(compared, SHADOWS.ranks[:, ::-1], SHADOWS.ranks)
    changed = replace(words, shadows=replace(SHADOWS, ranks=ranks))
    first, again, other = (score_words(each, FITTED) for each in (words, words, changed))
    np.testing.assert_array_equal(first[~compared], other[~compared])
    np.testing.assert_array_equal(first, again)
