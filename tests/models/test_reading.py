"""Texts are read together, once and no further than needed, after the right context."""

import itertools

import numpy as np
import pytest
import torch

from tests.models.conftest import random_texts
from vestige.data.encoded import EncodedCorpus
from vestige.models.key_value_cache import KeysAndValues
from vestige.models.predictions import log_prob, measure, rank, text_log_probs, word_ranks
from vestige.models.prefix import PrefixedModel, ReadContext
from vestige.models.reading import NO_CONTEXT, pack, read, word_positions

TEXTS = [[5, 9, 3, 7, 4], [5, 9, 3, 2], [8, 1, 1, 6], [7, 7], [3]]


@pytest.fixture(params=["gpt2", "llama", "mistral", "gemma2"])
def model(request, foreign):
    return foreign(request.param)


@torch.no_grad()
def naive(model, before):
    """Log-probabilities by transformers, one text at a time, after the tokens `before`."""
    log_probs = []
    for text in TEXTS:
        logits = model.network(torch.tensor([before + text])).logits[0].log_softmax(-1)
        log_probs += [float(logits[len(before) + i - 1, token]) for i, token in enumerate(text)]
    return log_probs


@pytest.mark.slow
def test_log_probabilities_equal_those_of_transformers(model):
    first = model.first_token
    assert model.separate_head == (model.settings.model_type != "gemma2")
    for reader, before in (
        (model, [first]),
        (PrefixedModel(model, [4, 2, 9]), [first, 4, 2, 9]),
        (PrefixedModel(model, [4, 2, 9], anywhere=True), [4, 2, 9]),
        (PrefixedModel(model, [4], anywhere=True), [4]),
    ):
        for batch_tokens in (8192, 10):
            columns = measure(reader, pack(TEXTS), [log_prob], batch_tokens=batch_tokens)
            np.testing.assert_allclose(columns["log_probs"], naive(model, before), 1e-4, 1e-5)


def test_a_prefix_is_read_once(model, monkeypatch):
    passes, forward = [], torch.nn.Embedding.forward

    def counting(self, ids):
        if self is model._base_network().get_input_embeddings():
            passes.append(tuple(ids.shape))
        return forward(self, ids)

    monkeypatch.setattr(torch.nn.Embedding, "forward", counting)
    prefixed = PrefixedModel(model, [4, 2, 9])
    measure(prefixed, pack(TEXTS), [log_prob])
    assert passes == [(1, 1), (1, 2), (5, 5)]
    text_log_probs(prefixed, TEXTS)
    assert passes[3:] == [(1, 1), (1, 3), (4, 4)]  # the prefix, then tokens but the last
    with pytest.raises(ValueError, match="evaluation mode"):
        list(read(model.train(), pack(TEXTS)))


def test_reading_texts_after_a_state_does_not_change_it(model):
    def begin():
        return model.read(model.start(2), torch.tensor([[4, 2], [9, 3]]))

    expected, state = model.log_probs(model.advance(begin(), torch.tensor([7, 8]))), begin()
    with torch.no_grad():
        model.body(torch.tensor([[1, 1, 6], [5, 5, 5]]), state)
    log_probs = model.log_probs(model.advance(state, torch.tensor([7, 8])))
    torch.testing.assert_close(log_probs, expected, rtol=1e-5, atol=1e-6)


@pytest.fixture
def lstm(make):
    return make["lstm"]()


@pytest.fixture
def sizes(lstm, monkeypatch):
    """How many tokens each pass of the LSTM reads."""
    sizes, body = [], lstm.body
    monkeypatch.setattr(
        lstm, "body", lambda *arguments: sizes.append(arguments[0].numel()) or body(*arguments)
    )
    return sizes


def test_texts_are_read_no_further_than_the_last_wanted_word(lstm, sizes):
    word_ranks(lstm, random_texts([50, 40, 30]), [3, 55])
    assert sum(sizes) == 2 * 5  # texts 0 and 1, padded to 5


def test_a_long_text_is_read_in_windows_that_continue_the_state(make, lstm, sizes):
    data = random_texts([5, 300, 120])
    expected = word_ranks(make["lstm"](), data).ranks.tolist()
    assert word_ranks(lstm, data, batch_tokens=64).ranks.tolist() == expected
    assert max(sizes) <= 64


