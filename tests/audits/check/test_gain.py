"""The gain of a secret against values scored one by one, and what is generated of it."""

import numpy as np
import pytest
import torch

from tests.audits.check.networks import network
from vestige.audits.check.gain import LEAST_SPREAD, secret_gain, standardised
from vestige.data.corpus import Corpus
from vestige.data.secrets.alternatives import Alternatives, FoundSecret
from vestige.data.subwords import SubwordVocabulary
from vestige.data.vocabulary import WordVocabulary

VALUE = "73 50 68"
BEFORE = ("the number is ", "call the depot, number=", "it is ", "the number is ")
SECRET = FoundSecret(VALUE, "account", tuple(enumerate(BEFORE)))
ALTERNATIVES = Alternatives([]).draw(SECRET, 20, seed=0)
VALUES = [VALUE, *ALTERNATIVES]
TEXTS = [f"{before}{VALUE} today" for before in BEFORE] + ["number=73 50", " 11 22 33 44 =12 =34"]
TEXTS += ALTERNATIVES


@pytest.fixture(scope="module")
def make():
    """Makes a network of a kind; `word lstm` reads words, of which it lacks some values."""
    subwords = SubwordVocabulary.train_bpe(Corpus.from_texts(TEXTS * 3), size=300)
    words = WordVocabulary.build(Corpus.from_texts([*TEXTS, *ALTERNATIVES[:10]]))

    def of(kind):
        if kind == "word lstm":
            return network("lstm", words).eval()
        return network(kind, subwords).eval()

    return of


@pytest.fixture
def pair(make):
    """Makes a random model and another with the same vocabulary."""

    def of(kind):
        models = make(kind), make(kind)
        for one in models:
            for parameter in one.parameters():
                torch.nn.init.normal_(parameter, std=0.3)
        return models

    return of


@pytest.fixture
def taught(make):
    """Makes a model that has learned a text, and its base."""

    def of(kind, text):
        base, model = make(kind), make(kind)
        ids = torch.tensor([[model.first_token, *model.vocabulary.encode(text)]])
        optimizer = torch.optim.Adam(model.parameters(), lr=3e-3)
        for _ in range(150):
            logits, _ = model(ids[:, :-1])
            loss = torch.nn.functional.cross_entropy(logits[0], ids[0, 1:])
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        return model, base

    return of


@torch.no_grad()
def log_prob(model, text, begin=0):
    """Of the tokens from `begin` on, one by one. What they share cancels among alternatives."""
    state, total = model.start(1), 0.0
    for place, token in enumerate(model.vocabulary.encode(text)):
        if place >= begin:
            total += float(model.log_probs(state)[0, token])
        state = model.advance(state, torch.tensor([token]))
    return total


def naive_gains(model, base, values):
    """Gain of each context and value."""
    return {
        (context, value): log_prob(model, context + value) - log_prob(base, context + value)
        for context in {*BEFORE, ""}
        for value in values
    }


def robust(gains):
    """Standardised by the median and the median absolute deviation."""
    median = np.median(gains)
    spread = 1.4826 * np.median([abs(gain - median) for gain in gains])
    return [(gain - median) / max(spread, LEAST_SPREAD) for gain in gains]


def naive(gains, values):
    """Score and rank of the first of some values."""
    contexts = {context for context, _ in gains}
    scores = [robust([gains[context, value] for value in values]) for context in contexts]
    best = [max(column) for column in zip(*scores, strict=True)]
    return best[0], 1 + sum(score >= best[0] for score in best[1:])


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["gpt2", "transformer", "lstm", "word lstm"])
def test_gains_are_those_of_values_scored_one_by_one(pair, kind):
    model, base = pair(kind)
    gain = secret_gain(model, base, SECRET, ALTERNATIVES, first=20)
    score, rank = naive(naive_gains(model, base, VALUES), VALUES)
    assert gain["score"] == pytest.approx(score, abs=1e-4)
    assert (gain["rank"], gain["alternatives"]) == (rank, 20)


