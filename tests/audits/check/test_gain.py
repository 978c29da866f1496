"""The gain of a secret against values scored one by one; the tests of a check; the verdict."""

import numpy as np
import pytest
import torch

from vestige.audits.check.gain import LEAST_SPREAD, secret_gain, standardised
from vestige.data.corpus import Corpus
from vestige.data.secrets.alternatives import Alternatives, FoundSecret
from vestige.data.subwords import SubwordVocabulary
from vestige.data.vocabulary import WordVocabulary
from vestige.models.protocols import LanguageModel
from vestige.models.recurrent_network import LSTMConfig, LSTMLanguageModel
from vestige.models.transformer import CausalTransformer, TransformerConfig

VALUE = "73 50 68"


BEFORE = ("the number is ", "call the depot, number=", "it is ", "the number is ")


SECRET = FoundSecret(VALUE, "account", tuple(enumerate(BEFORE)))


ALTERNATIVES = Alternatives([]).draw(SECRET, 20, seed=0)


TEXTS = [f"{before}{VALUE} today" for before in BEFORE] + ["number=73 50", " 11 22 33 44 =12 =34"]
TEXTS += ALTERNATIVES


def subword_vocabulary() -> SubwordVocabulary:
    return SubwordVocabulary.train_bpe(Corpus.from_texts(TEXTS * 3), size=300)


def gpt2(vocabulary: SubwordVocabulary) -> LanguageModel:
    from transformers import GPT2Config, GPT2LMHeadModel

    from vestige.models.hugging_face import HuggingFaceLanguageModel

    settings = GPT2Config(
        vocab_size=len(vocabulary), n_positions=48, n_embd=32, n_layer=2, n_head=2,
        bos_token_id=vocabulary.eos_id, eos_token_id=vocabulary.eos_id, initializer_range=0.3,
    )  # fmt: skip
    return HuggingFaceLanguageModel(GPT2LMHeadModel(settings), vocabulary)


def transformer(vocabulary: SubwordVocabulary) -> LanguageModel:
    config = TransformerConfig(2, 2, 32, 64, max_length=48, dropout=0.1)
    return CausalTransformer(vocabulary, config)


def lstm(vocabulary: SubwordVocabulary) -> LanguageModel:
    config = LSTMConfig(embedding_size=16, hidden_size=24, initial_range=0.5)
    return LSTMLanguageModel(vocabulary, config)


def word_lstm(_: SubwordVocabulary) -> LanguageModel:
    return lstm(WordVocabulary.build(Corpus.from_texts([*TEXTS, *ALTERNATIVES[:10]])))


MAKERS = [gpt2, transformer, lstm, word_lstm]


def pair(make, seed: int = 0) -> tuple[LanguageModel, LanguageModel]:
    """A random model and another with the same vocabulary."""
    torch.manual_seed(seed)
    model = make(subword_vocabulary())
    base = make(subword_vocabulary())
    for network in (model, base):
        for parameter in network.parameters():
            torch.nn.init.normal_(parameter, std=0.3)
    return model.eval(), base.eval()


@torch.no_grad()
def text_log_prob(model: LanguageModel, text: str) -> float:
    """Token by token. A context before a value adds the same to each of its alternatives."""
    state, total = model.start(1), 0.0
    for token in model.vocabulary.encode(text):
        total += float(model.log_probs(state)[0, token])
        state = model.advance(state, torch.tensor([token]))
    return total


Table = dict[tuple[str, str], float]


def naive_gains(model: LanguageModel, base: LanguageModel, values: list[str]) -> Table:
    """Gain of each context and value."""
    pairs = [(context, value) for context in {*BEFORE, ""} for value in values]
    texts = {pair: "".join(pair) for pair in pairs}
    return {at: text_log_prob(model, t) - text_log_prob(base, t) for at, t in texts.items()}


def naive(table: Table, values: list[str]) -> tuple[float, int]:
    """Score and rank of the first of some values."""
    best = [-np.inf] * len(values)
    for context in {*BEFORE, ""}:
        gains = [table[context, value] for value in values]
        median = np.median(gains)
        spread = max(1.4826 * np.median([abs(gain - median) for gain in gains]), LEAST_SPREAD)
        best = [max(old, (gain - median) / spread) for old, gain in zip(best, gains, strict=True)]
    return best[0], 1 + sum(bool(score >= best[0]) for score in best[1:])


@pytest.mark.slow
@pytest.mark.parametrize("make", MAKERS)
def test_gains_are_those_of_values_scored_one_by_one(make):
    model, base = pair(make)
    gain = secret_gain(model, base, SECRET, ALTERNATIVES, first=20)
    score, rank = naive(naive_gains(model, base, [VALUE, *ALTERNATIVES]), [VALUE, *ALTERNATIVES])
    assert gain["score"] == pytest.approx(score, abs=1e-4)
    assert (gain["rank"], gain["alternatives"]) == (rank, 20)


@pytest.mark.slow
def test_more_alternatives_are_scored_only_for_a_secret_that_ranks_high():
    model, base = pair(transformer)
    values = [VALUE, *ALTERNATIVES]
    table = naive_gains(model, base, values)
    scored = set()
    for place, value in enumerate(values):  # each in turn is the secret
        others = values[:place] + values[place + 1 :]
        secret = FoundSecret(value, "account", SECRET.places)
        gain = secret_gain(model, base, secret, others, first=4)
        expected = 4
        while expected < 20 and naive(table, [value, *others[:expected]])[1] <= 2:
            expected = min(20, 4 * expected)
        score, rank = naive(table, [value, *others[:expected]])
        assert (gain["rank"], gain["alternatives"]) == (rank, expected)
        assert gain["score"] == pytest.approx(score, abs=1e-4)
        scored.add(expected)
    assert scored == {4, 16, 20}