def test_a_text_longer_than_a_batch_is_cut_if_the_model_has_no_limit(make):
    model, data = make["llama"](), random_texts([9])
    model.longest = None
    cut = measure(model, data, [log_prob], batch_tokens=5)["log_probs"]
    pieces = measure(model, data, [log_prob], max_length=5)["log_probs"]
    uncut = measure(model, data, [log_prob])["log_probs"]
    np.testing.assert_allclose(cut, pieces, rtol=1e-5)
    np.testing.assert_allclose(cut[:5], uncut[:5], rtol=1e-5)
    assert abs(cut[6:] - uncut[6:]).max() > 1e-4


@pytest.mark.parametrize("name", ["lstm", "transformer", "table", "gpt2"])
def test_texts_are_read_after_the_given_context(shared, name):
    model, data = shared[name], random_texts([5, 0, 7])
    log_probs = measure(model, data, [log_prob], context=NO_CONTEXT)["log_probs"]
    expected = []
    for index in range(3):
        state = model.start(1, anywhere=True)
        document = torch.from_numpy(data.document(index).astype(np.int64))
        for token, following in itertools.pairwise(document):
            state = model.advance(state, token[None])
            expected.append(float(model.log_probs(state)[0, following]))
    np.testing.assert_allclose(log_probs, expected, rtol=1e-4)
    with pytest.raises(ValueError, match="first token of a text without context"):
        measure(model, data, [rank], [0], context=NO_CONTEXT)
    log_probs = measure(model, data, [log_prob], context=ReadContext(7))["log_probs"]
    longer = pack([[7, *data.document(index)] for index in range(3)])
    again = measure(model, longer, [log_prob], context=NO_CONTEXT)["log_probs"]
    np.testing.assert_allclose(log_probs, again, rtol=1e-5)


def test_a_context_must_leave_room_for_a_text(shared):
    with pytest.raises(ValueError, match="context must be shorter than the model's 12 tokens"):
        list(read(shared["gpt2"], random_texts([3]), context=ReadContext(3, length=12)))


def test_words_are_all_tokens_except_the_last_of_each_text(shared):
    data = EncodedCorpus(np.array([1, 2, 1, 1], np.int32), np.array([0, 3, 4]))
    assert word_positions(data).tolist() == [0, 1]
    assert list(read(shared["gpt2"], pack([]))) == []
    assert list(read(shared["gpt2"], random_texts([3]), [])) == []


def random_pair(rows, tokens, generator):
    keys, values = torch.randn(2, rows, 2, tokens, 3, generator=generator)
    return keys, values


def test_branching_states_equal_concatenation():
    rng = torch.Generator().manual_seed(0)
    keys, values = random_pair(4, 2, rng)
    states = [(KeysAndValues.of(keys, values), keys, values)]
    for _ in range(300):
        state, keys, values = states[int(torch.randint(len(states), (), generator=rng))]
        match int(torch.randint(4, (), generator=rng)):
            case 0:
                index = torch.randint(len(keys), (3,), generator=rng)
            case 1:
                index = slice(0, max(1, len(keys) - 1))
            case _:
                index = slice(None)
        keys, values = keys[index], values[index]
        more = random_pair(len(keys), int(torch.randint(1, 4, (), generator=rng)), rng)
        keys, values = torch.cat([keys, more[0]], 2), torch.cat([values, more[1]], 2)
        states.append((state[index].extended(*more), keys, values))
    assert all(torch.equal(state.read()[0], keys) for state, keys, _ in states)
    assert all(torch.equal(state.read()[1], values) for state, _, values in states)


def test_extending_a_state_rarely_copies_and_selecting_rows_never_does():
    rng, addresses = torch.Generator().manual_seed(0), set()
    state = KeysAndValues.of(*random_pair(3, 1, rng))
    for _ in range(64):
        state = state.extended(*random_pair(3, 1, rng))
        addresses.add(state.keys.data_ptr())
    assert state.length == 65
    assert len(addresses) <= 6
    assert state.nbytes <= 2 * 2 * 3 * 2 * 65 * 3 * 4
    state = KeysAndValues.of(*random_pair(6, 5, rng))
    rows = state[torch.tensor([3, 3, 1])]
    assert rows.keys is state.keys
    assert rows.nbytes == state.nbytes // 2