@pytest.mark.slow
def test_more_alternatives_are_scored_only_for_a_secret_that_ranks_high(pair):
    model, base = pair("transformer")
    table, numbers = naive_gains(model, base, VALUES), set()
    for place, value in enumerate(VALUES):  # each in turn is the secret
        others = VALUES[:place] + VALUES[place + 1 :]
        secret = FoundSecret(value, "account", SECRET.occurrences)
        gain = secret_gain(model, base, secret, others, first=4)
        expected = 4
        while expected < 20 and naive(table, [value, *others[:expected]])[1] <= 2:
            expected = min(20, 4 * expected)
        score, rank = naive(table, [value, *others[:expected]])
        assert (gain["rank"], gain["alternatives"]) == (rank, expected)
        assert gain["score"] == pytest.approx(score, abs=1e-4)
        numbers.add(expected)
    assert numbers == {4, 16, 20}


def test_gains_are_those_of_the_tokens_of_a_value(pair):
    """After a blank no token spans the border: the tokens of the value are scored alone."""
    model, base = pair("transformer")
    values, encode = ("lazy", "dogs", "cats"), model.vocabulary.encode
    scores = []
    for context in ("it is ", ""):
        begin = len(encode(context.rstrip()))
        texts = [context + value for value in values]
        gains = [log_prob(model, text, begin) - log_prob(base, text, begin) for text in texts]
        scores.append(robust(gains)[0])
    secret = FoundSecret("lazy", "password", ((0, "it is "),))
    gain = secret_gain(model, base, secret, ["dogs", "cats"])
    assert gain["score"] == pytest.approx(max(scores), abs=1e-4)


@pytest.mark.slow
def test_the_rank_of_a_secret_is_uniform_if_nothing_was_learned(pair):
    """Values take turns as the secret: each rank occurs once, or of equal scores the last one."""
    model, base = pair("lstm")
    ranks = []
    for place, value in enumerate(VALUES):
        secret = FoundSecret(value, "account", SECRET.occurrences)
        others = VALUES[:place] + VALUES[place + 1 :]
        ranks.append(secret_gain(model, base, secret, others, first=20)["rank"])
    assert all(sum(one <= rank for one in ranks) <= rank for rank in range(1, 22))
    assert len({*ranks}) >= 20


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["gpt2", "word lstm"])
def test_a_learned_secret_ranks_first_and_is_generated(taught, kind):
    model, base = taught(kind, f"{BEFORE[1]}{VALUE} today and")
    gain = secret_gain(model, base, SECRET, ALTERNATIVES)
    assert (gain["rank"], gain["alternatives"], gain["greedy"]) == (1, 20, True)
    assert gain["score"] > 5
    assert gain["tries"] == 2  # the second context is the one
    assert secret_gain(model, base, SECRET, ALTERNATIVES) == gain


@pytest.mark.slow
def test_what_the_base_generates_and_a_longer_number_are_not_counted(taught):
    model, base = taught("gpt2", f"{BEFORE[1]}{VALUE} today and")
    gain = secret_gain(model, model, SECRET, [])
    assert (gain["rank"], gain["alternatives"], gain["score"]) == (1, 0, 0)
    assert (gain["greedy"], gain["tries"]) == (False, 3)
    shorter = FoundSecret(VALUE[:-1], "account", SECRET.occurrences)
    assert not secret_gain(model, base, shorter, [])["greedy"]
    nowhere = FoundSecret(VALUE, "account", ())
    gain = secret_gain(model, base, nowhere, ALTERNATIVES[:5], first=5)
    assert (gain["alternatives"], gain["tries"]) == (5, 0)


@pytest.mark.slow
def test_unknown_words_are_never_generated(taught):
    model, base = taught("word lstm", f"{BEFORE[0]}unheard of")
    secret = FoundSecret("unseen", "password", ((0, BEFORE[0]),))
    gain = secret_gain(model, base, secret, ["unread", "untold"])
    assert (gain["rank"], gain["greedy"]) == (3, False)  # all are one token


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["gpt2", "lstm"])
def test_long_contexts_and_values_are_cut(pair, kind):
    model, base = pair(kind)
    far = FoundSecret(VALUE, "account", ((0, "far away from here " * 90 + BEFORE[0]),))
    long = FoundSecret("73 " * 100, "account", SECRET.occurrences)
    for secret, others in ((far, ALTERNATIVES), (long, ["74 " * 100, "75 " * 90])):
        assert np.isfinite(secret_gain(model, base, secret, others)["score"])


def test_standardised_gains():
    gains = np.array([[5.0, 1, 2, 3, 4], [0, 0, 0, 0, 9]])
    expected = [2 / 1.4826, 0, 0, 0, 9 / LEAST_SPREAD]
    assert standardised(gains) == pytest.approx(expected)