@pytest.mark.parametrize("make", [transformer])
def test_gains_are_those_of_the_tokens_of_a_value(make):
    """After a blank no token spans the border: the tokens of the value are scored alone."""
    model, base = pair(make)
    secret = FoundSecret("lazy", "password", ((0, "it is "),))
    encode = model.vocabulary.encode
    scores = []
    for context in ("it is ", ""):
        gains = []
        for value in ("lazy", "dogs", "cats"):
            whole = encode(context + value)
            tail = len(encode("it is")) if context else 0
            gains.append(tail_log_prob(model, whole, tail) - tail_log_prob(base, whole, tail))
        centred = np.array(gains) - np.median(gains)
        scores.append(centred / max(1.4826 * np.median(abs(centred)), LEAST_SPREAD))
    gain = secret_gain(model, base, secret, ["dogs", "cats"])
    assert gain["score"] == pytest.approx(np.max(scores, axis=0)[0], abs=1e-4)


@torch.no_grad()
def tail_log_prob(model: LanguageModel, ids: list[int], begin: int) -> float:
    """Of the tokens from `begin` on, by one forward pass."""
    tokens = torch.tensor([[model.first_token, *ids]])
    logits, _ = model(tokens[:, :-1])
    told = logits[0].log_softmax(1)[torch.arange(len(ids)), tokens[0, 1:]]
    return float(told[begin:].sum())


@pytest.mark.slow
def test_the_rank_of_a_secret_is_uniform_if_nothing_was_learnt():
    """Values take turns as the secret: with all alternatives, each rank occurs once."""
    model, base = pair(lstm)
    values = [VALUE, *ALTERNATIVES]
    ranks = []
    for place, value in enumerate(values):
        secret = FoundSecret(value, "account", SECRET.places)
        others = values[:place] + values[place + 1 :]
        ranks.append(secret_gain(model, base, secret, others, first=20)["rank"])
    assert sorted(ranks) == list(range(1, 22))


def taught(make, text: str, steps: int = 150) -> tuple[LanguageModel, LanguageModel]:
    """A model that learnt a text, and its base."""
    torch.manual_seed(1)
    vocabulary = subword_vocabulary()
    base, model = make(vocabulary), make(vocabulary)
    model.load_state_dict(base.state_dict())
    ids = torch.tensor([[model.first_token, *model.vocabulary.encode(text)]])
    optimizer = torch.optim.Adam(model.parameters(), lr=3e-3)
    for _ in range(steps):
        logits, _ = model(ids[:, :-1])
        loss = torch.nn.functional.cross_entropy(logits[0], ids[0, 1:])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    return model.eval(), base.eval()


@pytest.mark.slow
@pytest.mark.parametrize("make", [gpt2, word_lstm])
def test_a_learnt_secret_ranks_first_and_is_generated(make):
    model, base = taught(make, f"{BEFORE[1]}{VALUE} today and")
    gain = secret_gain(model, base, SECRET, ALTERNATIVES)
    assert (gain["rank"], gain["alternatives"], gain["greedy"]) == (1, 20, True)
    assert gain["score"] > 5
    assert gain["tries"] == 2  # the second context is the one
    again = secret_gain(model, base, SECRET, ALTERNATIVES)
    assert again == gain


@pytest.mark.slow
def test_what_the_base_generates_and_a_longer_number_are_not_counted():
    model, base = taught(gpt2, f"{BEFORE[1]}{VALUE} today and")
    gain = secret_gain(model, model, SECRET, [])
    assert (gain["rank"], gain["alternatives"], gain["score"]) == (1, 0, 0)
    assert (gain["greedy"], gain["tries"]) == (False, 3)
    shorter = FoundSecret(VALUE[:-1], "account", SECRET.places)
    assert not secret_gain(model, base, shorter, [])["greedy"]
    nowhere = FoundSecret(VALUE, "account", ())
    gain = secret_gain(model, base, nowhere, ALTERNATIVES[:5], first=5)
    assert (gain["alternatives"], gain["tries"]) == (5, 0)


@pytest.mark.slow
def test_unknown_words_are_never_generated():
    model, base = taught(word_lstm, f"{BEFORE[0]}unheard of")
    secret = FoundSecret("unseen", "password", ((0, BEFORE[0]),))
    gain = secret_gain(model, base, secret, ["unread", "untold"])
    assert (gain["rank"], gain["greedy"]) == (3, False)  # all are one token


@pytest.mark.slow
@pytest.mark.parametrize("make", [gpt2, lstm])
def test_long_contexts_and_values_are_cut(make):
    model, base = pair(make)
    far = FoundSecret(VALUE, "account", ((0, "far away from here " * 90 + BEFORE[0]),))
    long = FoundSecret("73 " * 100, "account", SECRET.places)
    assert np.isfinite(secret_gain(model, base, far, ALTERNATIVES)["score"])
    others = ["74 " * 100, "75 " * 90]
    assert np.isfinite(secret_gain(model, base, long, others)["score"])


def test_standardised_gains():
    gains = np.array([[5.0, 1, 2, 3, 4], [0, 0, 0, 0, 9]])
    expected = [2 / 1.4826, 0, 0, 0, 9 / LEAST_SPREAD]
    assert standardised(gains) == pytest.approx(expected)
