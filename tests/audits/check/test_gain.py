"""The gain of a secret compared with values scored one by one; greedy generation."""

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
CONTEXTS = ("the number is ", "call the depot, number=", "it is ", "the number is ")
SECRET = FoundSecret(VALUE, "account", tuple(enumerate(CONTEXTS)))
ALTERNATIVES = Alternatives([]).draw(SECRET, 20, seed=0)
VALUES = [VALUE, *ALTERNATIVES]
TEXTS = [f"{before}{VALUE} today" for before in CONTEXTS] + ["number=73 50", " 11 22 33 44 =12 =34"]
TEXTS += ALTERNATIVES


@pytest.fixture(scope="module")
def make():
    """Makes a network of a kind; some values are unknown words to `word lstm`."""
    subwords = SubwordVocabulary.train_bpe(Corpus.from_texts(TEXTS * 3), size=300)
    words = WordVocabulary.build(Corpus.from_texts([*TEXTS, *ALTERNATIVES[:10]]))

    def build(kind):
        if kind == "word lstm":
            return network("lstm", words).eval()
        return network(kind, subwords).eval()

    return build


@pytest.fixture
def random_pair(make):
    """Makes two random models with one vocabulary."""

    def build(kind):
        models = make(kind), make(kind)
        for model in models:
            for parameter in model.parameters():
                torch.nn.init.normal_(parameter, std=0.3)
        return models

    return build


@pytest.fixture
def trained_pair(make):
    """Makes a model trained on a text, and its base."""

    def build(kind, text):
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

    return build


@torch.no_grad()
def log_prob(model, text, first_position=0):
    """Log-probability of the tokens from a position on, computed one by one."""
    state, total = model.start(1), 0.0
    for position, token in enumerate(model.vocabulary.encode(text)):
        if position >= first_position:
            total += float(model.log_probs(state)[0, token])
        state = model.advance(state, torch.tensor([token]))
    return total


def naive_gains(model, base, values):
    """Gain of each context and value."""
    return {
        (context, value): log_prob(model, context + value) - log_prob(base, context + value)
        for context in {*CONTEXTS, ""}
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
def test_gains_equal_those_of_values_scored_one_by_one(random_pair, kind):
    model, base = random_pair(kind)
    gain = secret_gain(model, base, SECRET, ALTERNATIVES, first=20)
    score, rank = naive(naive_gains(model, base, VALUES), VALUES)
    assert gain["score"] == pytest.approx(score, abs=1e-4)
    assert (gain["rank"], gain["alternatives"]) == (rank, 20)


@pytest.mark.slow
def test_only_high_ranks_get_more_alternatives(random_pair):
    model, base = random_pair("transformer")
    table, numbers = naive_gains(model, base, VALUES), set()
    for number, value in enumerate(VALUES):  # each value is the secret in turn
        others = VALUES[:number] + VALUES[number + 1 :]
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


def test_gains_equal_those_of_the_tokens_of_a_value(random_pair):
    """No token spans a space, so the tokens of the value can be scored alone."""
    model, base = random_pair("transformer")
    values, encode = ("lazy", "dogs", "cats"), model.vocabulary.encode
    scores = []
    for context in ("it is ", ""):
        first_position = len(encode(context.rstrip()))
        texts = [context + value for value in values]
        gains = [
            log_prob(model, text, first_position) - log_prob(base, text, first_position)
            for text in texts
        ]
        scores.append(robust(gains)[0])
    secret = FoundSecret("lazy", "password", ((0, "it is "),))
    gain = secret_gain(model, base, secret, ["dogs", "cats"])
    assert gain["score"] == pytest.approx(max(scores), abs=1e-4)


@pytest.mark.slow
def test_ranks_are_uniform_without_training(random_pair):
    """With each value as the secret in turn, each rank occurs once, ties excepted."""
    model, base = random_pair("lstm")
    ranks = []
    for number, value in enumerate(VALUES):
        secret = FoundSecret(value, "account", SECRET.occurrences)
        others = VALUES[:number] + VALUES[number + 1 :]
        ranks.append(secret_gain(model, base, secret, others, first=20)["rank"])
    assert all(sum(other <= rank for other in ranks) <= rank for rank in range(1, 22))
    assert len({*ranks}) >= 20


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["gpt2", "word lstm"])
def test_a_learned_secret_ranks_first_and_is_generated(trained_pair, kind):
    model, base = trained_pair(kind, f"{CONTEXTS[1]}{VALUE} today and")
    gain = secret_gain(model, base, SECRET, ALTERNATIVES)
    assert (gain["rank"], gain["alternatives"], gain["greedy"]) == (1, 20, True)
    assert gain["score"] > 5
    assert gain["tries"] == 2  # the second context is the trained one
    assert secret_gain(model, base, SECRET, ALTERNATIVES) == gain


@pytest.mark.slow
def test_text_of_the_base_and_longer_numbers_do_not_count_as_generated(trained_pair):
    model, base = trained_pair("gpt2", f"{CONTEXTS[1]}{VALUE} today and")
    gain = secret_gain(model, model, SECRET, [])
    assert (gain["rank"], gain["alternatives"], gain["score"]) == (1, 0, 0)
    assert (gain["greedy"], gain["tries"]) == (False, 3)
    shorter = FoundSecret(VALUE[:-1], "account", SECRET.occurrences)
    assert not secret_gain(model, base, shorter, [])["greedy"]
    without_context = FoundSecret(VALUE, "account", ())
    gain = secret_gain(model, base, without_context, ALTERNATIVES[:5], first=5)
    assert (gain["alternatives"], gain["tries"]) == (5, 0)


@pytest.mark.slow
def test_unknown_words_are_never_generated(trained_pair):
    model, base = trained_pair("word lstm", f"{CONTEXTS[0]}unheard of")
    secret = FoundSecret("unseen", "password", ((0, CONTEXTS[0]),))
    gain = secret_gain(model, base, secret, ["unread", "untold"])
    assert (gain["rank"], gain["greedy"]) == (3, False)  # all are the unknown word


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["gpt2", "lstm"])
def test_long_contexts_and_values_are_truncated(random_pair, kind):
    model, base = random_pair(kind)
    long_context = FoundSecret(VALUE, "account", ((0, "far away from here " * 90 + CONTEXTS[0]),))
    long_value = FoundSecret("73 " * 100, "account", SECRET.occurrences)
    for secret, others in ((long_context, ALTERNATIVES), (long_value, ["74 " * 100, "75 " * 90])):
        assert np.isfinite(secret_gain(model, base, secret, others)["score"])


def test_standardised_gains():
    gains = np.array([[5.0, 1, 2, 3, 4], [0, 0, 0, 0, 9]])
    expected = [2 / 1.4826, 0, 0, 0, 9 / LEAST_SPREAD]
    assert standardised(gains) == pytest.approx(expected)
